//! `weir demo`: the service, a simulated pool and a load of real arrivals, together on loopback.
//!
//! The pool begins empty (a scale from zero), is too small for a while (a saturated stretch, in which budgets end),
//! and grows once more. Everything goes over real HTTP and into a real log. Not here: what each part does.

mod settings;
mod show;

use crate::engine::Place;
use crate::gateway::Service;
use crate::load::{self, Classes, Client, Drive, Mode, Progress, Report, Target};
use crate::sim::http::{Pool, PoolSpec};
use crate::sim::truth::Spec;
use bytes::Bytes;
use http::Method;
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weir_kernel::Micros;
use weir_telemetry::export::Exporter;

pub use show::Shown;

/// Real arrivals, bundled; see `demo/NOTICE.md` for where they come from.
pub const TRACE: &str = include_str!("azure-code-excerpt.csv");

/// The name of [`TRACE`] in messages.
pub const TRACE_NAME: &str = "azure-code-excerpt.csv";

/// Trace, servers and load all run this many times as fast as the real ones did.
pub const SPEED: f64 = 6.0;
/// When the pool has its first servers, as a share of the load's time.
const OPENS_AT: f64 = 0.14;
/// When it grows.
const GROWS_AT: f64 = 0.6;
/// Servers at first, and those that come later.
const SERVERS: (usize, usize) = (2, 2);
/// After the last arrival, how long requests may take to end.
const GRACE: Duration = Duration::from_secs(12);
/// Queued requests that are left at the end are served for this long.
const DRAIN: Duration = Duration::from_secs(1);

/// Why the demo did not run to its end.
pub type DemoError = Box<dyn std::error::Error + Send + Sync>;

/// What a demo showed.
#[derive(Debug)]
pub struct Seen {
    /// What callers heard.
    pub report: Report,
    /// What is in the log.
    pub steps: u64,
    /// Where the service listened.
    pub address: String,
}

/// Runs the demo for about this long, with its log in `data`, and tells how it goes. Its spans go to `exporter`, if there is one.
///
/// # Errors
/// A port or the directory cannot be had; a part failed.
pub async fn run(
    data: &Path,
    seconds: u64,
    shown: &Shown,
    exporter: Option<Arc<Exporter>>,
) -> Result<Seen, DemoError> {
    let settings = weir_config::from_text(settings::YAML, std::iter::empty())?;
    let service = Service::start_with(&settings, Place::Directory(data.to_owned()), None, exporter).await?;
    let address = format!("http://{}", service.addr());
    let lasting = Duration::from_secs(seconds);
    let progress = Arc::new(Progress::default());
    shown.begin(&address, Arc::clone(&progress), service.engine(), lasting + GRACE);

    let grown = grow(&address, lasting, shown);
    let driven = drive(&address, lasting, progress);
    let (pool, report) = tokio::join!(grown, driven);
    // The servers run until everybody has been served.
    let pool = pool?;
    let report = report?;
    shown.phase("stopping: the last step is made durable");
    let handles: Vec<_> = service.engine().pools().cloned().collect();
    service.stop(DRAIN).await?;
    drop(pool);
    let steps = handles.iter().map(|pool| pool.status().durable).sum();
    Ok(Seen { report, steps, address })
}

/// The pool: empty, then two servers, then four.
async fn grow(address: &str, lasting: Duration, shown: &Shown) -> Result<Pool, DemoError> {
    let spec = PoolSpec {
        spec: Spec { cold_start: Micros::from_secs(3), ..Spec::default() },
        host: IpAddr::V4(Ipv4Addr::LOCALHOST),
        model: "sim".to_owned(),
        speed: SPEED,
        scrape_fail: 0.0,
        seed: 1,
    };
    shown.phase("no model server yet: requests wait");
    let mut pool = Pool::start(&spec, &[]).await?;
    announce(address, &pool).await?;
    tokio::time::sleep(lasting.mul_f64(OPENS_AT)).await;
    for _ in 0..SERVERS.0 {
        pool.add(&spec, 0).await?;
    }
    ready(&pool).await;
    announce(address, &pool).await?;
    shown.phase("two servers: the waiting room drains, then the pool is too small");
    tokio::time::sleep(lasting.mul_f64(GROWS_AT - OPENS_AT)).await;
    for _ in 0..SERVERS.1 {
        pool.add(&spec, 0).await?;
    }
    ready(&pool).await;
    announce(address, &pool).await?;
    shown.phase("four servers");
    Ok(pool)
}

/// Waits until every server has loaded.
async fn ready(pool: &Pool) {
    while !pool.servers().all(|(_, engine)| engine.ready()) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Tells Weir which servers there are, as a controller would.
async fn announce(address: &str, pool: &Pool) -> Result<(), DemoError> {
    let endpoints: Vec<_> = pool
        .servers()
        .map(|(at, _)| json!({ "name": at.to_string(), "metricsUrl": format!("http://{at}/metrics") }))
        .collect();
    let url = format!("{address}/v1/pools/default/endpoints");
    let body = Bytes::from(json!({ "endpoints": endpoints }).to_string());
    let answer = Client::default().send(Method::PUT, &url, &[], body).await?;
    match answer.status.as_u16() {
        200 => Ok(()),
        status => Err(format!("PUT {url}: status {status}").into()),
    }
}

async fn drive(address: &str, lasting: Duration, progress: Arc<Progress>) -> Result<Report, DemoError> {
    let rows = load::parse(TRACE_NAME, TRACE)?;
    let words = settings::SHARES.map(|(name, share)| format!("{name}={share}"));
    let classes = Classes::parse(&words, settings::FLOWS)?;
    let plan = load::from_trace(&rows, Duration::ZERO, Some(lasting.mul_f64(SPEED)), SPEED, &classes, 1);
    let target = Target::new(address, Mode::Endpoint, classes)?;
    let bounds = Drive { in_flight_max: 4_000, grace: GRACE };
    Ok(load::drive(Arc::new(target), plan, bounds, progress, std::future::pending()).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_and_the_trace_are_read() {
        let settings = weir_config::from_text(settings::YAML, std::iter::empty()).unwrap();
        let policy = &settings.pools["default"].policy;
        assert_eq!(policy.bands.keys().copied().collect::<Vec<_>>(), [-10, 0, 100]);
        assert_eq!(settings.settings.objectives.get("interactive"), Some(&100));
        let rows = load::parse(TRACE_NAME, TRACE).unwrap();
        assert!(rows.len() > 1_500, "{}", rows.len());
    }
}
