//! The whole service of one process, from settings: engine, observers, gateway and listener, started and stopped in order.

use super::accept;
use super::discovered::brings_objectives;
use super::door::{self, DoorError};
use super::follow;
use super::grpc;
use super::history::History;
use super::options::{EnvoyOptions, Options, ProxyOptions};
use super::server;
use super::state::{Gateway, PoolFace};
use super::traces;
use crate::engine::{
    Clock, Engine, EngineError, EngineOptions, INBOX_ARRIVALS_MAX, LogOptions, Place, PoolHandle,
    PoolOptions, Unavailable,
};
use crate::observer::{Feed, Observer, ObserverOptions};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use weir_config::{Effective, GatewaySettings, PoolSettings};
use weir_graphql::Limits;
use weir_kernel::Micros;
use weir_projection::{Followers, Projections, Source};
use weir_telemetry::export::Exporter;

/// Why the service does not start, or does not take other settings.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The address cannot be listened on.
    #[error("listen {addr}: {error}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// What the system said.
        error: std::io::Error,
    },
    /// Nobody could be let in, or everybody.
    #[error(transparent)]
    Door(#[from] DoorError),
    /// The engine does not start.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A pool takes no settings.
    #[error("pool {pool}: {error}")]
    Pool {
        /// The pool.
        pool: String,
        /// Why.
        error: Unavailable,
    },
    /// More endpoints than a pool can have.
    #[error("pool {pool}: {error}")]
    Endpoints {
        /// The pool.
        pool: String,
        /// Why.
        error: crate::observer::TooMany,
    },
}

/// A running service.
pub struct Service {
    /// The threads that keep the read models with the log: they end before the log does.
    reading: Option<Followers>,
    addr: SocketAddr,
    grpc_addr: Option<SocketAddr>,
    engine: Engine,
    gateway: Arc<Gateway>,
    closing: watch::Sender<bool>,
    servers: Vec<JoinHandle<()>>,
    followers: Vec<JoinHandle<()>>,
    tracers: Vec<JoinHandle<()>>,
}

/// The longest that spans may take to leave at a stop.
const TRACES_END: Duration = Duration::from_secs(4);

impl Service {
    /// Starts everything that the settings say; decisions are kept at `place`.
    ///
    /// # Errors
    /// The address or the data directory is in use, or cannot be used.
    pub async fn start(settings: &Effective, place: Place) -> Result<Service, ServiceError> {
        Service::start_with(settings, place, None, None).await
    }

    /// The same with a given clock, and with somewhere for spans to go.
    ///
    /// # Errors
    /// As [`Service::start`].
    pub async fn start_with(
        settings: &Effective,
        place: Place,
        clock: Option<Clock>,
        exporter: Option<Arc<Exporter>>,
    ) -> Result<Service, ServiceError> {
        let door = door::open(&settings.settings)?;
        // Bound before the log is opened: a second process on the same address touches nothing.
        let (addr, listener) = listen(settings.settings.listen)?;
        let grpc = match settings.settings.envoy.listen {
            Some(addr) => Some(listen(addr)?),
            None => None,
        };
        let pools = settings.pools.iter().map(|(name, pool)| {
            let options = PoolOptions {
                policy: pool.policy.clone(),
                objectives: pool.objectives.clone(),
                keep_objectives: brings_objectives(pool),
            };
            (name.clone(), options)
        });
        let pools = pools.collect();
        let log = LogOptions::from_settings(&settings.settings.log);
        let dir = match &place {
            Place::Directory(dir) => Some(dir.clone()),
            Place::Memory(_) => None,
        };
        let inbox_arrivals_max = INBOX_ARRIVALS_MAX;
        let engine = Engine::open(EngineOptions { pools, place, log, clock, inbox_arrivals_max })?;
        let mut faces = Vec::with_capacity(settings.pools.len());
        for (name, pool) in &settings.pools {
            if let Some(handle) = engine.pool(name) {
                faces.push(face(handle, pool).await);
            }
        }
        let history = History::new(dir, engine.log_writer());
        let gateway = Arc::new(Gateway::new(faces, history, options(settings)));
        door.set(&gateway);
        if let Some(exporter) = exporter {
            // Nobody else sets it.
            let _ = gateway.traces.set(exporter);
        }
        for (name, pool) in &settings.pools {
            if let Ok(face) = gateway.pool(Some(name)) {
                // The table was set at the opening; what is found is put beside that.
                let noted = face.discovered.set_objectives(&face.handle, pool).await;
                noted.map_err(|error| ServiceError::Pool { pool: name.clone(), error })?;
                face.discovered.follow(face, pool);
            }
        }
        let reading = answer_questions(&gateway, settings);
        let followers = follow::all(&gateway);
        let (closing, closed) = watch::channel(false);
        let tracers = traces::follow(&gateway, &closed);
        let mut servers = vec![tokio::spawn(server::serve(Arc::clone(&gateway), listener, closed.clone()))];
        let grpc_addr = grpc.map(|(addr, listener)| {
            servers.push(tokio::spawn(grpc::serve(Arc::clone(&gateway), listener, closed)));
            addr
        });
        Ok(Service { addr, grpc_addr, engine, gateway, closing, servers, followers, tracers, reading })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where it serves gRPC, if it does.
    pub fn grpc_addr(&self) -> Option<SocketAddr> {
        self.grpc_addr
    }

    /// Its engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Puts other settings in force: who may do what, policies, objectives, endpoints and scraping. What cannot change while running
    /// (listener, log, which pools there are, limits of the gateway) stays as it was; those that differ are named.
    ///
    /// # Errors
    /// A pool takes no settings now.
    pub async fn reload(&self, old: &Effective, new: &Effective) -> Result<Vec<&'static str>, ServiceError> {
        self.reload_access(new)?;
        for (name, pool) in &new.pools {
            let (Some(handle), Ok(face)) = (self.engine.pool(name), self.gateway.pool(Some(name))) else {
                continue;
            };
            let refused = |error| ServiceError::Pool { pool: name.clone(), error };
            handle.change_policy(pool.policy.clone()).await.map_err(refused)?;
            face.discovered.set_objectives(handle, pool).await.map_err(refused)?;
            face.set_trust_priority(pool.trust_request_priority);
            let observing = ObserverOptions::from_settings(pool);
            face.set_configured(observing.feed != Feed::Pushed);
            let too_many = |error| ServiceError::Endpoints { pool: name.clone(), error };
            face.observer.configure(observing).map_err(too_many)?;
            face.discovered.follow(face, pool);
        }
        Ok(unchangeable(old, new))
    }

    /// Puts the objectives of these settings in force, and nothing else.
    ///
    /// # Errors
    /// A pool takes none now.
    pub async fn reload_objectives(&self, settings: &Effective) -> Result<(), ServiceError> {
        for (name, pool) in &settings.pools {
            let Ok(face) = self.gateway.pool(Some(name)) else { continue };
            let refused = |error| ServiceError::Pool { pool: name.clone(), error };
            face.discovered.set_objectives(&face.handle, pool).await.map_err(refused)?;
        }
        Ok(())
    }

    /// Reads tokens, certificates and authorities again.
    ///
    /// # Errors
    /// Something cannot be read or used, or everybody could do everything; then nothing changes.
    pub fn reload_access(&self, settings: &Effective) -> Result<(), ServiceError> {
        let listening: Vec<SocketAddr> = [Some(self.addr), self.grpc_addr].into_iter().flatten().collect();
        Ok(door::reopen(&self.gateway, &settings.settings, &listening)?)
    }

    /// Is anybody asked who it is?
    pub fn asks_who(&self) -> bool {
        self.gateway.guard.is_on()
    }

    /// Waits until an operator orders a drain: then it is time to [`Service::stop`].
    pub async fn drain_ordered(&self) {
        self.gateway.upkeep.drain_ordered().await;
    }

    /// Notes how a reload of the settings ended, for `/readyz` and `GET /admin/config`.
    pub fn note_reload(&self, outcome: Result<(), String>) {
        self.gateway.upkeep.note_reload(outcome);
    }

    /// Stops in order: not ready; no new requests; what is queued is served for `drain`, then ended; the last step
    /// made durable; answers sent; connections closed.
    ///
    /// # Errors
    /// A pool's thread had failed, or the last steps did not become durable.
    pub async fn stop(self, drain: Duration) -> Result<(), EngineError> {
        self.gateway.begin_stop();
        let reading = self.reading;
        // The read models write their end while the log is still there.
        let stopped = self.engine.shutdown_after(drain, move || drop(reading)).await;
        for pool in self.gateway.pools() {
            pool.discovered.stop();
            pool.observer.stop();
        }
        // A server may have ended by itself, which is its end as well.
        let _ = self.closing.send(true);
        for server in self.servers {
            let _ = server.await;
        }
        for follower in self.followers {
            follower.abort();
        }
        end_traces(&self.gateway, self.tracers).await;
        if let Some(service) = self.gateway.graphql.get() {
            service.projections().close();
        }
        stopped
    }
}

/// Opens the read models of the log and follows it, where that is wanted. They are a convenience: whatever is wrong with
/// them is said, and the service goes on without.
fn answer_questions(gateway: &Gateway, settings: &Effective) -> Option<Followers> {
    let wanted = &settings.settings.graphql;
    if !wanted.enabled {
        return None;
    }
    let (dir, frames) = gateway.history.parts();
    let names: Vec<String> = settings.pools.keys().cloned().collect();
    let source = Source::new(dir, Some(frames));
    let service =
        Projections::open_with(dir, &source, &names).map_err(|error| error.to_string()).and_then(|all| {
            let limits = Limits { introspection: wanted.introspection, ..Limits::default() };
            let timeout = Duration::from_micros(wanted.timeout.0);
            let options = weir_graphql::Options { limits, timeout, ..weir_graphql::Options::default() };
            let followers = all.follow().map_err(|error| error.to_string())?;
            let service =
                weir_graphql::Service::new(Arc::new(all), options).map_err(|error| error.to_string())?;
            Ok((service, followers))
        });
    match service {
        Ok((service, followers)) => {
            // Nobody else sets it.
            let _ = gateway.graphql.set(service);
            Some(followers)
        }
        Err(error) => {
            tracing::warn!(error, "GraphQL is off: the projections of the log do not open");
            None
        }
    }
}

/// Sends what is left of the traces, as long as there is time for it.
async fn end_traces(gateway: &Gateway, tracers: Vec<JoinHandle<()>>) {
    let Some(exporter) = gateway.traces.get() else { return };
    let until = tokio::time::Instant::now() + TRACES_END;
    for tracer in tracers {
        // One that is not through by then leaves the rest to the log.
        let _ = tokio::time::timeout_at(until, tracer).await;
    }
    let counts = exporter.shutdown(until.saturating_duration_since(tokio::time::Instant::now())).await;
    tracing::info!(
        exported = counts.exported,
        queue_full = counts.full,
        export_failed = counts.failed,
        requests_skipped = counts.lagged,
        "traces: spans exported and dropped in this run"
    );
}

fn listen(addr: SocketAddr) -> Result<(SocketAddr, TcpListener), ServiceError> {
    let listening = accept::listen(addr).and_then(|listener| Ok((listener.local_addr()?, listener)));
    listening.map_err(|error| ServiceError::Listen { addr, error })
}

/// What differs but takes a restart.
fn unchangeable(old: &Effective, new: &Effective) -> Vec<&'static str> {
    let (before, after) = (&old.settings, &new.settings);
    let mut names = Vec::new();
    for (differs, name) in [
        (before.listen != after.listen, "weir.listen"),
        (before.envoy != after.envoy, "weir.envoy"),
        (before.log != after.log, "weir.log"),
        (before.graphql != after.graphql, "weir.graphql"),
        (fixed(&before.gateway) != fixed(&after.gateway), "weir.gateway"),
        (!old.pools.keys().eq(new.pools.keys()), "pools (which there are)"),
    ] {
        if differs {
            names.push(name);
        }
    }
    names
}

/// Without what is read again: the files of TLS.
fn fixed(gateway: &GatewaySettings) -> (GatewaySettings, bool) {
    (GatewaySettings { tls: None, ..gateway.clone() }, gateway.tls.is_some())
}

fn options(settings: &Effective) -> Options {
    let (service, gateway) = (&settings.settings, &settings.settings.gateway);
    let size = |number| usize::try_from(number).unwrap_or(usize::MAX);
    let span = |micros: Micros| Duration::from_micros(micros.0);
    Options {
        body_bytes_max: gateway.max_body_bytes,
        body_time_max: span(gateway.body_timeout),
        head_bytes_max: size(gateway.max_head_bytes),
        headers_max: size(gateway.max_headers),
        head_time_max: span(gateway.head_timeout),
        connections_max: size(gateway.max_in_flight),
        write_stall_max: span(gateway.write_stall_timeout),
        log_readers_max: size(gateway.max_log_readers),
        drain_timeout: span(service.drain_timeout),
        heartbeat: span(gateway.heartbeat_interval),
        close_timeout: span(gateway.close_timeout),
        models: service.metrics_models.clone(),
        metrics_compat_llm_d: service.metrics_compat_llm_d,
        envoy: EnvoyOptions {
            failure_mode_allow: service.envoy.failure_mode_allow,
            streams_max: service.envoy.max_streams,
            held_bytes_max: service.envoy.max_held_bytes,
        },
        proxy: gateway.proxy.enabled.then(|| ProxyOptions {
            engine_priority_vllm: gateway.proxy.engine_priority_vllm,
            body_bytes_max: gateway.proxy.max_body_bytes,
            held_bytes_max: gateway.proxy.max_held_bytes,
            connect_time_max: span(gateway.proxy.connect_timeout),
            idle_time_max: span(gateway.proxy.idle_timeout),
            admit_paths: gateway.proxy.admit_paths.clone(),
            pass_paths: gateway.proxy.pass_paths.clone(),
        }),
    }
}

async fn face(handle: &PoolHandle, pool: &PoolSettings) -> PoolFace {
    let observing = ObserverOptions::from_settings(pool);
    let pushed = observing.feed == Feed::Pushed;
    let observer = Observer::start(handle.clone(), observing).await;
    let face = PoolFace::new(handle.clone(), observer, pool.detector_name.clone());
    face.set_trust_priority(pool.trust_request_priority);
    face.set_configured(!pushed);
    face
}
