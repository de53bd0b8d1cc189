//! Figures beside their bars.

use super::{Figure, Made};
use serde_json::{Value, json};
use std::io;
use weir_log::say;

/// What was made.
pub fn made(made: &Made) -> io::Result<()> {
    let took =
        made.took.map_or("was there".to_owned(), |took| format!("made in {:.0} s", took.as_secs_f64()));
    let mib = made.bytes as f64 / 1_048_576.0;
    say!("log: {} steps in {} sealed segments, {mib:.0} MiB, {took}", made.steps, made.segments)
}

/// One figure.
pub fn figure(figure: &Figure) -> io::Result<()> {
    let bar = match figure.bar {
        None => String::new(),
        Some(bar) => {
            let sign = if figure.at_most { "<=" } else { ">=" };
            format!("  bar {sign} {bar:.0}: {}", if figure.holds() { "holds" } else { "MISSED" })
        }
    };
    say!("{:<26} {:>10.0} {}{bar}", figure.what, figure.value, figure.unit)
}

/// The end: JSON, or a line that sums up.
pub fn end(made: &Made, figures: &[Figure], as_json: bool) -> io::Result<()> {
    if as_json {
        let all: Vec<Value> = figures.iter().map(to_json).collect();
        return say!(
            "{}",
            json!({ "steps": made.steps, "segments": made.segments, "bytes": made.bytes, "figures": all })
        );
    }
    let bars = figures.iter().filter(|figure| figure.bar.is_some());
    let (held, all) = (bars.clone().filter(|figure| figure.holds()).count(), bars.count());
    say!("bench: {held} of {all} bars hold")
}

fn to_json(figure: &Figure) -> Value {
    json!({
        "what": figure.what, "unit": figure.unit, "value": figure.value,
        "bar": figure.bar, "atMost": figure.at_most, "holds": figure.holds(),
    })
}
