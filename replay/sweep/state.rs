//! Rows that are done, one JSON object a line, so that an interrupted sweep loses none.

use super::Row;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

/// What the rows are of: a sweep goes on only where all of it is the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The pool.
    pub pool: String,
    /// The last sequence of its log.
    pub head: u64,
    /// The range.
    pub range: String,
    /// The candidate that is varied.
    pub base: String,
    /// What else a row depends on: the seed, and a saved model where one is used.
    pub how: String,
}

/// The file, and what was in it.
#[derive(Debug)]
pub struct State {
    rows: Vec<Row>,
    file: Option<Mutex<File>>,
}

impl State {
    /// Opens the file, if one is named; reads what is done.
    pub fn open(file: Option<&Path>, header: &Header) -> Result<State, String> {
        let Some(path) = file else { return Ok(State { rows: Vec::new(), file: None }) };
        let failed = |error: std::io::Error| format!("--state {}: {error}", path.display());
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(failed(error)),
        };
        // Killed while it wrote the very first line: nothing was done.
        let text = if text.contains('\n') { text } else { String::new() };
        if text.is_empty() && path.exists() {
            File::create(path).map_err(failed)?;
        }
        let mut lines = text.lines();
        let mut rows: Vec<Row> = Vec::new();
        if let Some(first) = lines.next() {
            let found: Header = serde_json::from_str(first)
                .map_err(|error| format!("--state {}:1: no header of a sweep: {error}", path.display()))?;
            if found != *header {
                return Err(format!(
                    "--state {} is of another sweep: {found:?}; this one is {header:?}",
                    path.display()
                ));
            }
            // A line that was cut off is a row that is done again.
            for row in lines.filter_map(|line| serde_json::from_str::<Row>(line).ok()) {
                if !rows.iter().any(|known| known.words == row.words) {
                    rows.push(row);
                }
            }
        }
        let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
        let head =
            if text.is_empty() { serde_json::to_string(header).unwrap_or_default() } else { String::new() };
        if text.is_empty() || !text.ends_with('\n') {
            writeln!(file, "{head}").map_err(failed)?;
        }
        Ok(State { rows, file: Some(Mutex::new(file)) })
    }

    /// Is this one done?
    pub fn has(&self, words: &[String]) -> bool {
        self.rows.iter().any(|row| row.words == words)
    }

    /// Rows that were done before, of these combinations.
    pub fn rows(&self, wanted: &[Vec<String>]) -> Vec<Row> {
        self.rows.iter().filter(|row| wanted.contains(&row.words)).cloned().collect()
    }

    /// Keeps a row.
    pub fn keep(&self, row: &Row) -> std::io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let line = serde_json::to_string(row)? + "\n";
        match file.lock() {
            Ok(mut file) => file.write_all(line.as_bytes()),
            Err(_) => Ok(()),
        }
    }
}
