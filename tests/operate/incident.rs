//! An incident of the demo becomes a test of settings: the logged decision, and another one under other settings.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// Bands of the demo, as a path of settings counts them.
const BANDS: [i64; 3] = [100, 0, -10];
/// Reasons to be shed, and the setting that would have been kinder.
const KINDER: [(&str, &str); 2] =
    [("EvictedTTL", "defaultRequestTTL=600s"), ("RejectedCapacity", "maxRequests=100000")];

fn replay(binary: &Path, dir: &Path, args: &[&str]) -> Output {
    Command::new(binary).args(args).current_dir(dir).output().unwrap()
}

#[test]
fn a_shed_request_of_the_demo_is_shed_again_and_not_under_other_settings() {
    let Some(binary) = super::replay::binary() else { return };
    let dir = crate::kept::tempdir().unwrap();
    let demo = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["demo", "--json", "--seconds", "14", "--data", "data"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(demo.status.success(), "{}", super::said(&demo));

    let rows = replay(&binary, dir.path(), &["export", "--data", "data", "--what", "requests"]);
    let rows: Vec<Value> = String::from_utf8(rows.stdout)
        .unwrap()
        .lines()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect();
    let mut tried = 0;
    for (outcome, kinder) in KINDER {
        let Some(shed) = rows.iter().find(|row| row["outcome"] == outcome) else { continue };
        tried += 1;
        // The form that answers and every other tool have.
        let id = format!("default-{}", shed["request"]);
        let made = replay(
            &binary,
            dir.path(),
            &["scenario", "from-log", "--data", "data", "--request", &id, "-o", "incident.yaml"],
        );
        assert!(made.status.success(), "{id}: {}", super::said(&made));
        let again = replay(&binary, dir.path(), &["scenario", "incident.yaml"]);
        assert!(again.status.success(), "{id}: {}", super::said(&again));
        let band = BANDS.iter().position(|band| shed["priority"] == *band).unwrap();
        let set = format!("priorityBands[{band}].{kinder}");
        let other = replay(&binary, dir.path(), &["scenario", "incident.yaml", "--set", &set]);
        let said = super::said(&other);
        assert_eq!(other.status.code(), Some(1), "{id} under {set}: {said}");
        assert!(said.contains("FAIL") && said.contains(outcome), "{id} under {set}: {said}");
    }
    assert!(tried > 0, "nothing was shed among {} requests", rows.len());
}
