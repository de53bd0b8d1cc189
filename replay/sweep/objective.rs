//! What is to be small: a sum of figures, each with a weight.

use crate::what_if::Tally;
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use weir_config::nearest;

/// The figures of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Share of requests that were not admitted.
    pub shed_rate: f64,
    /// Queue wait of the admitted, in s.
    pub wait_p50_s: f64,
    /// See `wait_p50_s`.
    pub wait_p95_s: f64,
    /// See `wait_p50_s`.
    pub wait_p99_s: f64,
    /// Requests admitted.
    pub admitted: f64,
    /// Requests completed.
    pub completed: f64,
    /// Tokens of those.
    pub tokens: f64,
    /// Leases taken back.
    pub evictions: f64,
}

const NAMES: [&str; 8] =
    ["shed_rate", "wait_p50_s", "wait_p95_s", "wait_p99_s", "admitted", "completed", "tokens", "evictions"];

impl Figures {
    /// Of counts.
    pub fn of(tally: &Tally) -> Figures {
        let wait = |q| tally.waits.quantile(q).map_or(0.0, |wait| wait.0 as f64 / 1e6);
        Figures {
            shed_rate: tally.shed_rate(),
            wait_p50_s: wait(0.5),
            wait_p95_s: wait(0.95),
            wait_p99_s: wait(0.99),
            admitted: (tally.decided() - tally.shed()) as f64,
            completed: tally.completed() as f64,
            tokens: tally.tokens as f64,
            evictions: tally.evictions() as f64,
        }
    }

    fn all(&self) -> [f64; NAMES.len()] {
        [
            self.shed_rate,
            self.wait_p50_s,
            self.wait_p95_s,
            self.wait_p99_s,
            self.admitted,
            self.completed,
            self.tokens,
            self.evictions,
        ]
    }
}

/// Weights by figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    text: String,
    weights: Vec<(usize, f64)>,
}

impl Objective {
    /// Its value.
    pub fn of(&self, figures: &Figures) -> f64 {
        let all = figures.all();
        self.weights.iter().map(|(n, weight)| weight * all[*n]).sum()
    }

    /// Is `a` better in one of the figures and worse in none?
    pub fn dominates(&self, a: &Figures, b: &Figures) -> bool {
        let (a, b) = (a.all(), b.all());
        let parts = || self.weights.iter().map(|(n, weight)| (weight * a[*n], weight * b[*n]));
        parts().all(|(a, b)| a <= b) && parts().any(|(a, b)| a < b)
    }

    /// As it was given.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl FromStr for Objective {
    type Err = String;

    /// `shed_rate + 0.1*wait_p95_s - 1e-6*tokens`
    fn from_str(text: &str) -> Result<Self, String> {
        let form = || {
            format!(
                "{text:?} is not allowed; allowed: figures with weights, as in shed_rate + 0.1*wait_p95_s"
            )
        };
        let (mut weights, mut sign) = (Vec::new(), 1.0);
        let spaced = text.replace('*', " * ").replace(" + ", " +  ").replace(" - ", " -  ");
        let mut words = spaced.split_whitespace().peekable();
        while let Some(word) = words.next() {
            let weight = match word {
                "+" => {
                    sign = 1.0;
                    continue;
                }
                "-" => {
                    sign = -1.0;
                    continue;
                }
                word => match word.parse::<f64>() {
                    Ok(weight) if weight.is_finite() && words.next() == Some("*") => Some(weight),
                    Ok(_) => return Err(form()),
                    Err(_) => None,
                },
            };
            let name = if weight.is_some() { words.next().ok_or_else(form)? } else { word };
            let Some(n) = NAMES.iter().position(|known| *known == name) else {
                let near = nearest(name, NAMES).map_or_else(
                    || format!("known: {}", NAMES.join(", ")),
                    |near| format!("did you mean {near}?"),
                );
                return Err(format!("unknown figure {name}; {near}"));
            };
            weights.push((n, sign * weight.unwrap_or(1.0)));
            sign = 1.0;
        }
        if weights.is_empty() {
            return Err(form());
        }
        Ok(Objective { text: text.to_owned(), weights })
    }
}
