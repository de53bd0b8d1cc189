//! A span as Weir builds it: plain values, equal if and only if they say the same.

use weir_kernel::{Micros, Ratio};

/// What a span is in its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Work of our own.
    Internal,
    /// Somebody asked us.
    Server,
    /// We asked a model server.
    Client,
}

/// How a span ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// As its attributes say; a refusal for load (429) is no error of ours.
    Unset,
    /// In an error, in a few words.
    Error(String),
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text.
    Text(String),
    /// A word of a fixed set.
    Word(&'static str),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// Yes or no.
    Bool(bool),
    /// Texts, as header attributes have them.
    Texts(Vec<String>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Value::Int(i64::from(number))
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Self {
        Value::Int(i64::from(number))
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Self {
        Value::Int(i64::from(number))
    }
}

impl From<bool> for Value {
    fn from(yes: bool) -> Self {
        Value::Bool(yes)
    }
}

/// Seconds.
impl From<Micros> for Value {
    fn from(span: Micros) -> Self {
        Value::Float(span.0 as f64 / 1e6)
    }
}

/// 1.0 is the set point.
impl From<Ratio> for Value {
    fn from(ratio: Ratio) -> Self {
        Value::Float(ratio.micros() as f64 / 1e6)
    }
}

/// An attribute: a name of [`crate::names`] and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute(pub &'static str, pub Value);

/// An attribute.
pub fn attribute(name: &'static str, value: impl Into<Value>) -> Attribute {
    Attribute(name, value.into())
}

/// Something that happened within a span.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanEvent {
    /// What.
    pub name: &'static str,
    /// When.
    pub at: Micros,
    /// About it.
    pub attributes: Vec<Attribute>,
}

/// Another span that belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Its trace.
    pub trace_id: [u8; 16],
    /// The span.
    pub span_id: [u8; 8],
    /// What it has to do with it.
    pub attributes: Vec<Attribute>,
}

/// A span that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Its trace.
    pub trace_id: [u8; 16],
    /// Its own id.
    pub span_id: [u8; 8],
    /// The span that it is part of.
    pub parent: Option<[u8; 8]>,
    /// That one is of another process.
    pub parent_is_remote: bool,
    /// What it is, in a few words.
    pub name: &'static str,
    /// What it is in its trace.
    pub kind: Kind,
    /// Its beginning, in microseconds since the Unix epoch.
    pub start: Micros,
    /// Its end.
    pub end: Micros,
    /// About it.
    pub attributes: Vec<Attribute>,
    /// What happened within it, in order.
    pub events: Vec<SpanEvent>,
    /// Events beyond the most that a span holds.
    pub events_dropped: u32,
    /// Other spans that belong to it.
    pub links: Vec<Link>,
    /// How it ended.
    pub status: Status,
}

impl Span {
    /// The value of an attribute, if it has it.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.attributes.iter().find(|attribute| attribute.0 == name).map(|attribute| &attribute.1)
    }
}
