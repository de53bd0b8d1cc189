//! The service with its log, two simulated servers behind it, and what stands in front.

use super::Failure;
use super::envoy::Envoy;
use crate::engine::Place;
use crate::gateway::Service;
use crate::sim::http::{Pool, PoolSpec};
use crate::sim::truth::Spec;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_kernel::{Hold, Sizing};

/// What callers talk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// Weir's own proxy.
    Proxy,
    /// The real Envoy, which asks Weir by full-duplex ext_proc.
    Envoy,
}

/// KV of each server: some ten requests of [`super::callers`] fill it to its threshold.
const KV_TOKENS: u64 = 12_000;
/// Samples may be older than usual: servers, callers and service share a machine.
const SETTINGS: &str = "
plugins:
- name: gauge
  type: utilization-detector
  parameters: {metricsStalenessThreshold: 500ms}
flowControl:
  saturationDetector: {pluginRef: gauge}
  enableEviction: true
weir:
  listen: '127.0.0.1:0'
  envoy: {listen: '127.0.0.1:0'}
  gateway: {proxy: {enabled: true}}
pools:
  default:
    trustRequestPriority: true
    eviction: {sizing: SIZING}
    endpoints:
";
/// How long the pool may take to be full.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the servers say, by the caller's id of a request.
pub struct Report {
    /// Requests that reached one.
    pub taken: BTreeSet<String>,
    /// When what an aborted one had held was free, in microseconds since the Unix epoch.
    pub freed: BTreeMap<String, u64>,
}

pub struct World {
    service: Service,
    servers: Pool,
    /// Where callers go.
    pub addr: SocketAddr,
    // Ends with the world.
    _envoy: Option<Envoy>,
}

impl World {
    /// Where its log is.
    pub fn data(dir: &Path) -> PathBuf {
        dir.join("data")
    }

    pub async fn start(dir: &Path, front: Front, sizing: Sizing) -> Result<World, Failure> {
        let mut spec = Spec::default();
        spec.set_kv_tokens(KV_TOKENS);
        let spec = PoolSpec {
            spec,
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            model: "m".to_owned(),
            speed: 1.0,
            scrape_fail: 0.0,
            seed: 4,
        };
        let servers = Pool::start(&spec, &[0, 0]).await?;
        let sizing = match sizing {
            Sizing::Deficit => "deficit",
            Sizing::Demand => "demand",
        };
        let mut settings = SETTINGS.replace("SIZING", sizing);
        for (addr, _) in servers.servers() {
            // Writing to a string cannot fail.
            let _infallible = writeln!(settings, "    - {{name: '{addr}', url: 'http://{addr}'}}");
        }
        let settings = weir_config::from_text(&settings, std::iter::empty())?;
        let service = Service::start(&settings, Place::Directory(World::data(dir))).await?;
        let grpc = service.grpc_addr().ok_or("no gRPC")?;
        let envoy = match front {
            Front::Proxy => None,
            Front::Envoy => Some(Envoy::start(dir, grpc).await?),
        };
        let addr = envoy.as_ref().map_or(service.addr(), |envoy| envoy.addr);
        Ok(World { service, servers, addr, _envoy: envoy })
    }

    /// Waits until something is queued behind a ceiling.
    pub async fn full(&self) -> Result<(), Failure> {
        let pool = self.service.engine().pool("default").ok_or("no pool")?.clone();
        let wait = async {
            loop {
                let held = pool.query(|state| matches!(state.hold(), Some(Hold::Band { .. }))).await?;
                if held {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.map_err(|_| "the pool does not fill up")?
    }

    /// Ends everything; what the servers report.
    pub async fn stop(self) -> Result<Report, Failure> {
        self.service.stop(Duration::ZERO).await?;
        let engines = || self.servers.servers().map(|(_, engine)| engine);
        Ok(Report {
            taken: engines().flat_map(|engine| engine.taken()).map(String::from).collect(),
            freed: engines()
                .flat_map(|engine| engine.freed())
                .map(|freed| (freed.request_id, freed.at))
                .collect(),
        })
    }
}
