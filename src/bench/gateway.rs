//! `weir bench gateway`: held admissions over loopback HTTP with their completions, beside a bare axum handler.
//!
//! Both servers, their callers and the log are in one process, and take turns: a stretch of one, a stretch of the
//! other, so that whatever else the machine does meets both. The bare handler reads the same requests and answers
//! with as many bytes. Each call counts, admission and completion alike.

use super::{BenchError, Budget, Case, Findings, gateway_proxy};
use crate::engine::{Engine, EngineOptions, INBOX_ARRIVALS_MAX, LogOptions, Place, PoolOptions};
use crate::gateway::{Gateway, History, Options, PoolFace, follow_all, serve};
use crate::observer::{Feed, Observer, ObserverOptions, Push, ScrapeOptions, Spec};
use axum::Router;
use axum::routing::post;
use axum::serve::ListenerExt;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use weir_kernel::{Detector, Micros, Policy, Pushed, Ratio, Role};

/// Connections, each with one call at a time.
pub const CONNECTIONS: usize = 256;
/// One turn of one server.
pub const STRETCH: Duration = Duration::from_secs(1);
/// At the start of a turn, not counted.
pub const WARM: Duration = Duration::from_millis(200);
const POOL: &str = "default";

/// What the bare handlers answer: as long as an admission and a completion.
const BARE_ADMISSION: &str = r#"{"admission":{"id":"default-1234567","requestId":"bench-00000000","pool":"default","outcome":"Dispatched","sequence":1234567,"queuedMs":0,"priority":0,"flow":"tenant-00"}}"#;
const BARE_COMPLETION: &str = r#"{"id":"default-1234567","state":"completed","sequence":1234568}"#;

/// Measures in turns for most of the budget.
pub fn run(budget: Budget) -> Result<Findings, BenchError> {
    let failed = |error: &dyn std::fmt::Display| BenchError(format!("gateway: {error}"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|e| failed(&e))?;
    let part = Budget { whole: budget.whole / 2 };
    let mut findings = runtime.block_on(measure(part)).map_err(|e| failed(&e))?;
    let dir = tempfile::tempdir().map_err(|e| failed(&e))?;
    let proxy = gateway_proxy::measure(dir.path(), part.whole.mul_f64(0.8));
    let (cases, notes) = runtime.block_on(proxy).map_err(|e| failed(&e))?;
    findings.cases.extend(cases);
    findings.notes.extend(notes);
    Ok(findings)
}

/// Why something could not be measured.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn measure(budget: Budget) -> Result<Findings, Failure> {
    let dir = tempfile::tempdir()?;
    let weir = Weir::start(dir.path(), Options::default(), "e").await?;
    let bare = bare().await?;
    let lasting = budget.whole.mul_f64(0.8);
    let began = Instant::now();
    let mut pairs = Vec::new();
    while pairs.len() < 3 || began.elapsed() + 3 * STRETCH < lasting {
        // Who goes first alternates, so that a slow drift of the machine favours neither.
        let first = if pairs.len() % 2 == 0 { bare } else { weir.addr };
        let second = if first == bare { weir.addr } else { bare };
        let (first, second) = (turn(first).await?, turn(second).await?);
        pairs.push(if pairs.len() % 2 == 0 { (second, first) } else { (first, second) });
    }
    let cpu = |of: fn(&(Turn, Turn)) -> &Turn| {
        let turns = || pairs.iter().map(of);
        let calls: f64 = turns().map(|turn| turn.calls).sum();
        turns().map(|turn| turn.cpu_us).sum::<f64>() / calls.max(1.0)
    };
    let (cpu_held, cpu_bare) = (cpu(|pair| &pair.0), cpu(|pair| &pair.1));
    pairs.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
    let flush = weir.flush_us();
    weir.stop().await?;
    let ratios: Vec<String> = pairs.iter().map(|pair| format!("{:.2}", ratio(pair))).collect();
    let (held, reference) = pairs.swap_remove(pairs.len() / 2);
    let mut findings = Findings::new("gateway");
    findings.cases = vec![
        Case::beside("gateway/held", held.rate, "requests/s", reference.rate).target("ratio >= 0.6"),
        Case::beside("gateway/held/p50", held.p50, "ms", reference.p50),
        Case::beside("gateway/held/p99", held.p99, "ms", reference.p99),
        Case::beside("gateway/cpu", cpu_held, "us/request", cpu_bare),
        Case::alone("gateway/flush/mean", flush / 1e3, "ms"),
    ];
    findings.notes = vec![
        format!("{CONNECTIONS} connections; ratios of all turns: {}", ratios.join(" ")),
        "p50 and p99 are of admissions; a held one waits for at least one flush of the log".to_owned(),
        "cpu is that of the whole process, callers included, over all turns".to_owned(),
    ];
    Ok(findings)
}

fn ratio(pair: &(Turn, Turn)) -> f64 {
    pair.0.rate / pair.1.rate.max(1.0)
}

/// The service, its log in a directory, its pool always open.
pub struct Weir {
    /// Where it listens.
    pub addr: SocketAddr,
    engine: Engine,
    gateway: Arc<Gateway>,
    closing: watch::Sender<bool>,
}

impl Weir {
    /// With these options, before one endpoint of this name.
    pub async fn start(dir: &std::path::Path, options: Options, endpoint: &str) -> Result<Weir, Failure> {
        let policy = Policy { detector: Detector::Pushed, ..Policy::default() };
        let pools = BTreeMap::from([(POOL.to_owned(), PoolOptions { policy, objectives: BTreeMap::new() })]);
        let data = dir.join("data");
        let engine = Engine::open(EngineOptions {
            pools,
            place: Place::Directory(data.clone()),
            log: LogOptions::default(),
            clock: None,
            inbox_arrivals_max: INBOX_ARRIVALS_MAX,
        })?;
        let handle = engine.pool(POOL).ok_or("no pool")?.clone();
        let (scrape, staleness) = (ScrapeOptions::default(), Micros::from_secs(5));
        let observing = ObserverOptions { feed: Feed::Pushed, scrape, staleness };
        let observer = Observer::start(handle.clone(), observing).await;
        let spec = Spec { name: endpoint.to_owned(), role: Role::Decode, metrics_url: None };
        observer.push(Push { endpoints: Some(vec![(spec, None)]), saturation: Pushed::Pool(Ratio::ZERO) })?;
        let face = PoolFace::new(handle, observer, "pushed-saturation-detector".to_owned());
        let history = History::new(Some(data), engine.log_writer());
        let gateway = Arc::new(Gateway::new(vec![face], history, options));
        follow_all(&gateway);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let (closing, closed) = watch::channel(false);
        tokio::spawn(serve(Arc::clone(&gateway), listener, closed));
        Ok(Weir { addr, engine, gateway, closing })
    }

    /// The mean of its flushes, in microseconds.
    pub fn flush_us(&self) -> f64 {
        let metrics = self.engine.log_metrics();
        metrics.flush_us as f64 / metrics.commits.max(1) as f64
    }

    /// Stops it.
    ///
    /// # Errors
    /// Something of it had failed.
    pub async fn stop(self) -> Result<(), Failure> {
        for pool in self.gateway.pools() {
            pool.observer.stop();
        }
        self.engine.shutdown(Duration::ZERO).await?;
        self.closing.send(true)?;
        Ok(())
    }
}

async fn bare() -> io::Result<SocketAddr> {
    let json = [("content-type", "application/json")];
    let admit = post(move |_: Bytes| async move { (json, BARE_ADMISSION) });
    let complete = post(move |_: Bytes| async move { (json, BARE_COMPLETION) });
    let app = Router::new().route("/v1/admissions", admit).route("/v1/admissions/{id}/complete", complete);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    // Ends with the runtime.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(addr)
}

/// What one stretch gave.
struct Turn {
    rate: f64,
    calls: f64,
    /// Processor time of the whole process.
    cpu_us: f64,
    p50: f64,
    p99: f64,
}

async fn turn(addr: SocketAddr) -> io::Result<Turn> {
    let (count, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut callers = Vec::with_capacity(CONNECTIONS);
    for number in 0..CONNECTIONS {
        let caller = Caller::open(addr, number).await?;
        callers.push(tokio::spawn(caller.calls(Arc::clone(&count), Arc::clone(&stop))));
    }
    tokio::time::sleep(WARM).await;
    count.store(true, Ordering::Relaxed);
    let (began, cpu) = (Instant::now(), cpu_us());
    tokio::time::sleep(STRETCH).await;
    count.store(false, Ordering::Relaxed);
    let (took, cpu_us) = (began.elapsed().as_secs_f64(), cpu_us() - cpu);
    stop.store(true, Ordering::Relaxed);
    let mut waits = Vec::new();
    for caller in callers {
        waits.extend(caller.await??);
    }
    waits.sort_unstable();
    let at = |share: f64| {
        let index = (waits.len() as f64 * share) as usize;
        waits.get(index).map_or(0.0, |us| f64::from(*us) / 1e3)
    };
    // Each admission has its completion.
    let calls = 2.0 * waits.len() as f64;
    Ok(Turn { rate: calls / took, calls, cpu_us, p50: at(0.5), p99: at(0.99) })
}

/// Processor time of this process so far, in microseconds; zero where the system does not say.
fn cpu_us() -> f64 {
    // Fields 14 and 15 of proc(5) stat, in ticks of 10 ms; the name before them is in parentheses.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() * 10_000.0
}

/// One connection that admits and completes in turn.
struct Caller {
    stream: TcpStream,
    buffer: Vec<u8>,
    admission: Vec<u8>,
}

impl Caller {
    async fn open(addr: SocketAddr, number: usize) -> io::Result<Caller> {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        let body = format!(r#"{{"fairnessId":"tenant-{:02}","bytes":1024,"promptTokens":256}}"#, number % 16);
        let admission = format!(
            "POST /v1/admissions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n\
             x-request-id: bench-{number:08}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        Ok(Caller { stream, buffer: Vec::with_capacity(4_096), admission: admission.into_bytes() })
    }

    /// The waits of the admissions that counted, in microseconds.
    async fn calls(mut self, count: Arc<AtomicBool>, stop: Arc<AtomicBool>) -> io::Result<Vec<u32>> {
        let mut waits = Vec::new();
        let mut completion = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let began = Instant::now();
            self.stream.write_all(&self.admission).await?;
            let end = self.answer().await?;
            let waited = u32::try_from(began.elapsed().as_micros()).unwrap_or(u32::MAX);
            completion.clear();
            completion.extend_from_slice(b"POST /v1/admissions/");
            completion.extend_from_slice(id(&self.buffer[..end])?);
            completion.extend_from_slice(b"/complete HTTP/1.1\r\nhost: bench\r\ncontent-length: 0\r\n\r\n");
            self.buffer.clear();
            self.stream.write_all(&completion).await?;
            self.answer().await?;
            self.buffer.clear();
            if count.load(Ordering::Relaxed) {
                waits.push(waited);
            }
        }
        Ok(waits)
    }

    /// Reads one answer; where it ends in the buffer.
    async fn answer(&mut self) -> io::Result<usize> {
        loop {
            if let Some(end) = whole(&self.buffer)? {
                return Ok(end);
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed within an answer"));
            }
        }
    }
}

fn broken(what: &str, found: &[u8]) -> io::Error {
    let found = String::from_utf8_lossy(found).into_owned();
    io::Error::new(io::ErrorKind::InvalidData, format!("{what}: {found}"))
}

/// The end of the answer in the buffer, once all of it is there. Anything but 200 is an error.
///
/// # Errors
/// Another status, or no length.
pub fn whole(buffer: &[u8]) -> io::Result<Option<usize>> {
    let Some(head) = find(buffer, b"\r\n\r\n") else { return Ok(None) };
    if !buffer.starts_with(b"HTTP/1.1 200") {
        return Err(broken("not admitted", buffer));
    }
    let name = b"content-length: ";
    let at = find(&buffer[..head], name).ok_or_else(|| broken("no length", buffer))? + name.len();
    let digits = buffer[at..head].iter().take_while(|byte| byte.is_ascii_digit());
    let length = digits.fold(0usize, |sum, digit| 10 * sum + usize::from(digit - b'0'));
    Ok((buffer.len() >= head + 4 + length).then_some(head + 4 + length))
}

fn id(answer: &[u8]) -> io::Result<&[u8]> {
    let name = b"\"id\":\"";
    let at = find(answer, name).ok_or_else(|| broken("no id", answer))? + name.len();
    let length = find(&answer[at..], b"\"").ok_or_else(|| broken("no id", answer))?;
    Ok(&answer[at..at + length])
}

fn find(within: &[u8], what: &[u8]) -> Option<usize> {
    within.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_whole() {
        let text =
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{BARE_ADMISSION}", BARE_ADMISSION.len());
        for cut in 0..text.len() {
            assert!(whole(&text.as_bytes()[..cut]).unwrap().is_none(), "{cut}");
        }
        assert_eq!(whole(text.as_bytes()).unwrap(), Some(text.len()));
        assert_eq!(id(text.as_bytes()).unwrap(), b"default-1234567");
        assert!(whole(b"HTTP/1.1 503 no\r\ncontent-length: 0\r\n\r\n").is_err());
    }

    /// Every figure of a short run is there, and both servers answered.
    #[test]
    fn a_short_run_measures_both() {
        let findings = run(Budget { whole: Duration::from_secs(1) }).unwrap();
        assert_eq!(findings.cases[0].name, "gateway/held");
        assert!(findings.cases[0].value > 0.0 && findings.cases[0].reference.unwrap() > 0.0);
        assert!(findings.cases[1].value > 0.0);
        let proxy = findings.cases.iter().find(|case| case.name == "gateway/proxy").unwrap();
        assert!(proxy.value > 0.0 && proxy.reference.unwrap() > 0.0);
    }
}
