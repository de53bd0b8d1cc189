//! The section `weir`, and what it sets for every pool.

use crate::effective::{
    Durability, EnvoySettings, GatewaySettings, GraphqlSettings, LogSettings, ProxySettings, Settings,
    TlsSettings,
};
use crate::node::Value;
use crate::plugins::mark;
use crate::scalar::{Scalar, is_label, read as read_scalar};
use crate::section::{Reading, Section};
use crate::table::Kind;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use weir_kernel::Policy;

/// Reads the section `weir`: the service's own settings, and a policy that holds what every pool has in common.
pub fn read(reading: &mut Reading, weir: &Section<'_>) -> (Settings, Policy) {
    let listen = listen(reading, weir);
    let tokens_file = weir.section(reading, "auth").text(reading, "tokensFile").map(PathBuf::from);
    let log = log(reading, weir);
    let gateway = gateway(reading, weir);
    let envoy = envoy(reading, weir);
    let graphql = graphql(reading, weir);
    let objectives = objectives(reading, weir);
    let objectives_dir = weir.text(reading, "objectivesDir").map(PathBuf::from);
    let metrics = weir.section(reading, "metrics");
    let metrics_compat_llm_d = metrics.text(reading, "compat").as_deref() == Some("llm-d");
    let metrics_models = models(reading, &metrics);
    let drain_timeout = weir.span(reading, "drainTimeout");
    let base = Policy {
        lease_timeout: weir.span(reading, "leaseTimeout"),
        ticket_timeout: weir.span(reading, "ticketTimeout"),
        resume_window: weir.span(reading, "resumeWindow"),
        idempotency_keys: small(weir.amount(reading, "idempotencyKeys")),
        max_dynamic_bands: small(weir.amount(reading, "maxDynamicBands")),
        ..Policy::default()
    };
    let settings = Settings {
        listen,
        tokens_file,
        log,
        gateway,
        envoy,
        graphql,
        objectives,
        objectives_dir,
        metrics_compat_llm_d,
        metrics_models,
        drain_timeout,
        insecure: false,
    };
    if !settings.asks_who() {
        for (path, address) in [("weir.listen", Some(listen)), ("weir.envoy.listen", settings.envoy.listen)] {
            if address.is_some_and(|address| !address.ip().is_loopback()) {
                let text = "is beyond loopback, with neither weir.auth.tokensFile nor weir.gateway.tls.clientCa: whoever \
                            reaches it may do everything, and weir serve refuses it without --insecure";
                reading.report.warn(path, text);
            }
        }
    }
    (settings, base)
}

/// The smallest bound on the size of the log that can be held.
const RETENTION_BYTES_MIN: u64 = 16 << 20;

/// Bounded by its table.
fn small(amount: u64) -> u32 {
    u32::try_from(amount).unwrap_or(u32::MAX)
}

fn listen(reading: &mut Reading, weir: &Section<'_>) -> SocketAddr {
    let loopback = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    address(reading, weir).unwrap_or(loopback)
}

/// The address under `listen`.
fn address(reading: &mut Reading, section: &Section<'_>) -> Option<SocketAddr> {
    section.text(reading, "listen")?.parse().ok()
}

fn tls(reading: &mut Reading, gateway: &Section<'_>) -> Option<TlsSettings> {
    let section = gateway.section(reading, "tls");
    let mut path = |key| section.text(reading, key).map(PathBuf::from);
    let (cert, key, client_ca) = (path("cert"), path("key"), path("clientCa"));
    let client_required = section.text(reading, "clientCertificate").as_deref() != Some("optional");
    let handshake_timeout = section.span(reading, "handshakeTimeout");
    match (cert, key) {
        (Some(cert), Some(key)) => {
            Some(TlsSettings { cert, key, client_ca, client_required, handshake_timeout })
        }
        (None, None) if client_ca.is_none() => None,
        (cert, _) => {
            section.refuse(
                reading,
                if cert.is_none() { "cert" } else { "key" },
                "a file of PEM: cert and key go together",
            );
            None
        }
    }
}

fn graphql(reading: &mut Reading, weir: &Section<'_>) -> GraphqlSettings {
    let section = weir.section(reading, "graphql");
    GraphqlSettings {
        enabled: section.flag(reading, "enabled"),
        introspection: section.flag(reading, "introspection"),
        timeout: section.span(reading, "timeout"),
    }
}

fn envoy(reading: &mut Reading, weir: &Section<'_>) -> EnvoySettings {
    let section = weir.section(reading, "envoy");
    EnvoySettings {
        listen: address(reading, &section),
        failure_mode_allow: section.flag(reading, "failureModeAllow"),
        max_streams: small(section.amount(reading, "maxStreams")),
        max_held_bytes: section.amount(reading, "maxHeldBytes"),
    }
}

fn gateway(reading: &mut Reading, weir: &Section<'_>) -> GatewaySettings {
    let section = weir.section(reading, "gateway");
    GatewaySettings {
        max_body_bytes: section.amount(reading, "maxBodyBytes"),
        body_timeout: section.span(reading, "bodyTimeout"),
        max_head_bytes: section.amount(reading, "maxHeadBytes"),
        max_headers: section.amount(reading, "maxHeaders"),
        head_timeout: section.span(reading, "headTimeout"),
        max_in_flight: section.amount(reading, "maxInFlight"),
        write_stall_timeout: section.span(reading, "writeStallTimeout"),
        max_log_readers: section.amount(reading, "maxLogReaders"),
        tls: tls(reading, &section),
        heartbeat_interval: section.span(reading, "heartbeatInterval"),
        close_timeout: section.span(reading, "closeTimeout"),
        pin_workers: section.flag(reading, "pinWorkers"),
        proxy: proxy(reading, &section),
    }
}

fn proxy(reading: &mut Reading, gateway: &Section<'_>) -> ProxySettings {
    let section = gateway.section(reading, "proxy");
    let enabled = section.flag(reading, "enabled");
    let rows = reading.rows.len();
    let settings = ProxySettings {
        enabled,
        engine_priority_vllm: section.text(reading, "enginePriority").as_deref() == Some("vllm"),
        max_body_bytes: section.amount(reading, "maxBodyBytes"),
        max_held_bytes: section.amount(reading, "maxHeldBytes"),
        connect_timeout: section.span(reading, "connectTimeout"),
        idle_timeout: section.span(reading, "idleTimeout"),
        admit_paths: paths(reading, &section, "admitPaths"),
        pass_paths: paths(reading, &section, "passPaths"),
    };
    if !enabled {
        reading.rows[rows..]
            .iter_mut()
            .for_each(|row| mark(row, "unless the proxy is turned on by --upstream"));
    }
    settings
}

/// Paths of requests, each from its slash on.
fn paths(reading: &mut Reading, section: &Section<'_>, key: &str) -> Vec<String> {
    const ALLOWED: &str = "a path such as /v1/rerank or /v1/files/*, without query";
    let mut paths = Vec::new();
    for (at, (text, node)) in section.texts(reading, key).into_iter().enumerate() {
        let path = format!("{}[{at}]", section.at(key));
        let plain = |b: u8| b.is_ascii_graphic() && !b"?#*".contains(&b);
        let stem = text.strip_suffix("/*").unwrap_or(text);
        if !text.starts_with('/') || !is_label(text) || !stem.bytes().all(plain) {
            reading.report.value(&path, &node.origin, node.shown(), ALLOWED);
            continue;
        }
        reading.row(&path, Scalar::Text(text.to_owned()), "", &node.origin, "");
        paths.push(text.to_owned());
    }
    paths
}

fn models(reading: &mut Reading, metrics: &Section<'_>) -> Vec<String> {
    let mut models = Vec::new();
    for (at, (text, node)) in metrics.texts(reading, "models").into_iter().enumerate() {
        let path = format!("{}[{at}]", metrics.at("models"));
        if !is_label(text) {
            reading.report.value(&path, &node.origin, node.shown(), Kind::Text.words());
            continue;
        }
        reading.row(&path, Scalar::Text(text.to_owned()), "", &node.origin, "");
        models.push(text.to_owned());
    }
    models
}

fn log(reading: &mut Reading, weir: &Section<'_>) -> LogSettings {
    let section = weir.section(reading, "log");
    let dir = PathBuf::from(section.text(reading, "dir").unwrap_or_default());
    let durability = match section.text(reading, "durability").as_deref() {
        Some("interval") => Durability::Interval,
        _ => Durability::Group,
    };
    let interval = section.span(reading, "interval");
    match (durability, section.node("interval")) {
        (Durability::Group, Some(_)) => {
            reading.report.warn(&section.at("interval"), "has no effect under durability: group");
        }
        (Durability::Interval, _) => {
            let text = "interval: a loss of power may lose decisions that were already heard";
            reading.report.notice(&section.at("durability"), text);
        }
        (Durability::Group, None) => {}
    }
    let cache_bytes = section.amount(reading, "cacheBytes");
    let mut rotate_bytes = section.amount(reading, "rotateBytes");
    let retention = section.section(reading, "retention");
    let retention_age = retention.span(reading, "age");
    let retention_bytes = retention.amount(reading, "size");
    if (1..RETENTION_BYTES_MIN).contains(&retention_bytes) {
        retention.refuse(reading, "size", "0 for no bound, or at least 16Mi");
    }
    if retention_bytes > 0 && rotate_bytes > retention_bytes / 8 {
        rotate_bytes = retention_bytes / 8;
        let path = section.at("rotateBytes");
        let note = format!("an eighth of {}", retention.at("size"));
        if section.node("rotateBytes").is_some() {
            reading.report.warn(&path, format!("is lowered to {rotate_bytes}, {note}"));
        }
        reading.change_row(&path, Scalar::Amount(rotate_bytes), &note);
    }
    LogSettings {
        dir,
        durability,
        interval,
        cache_bytes,
        rotate_bytes,
        retention_age,
        retention_bytes,
        snapshot_every: section.amount(reading, "snapshotEvery"),
        upkeep_interval: section.span(reading, "upkeepInterval"),
        pseudonymise: section.text(reading, "pseudonymise").map(PathBuf::from),
    }
}

fn objectives(reading: &mut Reading, weir: &Section<'_>) -> BTreeMap<String, i32> {
    let kind = Kind::Whole { min: i64::from(i32::MIN), max: i64::from(i32::MAX) };
    let mut objectives = BTreeMap::new();
    for (name, path, node) in weir.names(reading, "objectives") {
        let priority = match read_scalar(&kind, node) {
            Ok(Scalar::Whole(priority)) => i32::try_from(priority).ok(),
            _ => None,
        };
        match priority {
            Some(priority) => {
                reading.row(&path, Scalar::Whole(priority.into()), "", &node.origin, "");
                objectives.insert(name.to_owned(), priority);
            }
            None => {
                let found = if node.value == Value::Null { "nothing".to_owned() } else { node.shown() };
                reading.report.value(&path, &node.origin, found, kind.words());
            }
        }
    }
    objectives
}
