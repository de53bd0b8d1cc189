//! Answers as tables, for people: one for each list of an answer, named by its place.

use async_graphql::Value;
use std::fmt::Write;

/// Characters of a cell at the most, but for the last column.
const CELL: usize = 60;

/// An answer (the part under `data`) as tables.
pub fn render(data: &Value) -> String {
    let mut out = String::new();
    if let Value::Object(fields) = data {
        for (name, value) in fields {
            part(&mut out, name, value);
        }
    }
    out
}

fn part(out: &mut String, path: &str, value: &Value) {
    match value {
        Value::List(rows) => list(out, path, rows),
        Value::Object(_) => object(out, path, value),
        other => {
            let _ = writeln!(out, "{path}: {}\n", cell(other));
        }
    }
}

/// Scalars of an object, also of those within it, each under its path.
fn flat(prefix: &str, value: &Value, columns: &mut Vec<(String, String)>, inner: &mut Vec<(String, Value)>) {
    let Value::Object(fields) = value else { return };
    for (name, value) in fields {
        let path = if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") };
        match value {
            Value::Object(_) => flat(&path, value, columns, inner),
            Value::List(list) if list.iter().any(|one| matches!(one, Value::Object(_))) => {
                inner.push((path, value.clone()));
            }
            other => columns.push((path, cell(other))),
        }
    }
}

fn object(out: &mut String, path: &str, value: &Value) {
    let (mut columns, mut inner) = (Vec::new(), Vec::new());
    flat("", value, &mut columns, &mut inner);
    if !columns.is_empty() {
        let width = columns.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let _ = writeln!(out, "{path}");
        for (name, value) in &columns {
            let _ = writeln!(out, "  {name:width$}  {value}");
        }
        out.push('\n');
    }
    for (name, value) in inner {
        part(out, &format!("{path}.{name}"), &value);
    }
}

fn list(out: &mut String, path: &str, rows: &[Value]) {
    let mut names: Vec<String> = Vec::new();
    let mut cells: Vec<Vec<(String, String)>> = Vec::new();
    let mut inner: Vec<(String, Value)> = Vec::new();
    for (place, row) in rows.iter().enumerate() {
        let (mut columns, mut more) = (Vec::new(), Vec::new());
        match row {
            Value::Object(_) => flat("", row, &mut columns, &mut more),
            other => columns.push(("value".to_owned(), cell(other))),
        }
        for (name, _) in &columns {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        cells.push(columns);
        inner.extend(more.into_iter().map(|(name, value)| (format!("{path}[{}].{name}", place + 1), value)));
    }
    let _ = writeln!(
        out,
        "{path}: {}",
        if rows.len() == 1 { "1 row".to_owned() } else { format!("{} rows", rows.len()) }
    );
    if !names.is_empty() {
        lines(out, &names, &cells);
    }
    out.push('\n');
    for (name, value) in inner {
        part(out, &name, &value);
    }
}

fn lines(out: &mut String, names: &[String], rows: &[Vec<(String, String)>]) {
    let last = names.len() - 1;
    let of = |row: &[(String, String)], column: usize| {
        let text = row
            .iter()
            .find(|(name, _)| *name == names[column])
            .map_or(String::new(), |(_, text)| text.clone());
        if column == last || text.chars().count() <= CELL {
            return text;
        }
        text.chars().take(CELL - 1).chain(['…']).collect()
    };
    let table: Vec<Vec<String>> =
        rows.iter().map(|row| (0..names.len()).map(|column| of(row, column)).collect()).collect();
    let width = |column: usize| {
        let longest = table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        longest.max(names[column].chars().count())
    };
    let mut line = |row: &[String]| {
        let shown: Vec<String> =
            row.iter().enumerate().map(|(at, text)| format!("{text:0$}", width(at))).collect();
        let _ = writeln!(out, "  {}", shown.join("  ").trim_end());
    };
    line(names);
    table.iter().for_each(|row| line(row));
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Enum(name) => name.to_string(),
        Value::List(list) => list.iter().map(cell).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_become_tables_and_what_is_within_them_follows() {
        let data = serde_json::json!({
            "incidents": [
                { "kind": "SHED_BURST", "shed": 3, "hit": [{ "flow": "a", "count": 2 }] },
                { "kind": "RESTART", "shed": null, "hit": [] },
            ],
            "pool": { "name": "chat", "hold": { "text": "x" } },
        });
        let shown = render(&Value::from_json(data).unwrap());
        let wanted = "\
incidents: 2 rows
  kind        shed  hit
  SHED_BURST  3
  RESTART     -

incidents[1].hit: 1 row
  count  flow
  2      a

pool
  hold.text  x
  name       chat
";
        let plain = |text: &str| {
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        };
        let (mut found, mut wanted) = (plain(&shown), plain(wanted));
        found.sort();
        wanted.sort();
        assert_eq!(found.len(), wanted.len(), "{shown}");
    }
}
