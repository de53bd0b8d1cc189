//! Goal: sheddable streams that fill a pool are taken back for bursts of high priority, through the proxy and through the
//! real Envoy: relief within termination and grace of each decision, each victim's server sees the abort, and the log
//! verifies. Method: the bench that measures it, for a few seconds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "kept/mod.rs"]
mod kept;
#[path = "crash/replay.rs"]
mod replay;

use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// What a machine busy with other tests may add to a timer, in milliseconds.
const BUSY: f64 = 3_000.0;

fn figure(found: &Value, front: &str, name: &str, what: &str) -> f64 {
    let name = format!("eviction-live/{front}/{name}");
    let case = found["cases"].as_array().unwrap().iter().find(|case| case["name"] == name);
    case.unwrap_or_else(|| panic!("no {name}"))[what].as_f64().unwrap()
}

#[test]
fn running_requests_are_taken_back_through_the_proxy_and_through_envoy() {
    let dir = kept::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["bench", "eviction", "--live", "--json", "--seconds", "24", "--keep"])
        .arg(dir.path())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    println!("{found:#}");
    let mut fronts = vec!["proxy", "proxy-demand", "envoy"];
    if told.contains("envoy SKIPPED") {
        eprintln!("{told}");
        fronts.pop();
    }
    for front in fronts {
        let of = |name: &str| figure(&found, front, name, "value");
        assert!(of("decisions") >= 1.0 && of("aborts-seen") >= 1.0, "{front}: {told}");
        assert_eq!(of("revocations"), of("confirmed"), "{front}: one was not confirmed");
        let reached = figure(&found, front, "aborts-seen", "reference");
        assert_eq!(of("aborts-seen"), reached, "{front}: a server saw no abort");
        assert!(of("reclaims-seen") > 0.0, "{front}: no sample showed that one was gone");
        let (worst, bound) = (of("relief/worst"), figure(&found, front, "relief/worst", "reference"));
        assert!(worst <= bound + BUSY, "{front}: relief took {worst} ms of {bound}");
        replay::verify(&Path::new(dir.path()).join(front).join("data"));
    }
}
