//! The service under measurement: its log in a directory, its pool of one model server always open, HTTP and gRPC on
//! loopback.

use super::Failure;
use crate::engine::{Engine, EngineOptions, INBOX_ARRIVALS_MAX, LogOptions, Place, PoolOptions};
use crate::gateway::{
    Gateway, History, Options, PoolFace, ProxyOptions, follow_all, follow_traces, serve, serve_grpc,
};
use crate::observer::{Feed, Observer, ObserverOptions, Push, ScrapeOptions, Spec};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use weir_kernel::{Detector, Micros, Policy, Pushed, Ratio, Role};
use weir_log::writer::{FLUSH_BOUNDS_US, LogMetrics};
use weir_telemetry::export::Exporter;

const POOL: &str = "default";

pub struct Weir {
    pub http: SocketAddr,
    pub grpc: SocketAddr,
    engine: Engine,
    gateway: Arc<Gateway>,
    closing: watch::Sender<bool>,
}

/// Flushes: how many, and how long they took.
#[derive(Clone, Debug, Default)]
pub struct Flushes {
    count: u64,
    us: u64,
    /// By the bounds of [`FLUSH_BOUNDS_US`].
    buckets: [u64; FLUSH_BOUNDS_US.len() + 1],
}

/// How long flushes took, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct FlushTimes {
    pub mean: f64,
    /// Between the bounds of its bucket.
    pub p99: f64,
}

impl Weir {
    pub async fn start(dir: &Path, upstream: SocketAddr) -> Result<Weir, Failure> {
        Weir::start_traced(dir, upstream, None).await
    }

    /// The same with somewhere for spans to go.
    pub async fn start_traced(
        dir: &Path,
        upstream: SocketAddr,
        exporter: Option<Arc<Exporter>>,
    ) -> Result<Weir, Failure> {
        let policy = Policy { detector: Detector::Pushed, ..Policy::default() };
        let pools = BTreeMap::from([(POOL.to_owned(), PoolOptions { policy, ..PoolOptions::default() })]);
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
        let spec = Spec { name: upstream.to_string(), role: Role::Decode, metrics_url: None };
        observer.push(Push { endpoints: Some(vec![(spec, None)]), saturation: Pushed::Pool(Ratio::ZERO) })?;
        let face = PoolFace::new(handle, observer, "pushed-saturation-detector".to_owned());
        let history = History::new(Some(data), engine.log_writer());
        let options = Options { proxy: Some(ProxyOptions::default()), ..Options::default() };
        let gateway = Arc::new(Gateway::new(vec![face], history, options));
        if let Some(exporter) = exporter {
            // Nobody else sets it.
            let _ = gateway.traces.set(exporter);
        }
        follow_all(&gateway);
        let (http, grpc) = (TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?);
        let addrs = (http.local_addr()?, grpc.local_addr()?);
        let (closing, closed) = watch::channel(false);
        follow_traces(&gateway, &closed);
        tokio::spawn(serve(Arc::clone(&gateway), http, closed.clone()));
        tokio::spawn(serve_grpc(Arc::clone(&gateway), grpc, closed));
        Ok(Weir { http: addrs.0, grpc: addrs.1, engine, gateway, closing })
    }

    pub const fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// So far.
    pub fn flushes(&self) -> Flushes {
        let LogMetrics { commits, flush_us, flush_buckets, .. } = self.engine.log_metrics();
        Flushes { count: commits, us: flush_us, buckets: flush_buckets }
    }

    pub async fn stop(self) -> Result<(), Failure> {
        for pool in self.gateway.pools() {
            pool.observer.stop();
        }
        self.engine.shutdown(Duration::ZERO).await?;
        self.closing.send(true)?;
        Ok(())
    }
}

impl Flushes {
    /// Those that came after these.
    pub fn since(mut self, before: &Flushes) -> Flushes {
        self.count -= before.count;
        self.us -= before.us;
        self.buckets.iter_mut().zip(before.buckets).for_each(|(now, before)| *now -= before);
        self
    }

    pub fn add(&mut self, more: &Flushes) {
        self.count += more.count;
        self.us += more.us;
        self.buckets.iter_mut().zip(more.buckets).for_each(|(sum, more)| *sum += more);
    }

    pub fn times(&self) -> FlushTimes {
        let count = self.count.max(1) as f64;
        let (mut faster, mut below, mut p99) = (0.0, 0.0, 0.0);
        for (bound, within) in FLUSH_BOUNDS_US.iter().zip(self.buckets) {
            let (bound, left) = (*bound as f64 / 1e3, 0.99 * count - faster);
            // Evenly spread within its bucket.
            p99 = below + (bound - below) * (left / (within as f64).max(1.0)).clamp(0.0, 1.0);
            if left <= within as f64 {
                break;
            }
            (faster, below) = (faster + within as f64, bound);
        }
        FlushTimes { mean: self.us as f64 / 1e3 / count, p99 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_of_a_hundred_flushes_is_within_its_bucket() {
        let mut flushes = Flushes { count: 99, us: 9_900, ..Flushes::default() };
        flushes.buckets[0] = 99;
        flushes.add(&Flushes {
            count: 101,
            us: 50_100,
            buckets: std::array::from_fn(|n| if n == 2 { 101 } else { 0 }),
        });
        let FlushTimes { mean, p99 } = flushes.times();
        assert!((mean - 0.3).abs() < 1e-9, "{mean}");
        let bounds = [1, 2].map(|index| FLUSH_BOUNDS_US[index] as f64 / 1e3);
        assert!(p99 > bounds[0] && p99 < bounds[1], "{p99}");
        let later = flushes.clone().since(&Flushes {
            count: 101,
            us: 50_100,
            buckets: std::array::from_fn(|n| if n == 2 { 101 } else { 0 }),
        });
        assert!((later.times().mean - 0.1).abs() < 1e-9);
        assert_eq!(Flushes::default().times().mean, 0.0);
    }
}
