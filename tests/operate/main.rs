//! Goal: what operators look at is true, and what `deploy/` holds works. Method: the binary beside its log, and the tools
//! that read these files, where they are at hand.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod counters;
mod deploy;
mod figures;
mod incident;
#[path = "../kept/mod.rs"]
mod kept;
mod openapi;
mod prometheus;
mod pseudonyms;
#[path = "../crash/replay.rs"]
#[allow(dead_code)]
mod replay;
#[path = "../traces/rig.rs"]
#[allow(dead_code)]
mod rig;

use std::path::{Path, PathBuf};

/// A file of the repository.
fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(file(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The files of a folder with one of these ends, by path within the repository.
fn files(folder: &str, end: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(file(folder)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(end) {
            found.push(format!("{folder}/{name}"));
        }
    }
    found.sort();
    assert!(!found.is_empty(), "{folder} has no {end}");
    found
}

/// Runs a tool; `None`, said loudly, where it is not there.
fn tool(program: &str, args: &[&str], input: &[u8]) -> Option<std::process::Output> {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let spawned = Command::new(program)
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    match spawned {
        Ok(mut child) => {
            // One that reads nothing may be gone already.
            let _ = child.stdin.take().unwrap().write_all(input);
            Some(child.wait_with_output().unwrap())
        }
        Err(error) => {
            eprintln!("SKIPPED: {program} {}: {error}", args.join(" "));
            None
        }
    }
}

/// What a tool said.
fn said(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
