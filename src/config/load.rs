//! From a file, a text or a program's own document to what holds.

use crate::effective::Effective;
use crate::env::overlay;
use crate::gates;
use crate::node::{Node, Origin, Value};
use crate::pool::{self, Source};
use crate::report::{Mistake, MistakeKind, Mistakes, Notice};
use crate::section::{Reading, Section};
use crate::service;
use crate::table::Kind;
use crate::tables::ROOT;
use crate::yaml;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The file that is read when none is named.
pub const DEFAULT_FILE: &str = "weir.yaml";
/// The pool that llm-d's keys at the top apply to.
pub const DEFAULT_POOL: &str = "default";

/// Loads the file that is named, else `./weir.yaml` if there is one, else the built-in defaults; `env` is laid over it.
///
/// # Errors
/// Every mistake at once, or that the file cannot be read.
pub fn load(
    file: Option<&Path>,
    env: impl IntoIterator<Item = (String, String)>,
) -> Result<Effective, Mistakes> {
    let found = match file {
        Some(file) => Some(file.to_owned()),
        None => Some(PathBuf::from(DEFAULT_FILE)).filter(|file| file.exists()),
    };
    let Some(file) = found else { return resolve(empty(), env) };
    let document = document_of(&file)?;
    let nothing = document.value == Value::Null;
    let mut effective = resolve_of(file, document, env)?;
    if nothing {
        let path = effective.file.iter().map(|file| file.display().to_string()).collect();
        let text = "nothing stands in the file: the built-in defaults hold".to_owned();
        effective.warnings.push(Notice { path, text });
    }
    Ok(effective)
}

/// Loads the file once more, for a service that runs by it: a file that says nothing is then not meant as settings. It
/// is perhaps being written.
///
/// # Errors
/// As [`load`], or nothing stands in the file.
pub fn load_again(
    file: &Path,
    env: impl IntoIterator<Item = (String, String)>,
) -> Result<Effective, Mistakes> {
    let document = document_of(file)?;
    if document.value == Value::Null {
        let allowed = "allowed: a document with settings; {} for the built-in defaults";
        let list = vec![whole("nothing stands in the file", allowed, Origin::Given)];
        return Err(Mistakes { file: Some(file.display().to_string()), list });
    }
    resolve_of(file.to_owned(), document, env)
}

/// The document in this file.
fn document_of(file: &Path) -> Result<Node, Mistakes> {
    let named = |list| Mistakes { file: Some(file.display().to_string()), list };
    let unread = |found| named(vec![whole(found, "a readable file of UTF-8 text", Origin::Given)]);
    parsed(&read(file).map_err(unread)?).map_err(|mistakes| named(mistakes.list))
}

fn resolve_of(
    file: PathBuf,
    document: Node,
    env: impl IntoIterator<Item = (String, String)>,
) -> Result<Effective, Mistakes> {
    match resolve(document, env) {
        Ok(effective) => Ok(Effective { file: Some(file), ..effective }),
        Err(mistakes) => Err(Mistakes { file: Some(file.display().to_string()), ..mistakes }),
    }
}

/// Resolves a YAML text; `env` is laid over it.
///
/// # Errors
/// Every mistake at once; for text that is not YAML, that alone.
pub fn from_text(text: &str, env: impl IntoIterator<Item = (String, String)>) -> Result<Effective, Mistakes> {
    resolve(parsed(text)?, env)
}

fn parsed(text: &str) -> Result<Node, Mistakes> {
    yaml::parse(text).map_err(|error| {
        let origin = error.line.map_or(Origin::Given, Origin::Line);
        Mistakes { file: None, list: vec![whole(error.message, "allowed: one YAML document", origin)] }
    })
}

/// Resolves a document; `env` is laid over it.
///
/// # Errors
/// Every mistake at once.
pub fn resolve(
    mut document: Node,
    env: impl IntoIterator<Item = (String, String)>,
) -> Result<Effective, Mistakes> {
    let mut reading = Reading::default();
    if document.value == Value::Null {
        document = empty();
    }
    overlay(&mut document, env, &mut reading.report);
    let root = Section::open(&mut reading, Some(&document), "", &ROOT);
    for setting in ROOT.settings {
        if matches!(setting.kind, Kind::Foreign) && root.node(setting.key).is_some() {
            reading.report.notice(setting.key, "is llm-d's own section and is not read");
        }
    }
    let gates = gates::read(&mut reading, &root);
    let weir = root.section(&mut reading, "weir");
    let (settings, base) = service::read(&mut reading, &weir);

    let named = root.names(&mut reading, "pools");
    let llm_d_keys = ["flowControl", "plugins", "saturationDetector", "featureGates"];
    let at_top = llm_d_keys.into_iter().find(|key| root.node(key).is_some());
    let mut sources: BTreeMap<&str, Option<&Node>> =
        named.iter().map(|(name, _, node)| (*name, Some(*node))).collect();
    for (name, path, node) in &named {
        if !is_pool_name(name) {
            let allowed = "1 to 64 letters, digits, dots, dashes or underscores";
            reading.report.value(path, &node.origin, format!("the name \"{name}\""), allowed);
        }
    }
    if sources.is_empty() {
        sources.insert(DEFAULT_POOL, None);
    } else if let (Some(key), false) = (at_top, sources.contains_key(DEFAULT_POOL)) {
        let text = format!(
            "{key} at the top applies to the pool {DEFAULT_POOL}, which is not under pools: it is added"
        );
        reading.report.warn(key, text);
        sources.insert(DEFAULT_POOL, None);
    }
    let mut pools = BTreeMap::new();
    for (name, node) in sources {
        let top = (name == DEFAULT_POOL).then_some(&root);
        let source = Source { name, node, top, gates };
        let mut pool = pool::read(&mut reading, &source, &base);
        pool.objectives.clone_from(&settings.objectives);
        pools.insert(name.to_owned(), pool);
    }
    let Reading { report, rows } = reading;
    if !report.mistakes.is_empty() {
        return Err(Mistakes { file: None, list: in_order(report.mistakes) });
    }
    Ok(Effective { file: None, settings, pools, rows, warnings: report.warnings, notices: report.notices })
}

/// By line, then as found; the same mistake once.
fn in_order(mut list: Vec<Mistake>) -> Vec<Mistake> {
    list.sort_by_key(|mistake| match &mistake.origin {
        Origin::Line(line) => *line,
        Origin::Default | Origin::Given | Origin::Env(_) => u32::MAX,
    });
    let mut seen: Vec<Mistake> = Vec::new();
    for mistake in list {
        if !seen.contains(&mistake) {
            seen.push(mistake);
        }
    }
    seen
}

fn empty() -> Node {
    Node::empty_map(Origin::Default)
}

fn is_pool_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    !name.is_empty() && name.len() <= 64 && name.bytes().all(allowed) && !name.starts_with('.')
}

fn whole(found: impl Into<String>, allowed: &str, origin: Origin) -> Mistake {
    Mistake {
        kind: MistakeKind::Document,
        path: String::new(),
        subject: None,
        found: found.into(),
        allowed: allowed.to_owned(),
        origin,
    }
}

/// Reads the file, not more than a document may have.
fn read(file: &Path) -> Result<String, String> {
    let size = fs::metadata(file).map_err(|error| error.to_string())?.len();
    if size > yaml::TEXT_BYTES_MAX as u64 {
        return Err(format!("the file has {size} bytes, allowed: at most {}", yaml::TEXT_BYTES_MAX));
    }
    let bytes = fs::read(file).map_err(|error| error.to_string())?;
    String::from_utf8(bytes)
        .map_err(|error| format!("not UTF-8 at byte {}", error.utf8_error().valid_up_to()))
}
