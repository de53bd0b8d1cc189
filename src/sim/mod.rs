//! Simulated model servers, driven by a pure model of a pool.
