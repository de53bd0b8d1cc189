//! The service, a simulated pool and a load together on loopback.

/// Real arrivals, bundled; see `demo/NOTICE.md` for where they come from.
pub const TRACE: &str = include_str!("demo/azure-code-excerpt.csv");
