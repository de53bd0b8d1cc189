//! `weir config explain`: each effective value, where it came from, and what is inactive.

use crate::effective::Effective;
use serde_json::{Value as Json, json};
use std::fmt::Write;

impl Effective {
    /// A table: path, value, source, note. What has no effect as things are is marked.
    pub fn explain(&self) -> String {
        let lines: Vec<[String; 4]> = self
            .rows
            .iter()
            .map(|row| {
                let mark = if row.inactive { "inactive" } else { "" };
                let note = match (mark, row.note.as_str()) {
                    ("", note) => note.to_owned(),
                    (mark, "") => mark.to_owned(),
                    (mark, note) => format!("{mark}: {note}"),
                };
                [row.path.clone(), row.value.to_string(), self.source(&row.origin), note]
            })
            .collect();
        let head = ["setting", "value", "from", "note"].map(str::to_owned);
        let width = |column: usize| {
            let cells = lines.iter().chain([&head]).map(|line| line[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths = [width(0), width(1), width(2)];
        let mut text = String::new();
        for line in [&head].into_iter().chain(&lines) {
            let mut out = String::new();
            for (cell, width) in line.iter().zip(widths) {
                // Writing to a string does not fail.
                let _ = write!(out, "{cell:width$}  ");
            }
            out.push_str(&line[3]);
            text.push_str(out.trim_end());
            text.push('\n');
        }
        for (kind, notices) in [("warning", &self.warnings), ("notice", &self.notices)] {
            for notice in notices {
                let _ = writeln!(text, "{kind}: {notice}");
            }
        }
        text
    }

    /// The same as JSON: plain numbers, spans in microseconds.
    pub fn explain_json(&self) -> Json {
        let settings: Vec<Json> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "path": row.path,
                    "value": row.value.to_json(),
                    "unit": if row.unit.is_empty() { Json::Null } else { row.unit.into() },
                    "source": self.source(&row.origin),
                    "inactive": row.inactive,
                    "note": if row.note.is_empty() { Json::Null } else { row.note.as_str().into() },
                })
            })
            .collect();
        let told = |notices: &[crate::Notice]| -> Vec<Json> {
            notices.iter().map(|notice| json!({ "path": notice.path, "text": notice.text })).collect()
        };
        json!({
            "file": self.file.as_ref().map(|file| file.display().to_string()),
            "settings": settings,
            "warnings": told(&self.warnings),
            "notices": told(&self.notices),
        })
    }
}
