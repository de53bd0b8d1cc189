//! The document as a tree in which every value knows where it came from.
//!
//! Not here: YAML itself (`yaml`), and what any key means (`tables`).

use serde_json::Value as Json;
use std::fmt;
use std::sync::Arc;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nowhere: it is the built-in default.
    Default,
    /// A line (from 1) of the file.
    Line(u32),
    /// An environment variable, by its name.
    Env(Arc<str>),
    /// Handed over by a program, without a file.
    Given,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::Line(line) => write!(f, "line {line}"),
            Origin::Env(name) => write!(f, "env {name}"),
            Origin::Given => f.write_str("given"),
        }
    }
}

/// One value and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What stands there.
    pub value: Value,
    /// Where it stands.
    pub origin: Origin,
}

/// A value of the document. Numbers keep the digits as written, so that `1.0`, `1e3` and `1` stay apart.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing, `~` or `null`: the same as not being there.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as written.
    Number(String),
    /// Any other scalar.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A map in the order of the file; a key that stands twice is in it twice.
    Map(Vec<Entry>),
}

/// One key of a map with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key stands.
    pub origin: Origin,
    /// Its value.
    pub node: Node,
}

impl Node {
    /// A node from a program's own JSON.
    pub fn from_json(json: &Json) -> Node {
        let value = match json {
            Json::Null => Value::Null,
            Json::Bool(b) => Value::Bool(*b),
            Json::Number(n) => Value::Number(n.to_string()),
            Json::String(s) => Value::Text(s.clone()),
            Json::Array(items) => Value::List(items.iter().map(Node::from_json).collect()),
            Json::Object(map) => Value::Map(
                map.iter()
                    .map(|(key, json)| Entry {
                        key: key.clone(),
                        origin: Origin::Given,
                        node: Node::from_json(json),
                    })
                    .collect(),
            ),
        };
        Node { value, origin: Origin::Given }
    }

    /// An empty map that is nowhere in the file.
    pub fn empty_map(origin: Origin) -> Node {
        Node { value: Value::Map(Vec::new()), origin }
    }

    /// The value under `key`, the first one if it stands twice; `None` too if this is not a map or the value is null.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.node).filter(|node| node.value != Value::Null)
    }

    /// The entry under `key`, null or not.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    /// The entries of a map; empty for anything else.
    pub fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The items of a list; empty for anything else.
    pub fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// What stands there, in a few words, for a message.
    pub fn shown(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Bool(b) => b.to_string(),
            Value::Number(n) => clip(n),
            Value::Text(t) => format!("\"{}\"", clip(&t.escape_debug().to_string())),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a section".to_owned(),
        }
    }

    /// The same tree with another origin throughout.
    pub fn with_origin(mut self, origin: &Origin) -> Node {
        self.origin = origin.clone();
        match &mut self.value {
            Value::List(items) => {
                *items = std::mem::take(items).into_iter().map(|item| item.with_origin(origin)).collect();
            }
            Value::Map(entries) => {
                for entry in entries {
                    entry.origin = origin.clone();
                    let node = std::mem::replace(
                        &mut entry.node,
                        Node { value: Value::Null, origin: origin.clone() },
                    );
                    entry.node = node.with_origin(origin);
                }
            }
            _ => {}
        }
        self
    }
}

/// At most 64 characters, so that a message stays one line.
fn clip(text: &str) -> String {
    match text.char_indices().nth(64) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text.to_owned(),
    }
}
