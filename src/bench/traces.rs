//! `weir bench traces`: held admissions with their completions, every one of them traced, while the receiver of spans takes
//! them, is gone, stalls, or refuses; beside the same without traces.
//!
//! A service each, with an exporter each, in one process; they take turns, round after round, so that whatever else the
//! machine does meets all of them. Of each round the ratio to the service whose receiver takes everything is kept, and to the
//! one without traces; the figures are those of the round in the middle.

use super::gateway::Failure;
use super::gateway::held::Callers;
use super::gateway::turn::{Load, Turn, turn};
use super::gateway::weir::Weir;
use super::{BenchError, Budget, Case, Findings};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_telemetry::export::{Exporter, Protocol, Settings};

/// Connections, each with one request at a time.
const CALLERS: usize = 64;
/// The same where turns are so short that no figure is meant.
const FEW: usize = 4;
const GLANCE: Duration = Duration::from_millis(100);
/// The longest turn of one service.
const STRETCH_MAX: Duration = Duration::from_secs(2);
/// What a stop may take for its spans, as in the service.
const STOP: Duration = Duration::from_secs(4);

/// What the receiver does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiver {
    /// There are no traces.
    None,
    /// Takes all.
    Takes,
    /// Nobody listens.
    Gone,
    /// Takes connections and never answers.
    Stalls,
    /// Answers 503.
    Refuses,
}

const ALL: [Receiver; 5] =
    [Receiver::None, Receiver::Takes, Receiver::Gone, Receiver::Stalls, Receiver::Refuses];

impl Receiver {
    const fn word(self) -> &'static str {
        match self {
            Receiver::None => "none",
            Receiver::Takes => "takes",
            Receiver::Gone => "gone",
            Receiver::Stalls => "stalls",
            Receiver::Refuses => "refuses",
        }
    }

    fn exporter(self) -> Result<Option<Arc<Exporter>>, Failure> {
        let addr = match self {
            Receiver::None => return Ok(None),
            // Bound and dropped.
            Receiver::Gone => TcpListener::bind("127.0.0.1:0")?.local_addr()?,
            Receiver::Takes => answering(Some("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"))?,
            Receiver::Refuses => answering(Some("HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n"))?,
            Receiver::Stalls => answering(None)?,
        };
        Ok(Some(Exporter::start(Settings::to(format!("http://{addr}/v1/traces"), Protocol::Http))?))
    }
}

/// A receiver over HTTP/1.1 on threads of its own, until the process ends. Without an answer it reads, and says nothing.
fn answering(answer: Option<&'static str>) -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    std::thread::Builder::new().name("receiver".to_owned()).spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || receive(stream, answer));
        }
    })?;
    Ok(addr)
}

fn receive(mut stream: TcpStream, answer: Option<&str>) {
    let (mut read, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        read.extend_from_slice(&piece[..count]);
        while let Some(end) = request_end(&read) {
            read.drain(..end);
            let Some(answer) = answer else { continue };
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}

/// Where the first request in the buffer ends, once all of it is there.
fn request_end(read: &[u8]) -> Option<usize> {
    let head = read.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&read[..head]).to_ascii_lowercase();
    let length =
        text.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse::<usize>().ok());
    let end = head + length.unwrap_or(0);
    (read.len() >= end).then_some(end)
}

/// A service under measurement.
struct Service {
    receiver: Receiver,
    weir: Weir,
    exporter: Option<Arc<Exporter>>,
    turns: Vec<Turn>,
}

/// Measures in rounds for most of the budget.
pub fn run(budget: Budget) -> Result<Findings, BenchError> {
    let failed = |error: &dyn std::fmt::Display| BenchError(format!("traces: {error}"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|e| failed(&e))?;
    runtime.block_on(measure(budget)).map_err(|e| failed(&e))
}

async fn measure(budget: Budget) -> Result<Findings, Failure> {
    let dirs = tempfile::tempdir()?;
    // Nobody asks it anything: admissions alone are measured.
    let upstream = SocketAddr::from(([127, 0, 0, 1], 9));
    let mut services = Vec::new();
    for receiver in ALL {
        let exporter = receiver.exporter()?;
        let dir = dirs.path().join(receiver.word());
        std::fs::create_dir(&dir)?;
        let weir = Weir::start_traced(&dir, upstream, exporter.clone()).await?;
        services.push(Service { receiver, weir, exporter, turns: Vec::new() });
    }
    let span = budget.whole.mul_f64(0.8);
    let stretch = (span / 25).min(STRETCH_MAX);
    let callers = if stretch < GLANCE { FEW } else { CALLERS };
    let (load, least) = (Load { callers, stretch, rounds_per_s: None }, if callers == FEW { 1 } else { 3 });
    let begun = Instant::now();
    let mut rounds = 0;
    while rounds < least || begun.elapsed() + stretch * 6 < span {
        // Who goes first changes, so that a slow drift of the machine favours nobody.
        for place in 0..services.len() {
            let at = (place + rounds) % services.len();
            let service = &mut services[at];
            service.turns.push(turn(&Callers(service.weir.http), load).await?);
        }
        rounds += 1;
    }
    let mut findings = figures(&services);
    for service in services {
        let said = stop(service).await?;
        findings.notes.extend(said);
    }
    findings.notes.push(format!(
        "{callers} callers in the same process, {rounds} rounds of {} ms each; every request is traced with three spans",
        stretch.as_millis()
    ));
    Ok(findings)
}

/// Ends a service; what became of its spans, and how long their end took.
async fn stop(service: Service) -> Result<Option<String>, Failure> {
    let name = service.receiver.word();
    service.weir.stop().await?;
    let Some(exporter) = service.exporter else { return Ok(None) };
    let begun = Instant::now();
    let counts = exporter.shutdown(STOP).await;
    Ok(Some(format!(
        "{name}: {} spans exported, {} dropped (queue full), {} dropped (export failed), {} requests skipped; the end took {:.2} s",
        counts.exported,
        counts.full,
        counts.failed,
        counts.lagged,
        begun.elapsed().as_secs_f64()
    )))
}

fn figures(services: &[Service]) -> Findings {
    let mut findings = Findings::new("traces");
    let of = |receiver| services.iter().find(|service| service.receiver == receiver);
    let (Some(none), Some(takes)) = (of(Receiver::None), of(Receiver::Takes)) else { return findings };
    for service in services {
        let name = format!("traces/{}", service.receiver.word());
        // Without traces stands beside itself, a receiver that takes all beside no traces, and one that fails beside that.
        let beside = if matches!(service.receiver, Receiver::None | Receiver::Takes) { none } else { takes };
        let (turn, reference) = middle(service, beside);
        let fails = !matches!(service.receiver, Receiver::None | Receiver::Takes);
        let rates = Case::beside(name.clone(), rate(turn), "requests/s", rate(reference));
        findings.cases.push(if fails { rates.target("ratio >= 0.95") } else { rates });
        findings.cases.push(Case::beside(format!("{name}/p50"), turn.p50, "ms", reference.p50));
        findings.cases.push(Case::beside(format!("{name}/p99"), turn.p99, "ms", reference.p99));
        if service.receiver != Receiver::None {
            let ratios = |beside: &Service| {
                let mut ratios: Vec<f64> = ratios(service, beside).collect();
                ratios.sort_by(f64::total_cmp);
                ratios.iter().map(|ratio| format!("{ratio:.2}")).collect::<Vec<_>>().join(" ")
            };
            findings.notes.push(format!(
                "{}: throughput of each round beside `takes` {}; beside `none` {}",
                service.receiver.word(),
                ratios(takes),
                ratios(none)
            ));
        }
    }
    findings
}

fn rate(turn: &Turn) -> f64 {
    2.0 * turn.rounds / turn.took
}

fn ratios(service: &Service, beside: &Service) -> impl Iterator<Item = f64> {
    service.turns.iter().zip(&beside.turns).map(|(one, other)| rate(one) / rate(other).max(1.0))
}

/// The pair of the round in the middle by their ratio.
fn middle<'s>(service: &'s Service, beside: &'s Service) -> (&'s Turn, &'s Turn) {
    static NOTHING: Turn = Turn { rounds: 0.0, took: 1.0, cpu_us: 0.0, p50: 0.0, p99: 0.0 };
    let mut pairs: Vec<(&Turn, &Turn)> = service.turns.iter().zip(&beside.turns).collect();
    let ratio = |(one, other): &(&Turn, &Turn)| rate(one) / rate(other).max(1.0);
    pairs.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
    pairs.get(pairs.len() / 2).copied().unwrap_or((&NOTHING, &NOTHING))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every receiver was served beside, and each lost or took what it should have.
    #[test]
    fn a_short_run_measures_every_receiver() {
        let findings = run(Budget { whole: Duration::from_secs(4), only: None }).unwrap();
        for receiver in ALL {
            let name = format!("traces/{}", receiver.word());
            let case = findings.cases.iter().find(|case| case.name == name).unwrap();
            assert!(case.value > 0.0 && case.reference.unwrap() > 0.0, "{name}");
        }
        let note =
            |name: &str| findings.notes.iter().find(|note| note.starts_with(name) && note.contains("spans"));
        assert!(!note("takes").unwrap().contains(": 0 spans exported"), "{:?}", findings.notes);
        for name in ["gone", "stalls", "refuses"] {
            assert!(note(name).unwrap().contains(": 0 spans exported"), "{:?}", findings.notes);
        }
    }
}
