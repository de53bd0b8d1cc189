//! Drives a target with arrivals from a trace or a rate, open loop.
