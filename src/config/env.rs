//! Environment variables laid over a document: `WEIR__` and the path, `__` between its parts, in any case.
//!
//! `WEIR__WEIR__LISTEN`, `WEIR__FLOWCONTROL__MAXREQUESTS`, `WEIR__POOLS__DEFAULT__FLOWCONTROL__PRIORITYBANDS__0__MAXREQUESTS`.
//! Keys match without regard to case and punctuation; lists take an index; a value is YAML, and an empty one removes what the
//! file says. Not here: reading the process's environment (the caller hands it over).

use crate::nearest::{nearest, normal};
use crate::node::{Entry, Node, Origin, Value};
use crate::report::{Mistake, MistakeKind, Report};
use crate::table::{Kind, Table};
use crate::tables::{PLUGIN_TYPES, ROOT};
use crate::yaml;

/// What every variable of the configuration starts with.
pub const PREFIX: &str = "WEIR__";

/// Lays every variable that starts with [`PREFIX`] over `document`. One that names no setting is a mistake.
pub fn overlay(document: &mut Node, vars: impl IntoIterator<Item = (String, String)>, report: &mut Report) {
    let mut ours: Vec<(String, String)> =
        vars.into_iter().filter(|(name, _)| name.to_ascii_uppercase().starts_with(PREFIX)).collect();
    // In the order of names, so that list indices come in order and messages are the same in each run.
    ours.sort();
    if ours.is_empty() {
        return;
    }
    for (name, text) in ours {
        let origin = Origin::Env(name.as_str().into());
        let value = match yaml::parse(&text) {
            Ok(node) => node.with_origin(&origin),
            Err(_) => Node { value: Value::Text(text), origin: origin.clone() },
        };
        let parts: Vec<&str> = name[PREFIX.len()..].split("__").collect();
        if let Err((path, allowed)) = set(document, Place::Section(&ROOT), &parts, value, "", &origin) {
            report.mistakes.push(Mistake {
                kind: MistakeKind::UnknownKey,
                path,
                subject: None,
                found: name,
                allowed,
                origin,
            });
        }
    }
}

/// What the node at hand is, so that the next part can be read.
#[derive(Clone, Copy)]
enum Place {
    Section(&'static Table),
    List(&'static Table),
    Names(Option<&'static Table>),
    Texts,
    Parameters,
    Leaf,
}

type Refused = (String, String);

fn set(
    node: &mut Node,
    place: Place,
    parts: &[&str],
    value: Node,
    path: &str,
    origin: &Origin,
) -> Result<(), Refused> {
    let Some((part, rest)) = parts.split_first() else {
        *node = value;
        return Ok(());
    };
    match place {
        Place::Section(table) => {
            let known = || table.settings.iter().map(|setting| setting.key);
            let Some(setting) = table.settings.iter().find(|setting| normal(setting.key) == normal(part))
            else {
                let allowed = match nearest(part, known()) {
                    Some(near) => format!("did you mean {}?", join(path, near)),
                    None => format!("known here: {}", known().collect::<Vec<_>>().join(", ")),
                };
                return Err((join(path, part), allowed));
            };
            let child = child(node, setting.key, path, origin)?;
            set(child, place_of(&setting.kind), rest, value, &join(path, setting.key), origin)
        }
        Place::Names(table) => {
            let existing = node.entries().iter().find(|entry| normal(&entry.key) == normal(part));
            let key = existing.map_or_else(|| part.to_ascii_lowercase(), |entry| entry.key.clone());
            let child = child(node, &key, path, origin)?;
            set(child, table.map_or(Place::Leaf, Place::Section), rest, value, &join(path, &key), origin)
        }
        Place::Parameters => {
            let tables = PLUGIN_TYPES.iter().flat_map(|known| known.parameters.settings);
            let key =
                tables.map(|setting| setting.key).find(|key| normal(key) == normal(part)).unwrap_or(part);
            let next = if key == "ceilings" { Place::Names(None) } else { Place::Leaf };
            set(child(node, key, path, origin)?, next, rest, value, &join(path, key), origin)
        }
        Place::List(table) => {
            let item = item(node, part, path, origin)?;
            set(item, Place::Section(table), rest, value, &format!("{path}[{part}]"), origin)
        }
        Place::Texts => {
            let item = item(node, part, path, origin)?;
            set(item, Place::Leaf, rest, value, &format!("{path}[{part}]"), origin)
        }
        Place::Leaf => Err((join(path, part), format!("{path} has nothing below it"))),
    }
}

fn place_of(kind: &Kind) -> Place {
    match kind {
        Kind::Section(table) => Place::Section(table),
        Kind::List(table) => Place::List(table),
        Kind::Map(table) => Place::Names(Some(table)),
        Kind::Numbers { .. } | Kind::Fractions(_) => Place::Names(None),
        Kind::Texts => Place::Texts,
        Kind::Parameters => Place::Parameters,
        _ => Place::Leaf,
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The value under `key`, made if it is not there; what is no map becomes one.
fn child<'n>(node: &'n mut Node, key: &str, path: &str, origin: &Origin) -> Result<&'n mut Node, Refused> {
    if !matches!(node.value, Value::Map(_)) {
        *node = Node::empty_map(origin.clone());
    }
    let refused = (join(path, key), format!("{path} has nothing below it"));
    let Value::Map(entries) = &mut node.value else { return Err(refused) };
    let at = entries.iter().position(|entry| entry.key == key).unwrap_or(entries.len());
    if at == entries.len() {
        let node = Node { value: Value::Null, origin: origin.clone() };
        entries.push(Entry { key: key.to_owned(), origin: origin.clone(), node });
    }
    entries.get_mut(at).map(|entry| &mut entry.node).ok_or(refused)
}

/// The item at an index, made if it is the next one.
fn item<'n>(node: &'n mut Node, part: &str, path: &str, origin: &Origin) -> Result<&'n mut Node, Refused> {
    if !matches!(node.value, Value::List(_)) {
        *node = Node { value: Value::List(Vec::new()), origin: origin.clone() };
    }
    let refused = |len: usize| (format!("{path}[{part}]"), format!("allowed: an index from 0 to {len}"));
    let Value::List(items) = &mut node.value else { return Err(refused(0)) };
    let at: usize = part.parse().map_err(|_| refused(items.len()))?;
    if at > items.len() {
        return Err(refused(items.len()));
    }
    if at == items.len() {
        items.push(Node { value: Value::Null, origin: origin.clone() });
    }
    Ok(&mut items[at])
}
