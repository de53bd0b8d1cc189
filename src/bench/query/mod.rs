//! `weir bench query`: each question of the playbook on a log, p50 and p99 with a warm cache; states of the past; how fast
//! projections are folded, and what they take per request.
//!
//! The log is that of a data directory, or a small one that is made for it (`maker.rs`). And what a service pays for them:
//! admissions beside the projections' follower, and beside hostile questions (`live.rs`).

pub mod hostile;
mod live;
pub mod maker;

use super::{BenchError, Budget, Case, Findings};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_graphql::{Options, QUESTIONS, Service};
use weir_kernel::{Micros, Outcome};
use weir_log::describe::show_time;
use weir_log::reader::Logs;
use weir_projection::{Filter, Order, Page, PoolProjection, Projections, Source, Work};

/// Requests of the log that is made, for each minute of the budget.
const REQUESTS_PER_MINUTE: f64 = 40_000.0;
/// Arrivals a second of that log.
const RATE: f64 = 200.0;
/// A day in microseconds.
const DAY: u64 = 86_400_000_000;
/// How often a question is put at the most.
const TIMES: usize = 200;

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError(format!("query: {error}"))
}

/// Measures all of it.
///
/// # Errors
/// The log cannot be made or read; an answer with errors.
pub fn run(data: Option<&Path>, budget: Budget) -> Result<Findings, BenchError> {
    let mut findings = Findings::new("query");
    let made = tempfile::tempdir().map_err(failed)?;
    let dir = match data {
        Some(dir) => dir,
        None => {
            let requests = (budget.whole.as_secs_f64() / 60.0 * REQUESTS_PER_MINUTE).clamp(500.0, 400_000.0);
            maker::make(made.path(), maker::Wanted { requests: requests as u64, rate: RATE }, |_| {})?;
            made.path()
        }
    };
    let logs = Logs::open(dir).map_err(failed)?;
    let source = Source::new(Some(dir), logs.hot().cloned());
    Projections::throw_away(dir).map_err(failed)?;
    let projections = Projections::open(Some(dir), &source).map_err(failed)?;
    folding(&projections, &mut findings)?;
    // What takes long is to be seen, not cut off.
    let options = Options { timeout: Duration::from_secs(300), ..Options::default() };
    let service = Service::new(Arc::new(projections), options).map_err(failed)?;
    let Some(pool) = service.projections().pools().next().cloned() else {
        return Err(failed("there is no pool in this log"));
    };
    let each = budget.whole.div_f64(3.0 * (QUESTIONS.len() + 4) as f64).max(Duration::from_millis(200));
    let sample = Sample::of(&pool)?;
    for question in QUESTIONS {
        let variables = |turn: usize| sample.variables(&question.variables(), turn);
        let times = timed(&service, question.text, variables, each)?;
        // A state of the past has a bar of its own.
        let target = if question.text.contains("stateAt(") { "<= 1000" } else { "<= 50" };
        rows(&mut findings, &format!("query/{}", question.name), times, target);
    }
    const ONE: &str =
        "query($id: ID!) { request(id: $id) { id outcome waitedMs leaseEnd timeline { what afterMs } } }";
    let times = timed(&service, ONE, |turn| json!({ "id": sample.id(turn) }), each)?;
    rows(&mut findings, "query/one request, any", times, "<= 50");
    const STATE: &str = "query($t: Time!) { stateAt(time: $t) { digest queuedRequests } }";
    let day = sample.to.0.saturating_sub(DAY).max(sample.begun.0);
    for (name, (from, to), target) in [
        ("query/state in the last day", (day, sample.to.0), "<= 1000"),
        ("query/state before", (sample.begun.0, day), "<= 10000"),
    ] {
        if to > from {
            let moment = |turn| show_time(Micros(from + spread(turn) % (to - from)));
            let times = timed(&service, STATE, |turn| json!({ "t": moment(turn) }), each * 2)?;
            rows(&mut findings, name, times, target);
        }
    }
    let position = pool.position().map_err(failed)?;
    findings.notes.push(format!(
        "{} steps, {} requests in {:.1} h; questions over the last hour of the log; milliseconds",
        position.head,
        position.rows,
        sample.to.since(sample.begun).0 as f64 / 3.6e9
    ));
    drop(service);
    live::run(&mut findings, budget.whole / 3)?;
    Ok(findings)
}

/// Turns, spread over everything.
const fn spread(turn: usize) -> u64 {
    (turn as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Folds all of the log anew, on this thread.
fn folding(projections: &Projections, findings: &mut Findings) -> Result<(), BenchError> {
    let begun = Instant::now();
    projections.catch_up(|_, _| {}).map_err(failed)?;
    let seconds = begun.elapsed().as_secs_f64();
    let positions: Result<Vec<_>, _> = projections.pools().map(|pool| pool.position()).collect();
    let positions = positions.map_err(failed)?;
    let steps: u64 =
        positions.iter().map(|position| position.at.seq.saturating_sub(position.begun.seq)).sum();
    let rows: u64 = positions.iter().map(|position| position.rows).sum();
    findings
        .cases
        .push(Case::alone("projection/folded", steps as f64 / seconds, "steps/s").target(">= 100000"));
    let bytes = projections.size() as f64;
    findings.cases.push(Case::alone("projection/size", bytes / rows.max(1) as f64, "B/request"));
    Ok(())
}

fn rows(findings: &mut Findings, name: &str, mut times: Vec<f64>, target: &'static str) {
    times.sort_by(f64::total_cmp);
    let at =
        |q: f64| times.get(((times.len() as f64 * q) as usize).min(times.len() - 1)).copied().unwrap_or(0.0);
    findings.cases.push(Case::alone(format!("{name}/p50"), at(0.5), "ms"));
    findings.cases.push(Case::alone(format!("{name}/p99"), at(0.99), "ms").target(target));
}

/// Puts a question again and again; the first time, which warms the cache, does not count.
fn timed(
    service: &Service,
    text: &str,
    variables: impl Fn(usize) -> Value,
    span: Duration,
) -> Result<Vec<f64>, BenchError> {
    let until = Instant::now() + span;
    let mut times = Vec::new();
    for turn in 0..=TIMES {
        let body = json!({ "query": text, "variables": variables(turn) }).to_string();
        let begun = Instant::now();
        let answer = service.answer(body.as_bytes(), &service.terms(None));
        let took = begun.elapsed().as_secs_f64() * 1e3;
        if answer.windows(9).any(|part| part == b"\"errors\":") {
            return Err(failed(String::from_utf8_lossy(&answer)));
        }
        if turn > 0 {
            times.push(took);
        }
        if times.len() > 4 && Instant::now() >= until {
            break;
        }
    }
    Ok(times)
}

/// What is asked for: requests and moments all over the log.
struct Sample {
    pool: String,
    ids: Vec<u64>,
    callers: Vec<String>,
    /// Requests that were refused or evicted (any, where none was).
    shed: Vec<u64>,
    begun: Micros,
    from: Micros,
    to: Micros,
}

impl Sample {
    fn of(pool: &PoolProjection) -> Result<Sample, BenchError> {
        let page = Page { after: None, before: None, limit: 200, backwards: false };
        let found = pool
            .requests(&Filter::default(), Order::ArrivalDesc, page, &Work::unbounded())
            .map_err(failed)?;
        let (last, begun) = (pool.at(), pool.position().map_err(failed)?.begun);
        let to = last.at + Micros(1);
        let from = Micros(to.0.saturating_sub(3_600_000_000)).max(begun.at);
        let mut ids = Vec::new();
        let mut callers: Vec<String> = Vec::new();
        let mut shed: Vec<u64> = Vec::new();
        // A few of the last ones, and whatever is found near sequences all over the log.
        for (_, row) in found.rows.iter().take(20) {
            ids.push(row.id);
            callers.push(row.caller_id.clone());
        }
        let span = last.seq.saturating_sub(begun.seq).max(1);
        let outcomes =
            Outcome::ALL.iter().copied().filter(|outcome| *outcome != Outcome::Dispatched).collect();
        let (any, refused) = (Filter::default(), Filter { outcomes, ..Filter::default() });
        for turn in 0..64 {
            let wanted = begun.seq + spread(turn) % span;
            let page = Page { after: Some((wanted, wanted)), before: None, limit: 1, backwards: false };
            let near =
                |filter| pool.requests(filter, Order::Arrival, page, &Work::unbounded()).map_err(failed);
            for (_, row) in near(&any)?.rows {
                ids.push(row.id);
                callers.push(row.caller_id);
            }
            shed.extend(near(&refused)?.rows.iter().map(|(_, row)| row.id));
        }
        if ids.is_empty() {
            return Err(failed("there is no request in this log"));
        }
        if shed.is_empty() {
            shed.clone_from(&ids);
        }
        Ok(Sample { pool: pool.name().to_owned(), ids, callers, shed, begun: begun.at, from, to })
    }

    fn id(&self, turn: usize) -> String {
        format!("{}-{}", self.pool, self.ids[turn % self.ids.len()])
    }

    fn variables(&self, declared: &[(String, String)], turn: usize) -> Value {
        let span = self.to.since(self.from).0.max(1);
        let moment = Micros(self.from.0 + spread(turn) % span);
        let value = |name: &str| match name {
            "pool" => json!(self.pool),
            "from" => json!(show_time(self.from)),
            "to" => json!(show_time(self.to)),
            "time" => json!(show_time(moment)),
            // The question is why it was shed.
            "id" => json!(format!("{}-{}", self.pool, self.shed[turn % self.shed.len()])),
            _ => json!(self.callers.get(turn % self.callers.len().max(1)).cloned().unwrap_or_default()),
        };
        declared.iter().map(|(name, _)| (name.clone(), value(name))).collect::<serde_json::Map<_, _>>().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bench_runs_on_a_log_that_it_makes() {
        let findings = run(None, Budget { whole: Duration::from_secs(1), only: None }).unwrap();
        let names: Vec<&str> = findings.cases.iter().map(|case| case.name.as_str()).collect();
        assert!(
            names.contains(&"projection/folded") && names.contains(&"query/what-went-wrong/p99"),
            "{names:?}"
        );
        assert!(names.contains(&"admissions/half-load/p50 with projections"), "{names:?}");
        assert!(names.contains(&"admissions/half-load/p99 beside hostile questions"), "{names:?}");
        assert_eq!(findings.cases.len(), 2 + 2 * (QUESTIONS.len() + 2) + 5);
    }
}
