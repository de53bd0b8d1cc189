//! Goal: what is predicted from a log is what then happens. Method: the whole matrix of `weir-replay fidelity` on real
//! arrivals, three times those minutes that the demo has. Figures of the whole hour are in `docs/replay.md`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::process::Command;
use weir_kernel::Micros;
use weir_log::describe::{parse_time, show_time};

const TIMES: u64 = 3;
/// Between the last arrival and the first of the next time.
const PAUSE: Micros = Micros::from_secs(30);

/// The demo's arrivals, one time after the other.
fn trace() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/demo/azure-code-excerpt.csv");
    let text = std::fs::read_to_string(file).unwrap();
    let (header, rows) = text.split_once('\n').unwrap();
    let rows: Vec<(Micros, &str)> = rows
        .lines()
        .map(|row| {
            let (at, tokens) = row.split_once(',').unwrap();
            (parse_time(&at.replace(' ', "T").chars().take(26).collect::<String>()).unwrap(), tokens)
        })
        .collect();
    let length = rows.last().unwrap().0.since(rows[0].0) + PAUSE;
    let mut out = format!("{header}\n");
    for time in 0..TIMES {
        for (at, tokens) in &rows {
            let at = show_time(*at + Micros(length.0 * time));
            out += &format!("{},{tokens}\n", at.trim_end_matches('Z').replace('T', " "));
        }
    }
    out
}

#[test]
fn predictions_hold_on_real_arrivals_and_equal_settings_are_exact() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.csv");
    std::fs::write(&file, trace()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_weir-replay"))
        .args(["fidelity", "--draws", "2", "--trace"])
        .arg(&file)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("a-a rows: exactly equal"), "{text}");
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("fidelity: ") && last.ends_with(" of 8 rows hold"), "{last}");
    println!("{last}");
}
