//! Goal: who may import whom is what `docs/ARCHITECTURE.md` says. Method: its table is read, every source file is scanned
//! for paths (`crate::…`, `super::…`, names of packages), and what is not in the table fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Free for all but the kernel.
const FREE: [&str; 6] = ["std", "serde", "serde_json", "tempfile", "thiserror", "tracing"];
/// Free for the modules of the root package.
const FREE_IN_ROOT: [&str; 4] = ["bytes", "http", "tokio", "tokio_stream"];

/// A row of the table.
struct Rule {
    ours: BTreeSet<String>,
    outside: BTreeSet<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The table under "Allowed imports": unit, ours, outside; names in backticks.
fn table() -> BTreeMap<String, Rule> {
    let text = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    let section = text.split("## Allowed imports").nth(1).expect("the section Allowed imports");
    let section = section.split("\n## ").next().unwrap();
    let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<_>>();
    let mut rules = BTreeMap::new();
    for line in section.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        assert_eq!(cells.len(), 3, "{line}");
        let unit = names(cells[0]).pop_first().unwrap();
        let rule = Rule { ours: names(cells[1]), outside: names(cells[2]) };
        assert!(rules.insert(unit.clone(), rule).is_none(), "{unit} stands twice");
    }
    rules
}

/// The units: every package but the root one, and every module of that. With the source files of each.
fn units() -> BTreeMap<String, Vec<PathBuf>> {
    let mut units: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let packages = [
        ("weir-kernel", "src/kernel"),
        ("weir-log", "src/log"),
        ("weir-background", "src/background"),
        ("weir-config", "src/config"),
        ("weir-projection", "src/projection"),
        ("weir-graphql", "src/graphql"),
        ("weir-telemetry", "src/telemetry"),
        ("weir-migrations", "migrations"),
        ("weir-truth", "src/truth"),
        ("weir-replay", "replay"),
    ];
    for (name, dir) in packages {
        units.insert(name.to_owned(), sources(&root().join(dir)));
    }
    for entry in fs::read_dir(root().join("src")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if packages.iter().any(|(_, dir)| path == root().join(dir)) || name == "lib" {
            continue;
        }
        units.insert(name, if path.is_dir() { sources(&path) } else { vec![path] });
    }
    units
}

/// The Rust files below `dir`, without its tests, benches and build output.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !["tests", "benches", "target"].contains(&name) {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|ext| ext == "rs") && !name.ends_with("tests.rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Every package that a manifest of the workspace names as a dependency (not those for tests alone), as it stands in paths.
fn dependencies() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for manifest in [
        "Cargo.toml",
        "src/kernel/Cargo.toml",
        "src/log/Cargo.toml",
        "src/config/Cargo.toml",
        "src/projection/Cargo.toml",
        "src/graphql/Cargo.toml",
        "src/telemetry/Cargo.toml",
        "migrations/Cargo.toml",
        "src/truth/Cargo.toml",
        "replay/Cargo.toml",
    ] {
        let text = fs::read_to_string(root().join(manifest)).unwrap();
        let sections = text.split("\n[").filter(|section| section.starts_with("dependencies]"));
        for line in sections.flat_map(|section| section.lines().skip(1)) {
            if let Some((name, _)) = line
                .split_once(['.', ' ', '='])
                .filter(|(name, _)| !name.is_empty() && !name.starts_with('#'))
            {
                names.insert(name.replace('-', "_"));
            }
        }
    }
    assert!(names.contains("serde") && names.contains("tokio"), "{names:?}");
    names
}

/// The words and marks of a file, without comments, literals and the module of its unit tests.
fn tokens(text: &str) -> Vec<String> {
    let text = text.split("\n#[cfg(test)]\nmod tests").next().unwrap();
    let chars: Vec<char> = text.chars().collect();
    let (mut tokens, mut at) = (Vec::new(), 0);
    let starts = |at: usize, word: &str| chars[at..].iter().take(word.len()).copied().eq(word.chars());
    while at < chars.len() {
        let c = chars[at];
        if starts(at, "//") {
            while at < chars.len() && chars[at] != '\n' {
                at += 1;
            }
        } else if starts(at, "/*") {
            while at < chars.len() && !starts(at, "*/") {
                at += 1;
            }
            at += 2;
        } else if starts(at, "r#\"") || starts(at, "r\"") {
            let close = if starts(at, "r#\"") { "\"#" } else { "\"" };
            at += close.len() + 1;
            while at < chars.len() && !starts(at, close) {
                at += 1;
            }
            at += close.len();
        } else if c == '"' {
            at += 1;
            while at < chars.len() && chars[at] != '"' {
                at += if chars[at] == '\\' { 2 } else { 1 };
            }
            at += 1;
        } else if c == '\'' && (chars.get(at + 2) == Some(&'\'') || chars.get(at + 1) == Some(&'\\')) {
            at += 2;
            while at < chars.len() && chars[at] != '\'' {
                at += 1;
            }
            at += 1;
        } else if c.is_alphanumeric() || c == '_' {
            let start = at;
            while at < chars.len() && (chars[at].is_alphanumeric() || chars[at] == '_') {
                at += 1;
            }
            tokens.push(chars[start..at].iter().collect());
        } else if starts(at, "::") {
            tokens.push("::".to_owned());
            at += 2;
        } else {
            if !c.is_whitespace() {
                tokens.push(c.to_string());
            }
            at += 1;
        }
    }
    tokens
}

/// The names right after a path's `::`: one word, or those of a group.
fn heads(tokens: &[String]) -> Vec<String> {
    match tokens.first().map(String::as_str) {
        Some("{") => {
            let (mut depth, mut heads) = (0, Vec::new());
            for (at, token) in tokens.iter().enumerate() {
                match token.as_str() {
                    "{" => depth += 1,
                    "}" => depth -= 1,
                    _ if depth == 1 && matches!(tokens[at - 1].as_str(), "{" | ",") => {
                        heads.push(token.clone())
                    }
                    _ => {}
                }
                if depth == 0 {
                    break;
                }
            }
            heads
        }
        Some(word) => vec![word.to_owned()],
        None => Vec::new(),
    }
}

/// What a file imports: modules of the root package (by `crate` and `super`), and packages.
fn imports(file: &Path, in_root: bool, packages: &BTreeSet<String>) -> BTreeSet<String> {
    let tokens = tokens(&fs::read_to_string(file).unwrap());
    let below = file.strip_prefix(root().join("src")).unwrap_or(file);
    let mut depth = below.components().count();
    if file.file_stem().is_some_and(|stem| stem == "mod" || stem == "lib") {
        depth -= 1;
    }
    let here = |word: &str| tokens.windows(2).any(|pair| pair[0] == "mod" && pair[1] == word);
    let mut found = BTreeSet::new();
    for at in 0..tokens.len() {
        let path_start = at == 0 || tokens[at - 1] != "::";
        let is = |offset: usize, word: &str| tokens.get(at + offset).is_some_and(|token| token == word);
        if !path_start || !is(1, "::") {
            continue;
        }
        let word = tokens[at].as_str();
        if in_root && word == "crate" {
            found.extend(heads(&tokens[at + 2..]));
        } else if in_root && word == "super" {
            let ups = (0..).take_while(|n| is(2 * n, "super") && is(2 * n + 1, "::")).count();
            if ups >= depth {
                found.extend(heads(&tokens[at + 2 * ups..]));
            }
        } else if here(word) {
            // A module that is declared in this file hides a package of the same name.
        } else if packages.contains(word) || word == "std" || word == "weir" {
            found.insert(word.replace("weir_", "weir-"));
        }
    }
    found
}

#[test]
fn imports_are_those_of_the_table() {
    let (rules, units, packages) = (table(), units(), dependencies());
    let listed: BTreeSet<_> = rules.keys().collect();
    assert_eq!(listed, units.keys().collect(), "the table must list each package and each module of src/");
    let (mut wrong, mut files) = (Vec::new(), 0_u32);
    for (unit, rule) in &rules {
        let in_root = !unit.starts_with("weir-");
        let mut used = BTreeSet::new();
        for file in &units[unit] {
            files += 1;
            for import in imports(file, in_root, &packages) {
                let ours = units.contains_key(&import) || import == "weir";
                let allowed = if ours { &rule.ours } else { &rule.outside };
                let word = import.as_str();
                let free = FREE.contains(&word) && unit != "weir-kernel";
                let own = word == unit || free || (in_root && FREE_IN_ROOT.contains(&word));
                // A word that is neither a unit nor a package is an item of the root module itself.
                let known = ours || import == "std" || packages.contains(&import);
                if known && !own && !allowed.contains(&import) {
                    wrong.push(format!(
                        "{}: {unit} may not import {import}",
                        file.strip_prefix(root()).unwrap().display()
                    ));
                }
                used.insert(import);
            }
        }
        for idle in rule.ours.iter().filter(|name| !used.contains(*name)) {
            wrong.push(format!("docs/ARCHITECTURE.md: {unit} does not import {idle}"));
        }
    }
    assert!(files > 30, "only {files} files were read");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_scan_sees_every_form_of_a_path() {
    let text = "use crate::{engine::{self, Handle}, log};\n// use crate::not;\nlet x = \"crate::no\"; let c = '\"';\n\
                fn f(a: super::super::gateway::X) { tokio::spawn(crate::sim::run()) }\nuse weir_kernel::State;";
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.rs");
    fs::write(&file, text).unwrap();
    let tokens = tokens(text);
    assert!(!tokens.iter().any(|token| token == "not" || token == "no"));
    let packages = ["tokio".to_owned(), "weir_kernel".to_owned()].into();
    let found = imports(&file, true, &packages);
    for name in ["engine", "log", "sim", "tokio", "weir-kernel"] {
        assert!(found.contains(name), "{name} in {found:?}");
    }
    let deep = heads(&["{", "a", "::", "{", "b", ",", "c", "}", ",", "d", "}"].map(str::to_owned));
    assert_eq!(deep, ["a", "d"]);
}

#[test]
fn the_kernel_depends_on_nothing_but_what_the_table_says() {
    let allowed = &table()["weir-kernel"].outside;
    let text = fs::read_to_string(root().join("src/kernel/Cargo.toml")).unwrap();
    let section = text.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    for line in section.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let name = line.split(['.', ' ', '=']).next().unwrap().replace('-', "_");
        assert!(allowed.contains(&name), "the kernel may not depend on {name}");
    }
    let lib = fs::read_to_string(root().join("src/kernel/lib.rs")).unwrap();
    assert!(lib.contains("#![no_std]"));
}
