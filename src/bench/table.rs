//! What a bench found, as a table or as one JSON object.

use serde_json::{Value, json};
use std::fmt::Write;

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Its name, as in `log/64`.
    pub name: String,
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// What was measured beside it in the same run, in the same unit.
    pub reference: Option<f64>,
    /// What is expected of the figure, in words; for people only.
    pub target: &'static str,
}

impl Case {
    /// A figure that stands alone.
    pub fn alone(name: impl Into<String>, value: f64, unit: &'static str) -> Case {
        Case { name: name.into(), value, unit, reference: None, target: "" }
    }

    /// A figure beside its reference.
    pub fn beside(name: impl Into<String>, value: f64, unit: &'static str, reference: f64) -> Case {
        Case { reference: Some(reference), ..Case::alone(name, value, unit) }
    }

    /// With what is expected of it.
    #[must_use]
    pub fn target(self, target: &'static str) -> Case {
        Case { target, ..self }
    }

    /// Value by reference; none without a reference, or with one of zero.
    pub fn ratio(&self) -> Option<f64> {
        self.reference.filter(|reference| *reference != 0.0).map(|reference| self.value / reference)
    }
}

/// What one bench found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The bench's name.
    pub bench: &'static str,
    /// The figures.
    pub cases: Vec<Case>,
    /// What a reader should know of them.
    pub notes: Vec<String>,
    /// For people, in place of a line per figure where these are too many: whole lines.
    pub own_table: Option<String>,
}

impl Findings {
    /// Nothing yet.
    pub fn new(bench: &'static str) -> Findings {
        Findings { bench, ..Findings::default() }
    }

    /// As one JSON object.
    pub fn json(&self) -> Value {
        let cases: Vec<Value> = self
            .cases
            .iter()
            .map(|case| {
                json!({
                    "name": case.name, "value": case.value, "unit": case.unit,
                    "reference": case.reference, "ratio": case.ratio(),
                })
            })
            .collect();
        json!({ "bench": self.bench, "cases": cases })
    }

    /// As a table with the notes below.
    pub fn table(&self) -> String {
        let mut out = self.own_table.clone().unwrap_or_else(|| self.lines());
        for note in &self.notes {
            // Writing to a string cannot fail.
            let _infallible = writeln!(out, "  {note}");
        }
        out
    }

    /// A line per figure.
    fn lines(&self) -> String {
        let wide = self.cases.iter().map(|case| case.name.len()).max().unwrap_or(0).max(4);
        let mut out = format!(
            "{:wide$} {:>14} {:12} {:>14} {:>8}  {}\n",
            "case", "value", "unit", "reference", "ratio", "target"
        );
        for case in &self.cases {
            let reference = case.reference.map_or_else(|| "-".to_owned(), figure);
            let ratio = case.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"));
            // Writing to a string cannot fail.
            let _infallible = writeln!(
                out,
                "{:wide$} {:>14} {:12} {reference:>14} {ratio:>8}  {}",
                case.name,
                figure(case.value),
                case.unit,
                case.target
            );
        }
        out
    }
}

/// Four digits that count, with thousands apart.
fn figure(value: f64) -> String {
    if value.abs() < 1_000.0 {
        let decimals = if value.abs() >= 100.0 { 1 } else { 3 };
        return format!("{value:.decimals$}");
    }
    let digits = format!("{:.0}", value.abs());
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if value < 0.0 { format!("-{out}") } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_stand_only_beside_a_reference() {
        let findings = Findings {
            bench: "x",
            cases: vec![Case::alone("a", 5.0, "ms"), Case::beside("b", 5.0, "1/s", 10.0)],
            ..Findings::default()
        };
        let json = findings.json();
        assert_eq!(json["cases"][0]["ratio"], Value::Null);
        assert_eq!(json["cases"][0]["reference"], Value::Null);
        assert_eq!(json["cases"][1]["ratio"], json!(0.5));
        assert_eq!(Case::beside("c", 1.0, "ms", 0.0).ratio(), None);
    }

    #[test]
    fn figures_are_easy_to_read() {
        for (value, text) in
            [(0.5, "0.500"), (123.456, "123.5"), (1_234_567.8, "1,234,568"), (-1_000.0, "-1,000")]
        {
            assert_eq!(figure(value), text);
        }
    }
}
