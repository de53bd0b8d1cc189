//! What is said about a document: mistakes (it is refused), warnings and notices (it is taken).

use crate::node::Origin;
use std::fmt;

/// What kind of mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MistakeKind {
    /// The text is not a YAML document, or cannot be read at all.
    Document,
    /// A key that nobody knows.
    UnknownKey,
    /// One thing said twice.
    Duplicate,
    /// A value that is not allowed.
    Value,
}

/// One reason to refuse a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// What kind.
    pub kind: MistakeKind,
    /// The whole path, such as `flowControl.priorityBands[1].maxRequests`.
    pub path: String,
    /// The same in words where a list index says little: `priority band 10 maxRequests`.
    pub subject: Option<String>,
    /// What was found.
    pub found: String,
    /// What is allowed, or the nearest known key.
    pub allowed: String,
    /// Where.
    pub origin: Origin,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Line(_) | Origin::Env(_) => write!(f, "{}: ", self.origin)?,
            Origin::Default | Origin::Given => {}
        }
        if !self.path.is_empty() {
            write!(f, "{}", visible(&self.path))?;
            if let Some(subject) = &self.subject {
                write!(f, " ({subject})")?;
            }
            f.write_str(": ")?;
        }
        match self.kind {
            MistakeKind::UnknownKey => write!(f, "unknown key; {}", self.allowed),
            MistakeKind::Document => write!(f, "{}; {}", self.found, self.allowed),
            MistakeKind::Duplicate => write!(f, "{}; allowed: {}", self.found, self.allowed),
            MistakeKind::Value => write!(f, "found {}, allowed: {}", self.found, self.allowed),
        }
    }
}

/// Keys are whatever the file says: control characters are shown, not sent to a terminal.
fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Every mistake of a document, in the order of its sections. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Mistakes {
    /// The file, where there is one.
    pub file: Option<String>,
    /// The mistakes.
    pub list: Vec<Mistake>,
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.list.len() {
            1 => "1 mistake".to_owned(),
            n => format!("{n} mistakes"),
        };
        write!(f, "{what} in {}", self.file.as_deref().unwrap_or("the configuration"))?;
        for mistake in &self.list {
            write!(f, "\n  {mistake}")?;
        }
        Ok(())
    }
}

/// Something an operator should know about a document that is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What it is about.
    pub path: String,
    /// What to know.
    pub text: String,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", visible(&self.path), visible(&self.text))
    }
}

/// All that was said while a document was read.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Reasons to refuse it.
    pub mistakes: Vec<Mistake>,
    /// Accepted, but hardly meant.
    pub warnings: Vec<Notice>,
    /// Accepted, worth knowing.
    pub notices: Vec<Notice>,
}

impl Report {
    /// A value that is not allowed.
    pub fn value(
        &mut self,
        path: &str,
        origin: &Origin,
        found: impl Into<String>,
        allowed: impl Into<String>,
    ) {
        self.mistakes.push(Mistake {
            kind: MistakeKind::Value,
            path: path.to_owned(),
            subject: None,
            found: found.into(),
            allowed: allowed.into(),
            origin: origin.clone(),
        });
    }

    /// One thing said at two places.
    pub fn duplicate(&mut self, path: &str, what: &str, first: &Origin, second: &Origin) {
        self.mistakes.push(Mistake {
            kind: MistakeKind::Duplicate,
            path: path.to_owned(),
            subject: None,
            found: format!("{what} stands twice, at {first} and at {second}"),
            allowed: "once".to_owned(),
            origin: second.clone(),
        });
    }

    /// Accepted, but hardly meant.
    pub fn warn(&mut self, path: &str, text: impl Into<String>) {
        self.warnings.push(Notice { path: path.to_owned(), text: text.into() });
    }

    /// Accepted, worth knowing.
    pub fn notice(&mut self, path: &str, text: impl Into<String>) {
        self.notices.push(Notice { path: path.to_owned(), text: text.into() });
    }
}
