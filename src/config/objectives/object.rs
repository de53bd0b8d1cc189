//! `InferenceObjective` objects of a file: one document or many, or lists of them, in either API group.
//!
//! Objects of other kinds are passed over, fields that decide nothing here are not looked at. A file is taken as a whole.

use crate::node::{Node, Origin, Value};
use crate::scalar::is_label;
use crate::yaml;

/// The API groups of the extension, as it is now and as it was before, and llm-d's own.
const GROUPS: [&str; 3] = ["inference.networking.k8s.io", "inference.networking.x-k8s.io", "llm-d.ai"];
const KIND: &str = "InferenceObjective";
/// The most objects of one file.
const OBJECTS_MAX: usize = 4_096;

/// One object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objective {
    /// `spec.poolRef.name`: the InferencePool that it concerns.
    pub pool: String,
    /// `metadata.name`.
    pub name: String,
    /// `spec.priority`; absent means 0.
    pub priority: i32,
    /// Where it stands in its file.
    pub line: u32,
}

/// Why a file is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}: found {found}, allowed: {allowed}")]
pub struct ObjectError {
    /// The line, from 1.
    pub line: u32,
    /// Where in the object.
    pub what: String,
    /// What was found.
    pub found: String,
    /// What is allowed.
    pub allowed: &'static str,
}

/// Reads the text of a file.
///
/// # Errors
/// The first thing in it that is not allowed; then nothing of it is taken.
pub fn read(text: &str) -> Result<Vec<Objective>, ObjectError> {
    let mut objects = Vec::new();
    for (from, document) in documents(text) {
        let node = yaml::parse(&document).map_err(|error| ObjectError {
            line: from + error.line.unwrap_or(1) - 1,
            what: "the document".to_owned(),
            found: error.message,
            allowed: "YAML",
        })?;
        take(&node, from, 0, &mut objects)?;
    }
    Ok(objects)
}

/// The documents of a text, each with the line that it begins at. A line that begins with `---` or `...` at its very
/// beginning is a marker wherever it stands (YAML 1.2, 9.1.2), also within what looks like a text of many lines.
fn documents(text: &str) -> Vec<(u32, String)> {
    let mut documents = vec![(1, String::new())];
    for (line, number) in text.split_inclusive('\n').zip(1..) {
        let bare = line.trim_end_matches(['\n', '\r']);
        let rest = match (bare.strip_prefix("---"), bare.strip_prefix("...")) {
            (Some(rest), _) if rest.is_empty() || rest.starts_with([' ', '\t']) => rest,
            (_, Some(rest)) if rest.trim().is_empty() => "",
            _ => {
                if let Some((_, document)) = documents.last_mut() {
                    document.push_str(line);
                }
                continue;
            }
        };
        // What stands behind the marker belongs to the document; where the marker was, there is space.
        documents
            .push((number, if rest.trim().is_empty() { "\n".to_owned() } else { format!("   {rest}\n") }));
    }
    documents
}

fn take(node: &Node, from: u32, depth: u32, objects: &mut Vec<Objective>) -> Result<(), ObjectError> {
    let at = |node: &Node| match node.origin {
        Origin::Line(line) => from + line.max(1) - 1,
        _ => from,
    };
    let refuse = |node: &Node, what: &str, allowed: &'static str| ObjectError {
        line: at(node),
        what: what.to_owned(),
        found: if node.value == Value::Null { "nothing".to_owned() } else { node.shown() },
        allowed,
    };
    if node.value == Value::Null {
        return Ok(());
    }
    if !matches!(node.value, Value::Map(_)) {
        return Err(refuse(node, "the document", "an object with apiVersion and kind"));
    }
    let kind = node.get("kind").and_then(plain).unwrap_or_default();
    let version = node.get("apiVersion").and_then(plain).unwrap_or_default();
    if let (Some(items), true, 0) = (node.get("items"), kind.ends_with("List"), depth) {
        if !matches!(items.value, Value::List(_)) {
            return Err(refuse(items, "items", "a list of objects"));
        }
        return items.items().iter().try_for_each(|item| take(item, from, 1, objects));
    }
    let group = version.split_once('/').map_or("", |(group, _)| group);
    if kind != KIND || !GROUPS.contains(&group) {
        return Ok(());
    }
    let field = |path: &str| path.split('.').try_fold(node, |node, key| node.get(key));
    let label = |path: &str| {
        const ALLOWED: &str = "text of 1 to 256 bytes without control characters";
        match field(path) {
            Some(found) => {
                let text = plain(found).filter(|text| is_label(text));
                text.map(str::to_owned).ok_or_else(|| refuse(found, path, ALLOWED))
            }
            None => Err(ObjectError {
                line: at(node),
                what: path.to_owned(),
                found: "nothing".to_owned(),
                allowed: ALLOWED,
            }),
        }
    };
    let (name, pool) = (label("metadata.name")?, label("spec.poolRef.name")?);
    for (path, known) in [("spec.poolRef.group", &GROUPS[..]), ("spec.poolRef.kind", &["InferencePool"])] {
        if let Some(found) = field(path).filter(|found| found.value != Value::Null)
            && !plain(found).is_some_and(|text| known.contains(&text))
        {
            return Err(refuse(found, path, "an InferencePool of either group"));
        }
    }
    let priority = match field("spec.priority") {
        None => 0,
        Some(Node { value: Value::Null, .. }) => 0,
        Some(found) => match &found.value {
            Value::Number(text) => text.parse().ok(),
            _ => None,
        }
        .ok_or_else(|| refuse(found, "spec.priority", "an integer from -2147483648 to 2147483647"))?,
    };
    if objects.len() == OBJECTS_MAX {
        return Err(refuse(node, "the file", "at most 4096 objectives"));
    }
    objects.push(Objective { pool, name, priority, line: at(node) });
    Ok(())
}

fn plain(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Text(text) | Value::Number(text) => Some(text),
        _ => None,
    }
}
