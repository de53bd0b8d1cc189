//! The rows of a sweep as a table and as JSON.

use super::{Objective, Row};
use serde_json::{Value, json};
use std::io;
use weir_log::say;

/// Is no other row better in one figure and worse in none?
fn front(rows: &[Row], objective: &Objective) -> Vec<bool> {
    let beaten = |row: &Row| rows.iter().any(|other| objective.dominates(&other.figures, &row.figures));
    rows.iter().map(|row| !beaten(row)).collect()
}

/// Prints the rows, which are in order.
pub fn print(rows: &[Row], objective: &Objective, as_json: bool) -> io::Result<()> {
    let front = front(rows, objective);
    if as_json {
        let list: Vec<Value> = rows
            .iter()
            .zip(&front)
            .map(|(row, front)| {
                json!({
                    "set": row.words, "objective": objective.of(&row.figures), "pareto": front,
                    "figures": row.figures, "exact": row.exact, "flipped": row.flipped,
                })
            })
            .collect();
        return say!("{}", json!({ "objective": objective.text(), "rows": list, "doubt": doubt(rows) }));
    }
    let width = rows.iter().map(|row| row.words.join("  ").chars().count()).max().unwrap_or(0);
    say!("objective: {}; * = Pareto front", objective.text())?;
    say!(
        "  {:>10} {:>8} {:>9} {:>9} {:>9} {:>9} {:>8} {:>7} {:>8}  settings",
        "objective",
        "shed %",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "completed",
        "evicted",
        "exact %",
        "flipped %"
    )?;
    for (row, front) in rows.iter().zip(front) {
        let f = &row.figures;
        let line = format!(
            "{} {:>10.4} {:>8.2} {:>9.1} {:>9.1} {:>9.1} {:>9.0} {:>8.0} {:>7.1} {:>8.1}  {:<width$}",
            if front { '*' } else { ' ' },
            objective.of(f),
            f.shed_rate * 100.0,
            f.wait_p50_s * 1e3,
            f.wait_p95_s * 1e3,
            f.wait_p99_s * 1e3,
            f.completed,
            f.evictions,
            row.exact * 100.0,
            row.flipped * 100.0,
            row.words.join("  "),
        );
        say!("{}", line.trim_end())?;
    }
    doubt(rows).map_or(Ok(()), |doubt| say!("{doubt}"))
}

/// All rows are of one log, decided again under the same logged settings: what one is doubted for, all are.
fn doubt(rows: &[Row]) -> Option<&String> {
    rows.iter().find_map(|row| row.doubt.as_ref())
}
