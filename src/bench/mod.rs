//! Benchmarks that print a ratio with its reference measured in the same run.
