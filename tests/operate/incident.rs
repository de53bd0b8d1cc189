//! An incident of the demo becomes a test of settings: the logged decision, and another one under other settings.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// Bands of the demo, as a path of settings counts them.
const BANDS: [i64; 3] = [100, 0, -10];
/// Reasons to be shed, and the setting that would have been kinder.
const KINDER: [(&str, &str); 2] =
    [("EvictedTTL", "defaultRequestTTL=600s"), ("RejectedCapacity", "maxRequests=100000")];

/// Requests of an outcome that are tried at the most.
const LOOK: usize = 8;

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
        // The form that answers and every other tool have.
        let number = |row: &Value| format!("default-{}", row["request"]);
        let of_outcome: Vec<&Value> =
            rows.iter().filter(|row| row["outcome"] == outcome).take(LOOK).collect();
        if of_outcome.is_empty() {
            continue;
        }
        tried += 1;
        // A scenario has the pool's state and not each of its samples: one that was shed a moment before it would have
        // been admitted may not be shed again, and then the command says so.
        let gives_back = |row: &&&Value| {
            let id = number(row);
            let args = ["scenario", "from-log", "--data", "data", "--request", &id, "-o", "incident.yaml"];
            let made = replay(&binary, dir.path(), &args);
            let said = super::said(&made);
            assert!(
                made.status.success() || said.contains("does NOT give back what was logged"),
                "{id}: {said}"
            );
            made.status.success()
        };
        let shed = of_outcome.iter().find(gives_back);
        let shed = shed.unwrap_or_else(|| panic!("none of {} of {outcome} is given back", of_outcome.len()));
        let id = number(shed);
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
