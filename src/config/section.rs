//! Reading a section against its table: unknown and repeated keys, values, defaults, and where each came from.

use crate::nearest::nearest;
use crate::node::{Node, Origin, Value};
use crate::report::{Mistake, MistakeKind, Report};
use crate::scalar::{Scalar, is_label, read};
use crate::table::{Kind, Setting, Table};
use weir_kernel::{Micros, Ratio};

/// One effective value, for `weir config explain`.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The whole path.
    pub path: String,
    /// The value.
    pub value: Scalar,
    /// The unit of its plain number: `us`, `bytes` or empty.
    pub unit: &'static str,
    /// Where it came from.
    pub origin: Origin,
    /// What else there is to know: what it follows, or why it has no effect.
    pub note: String,
    /// Set, but without effect as things are.
    pub inactive: bool,
}

/// What is gathered while a document is read.
#[derive(Debug, Default)]
pub struct Reading {
    /// What there is to say.
    pub report: Report,
    /// The effective values so far.
    pub rows: Vec<Row>,
}

impl Reading {
    /// Records a value that no table gives by itself.
    pub fn row(&mut self, path: &str, value: Scalar, unit: &'static str, origin: &Origin, note: &str) {
        self.rows.push(Row {
            path: path.to_owned(),
            value,
            unit,
            origin: origin.clone(),
            note: note.to_owned(),
            inactive: false,
        });
    }

    /// Replaces the value of a row that was already recorded.
    pub fn change_row(&mut self, path: &str, value: Scalar, note: &str) {
        if let Some(row) = self.rows.iter_mut().rev().find(|row| row.path == path) {
            row.value = value;
            row.note = note.to_owned();
        }
    }
}

/// A section of the document beside its table.
#[derive(Clone, Debug)]
pub struct Section<'n> {
    /// Its path; empty for the document itself.
    pub path: String,
    /// Its name in words, for messages.
    pub subject: String,
    /// Where it stands.
    pub origin: Origin,
    table: &'static Table,
    node: Option<&'n Node>,
}

impl<'n> Section<'n> {
    /// Takes `node` (absent and null alike are an empty section) and names every key that is unknown or stands twice.
    pub fn open(
        reading: &mut Reading,
        node: Option<&'n Node>,
        path: &str,
        table: &'static Table,
    ) -> Section<'n> {
        let mut section = Section {
            path: path.to_owned(),
            subject: String::new(),
            origin: node.map_or(Origin::Default, |node| node.origin.clone()),
            table,
            node: node.filter(|node| matches!(node.value, Value::Map(_))),
        };
        let Some(node) = node else { return section };
        match &node.value {
            Value::Map(_) => section.keys(reading),
            Value::Null => section.node = None,
            _ => reading.report.value(path, &node.origin, node.shown(), "a section"),
        }
        section
    }

    fn keys(&self, reading: &mut Reading) {
        let entries = self.node.map_or(&[][..], Node::entries);
        for (at, entry) in entries.iter().enumerate() {
            let path = self.at(&entry.key);
            if let Some(first) = entries[..at].iter().find(|first| first.key == entry.key) {
                reading.report.duplicate(&path, "the key", &first.origin, &entry.origin);
            } else if self.table.setting(&entry.key).is_none() {
                self.unknown(reading, &entry.key, &path, &entry.origin);
            }
        }
    }

    fn unknown(&self, reading: &mut Reading, key: &str, path: &str, origin: &Origin) {
        let known = || self.table.settings.iter().map(|setting| setting.key);
        let allowed = match nearest(key, known()) {
            Some(near) => format!("did you mean {}?", self.at(near)),
            None if self.table.settings.is_empty() => "it takes no parameters".to_owned(),
            None => format!("known here: {}", known().collect::<Vec<_>>().join(", ")),
        };
        reading.report.mistakes.push(Mistake {
            kind: MistakeKind::UnknownKey,
            path: path.to_owned(),
            subject: None,
            found: key.to_owned(),
            allowed,
            origin: origin.clone(),
        });
    }

    /// The path of a key of this section.
    pub fn at(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Is anything written here?
    pub fn is_present(&self) -> bool {
        self.node.is_some()
    }

    /// The node under `key`; `None` if absent or null.
    pub fn node(&self, key: &str) -> Option<&'n Node> {
        self.node.and_then(|node| node.get(key))
    }

    /// Where `key` stands; the default's place if it does not.
    pub fn origin_of(&self, key: &str) -> Origin {
        self.node(key).map_or(Origin::Default, |node| node.origin.clone())
    }

    /// A mistake about the value under `key`.
    pub fn refuse(&self, reading: &mut Reading, key: &str, allowed: impl Into<String>) {
        let (found, origin) = match self.node(key) {
            Some(node) => (node.shown(), node.origin.clone()),
            None => ("nothing".to_owned(), self.origin.clone()),
        };
        let subject = (!self.subject.is_empty()).then(|| format!("{} {key}", self.subject));
        let path = self.at(key);
        let allowed = allowed.into();
        reading.report.mistakes.push(Mistake {
            kind: MistakeKind::Value,
            path,
            subject,
            found,
            allowed,
            origin,
        });
    }

    fn setting(&self, key: &str) -> Option<&'static Setting> {
        let setting = self.table.setting(key);
        debug_assert!(setting.is_some(), "{} is in no table", self.at(key));
        setting
    }

    /// The value under `key`, or its default; `None` if it has neither. A mistake is recorded, and the default holds.
    pub fn value(&self, reading: &mut Reading, key: &str) -> Option<Scalar> {
        let setting = self.setting(key)?;
        let written = self.written(reading, key);
        let (value, origin) = match written {
            Some(value) => (value, self.origin_of(key)),
            None => {
                let default =
                    Node { value: Value::Text(setting.default?.to_owned()), origin: Origin::Default };
                (read(&setting.kind, &default).ok()?, Origin::Default)
            }
        };
        reading.row(&self.at(key), value.clone(), setting.kind.unit(), &origin, "");
        Some(value)
    }

    /// The value under `key` if one is written, without a row. A mistake is recorded.
    pub fn written(&self, reading: &mut Reading, key: &str) -> Option<Scalar> {
        let setting = self.setting(key)?;
        let node = self.node(key)?;
        match read(&setting.kind, node) {
            Ok(value) => Some(value),
            Err(allowed) => {
                self.refuse(reading, key, allowed);
                None
            }
        }
    }

    /// A span; zero if it has neither value nor default.
    pub fn span(&self, reading: &mut Reading, key: &str) -> Micros {
        self.span_set(reading, key).unwrap_or(Micros::ZERO)
    }

    /// A span, if there is one.
    pub fn span_set(&self, reading: &mut Reading, key: &str) -> Option<Micros> {
        match self.value(reading, key) {
            Some(Scalar::Span(span)) => Some(span),
            _ => None,
        }
    }

    /// A count or size; zero if it has neither value nor default.
    pub fn amount(&self, reading: &mut Reading, key: &str) -> u64 {
        match self.value(reading, key) {
            Some(Scalar::Amount(amount)) => amount,
            _ => 0,
        }
    }

    /// A whole number; zero if it has neither value nor default.
    pub fn whole(&self, reading: &mut Reading, key: &str) -> i64 {
        match self.value(reading, key) {
            Some(Scalar::Whole(whole)) => whole,
            _ => 0,
        }
    }

    /// A ratio, if there is one.
    pub fn fraction(&self, reading: &mut Reading, key: &str) -> Option<Ratio> {
        match self.value(reading, key) {
            Some(Scalar::Fraction(ratio)) => Some(ratio),
            _ => None,
        }
    }

    /// Yes or no; no if it has neither value nor default.
    pub fn flag(&self, reading: &mut Reading, key: &str) -> bool {
        matches!(self.value(reading, key), Some(Scalar::Bool(true)))
    }

    /// Text, if there is one.
    pub fn text(&self, reading: &mut Reading, key: &str) -> Option<String> {
        match self.value(reading, key) {
            Some(Scalar::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// A section below this one.
    pub fn section(&self, reading: &mut Reading, key: &str) -> Section<'n> {
        let table = match self.setting(key).map(|setting| &setting.kind) {
            Some(Kind::Section(table)) => *table,
            _ => self.table,
        };
        Section::open(reading, self.node(key), &self.at(key), table)
    }

    /// The sections of a list below this one. What is no list, and what is no section in it, is a mistake.
    pub fn list(&self, reading: &mut Reading, key: &str) -> Vec<Section<'n>> {
        let Some(Kind::List(table)) = self.setting(key).map(|setting| &setting.kind) else {
            return Vec::new();
        };
        let Some(node) = self.node(key) else { return Vec::new() };
        if !matches!(node.value, Value::List(_)) {
            self.refuse(reading, key, "a list of sections");
            return Vec::new();
        }
        let mut sections = Vec::new();
        for (at, item) in node.items().iter().enumerate() {
            let path = format!("{}[{at}]", self.at(key));
            if item.value == Value::Null {
                reading.report.value(&path, &item.origin, item.shown(), "a section");
                continue;
            }
            sections.push(Section::open(reading, Some(item), &path, table));
        }
        sections
    }

    /// The entries of a map of names, each name checked; a name that stands twice is a mistake.
    pub fn names(&self, reading: &mut Reading, key: &str) -> Vec<(&'n str, String, &'n Node)> {
        let Some(node) = self.node(key) else { return Vec::new() };
        if !matches!(node.value, Value::Map(_)) {
            let allowed = self.setting(key).map_or_else(String::new, |setting| setting.kind.words());
            self.refuse(reading, key, allowed);
            return Vec::new();
        }
        let mut named = Vec::new();
        for (at, entry) in node.entries().iter().enumerate() {
            let path = format!("{}.{}", self.at(key), entry.key);
            if let Some(first) = node.entries()[..at].iter().find(|first| first.key == entry.key) {
                reading.report.duplicate(&path, "the name", &first.origin, &entry.origin);
            } else if !is_label(&entry.key) {
                let found = format!("the name \"{}\"", entry.key.escape_debug());
                reading.report.value(&path, &entry.origin, found, Kind::Text.words());
            } else {
                named.push((entry.key.as_str(), path, &entry.node));
            }
        }
        named
    }

    /// A list of texts with their places.
    pub fn texts(&self, reading: &mut Reading, key: &str) -> Vec<(&'n str, &'n Node)> {
        let Some(node) = self.node(key) else { return Vec::new() };
        if !matches!(node.value, Value::List(_)) {
            self.refuse(reading, key, Kind::Texts.words());
            return Vec::new();
        }
        let mut texts = Vec::new();
        for (at, item) in node.items().iter().enumerate() {
            match &item.value {
                Value::Text(text) => texts.push((text.as_str(), item)),
                _ => {
                    let path = format!("{}[{at}]", self.at(key));
                    reading.report.value(&path, &item.origin, item.shown(), "text");
                }
            }
        }
        texts
    }
}
