//! What holds: one validated set of values, each with where it came from.

use crate::node::Origin;
use crate::report::Notice;
use crate::section::Row;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use weir_kernel::{Micros, Policy, Role};

/// A whole configuration, resolved.
#[derive(Clone, Debug)]
pub struct Effective {
    /// The file it was read from, if any.
    pub file: Option<PathBuf>,
    /// The service.
    pub settings: Settings,
    /// The pools, by name. Never empty.
    pub pools: BTreeMap<String, PoolSettings>,
    /// Every effective value and where it came from, in the order of the manual.
    pub rows: Vec<Row>,
    /// Accepted, but hardly meant.
    pub warnings: Vec<Notice>,
    /// Accepted, worth knowing.
    pub notices: Vec<Notice>,
}

/// The section `weir`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where the gateway listens.
    pub listen: SocketAddr,
    /// The file of who may do what, if there is one.
    pub tokens_file: Option<PathBuf>,
    /// The decision log.
    pub log: LogSettings,
    /// Bounds of the HTTP gateway.
    pub gateway: GatewaySettings,
    /// Envoy's faces over gRPC.
    pub envoy: EnvoySettings,
    /// Questions to the decision log.
    pub graphql: GraphqlSettings,
    /// Priorities by objective name.
    pub objectives: BTreeMap<String, i32>,
    /// A folder with more of them, as `InferenceObjective` objects.
    pub objectives_dir: Option<PathBuf>,
    /// Also expose the metrics under their llm-d names.
    pub metrics_compat_llm_d: bool,
    /// Models that keep a metric label of their own whatever else comes.
    pub metrics_models: Vec<String>,
    /// How long queued requests are served after a stop; zero ends them at once.
    pub drain_timeout: Micros,
    /// Everybody may do everything, and whoever started it has said that this is meant. No file says so.
    pub insecure: bool,
}

/// The section `weir.log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// The data directory.
    pub dir: PathBuf,
    /// When a decision may be heard.
    pub durability: Durability,
    /// How often the log is made durable under [`Durability::Interval`].
    pub interval: Micros,
    /// The cache of the hot window, in bytes.
    pub cache_bytes: u64,
    /// The size of a database of the hot window at which the next one is begun, in bytes.
    pub rotate_bytes: u64,
    /// The oldest that is kept; zero = no bound.
    pub retention_age: Micros,
    /// The most bytes that the whole log may take; 0 = no bound.
    pub retention_bytes: u64,
    /// Steps of a pool between snapshots.
    pub snapshot_every: u64,
    /// How often sealing, snapshots and retention are looked after.
    pub upkeep_interval: Micros,
    /// The file of the key by which callers' ids and fairness ids are written as pseudonyms.
    pub pseudonymise: Option<PathBuf>,
}

/// When a decision may be heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Once its batch is durable.
    Group,
    /// At once; the log is made durable at an interval.
    Interval,
}

/// The section `weir.graphql`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphqlSettings {
    /// Are they answered?
    pub enabled: bool,
    /// May the schema be asked for?
    pub introspection: bool,
    /// How long one may take.
    pub timeout: Micros,
}

/// The section `weir.envoy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvoySettings {
    /// Where gRPC is served, if it is.
    pub listen: Option<SocketAddr>,
    /// Envoy lets requests through while Weir is gone.
    pub failure_mode_allow: bool,
    /// Requests of one connection, queued or running.
    pub max_streams: u32,
    /// Bytes of bodies that are held while their requests wait.
    pub max_held_bytes: u64,
}

/// The section `weir.gateway`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewaySettings {
    /// The largest body of a call, in bytes.
    pub max_body_bytes: u64,
    /// The longest that a body may take to come.
    pub body_timeout: Micros,
    /// The largest head of a call (request line and headers), in bytes.
    pub max_head_bytes: u64,
    /// The most headers of a call.
    pub max_headers: u64,
    /// The longest that a head may take to come.
    pub head_timeout: Micros,
    /// Connections that may be open at once, each of which may hold one request.
    pub max_in_flight: u64,
    /// How long a caller may take nothing of its answer.
    pub write_stall_timeout: Micros,
    /// Readers of a log at once.
    pub max_log_readers: u64,
    /// TLS, if it is spoken.
    pub tls: Option<TlsSettings>,
    /// How long an event stream may be silent before a heartbeat.
    pub heartbeat_interval: Micros,
    /// How long answers may take to leave once all is decided at a stop.
    pub close_timeout: Micros,
    /// Each thread that serves has a processor of its own.
    pub pin_workers: bool,
    /// The proxy.
    pub proxy: ProxySettings,
}

/// The section `weir.gateway.proxy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxySettings {
    /// Is it on?
    pub enabled: bool,
    /// Set the field `priority` of a request as vLLM reads it.
    pub engine_priority_vllm: bool,
    /// The largest body of a request, in bytes.
    pub max_body_bytes: u64,
    /// Bytes of bodies that are held while their requests wait, all together.
    pub max_held_bytes: u64,
    /// The longest that a connection to an endpoint may take to come about.
    pub connect_timeout: Micros,
    /// How long an idle connection to an endpoint is kept.
    pub idle_timeout: Micros,
    /// More paths whose requests are admitted.
    pub admit_paths: Vec<String>,
    /// More paths whose requests pass without admission.
    pub pass_paths: Vec<String>,
}

/// The section `weir.gateway.tls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The certificate and its chain.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities of client certificates.
    pub client_ca: Option<PathBuf>,
    /// Must clients show one?
    pub client_required: bool,
    /// The longest that a handshake may take.
    pub handshake_timeout: Micros,
}

impl Settings {
    /// Is anybody asked who it is?
    pub fn asks_who(&self) -> bool {
        let certificates = self.gateway.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        self.tokens_file.is_some() || certificates
    }

    /// The addresses that are listened on beyond loopback.
    pub fn beyond_loopback(&self) -> Vec<SocketAddr> {
        let addresses = [Some(self.listen), self.envoy.listen];
        addresses.into_iter().flatten().filter(|address| !address.ip().is_loopback()).collect()
    }
}

/// One pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolSettings {
    /// What decides, ready for the log.
    pub policy: Policy,
    /// The endpoints of the file, an empty list too; `None`: they are pushed, and nothing is known of the pool until then.
    pub endpoints: Option<Vec<EndpointSettings>>,
    /// Where they are found instead, if they are.
    pub discovery: Option<DiscoverySettings>,
    /// How their metrics are read.
    pub scrape: ScrapeSettings,
    /// The InferencePool that it is, as `InferenceObjective` objects name it.
    pub inference_pool: String,
    /// Priorities by objective name: those of the service, and what a folder says of this pool.
    pub objectives: BTreeMap<String, i32>,
    /// Is a raw numeric priority of the caller honoured?
    pub trust_request_priority: bool,
    /// Constants of llm-d's controller, without effect.
    pub controller: ControllerSettings,
    /// The name of the detector plugin in force.
    pub detector_name: String,
    /// The name of the usage limit plugin in force.
    pub usage_limit_name: String,
    /// The flow control section is there, but the gate is off.
    pub section_ignored: bool,
}

/// One endpoint of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSettings {
    /// Its name, unique in the pool.
    pub name: String,
    /// `http://host[:port]`, without a closing slash.
    pub url: String,
    /// Its stages.
    pub role: Role,
}

/// The section `pools.<name>.discovery`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiscoverySettings {
    /// The addresses of a name.
    Dns(DnsSettings),
    /// A file that somebody else writes.
    File(FileSettings),
    /// Objects of a Kubernetes API server.
    Kubernetes(KubernetesSettings),
}

/// The section `pools.<name>.discovery.dns`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsSettings {
    /// The name.
    pub name: String,
    /// The port of the model servers.
    pub port: u16,
    /// How often it is resolved.
    pub interval: Micros,
    /// After this long without an answer it is said that there is none.
    pub timeout: Micros,
    /// The stages of its endpoints.
    pub role: Role,
}

/// The section `pools.<name>.discovery.file`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSettings {
    /// The file.
    pub path: PathBuf,
    /// How often it is looked at.
    pub interval: Micros,
}

/// The section `pools.<name>.discovery.kubernetes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesSettings {
    /// The Service whose EndpointSlices are followed; else the pods of the InferencePool.
    pub service: Option<String>,
    /// The port, by name or number.
    pub port: Option<String>,
    /// Where the objects are; else where the service account is.
    pub namespace: Option<String>,
    /// Are objectives taken as well?
    pub objectives: bool,
    /// The stages of endpoints that say nothing of their own.
    pub role: Role,
    /// `http(s)://host[:port]`; else that of the cluster.
    pub api_server: Option<String>,
    /// The token.
    pub token_file: PathBuf,
    /// The authorities of the API server's certificate.
    pub ca_file: PathBuf,
}

/// The section `pools.<name>.scrape`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapeSettings {
    /// How often; never below [`SCRAPE_FLOOR`].
    pub interval: Micros,
    /// The longest that one read may take.
    pub timeout: Micros,
    /// The largest body that is read, in bytes.
    pub max_bytes: u64,
    /// Whose metric names are used.
    pub preset: Preset,
    /// The gauge of waiting requests, in place of the preset's.
    pub waiting: Option<String>,
    /// The gauge of running requests, in place of the preset's.
    pub running: Option<String>,
    /// The gauge of the KV cache share, in place of the preset's.
    pub kv_usage: Option<String>,
}

/// The shortest scrape interval.
pub const SCRAPE_FLOOR: Micros = Micros::from_millis(50);

/// Whose metric names are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// vLLM as it is now.
    Vllm,
    /// vLLM with its older name of the KV cache gauge.
    VllmOld,
    /// SGLang.
    Sglang,
    /// Text Generation Inference.
    Tgi,
}

/// The section `pools.<name>.controller`, and `enableEviction`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerSettings {
    /// `enableEviction`.
    pub enable_eviction: bool,
    /// llm-d's sweep interval.
    pub expiry_cleanup_interval: Micros,
    /// llm-d's hand-off channel.
    pub enqueue_channel_buffer_size: u64,
    /// The most revocations of one decision.
    pub max_revocations_per_decision: u64,
    /// How long after a confirmation the gauge is not trusted.
    pub eviction_confirmation_grace: Micros,
    /// How long a revocation may stay unconfirmed.
    pub eviction_confirmation_timeout: Micros,
}

impl Effective {
    /// The effective value at `path` and where it came from.
    pub fn row(&self, path: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.path == path)
    }

    /// Where the value at `path` came from: `default`, `FILE:LINE` or `env NAME`.
    pub fn source(&self, origin: &Origin) -> String {
        match (origin, &self.file) {
            (Origin::Line(line), Some(file)) => format!("{}:{line}", file.display()),
            _ => origin.to_string(),
        }
    }
}
