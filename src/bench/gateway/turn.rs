//! One stretch of many callers at one server.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Before a turn counts, as a share of it.
const WARM: f64 = 0.2;

/// Opens the callers of a turn.
pub trait Callers {
    /// Requests in one round.
    const REQUESTS: f64;
    type Caller: Caller;
    fn open(&self, number: usize) -> impl Future<Output = io::Result<Self::Caller>>;
}

/// One caller: a round after the other.
pub trait Caller: Send + 'static {
    /// An admission and its end. Gives when the admission was answered.
    fn round(&mut self) -> impl Future<Output = io::Result<Instant>> + Send;
}

/// How hard a turn is.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub callers: usize,
    pub stretch: Duration,
    /// Of all callers together, evenly; as fast as it goes where there is none.
    pub rounds_per_s: Option<f64>,
}

/// However slow it goes, each caller calls so often, so that a turn ends in time.
const SELDOM: Duration = Duration::from_millis(500);

/// What one stretch gave.
#[derive(Clone, Debug)]
pub struct Turn {
    pub rounds: f64,
    /// Seconds.
    pub took: f64,
    /// Processor time of the whole process, in microseconds.
    pub cpu_us: f64,
    /// Of the admissions, in milliseconds.
    pub p50: f64,
    pub p99: f64,
}

/// One turn with fresh callers.
pub async fn turn<C: Callers>(server: &C, load: Load) -> io::Result<Turn> {
    let (count, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let every = load
        .rounds_per_s
        .map(|rate| Duration::from_secs_f64(load.callers as f64 / rate.max(1.0)).min(SELDOM));
    let mut callers = Vec::with_capacity(load.callers);
    let begins = Instant::now();
    for number in 0..load.callers {
        let caller = server.open(number).await?;
        let first = every.map_or(begins, |every| begins + every.mul_f64(number as f64 / load.callers as f64));
        callers.push(tokio::spawn(rounds(caller, first, every, Arc::clone(&count), Arc::clone(&stop))));
    }
    tokio::time::sleep(load.stretch.mul_f64(WARM)).await;
    count.store(true, Ordering::Relaxed);
    let (began, cpu) = (Instant::now(), cpu_us());
    tokio::time::sleep(load.stretch).await;
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
    Ok(Turn { rounds: waits.len() as f64, took, cpu_us, p50: at(0.5), p99: at(0.99) })
}

/// The waits that counted, in microseconds. A round that begins late, because the one before it was slow, waits from
/// when it was due.
async fn rounds<C: Caller>(
    mut caller: C,
    mut due: Instant,
    every: Option<Duration>,
    count: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
) -> io::Result<Vec<u32>> {
    let mut waits = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        match every {
            Some(every) => {
                tokio::time::sleep_until(due.into()).await;
                // The timer's grain of 1 ms is not the server's; a caller that is late by more has the server to thank.
                let now = Instant::now();
                let began = if now < due + TIMER_GRAIN { now } else { due };
                record(&mut waits, began, patiently(caller.round()).await?, &count);
                due += every;
            }
            None => {
                let began = Instant::now();
                record(&mut waits, began, patiently(caller.round()).await?, &count);
            }
        }
    }
    Ok(waits)
}

const TIMER_GRAIN: Duration = Duration::from_millis(2);

/// A round that takes so long has gone wrong.
const PATIENCE: Duration = Duration::from_secs(60);

async fn patiently(round: impl Future<Output = io::Result<Instant>>) -> io::Result<Instant> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {PATIENCE:?}"));
    tokio::time::timeout(PATIENCE, round).await.map_err(|_| late())?
}

fn record(waits: &mut Vec<u32>, began: Instant, answered: Instant, count: &AtomicBool) {
    if count.load(Ordering::Relaxed) {
        let wait = answered.saturating_duration_since(began).as_micros();
        waits.push(u32::try_from(wait).unwrap_or(u32::MAX));
    }
}

/// Processor time of this process so far, in microseconds; zero where the system does not say.
fn cpu_us() -> f64 {
    // Fields 14 and 15 of proc(5) stat, in ticks of 10 ms; the name before them is in parentheses.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() * 10_000.0
}
