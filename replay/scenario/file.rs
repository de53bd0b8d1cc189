//! The form of a scenario file.

use crate::settings::json_of;
use serde::Deserialize;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::Path;
use weir_kernel::{Micros, Outcome, Reason};

/// Requests of one scenario at most.
const REQUESTS_MAX: u32 = 200_000;

/// A scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scenario {
    /// What it is about.
    #[serde(default)]
    pub name: String,
    /// A configuration document; the defaults where it is absent.
    #[serde(default)]
    pub settings: Option<Json>,
    /// Priority by objective.
    #[serde(default)]
    pub objectives: BTreeMap<String, i32>,
    /// The pool over time.
    #[serde(default)]
    pub pool: Vec<Seen>,
    /// What runs already when it begins.
    #[serde(default)]
    pub leases: Vec<Request>,
    /// What arrives.
    pub requests: Vec<Request>,
    /// It is over then, whatever is still queued; without, when nothing more can happen.
    #[serde(default)]
    pub until: Option<Span>,
    /// What shall come out.
    #[serde(default)]
    pub expect: Vec<Expected>,
}

/// An endpoint from a time on.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Seen {
    /// When.
    pub at: Span,
    /// Its name.
    pub endpoint: String,
    /// Requests waiting in it.
    #[serde(default)]
    pub waiting: u32,
    /// Requests running in it.
    #[serde(default)]
    pub running: u32,
    /// KV share, 0 to 1.
    #[serde(default)]
    pub kv: f64,
    /// Its metrics are too old from here on.
    #[serde(default)]
    pub stale: bool,
    /// It is gone.
    #[serde(default)]
    pub gone: bool,
}

/// One request, or several alike.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Request {
    /// When it arrives.
    #[serde(default)]
    pub at: Span,
    /// Its name; of several, `-1`, `-2`, … are appended.
    pub id: String,
    /// Its fairness id.
    #[serde(default)]
    pub flow: String,
    /// Its objective.
    #[serde(default)]
    pub objective: Option<String>,
    /// Its priority, in place of an objective.
    #[serde(default)]
    pub priority: Option<i32>,
    /// Prompt tokens.
    #[serde(default)]
    pub prompt_tokens: Option<u32>,
    /// Bytes.
    #[serde(default)]
    pub bytes: u64,
    /// The caller's own budget.
    #[serde(default)]
    pub ttl: Option<Span>,
    /// The time to first token it aims at.
    #[serde(default)]
    pub slo_ttft: Option<Span>,
    /// How long it runs once admitted; for ever where absent.
    #[serde(default)]
    pub runs: Option<Span>,
    /// Where it runs, if that is to be told by the file.
    #[serde(default)]
    pub choose_endpoint: bool,
    /// Its caller gives up after this.
    #[serde(default)]
    pub gives_up_after: Option<Span>,
    /// How many.
    #[serde(default = "one")]
    pub count: u32,
    /// From one to the next.
    #[serde(default)]
    pub every: Span,
}

const fn one() -> u32 {
    1
}

/// What shall come out: of one request, or how often.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expected {
    /// Of this one; of all where absent.
    #[serde(default)]
    pub request: Option<String>,
    /// Its outcome.
    #[serde(default)]
    pub outcome: Option<Word<Outcome>>,
    /// Its reason.
    #[serde(default)]
    pub reason: Option<Word<Reason>>,
    /// It is taken back after it was admitted.
    #[serde(default)]
    pub revoked: Option<bool>,
    /// It waits at least this long.
    #[serde(default)]
    pub wait_at_least: Option<Span>,
    /// It waits at most this long.
    #[serde(default)]
    pub wait_at_most: Option<Span>,
    /// So many requests.
    #[serde(default)]
    pub count: Option<u64>,
    /// At least so many.
    #[serde(default)]
    pub at_least: Option<u64>,
    /// At most so many.
    #[serde(default)]
    pub at_most: Option<u64>,
}

/// A span in Go's syntax.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Json")]
pub struct Span(pub Micros);

impl TryFrom<Json> for Span {
    type Error = String;

    fn try_from(value: Json) -> Result<Self, String> {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        weir_config::parse_duration(&text)
            .map(Span)
            .map_err(|error| format!("{text:?} is no span such as 1.5s or 200ms: {error}"))
    }
}

/// A word of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
#[serde(bound(deserialize = "Word<T>: TryFrom<String, Error = String>"))]
pub struct Word<T>(pub T);

impl TryFrom<String> for Word<Outcome> {
    type Error = String;

    fn try_from(word: String) -> Result<Self, String> {
        Outcome::ALL
            .into_iter()
            .find(|outcome| outcome.word() == word)
            .map(Word)
            .ok_or_else(|| unknown("outcome", &word, Outcome::ALL.iter().map(|outcome| outcome.word())))
    }
}

impl TryFrom<String> for Word<Reason> {
    type Error = String;

    fn try_from(word: String) -> Result<Self, String> {
        Reason::ALL
            .into_iter()
            .find(|reason| reason.word() == word)
            .map(Word)
            .ok_or_else(|| unknown("reason", &word, Reason::ALL.iter().map(|reason| reason.word())))
    }
}

fn unknown<'a>(what: &str, word: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    match weir_config::nearest(word, known.clone()) {
        Some(near) => format!("unknown {what} {word}; did you mean {near}?"),
        None => format!("unknown {what} {word}; known: {}", known.collect::<Vec<_>>().join(", ")),
    }
}

/// Reads a file.
///
/// # Errors
/// In words: the file, the place, what was found and what is allowed.
pub fn read(path: &Path) -> Result<Scenario, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Parses a scenario.
///
/// # Errors
/// In words.
pub fn parse(text: &str) -> Result<Scenario, String> {
    let node = weir_config::parse_yaml(text).map_err(|error| match error.line {
        Some(line) => format!("line {line}: {}", error.message),
        None => error.message.clone(),
    })?;
    let json = json_of(&node).map_err(|key| format!("the key {key} stands twice"))?;
    let scenario: Scenario = serde_json::from_value(json).map_err(|error| error.to_string())?;
    let count: u64 = scenario.requests.iter().map(|request| u64::from(request.count)).sum();
    if count > u64::from(REQUESTS_MAX) {
        return Err(format!("{count} requests; allowed: at most {REQUESTS_MAX}"));
    }
    if let Some(seen) = scenario.pool.iter().find(|seen| !(0.0..=1.0).contains(&seen.kv)) {
        return Err(format!("pool: kv of {} is {}; allowed: 0 to 1", seen.endpoint, seen.kv));
    }
    Ok(scenario)
}
