//! Goal: what the fuzz targets are given stays read without a panic. Method: every seed of `fuzz/seeds` (examples of each
//! format, and whatever was found once) goes through its parser whole, cut at each place and with each byte changed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use weir::gateway::parsers::{ALL, Parser};

/// Seeds longer than this are cut and changed at fewer places.
const DENSE: usize = 200;

fn around(parser: Parser, seed: &[u8]) -> usize {
    let step = seed.len() / DENSE + 1;
    let mut runs = 1;
    parser(seed);
    for at in (0..seed.len()).step_by(step) {
        parser(&seed[..at]);
        parser(&seed[at..]);
        let mut changed = seed.to_vec();
        for byte in [seed[at] ^ 1, seed[at] ^ 0x80, 0, b'"', b'\n', 0xff] {
            changed[at] = byte;
            parser(&changed);
        }
        let doubled = [&seed[..at], &seed[at / 2..]].concat();
        parser(&doubled);
        runs += 9;
    }
    runs
}

#[test]
fn seeds_and_what_is_next_to_them_are_read_or_refused() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
    for (name, parser) in ALL {
        let files =
            std::fs::read_dir(seeds.join(name)).unwrap_or_else(|error| panic!("seeds of {name}: {error}"));
        let files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
        assert!(!files.is_empty(), "{name} has no seed");
        let runs: usize = files.iter().map(|file| around(parser, &std::fs::read(file).unwrap())).sum();
        assert!(runs > 100, "{name}: {runs}");
    }
}

/// Each target that is listed is one that the script runs.
#[test]
fn the_script_runs_every_target() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/run.sh");
    let script = std::fs::read_to_string(script).unwrap();
    let list = script.split("targets=(").nth(2).unwrap().split(')').next().unwrap();
    assert_eq!(list.split_whitespace().collect::<Vec<_>>(), ALL.map(|(name, _)| name));
}
