//! Goal: a pool whose model servers come and go by themselves is served as one whose endpoints were written down. Method: the
//! binary, metrics pages on several addresses of this machine, and an API server in this process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod api_server;
#[path = "../traces/rig.rs"]
#[allow(dead_code)]
mod rig;

use api_server::{ApiServer, Mood, OBJECTIVES, PODS, POOLS, SLICES, objective, pod, pool, slice};
use rig::{Weir, until, whole};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A metrics page at an address of this machine; how often it was read.
struct Engine(Arc<AtomicUsize>);

impl Engine {
    /// None where somebody else has the port.
    fn start(last: u8, port: u16) -> Option<(Engine, u16)> {
        let listener = TcpListener::bind((Ipv4Addr::new(127, 0, 0, last), port)).ok()?;
        let port = listener.local_addr().unwrap().port();
        let read = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&read);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || {
                    let (mut seen, mut piece) = (Vec::new(), [0; 1_024]);
                    while let Ok(count @ 1..) = stream.read(&mut piece) {
                        seen.extend_from_slice(&piece[..count]);
                        if !seen.ends_with(b"\r\n\r\n") {
                            continue;
                        }
                        seen.clear();
                        counted.fetch_add(1, Ordering::SeqCst);
                        let page = "vllm:num_requests_waiting 0\nvllm:num_requests_running 0\nvllm:kv_cache_usage_perc 0.1\n";
                        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", page.len());
                        if stream.write_all(format!("{head}{page}").as_bytes()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Some((Engine(read), port))
    }

    fn scrapes(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Two engines at one port, as pods of a Service are.
fn engines() -> (Engine, Engine, u16) {
    for _ in 0..50 {
        let (one, port) = Engine::start(1, 0).unwrap();
        if let Some((two, _)) = Engine::start(2, port) {
            return (one, two, port);
        }
    }
    panic!("no port that is free at both addresses");
}

fn get(weir: &Weir, path: &str) -> Value {
    let (status, body) = weir.call("GET", path, &[], "");
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

/// The endpoints that the gateway names, once they are these, all fresh.
fn fresh(weir: &Weir, names: &[String]) {
    until(&format!("{names:?}"), || {
        let seen = get(weir, "/v1/pools/default/endpoints");
        let list = seen["endpoints"].as_array().unwrap();
        let right = list.len() == names.len()
            && list.iter().zip(names).all(|(seen, name)| seen["name"] == **name && seen["fresh"] == true);
        (right && seen["known"] == true).then_some(())
    });
}

fn regime(weir: &Weir, wanted: &str) {
    until(wanted, || (get(weir, "/v1/pools/default")["regime"] == wanted).then_some(()));
}

/// Where an admitted request was sent, asked for an endpoint.
fn admitted(weir: &Weir, body: Value) -> String {
    let (status, body) = weir.call("POST", "/v1/admissions", &[], &body.to_string());
    assert_eq!(status, 200, "{body}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    answer["admission"]["endpoint"].as_str().unwrap().to_owned()
}

fn chosen(weir: &Weir) -> String {
    admitted(weir, json!({"chooseEndpoint": true}))
}

fn metric(weir: &Weir, sample: &str) -> Option<f64> {
    let (_, text) = weir.call("GET", "/metrics", &[], "");
    let line = text.lines().find(|line| line.starts_with(sample))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

fn kubernetes(server: &ApiServer, more: &str) -> String {
    format!(
        "flowControl: {{noEndpointRequestTTL: 60s}}\n\
         plugins: [{{name: utilization-detector, type: utilization-detector, parameters: {{metricsStalenessThreshold: 5s}}}}]\n\
         weir: {{objectives: {{given: 3}}}}\n\
         pools:\n  default:\n    inferencePool: vllm\n    discovery:\n      kubernetes: {{namespace: inference, apiServer: '{}', \
         tokenFile: '{}', caFile: '{}'{more}}}\n",
        server.url,
        server.token_file.display(),
        server.ca_file.display()
    )
}

/// Endpoints come, go and come back; a pool that is scaled to zero holds its requests until one is there again.
#[test]
fn slices_of_a_service_come_and_go_down_to_zero_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two, port) = engines();
    let server = ApiServer::start(dir.path(), &[SLICES]);
    server.put(SLICES, slice("s", port, &[("127.0.0.1", true)]));
    let weir = Weir::start(dir.path(), &kubernetes(&server, ", service: vllm, objectives: false"), &[], &[]);
    let (first, second) = (format!("127.0.0.1:{port}"), format!("127.0.0.2:{port}"));
    fresh(&weir, std::slice::from_ref(&first));
    assert_eq!(chosen(&weir), first);
    assert_eq!(metric(&weir, "weir_discovery_up{"), Some(1.0));
    // The other one takes its place: the first is out of choice, and no longer scraped.
    server.put(SLICES, slice("s", port, &[("127.0.0.1", false), ("127.0.0.2", true)]));
    fresh(&weir, std::slice::from_ref(&second));
    for _ in 0..5 {
        assert_eq!(chosen(&weir), second);
    }
    let (gone, there) = (one.scrapes(), two.scrapes());
    until("rounds without the first", || (two.scrapes() >= there + 5).then_some(()));
    assert!(one.scrapes() <= gone + 1, "a scrape was under way at most");
    // Nobody pushes endpoints into a pool whose endpoints are discovered.
    let body = json!({"endpoints": [{"name": "x", "waiting": 0, "running": 0, "kv": 0}]}).to_string();
    let (status, text) = weir.call("PUT", "/v1/pools/default/endpoints", &[], &body);
    assert_eq!(status, 409, "{text}");
    // To zero: a waiting room, not a refusal.
    server.delete(SLICES, "s");
    regime(&weir, "NoEndpoints");
    let waiting = weir.send("POST", "/v1/admissions", &[], &json!({"chooseEndpoint": true}).to_string());
    weir.queued(1);
    server.put(SLICES, slice("s", port, &[("127.0.0.1", true), ("127.0.0.2", true)]));
    let (status, text) = whole(waiting);
    assert_eq!(status, 200, "{text}");
    fresh(&weir, &[first, second]);
}

/// The API server fails in every way while model servers run: they are served on, and it is said.
#[test]
fn an_api_server_that_fails_changes_nothing_and_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let (_one, _two, port) = engines();
    let server = ApiServer::start(dir.path(), &[SLICES]);
    server.put(SLICES, slice("s", port, &[("127.0.0.1", true)]));
    let weir = Weir::start(dir.path(), &kubernetes(&server, ", service: vllm, objectives: false"), &[], &[]);
    let (first, second) = (format!("127.0.0.1:{port}"), format!("127.0.0.2:{port}"));
    fresh(&weir, std::slice::from_ref(&first));
    for mood in [Mood::Garbage, Mood::Refuses(401), Mood::Cut] {
        server.mood(mood);
        until("that it is down", || (metric(&weir, "weir_discovery_up{") == Some(0.0)).then_some(()));
        let seen = get(&weir, "/v1/pools/default/endpoints");
        assert_eq!(seen["discovery"]["kind"], "kubernetes");
        assert!(!seen["discovery"]["faults"].as_array().unwrap().is_empty(), "{seen}");
        assert_eq!(chosen(&weir), first, "served on");
        server.mood(Mood::Well);
        until("that it is up", || (metric(&weir, "weir_discovery_up{") == Some(1.0)).then_some(()));
    }
    assert!(metric(&weir, "weir_discovery_failures_total{").unwrap() >= 3.0);
    server.put(SLICES, slice("s", port, &[("127.0.0.2", true)]));
    fresh(&weir, &[second]);
    let said = fs::read_to_string(dir.path().join("weir.err")).unwrap();
    assert!(said.contains("discovery fails; what was found last stays"), "{said}");
    assert!(said.contains("discovery works again"), "{said}");
    assert!(!said.contains("sesame"), "the token is nobody's business");
}

/// An endpoint that flaps: every state is seen through to its end, and nothing piles up.
#[test]
fn an_endpoint_that_flaps_is_in_choice_whenever_it_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let (_one, _two, port) = engines();
    let server = ApiServer::start(dir.path(), &[SLICES]);
    let weir = Weir::start(dir.path(), &kubernetes(&server, ", service: vllm, objectives: false"), &[], &[]);
    let (first, second) = (format!("127.0.0.1:{port}"), format!("127.0.0.2:{port}"));
    for turn in 0..200 {
        server.put(SLICES, slice("s", port, &[("127.0.0.1", true), ("127.0.0.2", turn % 2 == 0)]));
    }
    fresh(&weir, std::slice::from_ref(&first));
    server.put(SLICES, slice("s", port, &[("127.0.0.1", true), ("127.0.0.2", true)]));
    fresh(&weir, &[first, second]);
    let (_, text) = weir.call("GET", "/metrics", &[], "");
    let series = text.lines().filter(|line| line.contains("127.0.0.")).count();
    assert!(series <= 4, "series of endpoints: {series}");
}

/// Pods by an InferencePool, and priorities by its objectives, beside those of the settings; also over a restart.
#[test]
fn an_inference_pool_brings_its_pods_and_its_objectives() {
    let dir = tempfile::tempdir().unwrap();
    let (_one, _two, port) = engines();
    let server = ApiServer::start(dir.path(), &[POOLS, PODS, OBJECTIVES]);
    server.put(POOLS, pool("vllm", port));
    server.put(PODS, pod("v-0", "127.0.0.1", true));
    server.put(OBJECTIVES, objective("interactive", "vllm", 10));
    server.put(OBJECTIVES, objective("given", "vllm", -5));
    let settings = kubernetes(&server, "");
    let weir = Weir::start(dir.path(), &settings, &[], &[]);
    fresh(&weir, &[format!("127.0.0.1:{port}")]);
    let table = |weir: &Weir| {
        let shown = get(weir, "/admin/config");
        let rows = shown["pools"][0]["objectives"].as_array().unwrap();
        rows.iter()
            .map(|row| (row["name"].as_str().unwrap().to_owned(), row["priority"].clone()))
            .collect::<Value>()
    };
    let wanted = json!({"given": 3, "interactive": 10});
    until("the objectives", || (table(&weir) == wanted).then_some(()));
    assert_eq!(chosen(&weir), format!("127.0.0.1:{port}"));
    // A reload of the settings leaves what was found.
    fs::write(dir.path().join("weir.yaml"), settings.replace("given: 3", "given: 4")).unwrap();
    let wanted = json!({"given": 4, "interactive": 10});
    until("the settings", || (table(&weir) == wanted).then_some(()));
    weir.stop();
    // A start without the API server: what the log knows of objectives stays until it is heard.
    server.mood(Mood::Refuses(503));
    let weir = Weir::start(dir.path(), &settings, &[], &[]);
    until("a fault", || (metric(&weir, "weir_discovery_up{") == Some(0.0)).then_some(()));
    assert_eq!(table(&weir), json!({"given": 3, "interactive": 10}));
    server.put(OBJECTIVES, objective("batch", "vllm", -1));
    server.delete(OBJECTIVES, "interactive");
    server.mood(Mood::Well);
    until("other objectives", || (table(&weir) == json!({"given": 3, "batch": -1})).then_some(()));
}

fn file_settings(path: &Path) -> String {
    format!(
        "plugins: [{{name: utilization-detector, type: utilization-detector, parameters: {{metricsStalenessThreshold: 5s}}}}]\n\
         pools: {{default: {{discovery: {{file: {{path: '{}', interval: 10ms}}}}}}}}\n",
        path.display()
    )
}

/// A place that is mistyped: whoever asks waits without a budget, and it is said that they do, and why.
#[test]
fn requests_that_wait_for_a_pool_that_was_never_seen_are_said() {
    let dir = tempfile::tempdir().unwrap();
    let weir = Weir::start(dir.path(), &file_settings(&dir.path().join("mistyped.yaml")), &[], &[]);
    let held = weir.send("POST", "/v1/admissions", &[], "{}");
    weir.queued(1);
    assert_eq!(metric(&weir, "weir_flow_control_regime{regime=\"Unknown\""), Some(1.0));
    assert_eq!(metric(&weir, "weir_flow_control_queued{"), Some(1.0));
    let said = until("that it was never seen", || {
        let said = fs::read_to_string(dir.path().join("weir.err")).unwrap();
        said.contains("this pool was not seen since the start").then_some(said)
    });
    assert!(said.contains("waiting=1") && said.contains("No such file"), "{said}");
    drop(held);
}

/// A file, then a name, by a reload of the settings: the search changes, the pool does not stop.
#[test]
fn a_reload_exchanges_the_search() {
    let dir = tempfile::tempdir().unwrap();
    let (_one, _two, port) = engines();
    let file = dir.path().join("endpoints.yaml");
    fs::write(&file, format!("endpoints: [{{name: a, url: 'http://127.0.0.2:{port}'}}]")).unwrap();
    let weir = Weir::start(dir.path(), &file_settings(&file), &[], &[]);
    fresh(&weir, &["a".to_owned()]);
    let dns = format!("{{dns: {{name: 127.0.0.1, port: {port}, interval: 100ms}}}}");
    let settings = file_settings(&file).split("discovery: ").next().unwrap().to_owned();
    fs::write(dir.path().join("weir.yaml"), format!("{settings}discovery: {dns}}}}}\n")).unwrap();
    fresh(&weir, &[format!("127.0.0.1:{port}")]);
    assert_eq!(get(&weir, "/v1/pools/default/endpoints")["discovery"]["kind"], "dns");
}

/// A name that does not resolve: not ready, nothing is known of the pool, nobody is refused for it, and it is said.
#[test]
fn a_name_that_does_not_resolve_is_no_empty_pool() {
    let dir = tempfile::tempdir().unwrap();
    let settings =
        "pools: {default: {discovery: {dns: {name: no-such-name.invalid, port: 1, interval: 100ms}}}}\n";
    let weir = Weir::start(dir.path(), settings, &[], &[]);
    until("a fault", || (metric(&weir, "weir_discovery_failures_total{")? >= 1.0).then_some(()));
    assert_eq!(get(&weir, "/v1/pools/default")["regime"], "Unknown");
    assert_eq!(weir.call("GET", "/readyz", &[], "").0, 503);
    let seen = get(&weir, "/v1/pools/default/endpoints");
    assert_eq!((&seen["known"], &seen["discovery"]["found"]), (&json!(false), &json!(false)));
}
