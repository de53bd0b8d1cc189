//! Goal: `docs/field-reports.md` stays true. Method: every test and every conformance vector that it names is looked
//! for in the tree.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Reports that the page answers for.
const REPORTS: usize = 90;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn page() -> String {
    std::fs::read_to_string(root().join("docs/field-reports.md")).unwrap()
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
}

/// `file: function` of every function that is named after a report.
fn named_tests() -> BTreeSet<String> {
    let mut files = Vec::new();
    for dir in ["src", "tests", "replay", "migrations"] {
        sources(&root().join(dir), &mut files);
    }
    let mut named = BTreeSet::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let short = file.strip_prefix(root()).unwrap().display().to_string();
        for part in text.split("fn c").skip(1) {
            let name: String = part.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            let bytes = name.as_bytes();
            if bytes.len() > 3 && bytes[..3].iter().all(u8::is_ascii_digit) && bytes[3] == b'_' {
                named.insert(format!("{short}: c{name}"));
            }
        }
    }
    named
}

/// Words between backticks.
fn quoted(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_report_has_its_row_and_an_answer() {
    let page = page();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| C")).collect();
    assert_eq!(rows.len(), REPORTS);
    for row in rows {
        let answer = row.trim_end_matches('|').rsplit(" | ").next().unwrap().trim();
        let tested = answer.contains(".rs`: ") || answer.contains(".rs: ") || answer.contains("vectors");
        let reasoned = answer.contains("aits for: ") || answer.contains("Cannot happen here");
        assert!(tested || reasoned, "{row}");
    }
}

#[test]
fn every_test_that_is_named_exists() {
    let (page, tree) = (page(), named_tests());
    let mut told = BTreeSet::new();
    for row in page.lines().filter(|line| line.starts_with("| C")) {
        let mut file = "";
        for word in quoted(row) {
            if let Some((file, name)) = word.split_once(".rs: ") {
                let text = std::fs::read_to_string(root().join(format!("{file}.rs"))).unwrap();
                assert!(text.contains(&format!("fn {name}(")), "{file}.rs has no {name}");
            } else if word.ends_with(".rs") {
                file = word;
            } else if word.starts_with('c') && word[1..].starts_with(|c: char| c.is_ascii_digit()) {
                told.insert(format!("{file}: {word}"));
            }
        }
    }
    let missing: Vec<_> = told.difference(&tree).collect();
    assert!(missing.is_empty(), "named, but not there: {missing:#?}");
}

#[test]
fn every_vector_that_is_named_exists() {
    for word in page().lines().filter(|line| line.starts_with("| C")).flat_map(quoted) {
        let Some((area, _)) = word.split_once('.') else { continue };
        let file = root().join(format!("tests/conformance/{area}.json"));
        if file.exists() {
            let text = std::fs::read_to_string(file).unwrap();
            assert!(text.contains(&format!("\"{word}\"")), "no vector {word}");
        }
    }
}
