//! What reads bytes of strangers, each as one function of bytes alone: for the fuzz targets (`fuzz/`) and the test that
//! replays their seeds. Each checks what must hold of whatever is read, and of every refusal.
//!
//! Not here: the parsers themselves.

use super::ask::{Ask, BYTES_MAX, ID_BYTES_MAX, Terms};
use super::ask_headers::Found;
use super::auth;
use super::metrics::GatewayCounters;
use super::problem::{Fault, Invalid};
use super::proxy::head::{self, Carried};
use super::proxy::members::Members;
use super::proxy::paths::{Paths, Way};
use super::usage::UsageReader;
use super::wish::{PREFER, Wish};
use super::{answer, ask_body, completion, ext_authz, ext_proc, ext_proc_grpc, problem, push, query};
use crate::observer::Preset;
use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};
use std::sync::OnceLock;
use tokio::runtime::{Builder, Runtime};
use weir_kernel::{Face, Micros};

/// A reader of bytes.
pub type Parser = fn(&[u8]);

/// Every one, by name.
pub const ALL: [(&str, Parser); 11] = [
    ("headers", headers),
    ("bodies", bodies),
    ("config", config),
    ("tokens", tokens),
    ("scrape", scrape),
    ("ext_proc_json", ext_proc_json),
    ("ext_proc_grpc", grpc),
    ("usage", usage),
    ("wishes", wishes),
    ("proxy", proxy),
    ("objectives", objectives),
];

/// Lines `name: value`; the first may be a path with a query.
pub fn headers(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    if let Some(path) = lines.next().and_then(|line| std::str::from_utf8(line).ok()) {
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        auth::need(&Method::GET, path);
        auth::concerns(path);
        if let Err(invalid) = query::pairs(query) {
            refused(invalid);
        }
    }
    let pairs = lines.filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b':')?;
        Some((std::str::from_utf8(&line[..at]).ok()?, line[at + 1..].trim_ascii()))
    });
    let found = match Found::pick(pairs) {
        Ok(found) => found,
        Err(invalid) => return refused(invalid),
    };
    let mut ask = Ask { bytes: found.content_length(), ..Ask::default() };
    match found.fill(&mut ask) {
        Ok(()) => asked(ask),
        Err(invalid) => refused(invalid),
    }
    match found.key(None) {
        Ok(Some(key)) => drop(key.hashed("pool", data)),
        Ok(None) => {}
        Err(invalid) => refused(invalid),
    }
}

/// The JSON bodies of HTTP; the first byte says which.
pub fn bodies(data: &[u8]) {
    let Some((which, body)) = data.split_first() else { return };
    match which % 3 {
        0 => match ask_body::read(body) {
            Ok(ask) => asked(ask),
            Err(invalid) => refused(invalid),
        },
        1 => match completion::read(body) {
            Ok(_) => {}
            Err(invalid) => refused(invalid),
        },
        _ => match push::read(body) {
            Ok(push) => assert!(push.endpoints.is_some() || push.saturation != weir_kernel::Pushed::Keep),
            Err(invalid) => refused(invalid),
        },
    }
}

/// A configuration file, and one of the environment laid over it.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let environment = [("WEIR__WEIR__DRAINTIMEOUT".to_owned(), text.chars().take(32).collect())];
    for environment in [&environment[..0], &environment] {
        match weir_config::from_text(text, environment.iter().cloned()) {
            Ok(effective) => {
                assert!(!effective.pools.is_empty());
                drop((effective.explain(), effective.explain_json()));
            }
            Err(mistakes) => {
                assert!(!mistakes.list.is_empty());
                let shown = mistakes.to_string();
                assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
            }
        }
    }
    let _ = (weir_config::parse_quantity(text), weir_config::header_ttl(text));
    if let Ok(span) = weir_config::parse_duration(text) {
        assert_eq!(weir_config::parse_duration(&weir_config::format_duration(span)), Ok(span), "{text}");
    }
}

/// A tokens file.
pub fn tokens(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match auth::read(text) {
        Ok(access) => assert!(access.token(b"weir_nobody").is_none()),
        Err(error) => {
            let shown = error.to_string();
            assert!(!shown.contains(char::is_control), "{shown:?}");
        }
    }
}

/// What an endpoint's metrics say.
pub fn scrape(data: &[u8]) {
    for preset in [Preset::Vllm, Preset::VllmOld, Preset::Sglang, Preset::Tgi] {
        if let Err(fault) = crate::observer::read(data, &preset.names()) {
            assert!(!fault.to_string().is_empty());
        }
    }
}

/// Envoy's message over plain HTTP.
pub fn ext_proc_json(data: &[u8]) {
    match ext_proc::read(data) {
        Ok(headers) => envoy(&headers),
        Err(invalid) => refused(invalid),
    }
}

/// Envoy's messages over gRPC: of one stream of ext_proc, and of ext_authz.
pub fn grpc(data: &[u8]) {
    static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| Builder::new_current_thread().enable_time().build().ok());
    let read = runtime.as_ref().map(|runtime| runtime.block_on(ext_proc_grpc::read_stream(data)));
    if let Some(Some((headers, model))) = read {
        envoy(&headers);
        let clean = |model: &String| model.len() <= ID_BYTES_MAX && !model.contains(char::is_control);
        assert!(model.iter().all(clean), "{model:?}");
    }
    envoy(&ext_authz::read_check(data));
}

/// A response that passes: what is found does not depend on the pieces it comes in.
pub fn usage(data: &[u8]) {
    let Some((piece, data)) = data.split_first() else { return };
    for content_type in ["application/json", "text/event-stream; charset=utf-8"] {
        let mut whole = UsageReader::new(content_type.as_bytes());
        let mut pieces = UsageReader::new(content_type.as_bytes());
        whole.feed(data);
        data.chunks(usize::from(*piece).max(1)).for_each(|piece| pieces.feed(piece));
        assert_eq!(whole.found(), pieces.found());
    }
}

/// `Accept` and `Prefer`, one value a line.
pub fn wishes(data: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in data.split(|byte| *byte == b'\n') {
        let Some((which, value)) = line.split_first() else { continue };
        let name = if which % 2 == 0 { ACCEPT } else { PREFER };
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(name, value);
        }
    }
    match Wish::of(&headers) {
        Wish::Held => {}
        Wish::Stream(_) => assert!(headers.contains_key(ACCEPT)),
        Wish::Ticket(wait) => assert!(headers.contains_key(PREFER) && wait.as_secs() <= 30, "{wait:?}"),
    }
}

/// A request on its way through the proxy: method and path, headers, an empty line, the body. Its headers are read as a
/// response's as well.
pub fn proxy(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let first = lines.next().and_then(|line| std::str::from_utf8(line).ok()).unwrap_or_default();
    let (method, path) = first.split_once(' ').unwrap_or(("POST", first));
    if let Ok(method) = Method::from_bytes(method.as_bytes()) {
        let way = Paths::new(&[], &["/health".to_owned()]).way(&method, path);
        assert!(!matches!(way, Way::Admit | Way::Pass) || !path.contains("/../"), "{path}");
    }
    let mut headers = HeaderMap::new();
    let mut length = first.len() + 1;
    for line in lines.take_while(|line| !line.is_empty()) {
        length += line.len() + 1;
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value.trim_ascii()))
        {
            headers.append(name, value);
        }
    }
    for (version, carries) in [(Version::HTTP_11, true), (Version::HTTP_2, false)] {
        let carried = Carried { length: carries, trailers: carries };
        let onward = head::request(&headers, version, carried, Some("pool-1"), None);
        assert!(onward.get("connection").is_none_or(|value| value == "te"), "{onward:?}");
        assert!(!onward.contains_key("transfer-encoding") && !onward.contains_key("proxy-authorization"));
        assert_eq!(onward.keys().filter(|name| name.as_str().starts_with("x-weir-")).count(), 1);
    }
    head::response(&mut headers, None);
    assert!(!headers.keys().any(|name| name.as_str().starts_with("x-weir-") || name == "connection"));
    members(data.get(length + 1..).unwrap_or_default());
}

/// The members of a body that the proxy reads, and the one that it writes.
fn members(body: &[u8]) {
    let read = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(body).ok();
    let Some(found) = Members::find(body) else {
        assert!(read.is_none(), "an object that was not found: {body:?}");
        return;
    };
    assert!(found.model(body).is_none_or(|model| model.len() <= ID_BYTES_MAX), "a label");
    let written = found.with_priority(&Bytes::copy_from_slice(body), -7);
    if let Some(mut read) = read {
        read.insert("priority".to_owned(), (-7).into());
        let again = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&written).ok();
        assert_eq!(again, Some(read));
    }
}

/// A file of objectives.
pub fn objectives(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match weir_config::read_objects(text) {
        Ok(objects) => assert!(objects.iter().all(|object| !object.name.is_empty())),
        Err(error) => {
            let shown = error.to_string();
            assert!(!shown.contains(char::is_control) && error.line > 0, "{shown:?}");
        }
    }
}

fn envoy(headers: &[(String, Vec<u8>)]) {
    match super::admissions::ask_of(headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()))) {
        Ok(ask) => asked(ask),
        Err(invalid) => refused(invalid),
    }
}

/// What an ask that was taken must be.
fn asked(ask: Ask) {
    let counters = GatewayCounters::default();
    let terms =
        Terms { now: Micros(1), face: Face::Held, trust_priority: true, highest: None, counters: &counters };
    let arrival = ask.into_arrival(terms, None);
    let labels = [
        Some(&arrival.caller_id),
        Some(&arrival.fairness_id),
        arrival.objective.as_ref(),
        arrival.model.as_ref(),
    ];
    for label in labels.into_iter().flatten() {
        assert!(label.len() <= ID_BYTES_MAX && !label.contains(char::is_control), "{label:?}");
    }
    assert!(arrival.bytes <= BYTES_MAX && arrival.ttl != Some(Micros::ZERO), "{arrival:?}");
    assert!(arrival.deadline.is_none_or(|deadline| deadline >= arrival.received_at), "{arrival:?}");
}

/// A refusal is short, is JSON, and names its field.
fn refused(invalid: Invalid) {
    let fault = Fault::Invalid(invalid);
    let (status, reason, _) = answer::fault_status(&fault);
    let body = problem::body(&fault, status.as_u16(), "t", reason, Some("r"));
    assert!(status.is_client_error() && body.len() < 4_096, "{}", body.len());
    match serde_json::from_slice::<serde_json::Value>(&body) {
        Ok(body) => assert!(body["field"].is_string() && body["allowed"].is_string(), "{body}"),
        Err(error) => assert!(error.to_string().is_empty(), "{error}"),
    }
}
