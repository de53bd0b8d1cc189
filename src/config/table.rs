//! How a setting is declared, once: its key, unit, bounds, default and manual line.
//!
//! From these tables come the check for unknown keys, the reading of values, the environment overrides and
//! `docs/configuration.md`. Not here: the tables themselves (`tables`).

use weir_kernel::{Micros, Ratio};

/// A section: its manual lines and its settings.
#[derive(Debug)]
pub struct Table {
    /// What the section is for.
    pub doc: &'static str,
    /// Its settings, in the order of the manual.
    pub settings: &'static [Setting],
}

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// The key.
    pub key: &'static str,
    /// What may stand there.
    pub kind: Kind,
    /// What holds when it is absent, as it would be written; `None` where `unset` says it in words.
    pub default: Option<&'static str>,
    /// What absence means where no plain default does.
    pub unset: &'static str,
    /// The manual line.
    pub doc: &'static str,
}

/// What may stand under a key: unit and bounds. Bounds are inclusive unless they say otherwise.
#[derive(Debug)]
pub enum Kind {
    /// A Go duration.
    Duration { min: Micros },
    /// A number of seconds, perhaps with decimals.
    Seconds { min: Micros },
    /// A number of bytes, as a Kubernetes quantity.
    Bytes { min: u64, max: u64 },
    /// A count, as a Kubernetes quantity.
    Count { min: u64, max: u64 },
    /// A plain whole number, perhaps below zero.
    Whole { min: i64, max: i64 },
    /// A ratio.
    Fraction(Range),
    /// `true` or `false`.
    Bool,
    /// Any text without control characters, at most 256 bytes.
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// An IP address and a port.
    Socket,
    /// A path of the file system.
    Path,
    /// `http://host[:port]`.
    Url,
    /// A list of texts.
    Texts,
    /// Names with a whole number each.
    Numbers { min: i64, max: i64 },
    /// Names with a ratio each.
    Fractions(Range),
    /// A section of its own.
    Section(&'static Table),
    /// A list of sections.
    List(&'static Table),
    /// Names with a section each.
    Map(&'static Table),
    /// Parameters of a plugin: its type says which.
    Parameters,
    /// A section of llm-d that Weir does not read.
    Foreign,
}

/// The bounds of a ratio.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The lower bound.
    pub min: Ratio,
    /// Is the lower bound itself allowed?
    pub min_allowed: bool,
    /// The upper bound, if any.
    pub max: Option<Ratio>,
    /// Is the upper bound itself allowed?
    pub max_allowed: bool,
}

impl Range {
    /// From 0 on.
    pub const NOT_NEGATIVE: Range =
        Range { min: Ratio::ZERO, min_allowed: true, max: None, max_allowed: false };
    /// Above 0, up to and including 1.
    pub const ABOVE_ZERO_TO_ONE: Range =
        Range { min: Ratio::ZERO, min_allowed: false, max: Some(Ratio::ONE), max_allowed: true };
    /// From 0 up to, not including, 1.
    pub const ZERO_TO_BELOW_ONE: Range =
        Range { min: Ratio::ZERO, min_allowed: true, max: Some(Ratio::ONE), max_allowed: false };
    /// From 0 up to and including 1.
    pub const ZERO_TO_ONE: Range =
        Range { min: Ratio::ZERO, min_allowed: true, max: Some(Ratio::ONE), max_allowed: true };

    /// Is `ratio` inside?
    pub fn holds(&self, ratio: Ratio) -> bool {
        let low = if self.min_allowed { ratio >= self.min } else { ratio > self.min };
        let high = match self.max {
            None => true,
            Some(max) if self.max_allowed => ratio <= max,
            Some(max) => ratio < max,
        };
        low && high
    }

    /// The range in words.
    pub fn words(&self) -> String {
        let low = if self.min_allowed { "[" } else { "(" };
        match self.max {
            None if self.min_allowed => format!("a number, {} or more", self.min),
            None => format!("a number above {}", self.min),
            Some(max) => {
                let high = if self.max_allowed { "]" } else { ")" };
                format!("a number in {low}{}, {max}{high}", self.min)
            }
        }
    }
}

impl Setting {
    /// A setting with a plain default.
    pub const fn new(key: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Setting {
        Setting { key, kind, default: Some(default), unset: "", doc }
    }

    /// A setting whose absence means something of its own.
    pub const fn open(key: &'static str, kind: Kind, unset: &'static str, doc: &'static str) -> Setting {
        Setting { key, kind, default: None, unset, doc }
    }
}

impl Table {
    /// The setting under `key`.
    pub fn setting(&self, key: &str) -> Option<&'static Setting> {
        self.settings.iter().find(|setting| setting.key == key)
    }
}

impl Kind {
    /// What is allowed, in words, as it stands in messages and in the manual.
    pub fn words(&self) -> String {
        match self {
            Kind::Duration { min: Micros(0) } => {
                "a Go duration such as 300ms or 1m30s, 0s or more".to_owned()
            }
            Kind::Duration { min: Micros(1) } => "a Go duration such as 300ms or 1m30s, above 0s".to_owned(),
            Kind::Duration { min } => {
                format!("a Go duration such as 300ms or 1m30s, {} or more", crate::format_duration(*min))
            }
            Kind::Seconds { min: Micros(0) } => "a number of seconds, 0 or more".to_owned(),
            Kind::Seconds { .. } => "a number of seconds above 0".to_owned(),
            Kind::Bytes { min, max } => {
                format!("a quantity of bytes such as 500M or 1Gi, {}", bounds(*min, *max))
            }
            Kind::Count { min, max } => format!("a quantity such as 500 or 1k, {}", bounds(*min, *max)),
            Kind::Whole { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Fraction(range) => range.words(),
            Kind::Bool => "true or false".to_owned(),
            Kind::Text => "text of 1 to 256 bytes without control characters".to_owned(),
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
            Kind::Socket => "an IP address and a port such as 127.0.0.1:8080".to_owned(),
            Kind::Path => "a path".to_owned(),
            Kind::Url => "a base URL such as http://10.0.0.7:8000".to_owned(),
            Kind::Texts => "a list of texts".to_owned(),
            Kind::Numbers { min, max } => format!("names, each with a whole number from {min} to {max}"),
            Kind::Fractions(range) => format!("names, each with {}", range.words()),
            Kind::Section(_) => "a section".to_owned(),
            Kind::List(_) => "a list of sections".to_owned(),
            Kind::Map(_) => "names, each with a section".to_owned(),
            Kind::Parameters => "the parameters of the plugin's type".to_owned(),
            Kind::Foreign => "anything: not read".to_owned(),
        }
    }

    /// The unit of the plain number in which the value is shown.
    pub fn unit(&self) -> &'static str {
        match self {
            Kind::Duration { .. } | Kind::Seconds { .. } => "us",
            Kind::Bytes { .. } => "bytes",
            _ => "",
        }
    }
}

fn bounds(min: u64, max: u64) -> String {
    if max == u64::MAX { format!("{min} or more") } else { format!("from {min} to {max}") }
}
