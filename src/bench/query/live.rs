//! What questions cost a service that decides: admissions at half load with the projections' follower and without it, and
//! beside callers of hostile questions, in turns.

use super::hostile;
use crate::bench::gateway::held::{Callers, whole};
use crate::bench::gateway::proxy;
use crate::bench::gateway::turn::{Load, Turn, turn};
use crate::bench::gateway::weir::Weir;
use crate::bench::{BenchError, Case, Findings};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use weir_graphql::{Options, Service};
use weir_projection::{Projections, Source};

/// Connections of callers, each with one admission at a time.
const CALLERS: usize = 64;
/// Callers of hostile questions: each asks again when it is answered, but not more often than this.
const ATTACKERS: usize = 8;
const ATTACK_EVERY: Duration = Duration::from_millis(40);
/// The longest turn: many short pairs, so that a stall of the disk in one of them does not decide.
const STRETCH_MAX: Duration = Duration::from_secs(1);
/// Pairs of turns beside hostile questions, at least: of so few the disk's stalls, which come every second or two, would
/// decide.
const PAIRS_MIN: usize = 9;
/// For the follower to be with the log, and for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Measures both for about so long.
///
/// # Errors
/// The service does not start, an admission fails, an answer that is none.
pub fn run(findings: &mut Findings, span: Duration) -> Result<(), BenchError> {
    let failed = |error: &dyn std::fmt::Display| BenchError(format!("query: {error}"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|e| failed(&e))?;
    runtime.block_on(measure(findings, span)).map_err(|e| failed(&e))
}

async fn measure(findings: &mut Findings, span: Duration) -> Result<(), Failure> {
    let dir = tempfile::tempdir()?;
    let weir = Weir::start(dir.path(), proxy::upstream().await?).await?;
    let (data, frames) = weir.gateway().history.parts();
    let source = Source::new(data, Some(frames));
    let projections = Arc::new(Projections::open_with(data, &source, &["default".to_owned()])?);
    let service = Service::new(projections.clone(), Options::default())?;
    let _ = weir.gateway().graphql.set(service);
    let callers = Callers(weir.http);
    let stretch = (span / 16).min(STRETCH_MAX);
    let full = turn(&callers, Load { callers: CALLERS, stretch, rounds_per_s: None }).await?;
    let load = Load { callers: CALLERS, stretch, rounds_per_s: Some(full.rounds / full.took / 2.0) };
    follower(findings, &projections, (&callers, load), span.mul_f64(0.45)).await?;
    let followers = projections.follow()?;
    attacked(findings, &weir, (&callers, load), span.mul_f64(0.45)).await?;
    drop(followers);
    projections.close();
    weir.stop().await
}

/// Pairs of turns, with and without something; who goes first alternates.
struct Pairs {
    with: Vec<Turn>,
    without: Vec<Turn>,
}

impl Pairs {
    /// The turn in the middle of those with, and of those without.
    fn middles(&self, of: fn(&Turn) -> f64) -> (f64, f64) {
        let middle = |turns: &[Turn]| {
            let mut figures: Vec<f64> = turns.iter().map(of).collect();
            figures.sort_by(f64::total_cmp);
            figures.get(figures.len() / 2).copied().unwrap_or_default()
        };
        (middle(&self.with), middle(&self.without))
    }

    /// The ratio in the middle, and the figures of its pair.
    fn middle(&self, of: fn(&Turn) -> f64) -> (f64, f64) {
        let mut pairs: Vec<(f64, f64)> =
            self.with.iter().zip(&self.without).map(|(with, without)| (of(with), of(without))).collect();
        pairs.sort_by(|a, b| (a.0 / a.1.max(1e-9)).total_cmp(&(b.0 / b.1.max(1e-9))));
        pairs.get(pairs.len() / 2).copied().unwrap_or_default()
    }

    fn each(&self, of: fn(&Turn) -> f64) -> String {
        let pairs = self.with.iter().zip(&self.without);
        pairs
            .map(|(with, without)| format!("{:.1}/{:.1}", of(with), of(without)))
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Waits, off the runtime, until the projections are with the log.
async fn with_the_log(projections: &Arc<Projections>) -> Result<(), Failure> {
    let until = Instant::now() + PATIENCE;
    loop {
        let lag = projections.pools().map(|pool| pool.position().map(|at| at.head - at.at.seq));
        let lag: u64 = lag.sum::<Result<u64, _>>()?;
        if lag < 5_000 {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(format!("the projections are {lag} steps behind").into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn follower(
    findings: &mut Findings,
    projections: &Arc<Projections>,
    (callers, load): (&Callers, Load),
    span: Duration,
) -> Result<(), Failure> {
    let began = Instant::now();
    let mut pairs = Pairs { with: Vec::new(), without: Vec::new() };
    while pairs.with.len() < 3 || began.elapsed() + load.stretch * 3 < span {
        let with_first = pairs.with.len().is_multiple_of(2);
        if !with_first {
            pairs.without.push(turn(callers, load).await?);
        }
        let followers = projections.follow()?;
        with_the_log(projections).await?;
        pairs.with.push(turn(callers, load).await?);
        // What it leaves is written, on a thread that may block.
        tokio::task::spawn_blocking(move || drop(followers)).await?;
        if with_first {
            pairs.without.push(turn(callers, load).await?);
        }
    }
    for (what, of) in [("p50", (|t| t.p50) as fn(&Turn) -> f64), ("p99", |t| t.p99)] {
        let (with, without) = pairs.middle(of);
        let case = Case::beside(format!("admissions/half-load/{what} with projections"), with, "ms", without);
        findings.cases.push(if what == "p50" { case.target("ratio <= 1.1") } else { case });
    }
    let (with, without) = pairs.middle(|turn| turn.cpu_us / turn.rounds.max(1.0));
    findings.cases.push(Case::beside("admissions/half-load/cpu with projections", with, "us/round", without));
    let ratios: Vec<String> = (pairs.with.iter().zip(&pairs.without))
        .map(|(with, without)| format!("{:.2}", with.p50 / without.p50.max(1e-9)))
        .collect();
    findings.notes.push(format!("p50 with projections by p50 without, pair by pair: {}", ratios.join(" ")));
    Ok(())
}

/// Answers that hostile callers got.
#[derive(Default)]
struct Attack {
    refused: AtomicU64,
    answered: AtomicU64,
}

async fn attacked(
    findings: &mut Findings,
    weir: &Weir,
    (callers, load): (&Callers, Load),
    span: Duration,
) -> Result<(), Failure> {
    let began = Instant::now();
    let mut pairs = Pairs { with: Vec::new(), without: Vec::new() };
    let (mut refused, mut answered) = (0, 0);
    while pairs.with.len() < PAIRS_MIN || began.elapsed() + load.stretch * 3 < span {
        let with_first = !pairs.with.len().is_multiple_of(2);
        if !with_first {
            pairs.without.push(turn(callers, load).await?);
        }
        let attack = Arc::new(Attack::default());
        let attackers: Vec<_> = (0..ATTACKERS)
            .map(|number| {
                let (attack, addr) = (attack.clone(), weir.http);
                tokio::spawn(async move { ask_again_and_again(addr, number, &attack).await })
            })
            .collect();
        pairs.with.push(turn(callers, load).await?);
        for attacker in attackers {
            if attacker.is_finished() {
                attacker.await??;
            } else {
                // Who leaves ends the work on his question.
                attacker.abort();
            }
        }
        refused += attack.refused.load(Ordering::Relaxed);
        answered += attack.answered.load(Ordering::Relaxed);
        if with_first {
            pairs.without.push(turn(callers, load).await?);
        }
    }
    for (what, of) in [("p50", (|t| t.p50) as fn(&Turn) -> f64), ("p99", |t| t.p99)] {
        let (with, without) = pairs.middles(of);
        let name = format!("admissions/half-load/{what} beside hostile questions");
        let case = Case::beside(name, with, "ms", without);
        findings.cases.push(if what == "p99" { case.target("ratio <= 1.1, or 2 ms more") } else { case });
    }
    findings.notes.push(format!(
        "p99 beside hostile questions and without, in ms, pair by pair: {}",
        pairs.each(|turn| turn.p99)
    ));
    findings.notes.push(format!(
        "hostile questions: {ATTACKERS} callers, each at most every {} ms; {refused} refused, {answered} answered",
        ATTACK_EVERY.as_millis()
    ));
    Ok(())
}

async fn ask_again_and_again(addr: std::net::SocketAddr, number: usize, attack: &Attack) -> io::Result<()> {
    let questions = hostile::questions();
    let mut stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    let mut buffer = Vec::new();
    for (_, body, _) in questions.iter().cycle().skip(number * 3) {
        let next = tokio::time::Instant::now() + ATTACK_EVERY;
        let head = format!(
            "POST /graphql HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        buffer.clear();
        loop {
            if let Some(end) = whole(&buffer)? {
                let refused = buffer[..end].windows(9).any(|part| part == b"\"errors\":");
                let count = if refused { &attack.refused } else { &attack.answered };
                count.fetch_add(1, Ordering::Relaxed);
                break;
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        tokio::time::sleep_until(next).await;
    }
    Ok(())
}
