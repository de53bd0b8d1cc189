//! Goal: `weir config` as an operator uses it: exit codes, every mistake at once, what holds and why.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn weir(dir: &Path, args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.current_dir(dir).arg("config").args(args);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WEIR__")) {
        command.env_remove(name);
    }
    command.envs(env.iter().copied()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn check_tells_every_mistake_and_fails() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("bad.yaml"),
        "flowControl:\n  maxRequest: 1\n  defaultRequestTTL: -1s\nweir: {listen: x}\n",
    )
    .unwrap();
    let out = weir(dir.path(), &["check", "bad.yaml"], &[]);
    assert_eq!(out.status.code(), Some(1));
    let told = text(&out.stderr);
    assert!(told.starts_with("3 mistakes in bad.yaml\n"), "{told}");
    for words in [
        "line 2: flowControl.maxRequest: unknown key",
        "line 3: flowControl.defaultRequestTTL",
        "line 4: weir.listen",
    ] {
        assert!(told.contains(words), "{told}");
    }
    assert_eq!(weir(dir.path(), &["check", "none.yaml"], &[]).status.code(), Some(1));
}

#[test]
fn c089_the_service_does_not_start_on_a_misspelled_field() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("bad.yaml"), "pools: {p: {flowControl: {maxRequest: 1}}}\n").unwrap();
    let data = dir.path().join("data");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.current_dir(dir.path()).args([
        "serve",
        "--config",
        "bad.yaml",
        "--listen",
        "127.0.0.1:0",
        "--data",
    ]);
    let out = command.arg(&data).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    let (told, want) = (text(&out.stderr), "unknown key; did you mean pools.p.flowControl.maxRequests?");
    assert!(told.contains("line 1: pools.p.flowControl.maxRequest: ") && told.contains(want), "{told}");
    assert!(!data.exists(), "nothing is touched before the settings are valid");
}

#[test]
fn check_passes_with_warnings_unless_strict() {
    let dir = tempfile::tempdir().unwrap();
    let out = weir(dir.path(), &["check"], &[]);
    assert!(out.status.success());
    assert_eq!(text(&out.stdout), "built-in defaults: ok, pools: 1, warnings: 0\n");
    // ./weir.yaml is found without being named.
    let idle = "pools: {default: {controller: {expiryCleanupInterval: 2s}}}\n";
    fs::write(dir.path().join("weir.yaml"), idle).unwrap();
    let out = weir(dir.path(), &["check"], &[]);
    assert!(out.status.success());
    assert_eq!(text(&out.stdout), "weir.yaml: ok, pools: 1, warnings: 1\n");
    let told = text(&out.stderr);
    assert!(
        told.starts_with("warning: pools.default.controller.expiryCleanupInterval: has no effect"),
        "{told}"
    );
    assert_eq!(weir(dir.path(), &["check", "--strict"], &[]).status.code(), Some(1));
}

#[test]
fn explain_names_the_source_of_each_value() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("w.yaml"), "flowControl:\n  maxBytes: 1Gi\n").unwrap();
    let env = [("WEIR__FLOWCONTROL__MAXREQUESTS", "1k")];
    let out = weir(dir.path(), &["explain", "w.yaml"], &env);
    assert!(out.status.success());
    let table = text(&out.stdout);
    let row = |path: &str| -> Vec<String> {
        let line = table.lines().find(|line| line.starts_with(&format!("{path} "))).expect(path);
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    assert_eq!(row("flowControl.maxBytes"), ["flowControl.maxBytes", "1073741824", "w.yaml:2"]);
    assert_eq!(
        row("flowControl.maxRequests"),
        ["flowControl.maxRequests", "1000", "env WEIR__FLOWCONTROL__MAXREQUESTS"]
    );
    assert_eq!(row("flowControl.defaultRequestTTL"), ["flowControl.defaultRequestTTL", "1m0s", "default"]);
    let out = weir(dir.path(), &["explain", "w.yaml", "--json"], &env);
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let rows = json["settings"].as_array().unwrap();
    let bytes = rows.iter().find(|row| row["path"] == "flowControl.maxBytes").unwrap();
    assert_eq!((&bytes["value"], &bytes["source"]), (&1_073_741_824_u64.into(), &"w.yaml:2".into()));
}
