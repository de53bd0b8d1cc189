//! YAML text to a tree of nodes that know their lines. Bounded in size, depth, nodes and aliases.
//!
//! Not here: what a key means, and keys that stand twice (both are kept, the reader of the section names both places).

use crate::node::{Entry, Node, Origin, Value};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};
use std::fmt;

/// The largest configuration text that is read, in bytes.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// The most nodes (scalars, lists, maps) that a document may have, aliases expanded.
const NODES_MAX: usize = 50_000;
/// The deepest nesting.
const DEPTH_MAX: usize = 32;

/// Why a text is not a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct YamlError {
    /// What is wrong, without the place.
    pub message: String,
    /// The line, from 1, where it is known.
    pub line: Option<u32>,
}

/// Parses one YAML document. An empty text is an empty document (null).
///
/// # Errors
/// Text that is too large, not YAML, more than one document, or beyond the bounds on depth, nodes and aliases.
pub fn parse(text: &str) -> Result<Node, YamlError> {
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("the text has {} bytes, allowed: at most {TEXT_BYTES_MAX} bytes", text.len());
        return Err(YamlError { message, line: None });
    }
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        null_as_string: true,
        with_snippet: false,
        budget: serde_saphyr::budget! { max_nodes: NODES_MAX, max_depth: DEPTH_MAX, max_documents: 2 },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: NODES_MAX,
            max_replay_stack_depth: 16,
        },
    };
    match serde_saphyr::from_str_with_options::<Spanned<Raw>>(text, options) {
        Ok(raw) => Ok(node(raw, text)),
        Err(error) => {
            let line = error.location().map(|at| clamp(at.line())).filter(|line| *line > 0);
            Err(YamlError { message: short(&error.to_string()), line })
        }
    }
}

/// Only the first line of the parser's message, without its own "at line" tail: the place is told once, by us.
fn short(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    match first.find(" at line ") {
        Some(cut) => first[..cut].to_owned(),
        None => first.to_owned(),
    }
}

fn clamp(line: u64) -> u32 {
    u32::try_from(line).unwrap_or(u32::MAX)
}

fn node(raw: Spanned<Raw>, text: &str) -> Node {
    let at = raw.defined;
    let origin = Origin::Line(clamp(at.line()));
    let value = match raw.value {
        Raw::Null => Value::Null,
        Raw::Bool(b) => Value::Bool(b),
        Raw::Text(t) => Value::Text(t),
        Raw::Number(n) => Value::Number(as_written(&at, text).unwrap_or(n)),
        Raw::List(items) => Value::List(items.into_iter().map(|item| node(item, text)).collect()),
        Raw::Map(entries) => Value::Map(
            entries
                .into_iter()
                .map(|(key, value)| Entry {
                    origin: Origin::Line(clamp(key.defined.line())),
                    key: key.value,
                    node: node(value, text),
                })
                .collect(),
        ),
    };
    Node { value, origin }
}

/// The digits of a number as they stand in the text: `1e3` and `1.0` keep their form.
fn as_written(at: &serde_saphyr::Location, text: &str) -> Option<String> {
    let span = at.span();
    let start = usize::try_from(span.byte_offset()?).ok()?;
    let end = start.checked_add(usize::try_from(span.byte_len()?).ok()?)?;
    let written = text.get(start..end)?.trim();
    let number = written.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    number.then(|| written.to_owned())
}

/// A value as serde hands it over.
enum Raw {
    Null,
    Bool(bool),
    Text(String),
    Number(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<String>, Spanned<Raw>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E: Error>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_bool<E: Error>(self, v: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(v))
    }

    fn visit_i64<E: Error>(self, v: i64) -> Result<Raw, E> {
        Ok(Raw::Number(v.to_string()))
    }

    fn visit_u64<E: Error>(self, v: u64) -> Result<Raw, E> {
        Ok(Raw::Number(v.to_string()))
    }

    fn visit_i128<E: Error>(self, v: i128) -> Result<Raw, E> {
        Ok(Raw::Number(v.to_string()))
    }

    fn visit_u128<E: Error>(self, v: u128) -> Result<Raw, E> {
        Ok(Raw::Number(v.to_string()))
    }

    fn visit_f64<E: Error>(self, v: f64) -> Result<Raw, E> {
        Ok(Raw::Number(v.to_string()))
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<Raw, E> {
        Ok(Raw::Text(v.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_digits_are_kept() {
        let node = parse("a: 1\nb:\n  - 1e3\n  - 1.0\n  - .nan\n  - 1Gi\n  - '7'\n").unwrap();
        let items = node.get("b").unwrap().items();
        let shown: Vec<String> = items.iter().map(Node::shown).collect();
        assert_eq!(shown, ["1e3", "1.0", "\".nan\"", "\"1Gi\"", "\"7\""]);
        assert_eq!(items[1].origin, Origin::Line(4));
        assert_eq!(node.entry("b").unwrap().origin, Origin::Line(2));
    }

    #[test]
    fn what_is_not_one_document_is_refused_with_its_line() {
        for (text, line) in [("a: b: c\n", 1), ("a: [1, 2\nb: 3\n", 2), ("--- 1\n--- 2\n", 2)] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.line, Some(line), "{text:?}: {error}");
            assert!(!error.message.contains("at line"), "{error}");
        }
        assert_eq!(parse("").unwrap().value, Value::Null);
    }

    #[test]
    fn bombs_are_bounded() {
        let mut laughs = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for i in 1..9 {
            let refs = vec![format!("*a{}", i - 1); 10].join(", ");
            laughs.push_str(&format!("a{i}: &a{i} [{refs}]\n"));
        }
        assert!(parse(&laughs).is_err());
        assert!(parse(&"[".repeat(100_000)).is_err());
        assert!(parse(&"a: 1\n".repeat(300_000)).unwrap_err().message.contains("at most"));
        let deep: String = (0..200).map(|i| format!("{}a:\n", " ".repeat(i))).collect();
        assert!(parse(&deep).is_err());
    }
}
