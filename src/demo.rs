//! The service, a simulated pool and a load together on loopback.
