//! `weir serve`: the service, until it is told to stop.
//!
//! SIGTERM and SIGINT stop it in order. SIGHUP, or a change of the file, puts other settings in force if they are
//! valid as a whole; otherwise it says why and changes nothing.

use super::config::environment;
use super::limits;
use super::objectives::Objectives;
use super::watch::Watched;
use crate::engine::Place;
use crate::gateway::{Service, door_files};
use crate::workers;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;
use weir_config::{DiscoverySettings, Effective, EndpointSettings, PoolSettings, format_duration, url_key};
use weir_kernel::Role;
use weir_log::output;
use weir_telemetry::export::{Exporter, Settings as TraceSettings};

/// What of the process's own log is shown.
const LOG_FILTER: &str = "WEIR_LOG";

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Arguments of `weir serve`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The settings; else ./weir.yaml, else the built-in defaults.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Where to listen, in place of weir.listen. Port 0 = any free one.
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// Where to serve Envoy's gRPC, in place of weir.envoy.listen. Port 0 = any free one.
    #[arg(long)]
    grpc_listen: Option<SocketAddr>,
    /// Serve as a reverse proxy to these model servers (http://HOST:PORT, by commas): the endpoints of the only pool, or of
    /// the pool `default`, in place of those of the settings. Their /metrics are read.
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    upstream: Vec<String>,
    /// The data directory, in place of weir.log.dir.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Let everybody do everything, though more than this machine can reach it: no tokens, no client certificates.
    #[arg(long)]
    insecure: bool,
    /// Where to write the address that is listened on, once it is.
    #[arg(long)]
    port_file: Option<PathBuf>,
    /// Where to write the address that gRPC is served on, once it is.
    #[arg(long)]
    grpc_port_file: Option<PathBuf>,
}

/// Runs `weir serve`.
pub fn run(args: Args) -> ExitCode {
    let wanted = weir_telemetry::environment(LOG_FILTER).filter(|wanted| !wanted.is_empty());
    let read = wanted.as_deref().unwrap_or("info").parse::<EnvFilter>().map_err(|error| error.to_string());
    let not_read = read.as_ref().err().cloned();
    if let Ok(filter) = read.or_else(|_| "info".parse::<EnvFilter>()) {
        // Set before, it stays.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(std::io::stderr)
            // Where stderr cannot be written (a full disk), saying so there would be a panic.
            .log_internal_errors(false)
            .try_init();
    }
    if let Some(error) = not_read {
        let found = wanted.unwrap_or_default();
        tracing::warn!(
            "{LOG_FILTER}: {found:?} is not allowed ({error}); allowed: level or target=level by commas; `info` holds"
        );
    }
    match start(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir serve: {error}");
            ExitCode::FAILURE
        }
    }
}

type Failure = Box<dyn std::error::Error>;

fn start(args: Args) -> Result<(), Failure> {
    let settings = load(&args)?;
    let (files, wanted) = (limits::raise_open_files(), settings.settings.gateway.max_in_flight);
    if files.is_some_and(|files| files < wanted) {
        tracing::warn!(
            files,
            wanted,
            "fewer files may be open than weir.gateway.maxInFlight has connections"
        );
    }
    let runtime = workers::runtime(settings.settings.gateway.pin_workers)?;
    let ended = runtime.block_on(serve(args, settings));
    // Reads of the file system and of clients that hang must not hold up the end.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

fn load(args: &Args) -> Result<Effective, Failure> {
    given(args, weir_config::load(args.config.as_deref(), environment())?)
}

/// The same while it runs by the settings of a file: the file has to be there, with something in it.
fn load_again(args: &Args, in_force: &Effective) -> Result<Effective, Failure> {
    match args.config.as_ref().or(in_force.file.as_ref()) {
        Some(file) => given(args, weir_config::load_again(file, environment())?),
        None => load(args),
    }
}

/// With what the command line says in place of settings.
fn given(args: &Args, mut settings: Effective) -> Result<Effective, Failure> {
    if let Some(listen) = args.listen {
        settings.settings.listen = listen;
    }
    if args.grpc_listen.is_some() {
        settings.settings.envoy.listen = args.grpc_listen;
    }
    if let Some(dir) = &args.data {
        settings.settings.log.dir.clone_from(dir);
    }
    settings.settings.insecure = args.insecure;
    if !args.upstream.is_empty() {
        proxied(&mut settings, &args.upstream)?;
    }
    Ok(settings)
}

/// Turns the proxy on, to these endpoints.
fn proxied(settings: &mut Effective, upstreams: &[String]) -> Result<(), String> {
    let mut endpoints: Vec<EndpointSettings> = Vec::new();
    for text in upstreams {
        let refused = |allowed: &str| Err(format!("--upstream: {text:?} is not allowed; allowed: {allowed}"));
        let Some(url) = weir_config::base_url(text) else {
            return refused("a base URL such as http://10.0.0.7:8000");
        };
        if endpoints.iter().any(|endpoint| url_key(&endpoint.url) == url_key(&url)) {
            return refused("each URL once");
        }
        let name = url.trim_start_matches("http://").to_owned();
        endpoints.push(EndpointSettings { name, url, role: Role::Decode });
    }
    let name = match settings.pools.keys().next() {
        Some(only) if settings.pools.len() == 1 => only.clone(),
        _ => weir_config::DEFAULT_POOL.to_owned(),
    };
    let Some(pool) = settings.pools.get_mut(&name) else {
        let known: Vec<&str> = settings.pools.keys().map(String::as_str).collect();
        return Err(format!(
            "--upstream: there are several pools and none is called {name}: {}",
            known.join(", ")
        ));
    };
    (pool.endpoints, pool.discovery) = (Some(endpoints), None);
    settings.settings.gateway.proxy.enabled = true;
    Ok(())
}

async fn serve(args: Args, mut settings: Effective) -> Result<(), Failure> {
    let [mut terminate, mut interrupt, mut hangup] = signals()?;
    complain(&settings);
    let mut file = Watched::new(settings.file.clone());
    let mut door = Watched::new(door_files(&settings.settings));
    let mut folder = Objectives::of(&mut settings);
    let exporter = traces()?;
    let place = Place::Directory(settings.settings.log.dir.clone());
    let service = Service::start_with(&settings, place, None, exporter.clone()).await?;
    say_openness(&service, &args);
    output::say(in_force(&settings, &service, exporter.as_deref()))?;
    let files = [(&args.port_file, Some(service.addr())), (&args.grpc_port_file, service.grpc_addr())];
    let files = files.map(|(file, addr)| file.clone().zip(addr));
    // A named pipe waits for its reader; signals are heard meanwhile.
    let mut telling = tokio::task::spawn_blocking(move || tell(&files));
    let mut told = false;
    let mut look = tokio::time::interval(LOOK_EVERY);
    // The settings of the file are not those in force: it is not valid, or what it names is not.
    let mut refused = false;
    loop {
        let asked = tokio::select! {
            done = &mut telling, if !told => {
                done??;
                told = true;
                continue;
            }
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            () = service.drain_ordered() => break,
            _ = hangup.recv() => true,
            _ = look.tick() => false,
        };
        // Only the looks of the clock are far enough apart to see a file rest.
        let (settings_changed, door_changed) =
            if asked { (false, false) } else { (file.changed(), door.changed()) };
        let mut done = false;
        if asked || settings_changed || (refused && door_changed) {
            file.read();
            let mut doors = door.clone();
            doors.read();
            done = reload(&service, &args, &mut settings, &mut folder).await;
            refused = !done;
            if done {
                doors.follow(door_files(&settings.settings));
                door = doors;
            }
        }
        // Who may do what changes even while the settings are not valid.
        if door_changed && !done {
            match service.reload_access(&settings) {
                Ok(()) => {
                    tracing::info!("tokens and certificates were read again");
                    if !refused {
                        service.note_reload(Ok(()));
                    }
                }
                Err(error) => {
                    tracing::error!("tokens and certificates are not changed: {error}");
                    service.note_reload(Err(format!("tokens and certificates are not changed: {error}")));
                }
            }
        }
        if folder.look(&mut settings) {
            match service.reload_objectives(&settings).await {
                Ok(()) => tracing::info!("the objectives of the folder were read again"),
                // Tried again with the next look.
                Err(error) => folder.again(&format!("the objectives are not all changed: {error}")),
            }
        }
    }
    let drain = Duration::from_micros(settings.settings.drain_timeout.0);
    tracing::info!(
        drain_ms = drain.as_millis() as u64,
        "stopping: no new requests; what is queued is served"
    );
    let stopping = service.stop(drain);
    let mut stopping = std::pin::pin!(stopping);
    loop {
        tokio::select! {
            stopped = &mut stopping => {
                stopped?;
                tracing::info!("stopped");
                return Ok(());
            }
            _ = terminate.recv() => tracing::info!("already stopping"),
            _ = interrupt.recv() => tracing::info!("already stopping"),
        }
    }
}

/// Where spans go, by the standard `OTEL_*` variables.
fn traces() -> Result<Option<Arc<Exporter>>, Failure> {
    let (settings, warnings) = TraceSettings::from_env(weir_telemetry::environment)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(settings.map(Exporter::start).transpose()?)
}

fn signals() -> std::io::Result<[Signal; 3]> {
    Ok([signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?])
}

fn complain(settings: &Effective) {
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    for notice in &settings.notices {
        tracing::info!("{notice}");
    }
}

/// Whoever starts it so is told at every start.
fn say_openness(service: &Service, args: &Args) {
    let beyond = [Some(service.addr()), service.grpc_addr()].into_iter().flatten();
    let beyond: Vec<SocketAddr> = beyond.filter(|addr| !addr.ip().is_loopback()).collect();
    match (service.asks_who(), args.insecure) {
        (false, true) if !beyond.is_empty() => {
            tracing::warn!("--insecure: whoever reaches {beyond:?} may admit, steer and read everything");
        }
        (_, true) => {
            tracing::warn!("--insecure has no effect: callers are known, or only this machine reaches it")
        }
        (_, false) => {}
    }
}

/// True if the settings of the file are in force.
async fn reload(service: &Service, args: &Args, settings: &mut Effective, folder: &mut Objectives) -> bool {
    let mut new = match load_again(args, settings) {
        Ok(new) => new,
        Err(mistakes) => {
            tracing::error!("the settings are not changed: {mistakes}");
            service.note_reload(Err(mistakes.to_string()));
            return false;
        }
    };
    folder.follow(&mut new);
    match service.reload(settings, &new).await {
        Ok(unchanged) => {
            complain(&new);
            for name in unchanged {
                tracing::warn!("{name} differs, which takes a restart");
            }
            tracing::info!("other settings are in force");
            service.note_reload(Ok(()));
            *settings = new;
            true
        }
        Err(error) => {
            tracing::error!("not all settings could be changed: {error}");
            service.note_reload(Err(format!("not all settings could be changed: {error}")));
            false
        }
    }
}

/// What holds, for the operator who looks at the start.
fn in_force(settings: &Effective, running: &Service, traces: Option<&Exporter>) -> String {
    let addr = running.addr();
    let grpc = running.grpc_addr().map(|addr| format!("gRPC for Envoy: {addr}\n")).unwrap_or_default();
    let from =
        settings.file.as_ref().map_or("built-in defaults".to_owned(), |file| file.display().to_string());
    let service = &settings.settings;
    let proxy = if service.gateway.proxy.enabled { "proxy: on, to the endpoints of the pools\n" } else { "" };
    let mut text = format!(
        "weir {} listens on {}://{addr}\n{grpc}{proxy}settings: {from}\ncallers: {}\ndata: {} (durability {})\ndrainTimeout: {}\ntraces: {}\n",
        env!("CARGO_PKG_VERSION"),
        if service.gateway.tls.is_some() { "https" } else { "http" },
        if running.asks_who() { "known by token or certificate" } else { "anybody, everything" },
        service.log.dir.display(),
        match service.log.durability {
            weir_config::Durability::Group => "group",
            weir_config::Durability::Interval => "interval",
        },
        format_duration(service.drain_timeout),
        traces.map_or("off".to_owned(), Exporter::destination),
    );
    for (name, pool) in &settings.pools {
        text.push_str(&pool_in_force(name, pool));
    }
    text
}

fn pool_in_force(name: &str, pool: &PoolSettings) -> String {
    let policy = &pool.policy;
    let budget = |span: weir_kernel::Micros| match span.is_zero() {
        true => "none".to_owned(),
        false => format_duration(span),
    };
    let limit = |limit: u64| if limit == 0 { "unlimited".to_owned() } else { limit.to_string() };
    let endpoints = match (&pool.endpoints, &pool.discovery) {
        (Some(list), _) => list.len().to_string(),
        (None, None) => "pushed".to_owned(),
        (None, Some(DiscoverySettings::Dns(dns))) => format!("the addresses of {}", dns.name),
        (None, Some(DiscoverySettings::File(file))) => format!("those of {}", file.path.display()),
        (None, Some(DiscoverySettings::Kubernetes(cluster))) => match &cluster.service {
            Some(service) => format!("those of the Service {service}"),
            None => format!("those of the InferencePool {}", pool.inference_pool),
        },
    };
    format!(
        "pool {name}: {}, defaultRequestTTL {}, noEndpointRequestTTL {}, maxRequests {}, maxBytes {}, bands {:?}, \
         detector {}, usage limit {}, endpoints {endpoints}, leaseTimeout {}\n",
        match (policy.flow_control, policy.observe) {
            (false, _) => "flow control off",
            (true, true) => "observe",
            (true, false) => "enforce",
        },
        budget(policy.saturation_budget),
        budget(policy.no_endpoint_budget),
        limit(policy.max_requests),
        limit(policy.max_bytes),
        policy.bands.keys().rev().collect::<Vec<_>>(),
        pool.detector_name,
        pool.usage_limit_name,
        budget(policy.lease_timeout),
    )
}

/// Writes each address to its file.
fn tell(files: &[Option<(PathBuf, SocketAddr)>]) -> Result<(), String> {
    for (file, addr) in files.iter().flatten() {
        output::write_file(file, &addr.to_string())
            .map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(())
}
