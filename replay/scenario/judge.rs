//! Whether what came out is what was expected.

use super::file::{Expected, Scenario};
use super::run::Course;
use serde_json::{Value, json};
use std::path::Path;
use weir_log::describe::show_span;

/// One expectation and whether it is met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// In words.
    pub expected: String,
    /// What was found in its place; none where it is met.
    pub failed: Option<String>,
}

/// Judges all expectations.
pub fn judge(scenario: &Scenario, courses: &[(String, Course)]) -> Vec<Verdict> {
    scenario.expect.iter().map(|expected| one(expected, courses)).collect()
}

fn words(expected: &Expected) -> String {
    let mut words = vec![expected.request.clone().unwrap_or_else(|| "requests".to_owned())];
    words.extend(expected.outcome.map(|outcome| outcome.0.word().to_owned()));
    words.extend(expected.reason.map(|reason| reason.0.word().to_owned()));
    words.extend(expected.revoked.map(|revoked| format!("revoked {revoked}")));
    words.extend(expected.wait_at_least.map(|span| format!("wait at least {}", show_span(span.0))));
    words.extend(expected.wait_at_most.map(|span| format!("wait at most {}", show_span(span.0))));
    words.extend(expected.count.map(|n| format!("count {n}")));
    words.extend(expected.at_least.map(|n| format!("at least {n}")));
    words.extend(expected.at_most.map(|n| format!("at most {n}")));
    words.join(", ")
}

fn meets(expected: &Expected, course: &Course) -> bool {
    expected.outcome.is_none_or(|outcome| course.outcome == Some(outcome.0))
        && expected.reason.is_none_or(|reason| course.reason == Some(reason.0))
        && expected.revoked.is_none_or(|revoked| course.revoked == revoked)
        && expected.wait_at_least.is_none_or(|span| course.waited >= span.0)
        && expected.wait_at_most.is_none_or(|span| course.waited <= span.0)
}

fn found(course: &Course) -> String {
    let outcome = course.outcome.map_or("still queued", |outcome| outcome.word());
    let reason = course.reason.map(|reason| format!(" ({})", reason.word())).unwrap_or_default();
    let revoked = if course.revoked { ", then revoked" } else { "" };
    format!("{outcome}{reason} after {}{revoked}", show_span(course.waited))
}

fn one(expected: &Expected, courses: &[(String, Course)]) -> Verdict {
    let failed = match &expected.request {
        Some(name) => match courses.iter().find(|(known, _)| known == name) {
            None => Some("there is no such request".to_owned()),
            Some((_, course)) if meets(expected, course) => None,
            Some((_, course)) => Some(format!("found {}", found(course))),
        },
        None => {
            let n = courses.iter().filter(|(_, course)| meets(expected, course)).count() as u64;
            let met = expected.count.is_none_or(|count| n == count)
                && expected.at_least.is_none_or(|least| n >= least)
                && expected.at_most.is_none_or(|most| n <= most);
            let asked = expected.count.or(expected.at_least).or(expected.at_most).is_some();
            match (asked, met) {
                (true, true) => None,
                (true, false) => Some(format!("found {n} of {}", courses.len())),
                // Without a number all of them are meant.
                (false, _) if n == courses.len() as u64 => None,
                (false, _) => Some(format!("found {n} of {}; allowed: all", courses.len())),
            }
        }
    };
    Verdict { expected: words(expected), failed }
}

/// As an object.
pub fn json(path: &Path, scenario: &Scenario, verdicts: &[Verdict]) -> Value {
    let all: Vec<Value> = verdicts
        .iter()
        .map(|verdict| json!({ "expected": verdict.expected, "met": verdict.failed.is_none(), "found": verdict.failed }))
        .collect();
    json!({
        "file": path.display().to_string(),
        "name": scenario.name,
        "met": verdicts.iter().all(|verdict| verdict.failed.is_none()),
        "expectations": all,
    })
}
