//! Goal: the dependency tree stays clear of the traps that are known. Method: Cargo.lock is read; an advisory database is not
//! at hand in every run, this file is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Package names with every version that is locked, and where each comes from.
fn locked() -> BTreeMap<String, Vec<(String, Option<String>)>> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.lock")).unwrap();
    let mut packages: BTreeMap<String, Vec<(String, Option<String>)>> = BTreeMap::new();
    for entry in text.split("[[package]]").skip(1) {
        let field = |key: &str| {
            let line = entry.lines().find(|line| line.starts_with(&format!("{key} = ")))?;
            Some(line.split('"').nth(1).unwrap().to_owned())
        };
        packages
            .entry(field("name").unwrap())
            .or_default()
            .push((field("version").unwrap(), field("source")));
    }
    assert!(packages.len() > 50 && packages.contains_key("weir-kernel"), "{} packages", packages.len());
    packages
}

fn versions(name: &str) -> Vec<String> {
    locked().remove(name).unwrap_or_default().into_iter().map(|(version, _)| version).collect()
}

fn numbers(version: &str) -> Vec<u64> {
    version.split(['-', '+']).next().unwrap().split('.').map(|part| part.parse().unwrap()).collect()
}

#[test]
fn the_storage_engine_and_the_codec_are_the_pinned_ones() {
    // 1.0 alphas of sled are another database; bincode 3.0.0 is a deliberate compile error, 1.x another format.
    assert_eq!(versions("sled"), ["0.34.7"]);
    assert_eq!(versions("bincode"), ["2.0.1"]);
}

#[test]
fn the_network_stack_has_one_version_of_each() {
    for name in ["tokio", "axum", "hyper", "http", "tower"] {
        assert_eq!(versions(name).len(), 1, "{name}: {:?}", versions(name));
    }
    for name in [
        "tonic",
        "prost",
        "h2",
        "tower-http",
        "opentelemetry",
        "http-body",
        "bytes",
        "serde",
        "serde_json",
        "zstd-sys",
    ] {
        assert!(versions(name).len() <= 1, "{name}: {:?}", versions(name));
    }
}

#[test]
fn packages_with_known_faults_are_not_in_the_tree() {
    for version in versions("lru") {
        assert!(numbers(&version) >= vec![0, 18, 2], "lru {version} is unsound, fixed in 0.18.2");
    }
    for version in versions("crossbeam-epoch") {
        assert!(numbers(&version) >= vec![0, 9, 21], "crossbeam-epoch {version}, fixed in 0.9.21");
    }
    for version in versions("h2") {
        assert!(numbers(&version) >= vec![0, 4, 20], "h2 {version}, fixed in 0.4.20");
    }
    // Archived, abandoned, or bringing a second copy of what is here.
    for name in ["serde_yaml", "atomic-polyfill", "madsim", "figment"] {
        assert!(versions(name).is_empty(), "{name} {:?}", versions(name));
    }
}

#[test]
fn every_package_is_ours_or_from_the_registry() {
    for (name, entries) in locked() {
        for (version, source) in entries {
            match source {
                None => {
                    assert!(name == "weir" || name.starts_with("weir-"), "{name} {version} has no source")
                }
                Some(source) => assert!(source.starts_with("registry+"), "{name} {version} is from {source}"),
            }
        }
    }
}
