//! `weir-replay`: re-runs decision logs.

fn main() {}
