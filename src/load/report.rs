//! What came of a load: per class offered, admitted, each outcome with its status, wait and time to first token.

use super::plan::Classes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// How one request ended, as its caller saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Admitted, and the pool's answer came whole (or the lease was held as long as asked).
    Completed,
    /// Admitted, and then something failed.
    Broken(String),
    /// Refused with a status, an outcome and a reason.
    Refused {
        /// HTTP status.
        status: u16,
        /// The outcome's word, empty where the answer names none.
        outcome: String,
        /// The reason's word, empty where the answer names none.
        reason: String,
    },
    /// There was no answer.
    Unanswered(String),
    /// Not sent: too many were in flight.
    NotSent,
    /// Still under way when the load was ended.
    CutOff,
}

/// One request, ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Index of its class.
    pub class: usize,
    /// How it ended.
    pub ending: Ending,
    /// From when it was due until it was admitted.
    pub wait: Option<Duration>,
    /// From when it was due until its first token.
    pub ttft: Option<Duration>,
    /// Tokens that came.
    pub tokens: u64,
}

/// The figures of one class.
#[derive(Clone, Debug, Default)]
pub struct ClassReport {
    /// Its name.
    pub name: String,
    /// Requests that were due.
    pub offered: u64,
    /// Requests that were admitted.
    pub admitted: u64,
    /// Requests that were admitted and whose answer came whole.
    pub completed: u64,
    /// Tokens that came.
    pub tokens: u64,
    /// How often each (outcome, reason, status); status 0 where there was none.
    pub outcomes: BTreeMap<(String, String, u16), u64>,
    /// What failed after admission, and how often.
    pub broken: BTreeMap<String, u64>,
    wait_us: Vec<u64>,
    ttft_us: Vec<u64>,
}

impl ClassReport {
    fn add(&mut self, sample: &Sample) {
        self.offered += 1;
        self.tokens += sample.tokens;
        let us = |d: Duration| u64::try_from(d.as_micros()).unwrap_or(u64::MAX);
        self.wait_us.extend(sample.wait.map(us));
        self.ttft_us.extend(sample.ttft.map(us));
        let key = match &sample.ending {
            Ending::Completed | Ending::Broken(_) => ("Dispatched".to_owned(), String::new(), 200),
            Ending::Refused { status, outcome, reason } => (outcome.clone(), reason.clone(), *status),
            Ending::Unanswered(what) => ("no answer".to_owned(), what.clone(), 0),
            Ending::NotSent => ("not sent".to_owned(), "in-flight limit".to_owned(), 0),
            Ending::CutOff if sample.wait.is_some() => ("Dispatched".to_owned(), String::new(), 200),
            Ending::CutOff => ("not decided".to_owned(), "load ended".to_owned(), 0),
        };
        self.admitted += u64::from(key.2 == 200);
        *self.outcomes.entry(key).or_default() += 1;
        match &sample.ending {
            Ending::Completed => self.completed += 1,
            Ending::Broken(what) => *self.broken.entry(what.clone()).or_default() += 1,
            Ending::CutOff if sample.wait.is_some() => {
                *self.broken.entry("load ended".to_owned()).or_default() += 1;
            }
            _ => {}
        }
    }

    /// Requests that got an HTTP answer.
    pub fn answered(&self) -> u64 {
        self.outcomes.iter().filter(|((.., status), _)| *status != 0).map(|(_, count)| count).sum()
    }

    /// Milliseconds from due to admitted at this quantile; none without an admission.
    pub fn wait_ms(&self, quantile: f64) -> Option<f64> {
        at(&self.wait_us, quantile)
    }

    /// Milliseconds from due to the first token at this quantile; none without one.
    pub fn ttft_ms(&self, quantile: f64) -> Option<f64> {
        at(&self.ttft_us, quantile)
    }

    fn json(&self) -> Value {
        let quantiles = |values: &[u64]| json!({ "p50": at(values, 0.5), "p95": at(values, 0.95), "p99": at(values, 0.99) });
        let outcomes: Vec<Value> = self
            .outcomes
            .iter()
            .map(|((outcome, reason, status), n)| {
                json!({ "outcome": outcome, "reason": reason, "status": status, "count": n })
            })
            .collect();
        json!({
            "class": self.name, "offered": self.offered, "admitted": self.admitted,
            "completed": self.completed, "tokens": self.tokens, "outcomes": outcomes, "broken": self.broken,
            "waitMs": quantiles(&self.wait_us), "ttftMs": quantiles(&self.ttft_us),
        })
    }
}

/// Nearest rank of sorted microseconds, in milliseconds.
fn at(sorted: &[u64], quantile: f64) -> Option<f64> {
    let rank = (quantile * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).map(|us| *us as f64 / 1e3)
}

/// What came of a load.
#[derive(Clone, Debug)]
pub struct Report {
    /// Each class, in the order given.
    pub classes: Vec<ClassReport>,
    /// All classes together.
    pub all: ClassReport,
    /// From the first to the last.
    pub took: Duration,
}

impl Report {
    /// Sums up.
    pub fn new(classes: &Classes, samples: &[Sample], took: Duration) -> Report {
        let named = |name: &str| ClassReport { name: name.to_owned(), ..ClassReport::default() };
        let mut report = Report {
            classes: classes.classes.iter().map(|class| named(class.name())).collect(),
            all: named("all"),
            took,
        };
        for sample in samples {
            report.all.add(sample);
            if let Some(class) = report.classes.get_mut(sample.class) {
                class.add(sample);
            }
        }
        for class in report.classes.iter_mut().chain([&mut report.all]) {
            class.wait_us.sort_unstable();
            class.ttft_us.sort_unstable();
        }
        report
    }

    fn rows(&self) -> impl Iterator<Item = &ClassReport> {
        let alone = self.classes.len() == 1;
        self.classes.iter().chain((!alone).then_some(&self.all))
    }

    /// As one JSON object.
    pub fn json(&self) -> Value {
        let classes: Vec<Value> = self.classes.iter().map(ClassReport::json).collect();
        json!({ "seconds": self.took.as_secs_f64(), "classes": classes, "all": self.all.json() })
    }

    /// As two tables: the classes, then the outcomes.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let wide = self.rows().map(|row| row.name.len()).max().unwrap_or(0).max(7);
        // Writing to a string cannot fail.
        let _infallible = writeln!(
            out,
            "{:wide$} {:>8} {:>8} {:>9} {:>26} {:>26} {:>9}\n{:wide$} {:>8} {:>8} {:>9} {}{} {:>9}",
            "class",
            "offered",
            "admitted",
            "completed",
            "wait ms",
            "TTFT ms",
            "tokens",
            "",
            "",
            "",
            "",
            heads(),
            heads(),
            ""
        );
        for row in self.rows() {
            let _infallible = writeln!(
                out,
                "{:wide$} {:>8} {:>8} {:>9} {}{} {:>9}",
                row.name,
                row.offered,
                row.admitted,
                row.completed,
                cells(&row.wait_us),
                cells(&row.ttft_us),
                row.tokens
            );
        }
        out.push('\n');
        self.outcomes_table(&mut out);
        out
    }

    fn outcomes_table(&self, out: &mut String) {
        let _infallible = write!(out, "{:24} {:26} {:>6}", "outcome", "reason", "status");
        for row in self.rows() {
            let _infallible = write!(out, " {:>11}", row.name);
        }
        out.push('\n');
        for key @ (outcome, reason, status) in self.all.outcomes.keys() {
            let status = if *status == 0 { "-".to_owned() } else { status.to_string() };
            let _infallible = write!(out, "{outcome:24} {reason:26} {status:>6}");
            for row in self.rows() {
                let _infallible = write!(out, " {:>11}", row.outcomes.get(key).copied().unwrap_or(0));
            }
            out.push('\n');
        }
        for what in self.all.broken.keys() {
            let _infallible = write!(out, "{:24} {what:26} {:>6}", "  failed afterwards", "-");
            for row in self.rows() {
                let _infallible = write!(out, " {:>11}", row.broken.get(what).copied().unwrap_or(0));
            }
            out.push('\n');
        }
    }
}

fn heads() -> String {
    format!("{:>9}{:>9}{:>9}", "p50", "p95", "p99")
}

fn cells(sorted: &[u64]) -> String {
    [0.5, 0.95, 0.99]
        .map(|quantile| match at(sorted, quantile) {
            Some(ms) => format!("{ms:>9.1}"),
            None => format!("{:>9}", "-"),
        })
        .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_in_exactly_one_outcome() {
        let classes = Classes::parse(&["interactive=0.5".to_owned()], 1).unwrap();
        let sample = |class, ending, wait: Option<u64>| Sample {
            class,
            ending,
            wait: wait.map(Duration::from_millis),
            ttft: None,
            tokens: 0,
        };
        let refused = Ending::Refused {
            status: 429,
            outcome: "EvictedTTL".to_owned(),
            reason: "rejected-ttl-expired".to_owned(),
        };
        let samples = [
            sample(0, Ending::Completed, Some(10)),
            sample(0, Ending::Broken("upstream 500".to_owned()), Some(30)),
            sample(1, refused, None),
            sample(1, Ending::Unanswered("no connection".to_owned()), None),
            sample(1, Ending::NotSent, None),
            sample(1, Ending::CutOff, None),
            sample(1, Ending::CutOff, Some(20)),
        ];
        let report = Report::new(&classes, &samples, Duration::from_secs(1));
        for class in report.classes.iter().chain([&report.all]) {
            assert_eq!(class.offered, class.outcomes.values().sum::<u64>(), "{}", class.name);
            assert_eq!(
                class.admitted,
                class.completed + class.broken.values().sum::<u64>(),
                "{}",
                class.name
            );
        }
        assert_eq!((report.all.offered, report.all.admitted, report.all.completed), (7, 3, 1));
        assert_eq!((report.all.wait_ms(0.5), report.all.wait_ms(0.99)), (Some(20.0), Some(30.0)));
        assert_eq!(report.all.ttft_ms(0.5), None);
        let table = report.table();
        assert!(table.contains("EvictedTTL               rejected-ttl-expired"), "{table}");
        assert_eq!(report.json()["classes"][1]["outcomes"].as_array().map(Vec::len), Some(5));
    }
}
