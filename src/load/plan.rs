//! What is sent when: arrivals with their class and flow, drawn by a seed.

use super::trace::Row;
use crate::sim::rng::Rng;
use std::time::Duration;
use weir_kernel::Micros;

/// One class of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// The objective it names; none = the caller names none.
    pub objective: Option<String>,
    /// Its share of the arrivals, 0 to 1.
    pub share: f64,
}

impl Class {
    /// Its name in tables.
    pub fn name(&self) -> &str {
        self.objective.as_deref().unwrap_or("(none)")
    }
}

/// The classes of a load and how many flows each has.
#[derive(Clone, Debug, PartialEq)]
pub struct Classes {
    /// The classes; the shares sum up to 1.
    pub classes: Vec<Class>,
    /// Flows per class, at least 1; flow `i` is named `flow-i`.
    pub flows: u32,
}

/// Why shares of objectives were not taken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClassesError {
    /// Not of the form `name=share`.
    #[error(
        "--objective: {0:?} is not allowed; allowed: NAME=SHARE with a share from 0 to 1, as in interactive=0.3"
    )]
    Form(String),
    /// Twice the same name.
    #[error("--objective: {0:?} is there twice")]
    Twice(String),
    /// More than everything.
    #[error("--objective: the shares sum up to {0}; allowed: at most 1")]
    Sum(String),
}

impl Classes {
    /// From `name=share` words; what is left of 1 goes without an objective.
    ///
    /// # Errors
    /// A word of another form, a name twice, more than 1 in all.
    pub fn parse(words: &[String], flows: u32) -> Result<Classes, ClassesError> {
        let mut classes: Vec<Class> = Vec::new();
        for word in words {
            let form = || ClassesError::Form(word.clone());
            let (name, share) = word.split_once('=').ok_or_else(form)?;
            let share: f64 = share.trim().parse().map_err(|_| form())?;
            let name = name.trim();
            if name.is_empty() || !(0.0..=1.0).contains(&share) {
                return Err(form());
            }
            if classes.iter().any(|class| class.objective.as_deref() == Some(name)) {
                return Err(ClassesError::Twice(name.to_owned()));
            }
            classes.push(Class { objective: Some(name.to_owned()), share });
        }
        let sum: f64 = classes.iter().map(|class| class.share).sum();
        if sum > 1.0 + 1e-9 {
            return Err(ClassesError::Sum(format!("{sum:.6}")));
        }
        if sum < 1.0 - 1e-9 {
            classes.push(Class { objective: None, share: 1.0 - sum });
        }
        Ok(Classes { classes, flows: flows.max(1) })
    }

    fn draw(&self, rng: &mut Rng) -> (usize, u32) {
        let mut left = rng.unit();
        let mut drawn = self.classes.len().saturating_sub(1);
        for (i, class) in self.classes.iter().enumerate() {
            if left < class.share {
                drawn = i;
                break;
            }
            left -= class.share;
        }
        (drawn, rng.below(u64::from(self.flows)) as u32)
    }
}

/// One request to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// When, from the start.
    pub at: Micros,
    /// Prompt tokens.
    pub prompt: u32,
    /// Tokens to generate.
    pub output: u32,
    /// Index of its class.
    pub class: usize,
    /// Its flow within the class.
    pub flow: u32,
}

/// The rows from `from` on for `lasting` (in the trace's own time), sent `speed` times as fast.
pub fn from_trace(
    rows: &[Row],
    from: Duration,
    lasting: Option<Duration>,
    speed: f64,
    classes: &Classes,
    seed: u64,
) -> Vec<Planned> {
    let micros = |d: Duration| Micros(u64::try_from(d.as_micros()).unwrap_or(u64::MAX));
    let from = micros(from);
    let until = lasting.map_or(Micros::MAX, |lasting| from + micros(lasting));
    let mut rng = Rng::new(seed);
    rows.iter()
        .filter(|row| row.at >= from && row.at < until)
        .map(|row| {
            let (class, flow) = classes.draw(&mut rng);
            let at = Micros((row.at.since(from).0 as f64 / speed) as u64);
            Planned { at, prompt: row.input, output: row.output, class, flow }
        })
        .collect()
}

/// Arrivals of a Poisson process of this rate per second for `lasting`, all of one size.
pub fn from_rate(
    rate: f64,
    lasting: Duration,
    (prompt, output): (u32, u32),
    classes: &Classes,
    seed: u64,
) -> Vec<Planned> {
    let mut rng = Rng::new(seed);
    let mut all = Vec::new();
    let mut at = rng.exponential(1.0 / rate);
    while at < lasting.as_secs_f64() {
        let (class, flow) = classes.draw(&mut rng);
        all.push(Planned { at: Micros((at * 1e6) as u64), prompt, output, class, flow });
        at += rng.exponential(1.0 / rate);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(words: &[&str]) -> Result<Classes, ClassesError> {
        Classes::parse(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>(), 3)
    }

    #[test]
    fn shares_are_kept_and_the_rest_goes_without_an_objective() {
        let classes = classes(&["interactive=0.3", "batch=0.5"]).unwrap();
        assert_eq!(classes.classes.last().map(Class::name), Some("(none)"));
        let plan = from_rate(1_000.0, Duration::from_secs(20), (100, 10), &classes, 1);
        assert!((19_000..21_000).contains(&plan.len()), "{}", plan.len());
        for (class, share) in [(0, 0.3), (1, 0.5), (2, 0.2)] {
            let got = plan.iter().filter(|p| p.class == class).count() as f64 / plan.len() as f64;
            assert!((got - share).abs() < 0.02, "class {class}: {got}");
        }
        assert!(plan.iter().all(|p| p.flow < 3));
        assert!(plan.windows(2).all(|pair| pair[0].at <= pair[1].at));
        assert_eq!(plan, from_rate(1_000.0, Duration::from_secs(20), (100, 10), &classes, 1), "by the seed");
    }

    #[test]
    fn bad_shares_are_named() {
        for (words, want) in [
            (&["interactive"][..], "interactive"),
            (&["interactive=2"], "interactive=2"),
            (&["interactive=NaN"], "NaN"),
            (&["=0.5"], "=0.5"),
            (&["a=0.5", "a=0.1"], "twice"),
            (&["a=0.5", "b=0.6"], "1.1"),
        ] {
            let got = classes(words).unwrap_err().to_string();
            assert!(got.contains(want), "{words:?}: {got}");
        }
    }

    #[test]
    fn a_trace_is_cut_and_sped_up() {
        let rows: Vec<Row> =
            (0..10).map(|s| Row { at: Micros::from_secs(s), input: s as u32 + 1, output: 1 }).collect();
        let classes = classes(&[]).unwrap();
        let second = Duration::from_secs(1);
        let plan = from_trace(&rows, second * 2, Some(second * 3), 2.0, &classes, 1);
        let got: Vec<_> = plan.iter().map(|p| (p.at.as_millis(), p.prompt)).collect();
        assert_eq!(got, [(0, 3), (500, 4), (1_000, 5)]);
    }
}
