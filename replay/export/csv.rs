//! Objects of one level as comma-separated values (RFC 4180).

use serde_json::Value;
use std::io::{self, Write};

fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

fn line(out: &mut dyn Write, cells: impl Iterator<Item = String>) -> io::Result<()> {
    writeln!(out, "{}", cells.collect::<Vec<_>>().join(","))
}

/// The names of the columns.
pub fn header(out: &mut dyn Write, row: &Value) -> io::Result<()> {
    line(
        out,
        row.as_object()
            .into_iter()
            .flat_map(|fields| fields.keys())
            .map(|key| cell(&Value::from(key.as_str()))),
    )
}

/// A row; every row has the same keys.
pub fn row(out: &mut dyn Write, row: &Value) -> io::Result<()> {
    line(out, row.as_object().into_iter().flat_map(|fields| fields.values()).map(cell))
}
