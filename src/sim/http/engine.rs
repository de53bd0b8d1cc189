//! The truth model in real time: submits and aborts as they come, tokens handed on when they are due.

use super::freed::{self, FREED_MAX, Freed};
use crate::sim::rng::Rng;
use crate::sim::truth::{Gauges, Job, Progress, Refusal, Server, Spec, Totals, What};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};
use tokio_stream::Stream;
use weir_kernel::Micros;

/// How `/metrics` answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scrape {
    /// As it should.
    #[default]
    Ok,
    /// With 500.
    Fail,
    /// Never.
    Hang,
    /// With 200 and text that is no exposition.
    Garbage,
    /// With 200, and NaN for every gauge.
    Nan,
}

/// One simulated server in real time.
#[derive(Debug)]
pub struct Engine {
    inner: Mutex<Inner>,
    wake: Notify,
    started: Instant,
    speed: f64,
    scrape_fail: f64,
}

#[derive(Debug)]
struct Inner {
    server: Server,
    callers: BTreeMap<u64, Caller>,
    last_id: u64,
    scrape: Scrape,
    rng: Rng,
    ttft: Histogram,
    freed: VecDeque<Freed>,
    /// Labels of requests that were taken, the youngest.
    taken: VecDeque<Box<str>>,
}

#[derive(Debug)]
struct Caller {
    submitted: Micros,
    label: Box<str>,
    to: mpsc::UnboundedSender<u32>,
}

/// Time to first token, in simulated seconds.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// Count per bucket of [`Histogram::BOUNDS`], and above.
    pub counts: [u64; Self::BOUNDS.len() + 1],
    /// Sum in microseconds.
    pub sum: u64,
}

impl Histogram {
    /// Upper bounds in milliseconds.
    pub const BOUNDS: [u64; 12] = [10, 20, 40, 80, 150, 300, 500, 1_000, 2_500, 5_000, 10_000, 60_000];

    fn observe(&mut self, took: Micros) {
        let bucket = Self::BOUNDS.partition_point(|bound| *bound < took.0.div_ceil(1_000));
        self.counts[bucket] += 1;
        self.sum += took.0;
    }
}

/// What `/metrics` shows at one instant.
#[derive(Clone, Debug)]
pub struct View {
    /// The gauges.
    pub gauges: Gauges,
    /// The counters.
    pub totals: Totals,
    /// Time to first token.
    pub ttft: Histogram,
}

/// A request inside the engine. Dropping it gives the request up.
#[derive(Debug)]
pub struct Running {
    id: u64,
    engine: Arc<Engine>,
    tokens: mpsc::UnboundedReceiver<u32>,
}

impl Running {
    /// Its number within the engine.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// The next token's number; nothing more after the last.
    pub async fn token(&mut self) -> Option<u32> {
        self.tokens.recv().await
    }
}

impl Stream for Running {
    type Item = u32;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<u32>> {
        self.get_mut().tokens.poll_recv(cx)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut inner = self.engine.lock();
        if let Some(caller) = inner.callers.remove(&self.id) {
            inner.give_up(self.id, &caller);
        }
    }
}

impl Engine {
    /// A server that begins to load now. `speed` simulated seconds pass in one second.
    pub fn new(spec: Spec, speed: f64, scrape_fail: f64, seed: u64) -> Self {
        let inner = Inner {
            server: Server::new(spec, Micros::ZERO, seed),
            callers: BTreeMap::new(),
            last_id: 0,
            scrape: Scrape::Ok,
            rng: Rng::new(!seed),
            ttft: Histogram::default(),
            freed: VecDeque::new(),
            taken: VecDeque::new(),
        };
        Engine {
            inner: Mutex::new(inner),
            wake: Notify::new(),
            started: Instant::now(),
            speed: if speed.is_finite() && speed > 0.0 { speed } else { 1.0 },
            scrape_fail,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Simulated time.
    fn now(&self) -> Micros {
        Micros((self.started.elapsed().as_secs_f64() * self.speed * 1e6) as u64)
    }

    /// When simulated time will be `at`.
    fn instant(&self, at: Micros) -> Instant {
        let real = at.0 as f64 / 1e6 / self.speed;
        // Far enough for "never", and within what an instant can hold.
        self.started + Duration::from_secs_f64(real.min(86_400.0 * 365.0))
    }

    /// Has the server loaded?
    pub fn ready(&self) -> bool {
        self.now() >= self.lock().server.ready_at()
    }

    /// Takes a request; what is reported of it bears this label.
    ///
    /// # Errors
    /// As [`Server::submit`].
    pub fn submit(self: &Arc<Self>, prompt: u32, output: u32, label: &str) -> Result<Running, Refusal> {
        let (to, tokens) = mpsc::unbounded_channel();
        let mut inner = self.lock();
        let now = self.now();
        inner.advance(now);
        inner.last_id += 1;
        let id = inner.last_id;
        inner.server.submit(now, Job { id, prompt, output })?;
        if inner.taken.len() >= FREED_MAX {
            inner.taken.pop_front();
        }
        inner.taken.push_back(label.into());
        inner.callers.insert(id, Caller { submitted: now, label: label.into(), to });
        drop(inner);
        self.wake.notify_one();
        Ok(Running { id, engine: Arc::clone(self), tokens })
    }

    /// What `/metrics` shows now.
    pub fn view(&self) -> View {
        let mut inner = self.lock();
        inner.advance(self.now());
        View { gauges: inner.server.gauges(), totals: inner.server.totals(), ttft: inner.ttft.clone() }
    }

    /// Labels of requests that were taken, oldest first, at most the last 4,096.
    pub fn taken(&self) -> Vec<Box<str>> {
        self.lock().taken.iter().cloned().collect()
    }

    /// Requests that were given up, oldest first, at most the last 4,096.
    pub fn freed(&self) -> Vec<Freed> {
        self.lock().freed.iter().cloned().collect()
    }

    /// How this scrape is to be answered.
    pub fn scrape(&self) -> Scrape {
        let mut inner = self.lock();
        let fails = inner.rng.unit() < self.scrape_fail;
        if inner.scrape == Scrape::Ok && fails { Scrape::Fail } else { inner.scrape }
    }

    /// How scrapes are answered from now on.
    pub fn set_scrape(&self, scrape: Scrape) {
        self.lock().scrape = scrape;
    }

    /// Holds the server up from now on for this long (simulated time).
    pub fn stall(&self, lasting: Micros) {
        let mut inner = self.lock();
        let now = self.now();
        inner.advance(now);
        inner.server.stall(now, lasting);
    }

    /// Hands tokens on when they are due; never ends by itself.
    pub async fn run(self: Arc<Self>) {
        loop {
            let next = {
                let mut inner = self.lock();
                inner.advance(self.now());
                inner.server.next_event()
            };
            match next {
                Some(at) => {
                    let due = tokio::time::sleep_until(self.instant(at).into());
                    tokio::select! { () = due => {}, () = self.wake.notified() => {} }
                }
                None => self.wake.notified().await,
            }
        }
    }
}

impl Inner {
    /// Its slot and its KV are free at once, and that is reported.
    fn give_up(&mut self, id: u64, caller: &Caller) {
        let before = self.server.gauges();
        if !self.server.abort(id) {
            return;
        }
        let after = self.server.gauges();
        if self.freed.len() >= FREED_MAX {
            self.freed.pop_front();
        }
        self.freed.push_back(Freed {
            request_id: caller.label.to_string(),
            at: freed::now(),
            ran: after.running < before.running,
            kv_blocks: before.kv_used.saturating_sub(after.kv_used),
        });
    }

    fn advance(&mut self, now: Micros) {
        let Inner { server, callers, ttft, .. } = self;
        server.advance(now, &mut |Progress { at, id, what }| match what {
            What::Token(n) => {
                if let Some(caller) = callers.get(&id) {
                    if n == 1 {
                        ttft.observe(at.since(caller.submitted));
                    }
                    // A receiver that is gone aborts the job by itself.
                    let _gone = caller.to.send(n);
                }
            }
            What::Finished => drop(callers.remove(&id)),
            What::Preempted => {}
        });
    }
}
