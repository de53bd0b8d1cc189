//! `weir bench gateway`: each face over loopback with its ends, beside a bare twin that does the same and decides nothing.
//!
//! Both servers, their callers and the log are in one process, and take turns: a stretch of one, a stretch of the
//! other, so that whatever else the machine does meets both. Some as fast as each goes, and in between some of both at
//! half of Weir's own pace, where what Weir adds to the wait shows. The workers that serve both are held to a processor each, as
//! `weir.gateway.pinWorkers` does: a kernel that gathers threads on few processors would be what is measured.

mod ext_proc;
pub(super) mod held;
pub(super) mod proxy;
mod stream;
pub(super) mod turn;
pub(super) mod weir;

use super::{BenchError, Budget, Case, Face, Findings};
use crate::workers;
use std::time::{Duration, Instant};
use turn::{Callers, Load, Turn, turn};
use weir::{Flushes, Weir};

/// Connections or streams, each with one request at a time.
const CALLERS: usize = 256;
/// The same where turns are so short that no figure is meant: for a look whether all works.
const FEW: usize = 8;
const GLANCE: Duration = Duration::from_millis(100);
/// The longest turn of one server.
const STRETCH_MAX: Duration = Duration::from_millis(500);
/// Of a face's turns, how many are at full pace; the rest is at half load.
const FULL: f64 = 0.6;
/// So many turns at full pace, the last ones, say what half of it is: a machine that others share has slow minutes.
const RECENT: usize = 3;

pub(super) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Measures every face in turns for most of the budget.
pub fn run(budget: Budget) -> Result<Findings, BenchError> {
    let failed = |error: &dyn std::fmt::Display| BenchError(format!("gateway: {error}"));
    let runtime = workers::runtime(true).map_err(|e| failed(&e))?;
    runtime.block_on(measure(budget)).map_err(|e| failed(&e))
}

async fn measure(budget: Budget) -> Result<Findings, Failure> {
    let dir = tempfile::tempdir()?;
    let upstream = proxy::upstream().await?;
    let weir = Weir::start(dir.path(), upstream).await?;
    let mut findings = Findings::new("gateway");
    let wanted = |face| budget.only.is_none_or(|only| only == face);
    let span = budget.whole.mul_f64(if budget.only.is_some() { 0.88 } else { 0.22 });
    if wanted(Face::Held) {
        let pair = [held::Callers(weir.http), held::Callers(held::bare().await?)];
        compare(&mut findings, "held", &weir, pair, span).await?;
    }
    if wanted(Face::Stream) {
        let pair = [stream::Callers(weir.http), stream::Callers(stream::bare().await?)];
        compare(&mut findings, "stream", &weir, pair, span).await?;
    }
    if wanted(Face::Proxy) {
        let pair = [proxy::Callers(weir.http), proxy::Callers(proxy::bare(upstream).await?)];
        compare(&mut findings, "proxy", &weir, pair, span).await?;
    }
    if wanted(Face::ExtProc) {
        let bare = ext_proc::bare().await?;
        let pair = [ext_proc::Callers::connect(weir.grpc).await?, ext_proc::Callers::connect(bare).await?];
        compare(&mut findings, "ext-proc", &weir, pair, span).await?;
    }
    weir.stop().await?;
    findings.notes.push(format!(
        "{CALLERS} callers, in the same process, its workers held to a processor each (weir.gateway.pinWorkers); cpu is \
         that of the whole process, callers included"
    ));
    findings.notes.push(
        "p50 and p99 are of admissions, at full pace; each waits for at least one flush of the log"
            .to_owned(),
    );
    findings.notes.push(
        "added-p99 is at half of Weir's pace: Weir's p99 less its twin's, beside two flushes (at their p99) and 1 ms"
            .to_owned(),
    );
    Ok(findings)
}

/// Weir's face and its twin.
async fn compare<C: Callers>(
    findings: &mut Findings,
    name: &'static str,
    weir: &Weir,
    [held, bare]: [C; 2],
    span: Duration,
) -> Result<(), Failure> {
    let (began, stretch) = (Instant::now(), (span / 24).min(STRETCH_MAX));
    let callers = if stretch < GLANCE { FEW } else { CALLERS };
    let least = if callers == CALLERS { 3 } else { 1 };
    let (mut full, mut half, mut flushes) = (Vec::new(), Vec::new(), Flushes::default());
    while half.len() < least || began.elapsed() + stretch * 3 < span {
        if full.len() as f64 <= FULL * (full.len() + half.len()) as f64 {
            let load = Load { callers, stretch, rounds_per_s: None };
            full.push(pair(&held, &bare, load, full.len()).await?);
        } else {
            let pace = pace(&full[full.len().saturating_sub(RECENT)..]);
            let (load, before) = (Load { callers, stretch, rounds_per_s: Some(pace / 2.0) }, weir.flushes());
            half.push(pair(&held, &bare, load, half.len()).await?);
            flushes.add(&weir.flushes().since(&before));
        }
    }
    let (faster, reference) = median(&full, ratio);
    let flush = flushes.times();
    let (slower, quick) = median(&half, |pair| pair.0.p99 - pair.1.p99);
    let cpu = |of: fn(&(Turn, Turn)) -> &Turn| {
        let (cpu, requests) = full.iter().map(of).fold((0.0, 0.0), |(cpu, requests), turn| {
            (cpu + turn.cpu_us, requests + turn.rounds * C::REQUESTS)
        });
        cpu / f64::max(requests, 1.0)
    };
    let case = |what: &str| {
        if what.is_empty() { format!("gateway/{name}") } else { format!("gateway/{name}/{what}") }
    };
    let rate = |turn: &Turn| turn.rounds * C::REQUESTS / turn.took;
    findings.cases.extend([
        Case::beside(case(""), rate(faster), "requests/s", rate(reference)).target("ratio >= 0.6"),
        Case::beside(case("p50"), faster.p50, "ms", reference.p50),
        Case::beside(case("p99"), faster.p99, "ms", reference.p99),
        Case::beside(case("cpu"), cpu(|pair| &pair.0), "us/request", cpu(|pair| &pair.1)),
        Case::beside(case("added-p99"), slower.p99 - quick.p99, "ms", 2.0 * flush.p99 + 1.0)
            .target("ratio <= 1"),
        Case::alone(case("flush"), flush.mean, "ms"),
        Case::alone(case("flush-p99"), flush.p99, "ms"),
    ]);
    let ratios: Vec<String> = sorted(&full, ratio).map(|pair| format!("{:.2}", ratio(pair))).collect();
    findings.notes.push(format!(
        "{name}: ratios of all turns {}; at half load p99 {:.2} ms beside {:.2}",
        ratios.join(" "),
        slower.p99,
        quick.p99
    ));
    Ok(())
}

/// A turn of each. Who goes first alternates, so that a slow drift of the machine favours neither.
async fn pair<C: Callers>(held: &C, bare: &C, load: Load, number: usize) -> Result<(Turn, Turn), Failure> {
    Ok(if number.is_multiple_of(2) {
        let quick = turn(bare, load).await?;
        (turn(held, load).await?, quick)
    } else {
        (turn(held, load).await?, turn(bare, load).await?)
    })
}

/// Rounds per second of Weir, the median of these turns.
fn pace(full: &[(Turn, Turn)]) -> f64 {
    let rounds = |pair: &(Turn, Turn)| pair.0.rounds / pair.0.took;
    let (turn, _) = median(full, rounds);
    turn.rounds / turn.took
}

fn ratio((held, bare): &(Turn, Turn)) -> f64 {
    (held.rounds / held.took) / (bare.rounds / bare.took).max(1.0)
}

fn sorted(pairs: &[(Turn, Turn)], by: impl Fn(&(Turn, Turn)) -> f64) -> impl Iterator<Item = &(Turn, Turn)> {
    let mut sorted: Vec<_> = pairs.iter().collect();
    sorted.sort_by(|a, b| by(a).total_cmp(&by(b)));
    sorted.into_iter()
}

/// The pair in the middle (there is at least one).
fn median(pairs: &[(Turn, Turn)], by: impl Fn(&(Turn, Turn)) -> f64) -> (&Turn, &Turn) {
    static NONE: Turn = Turn { rounds: 0.0, took: 1.0, cpu_us: 0.0, p50: 0.0, p99: 0.0 };
    sorted(pairs, by).nth(pairs.len() / 2).map_or((&NONE, &NONE), |(held, bare)| (held, bare))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every figure of a short run is there, and both servers of each face answered.
    #[test]
    fn a_short_run_measures_every_face() {
        // A machine that is busy may answer nothing within a glance: then it gets a longer look.
        for seconds in [1, 8, 64] {
            let findings = run(Budget { whole: Duration::from_secs(seconds), only: None }).unwrap();
            let answered = |name: &&str| {
                let case = findings.cases.iter().find(|case| case.name == *name).unwrap();
                case.value > 0.0 && case.reference.unwrap() > 0.0
            };
            let names = ["gateway/held", "gateway/stream", "gateway/proxy", "gateway/ext-proc"];
            if names.iter().all(answered) {
                return;
            }
            assert!(seconds < 64, "{:?}", findings.cases);
        }
    }
}
