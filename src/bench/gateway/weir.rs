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

/// Flushes so far.
#[derive(Clone, Debug)]
pub struct Flushes(LogMetrics);

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

    pub fn flushes(&self) -> Flushes {
        Flushes(self.engine.log_metrics())
    }

    /// Of the flushes since then.
    pub fn flush_times_since(&self, before: &Flushes) -> FlushTimes {
        let (now, before) = (self.engine.log_metrics(), &before.0);
        let commits = (now.commits - before.commits).max(1);
        let mean = (now.flush_us - before.flush_us) as f64 / 1e3 / commits as f64;
        let counts = now.flush_buckets.iter().zip(before.flush_buckets).map(|(now, before)| now - before);
        let (mut faster, mut below, mut p99) = (0.0, 0.0, 0.0);
        for (bound, count) in FLUSH_BOUNDS_US.iter().zip(counts) {
            let (bound, left) = (*bound as f64 / 1e3, 0.99 * commits as f64 - faster);
            // Evenly spread within its bucket.
            p99 = below + (bound - below) * (left / (count as f64).max(1.0)).clamp(0.0, 1.0);
            if left <= count as f64 {
                break;
            }
            (faster, below) = (faster + count as f64, bound);
        }
        FlushTimes { mean, p99 }
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
