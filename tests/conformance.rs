//! Conformance: facts about llm-d-router's flow control as data, run against the kernel and the configuration loader.
//!
//! `WEIR_CONFORMANCE_DIR` points it at another folder of the same form. A first argument that is no option chooses
//! the vectors whose id contains it. Prints a line per failure, a summary, and exits with 1 if anything fails.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "conformance_harness/mod.rs"]
mod harness;

use harness::Verdict;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let folder = std::env::var_os("WEIR_CONFORMANCE_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/conformance"), PathBuf::from);
    let verdicts = match harness::verdicts(&folder, &filter) {
        Ok(verdicts) => verdicts,
        Err(error) => {
            eprintln!("the vectors cannot be read: {error}");
            return ExitCode::FAILURE;
        }
    };
    let (mut agree, mut deviate, mut fail) = (0, 0, 0);
    let mut skipped: BTreeMap<&str, u32> = BTreeMap::new();
    for (id, verdict) in &verdicts {
        match verdict {
            Verdict::Agrees => agree += 1,
            Verdict::Deviates => deviate += 1,
            Verdict::Skipped(why) => *skipped.entry(why).or_default() += 1,
            Verdict::Fails(why) => {
                fail += 1;
                println!("FAIL {id}: {why}");
            }
        }
    }
    for (why, count) in &skipped {
        println!("skipped {count}: {why}");
    }
    let (all, left_out) = (verdicts.len(), skipped.values().sum::<u32>());
    println!("{all} vectors: {agree} agree, {deviate} deviate as listed, {left_out} skipped, {fail} fail");
    println!("{} passed, {fail} failed", agree + deviate);
    if fail == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
