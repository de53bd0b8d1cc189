//! An API server of Kubernetes in this process: lists in pages, watches with bookmarks, versions that are forgotten, tokens,
//! over TLS; and one that hangs, says garbage, or refuses.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// How it behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Well,
    /// Connections are taken, and never answered.
    Mute,
    /// A watch begins, and then nothing comes, not even its end.
    MuteWatch,
    /// What a watch says is no JSON.
    Garbage,
    /// A watch breaks off in the midst of an event.
    Cut,
    /// Every status is this one.
    Refuses(u16),
}

/// What it holds.
#[derive(Default)]
struct Store {
    version: u64,
    /// By path of the kind, then by name.
    objects: BTreeMap<String, BTreeMap<String, Value>>,
    /// Every change: version, path, type, object.
    history: Vec<(u64, String, &'static str, Value)>,
    /// Changes up to this version are forgotten.
    forgotten: u64,
    /// Kinds that are served.
    served: BTreeSet<String>,
    mood: Option<Mood>,
    token: String,
    /// Request lines, in order.
    asked: Vec<String>,
}

/// A running server; it ends with this.
pub struct ApiServer {
    store: Arc<Mutex<Store>>,
    changed: watch::Sender<u64>,
    pub url: String,
    pub token_file: PathBuf,
    pub ca_file: PathBuf,
    _runtime: Option<Runtime>,
}

pub const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/inference/endpointslices";
pub const PODS: &str = "/api/v1/namespaces/inference/pods";
pub const POOLS: &str = "/apis/inference.networking.k8s.io/v1/namespaces/inference/inferencepools";
pub const OLD_POOLS: &str =
    "/apis/inference.networking.x-k8s.io/v1alpha2/namespaces/inference/inferencepools";
pub const OBJECTIVES: &str =
    "/apis/inference.networking.x-k8s.io/v1alpha2/namespaces/inference/inferenceobjectives";

/// An EndpointSlice of the Service `vllm`.
pub fn slice(name: &str, port: u16, ready: &[(&str, bool)]) -> Value {
    let endpoint = |(ip, ready): &(&str, bool)| json!({"addresses": [ip], "conditions": {"ready": ready}});
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "vllm"}},
        "addressType": "IPv4",
        "endpoints": ready.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
    })
}

/// A pod with the label `app: vllm`.
pub fn pod(name: &str, ip: &str, ready: bool) -> Value {
    let status = if ready { "True" } else { "False" };
    json!({
        "metadata": {"name": name, "labels": {"app": "vllm"}},
        "status": {"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": status}]},
    })
}

/// An InferencePool that selects those.
pub fn pool(name: &str, port: u16) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": "vllm"}}, "targetPorts": [{"number": port}]},
    })
}

/// An InferenceObjective.
pub fn objective(name: &str, pool: &str, priority: i64) -> Value {
    json!({"metadata": {"name": name}, "spec": {"poolRef": {"name": pool}, "priority": priority}})
}

impl ApiServer {
    /// Serves these kinds; its certificate and token are written to the folder.
    pub fn start(dir: &Path, kinds: &[&str]) -> ApiServer {
        let (ca_file, token_file) = (dir.join("ca.crt"), dir.join("token"));
        let acceptor = certificate(&ca_file);
        let token = "sesame".to_owned();
        std::fs::write(&token_file, format!("{token}\n")).unwrap();
        let served = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        let store = Arc::new(Mutex::new(Store { version: 10, served, token, ..Store::default() }));
        let (changed, _) = watch::channel(0);
        let runtime = Runtime::new().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
        let (at, told) = (Arc::clone(&store), changed.clone());
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, store, changes) = (acceptor.clone(), Arc::clone(&at), told.subscribe());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        // A client that goes ends it.
                        let _ = answer(stream, store, changes).await;
                    }
                });
            }
        });
        ApiServer { store, changed, url, token_file, ca_file, _runtime: Some(runtime) }
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap()
    }

    /// Puts an object, by its name.
    pub fn put(&self, path: &str, mut object: Value) {
        let mut store = self.store();
        store.version += 1;
        let version = store.version;
        object["metadata"]["resourceVersion"] = version.to_string().into();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let before = store.objects.entry(path.to_owned()).or_default().insert(name, object.clone());
        let kind = if before.is_some() { "MODIFIED" } else { "ADDED" };
        store.history.push((version, path.to_owned(), kind, object));
        drop(store);
        let _ = self.changed.send(version);
    }

    /// Takes an object away.
    pub fn delete(&self, path: &str, name: &str) {
        let mut store = self.store();
        store.version += 1;
        let version = store.version;
        let mut object = store.objects.get_mut(path).unwrap().remove(name).unwrap();
        object["metadata"]["resourceVersion"] = version.to_string().into();
        store.history.push((version, path.to_owned(), "DELETED", object));
        drop(store);
        let _ = self.changed.send(version);
    }

    /// An object goes, and nobody is told: every change so far is forgotten, and watches from before hear that their
    /// version is gone.
    pub fn forget(&self, path: &str, name: &str) {
        let mut store = self.store();
        store.objects.get_mut(path).unwrap().remove(name).unwrap();
        store.version += 1;
        (store.forgotten, store.history) = (store.version, Vec::new());
        let version = store.version;
        drop(store);
        let _ = self.changed.send(version);
    }

    /// From the next question on (and for the watches that are open, at once).
    pub fn mood(&self, mood: Mood) {
        self.store().mood = Some(mood);
        self.changed.send_modify(|_| {});
    }

    /// The token that is right from here on.
    pub fn token(&self, token: &str) {
        self.store().token = token.to_owned();
    }

    /// Serves another kind.
    pub fn serve(&self, kind: &str) {
        self.store().served.insert(kind.to_owned());
    }

    /// How many questions had all of these in them.
    pub fn asked(&self, words: &[&str]) -> usize {
        let store = self.store();
        store.asked.iter().filter(|line| words.iter().all(|word| line.contains(word))).count()
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        // Also from within another runtime.
        if let Some(runtime) = self._runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn certificate(ca_file: &Path) -> TlsAcceptor {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let own =
        CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    std::fs::write(ca_file, authority.pem()).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(own.pem().as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

type Query = BTreeMap<String, String>;

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let hex = [rest.next().unwrap(), rest.next().unwrap()];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap());
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn selected(query: &Query, object: &Value) -> bool {
    let pairs = |text: &str| {
        let pairs = text.split(',').filter(|pair| !pair.is_empty());
        pairs
            .map(|pair| pair.split_once('=').unwrap())
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect::<Vec<_>>()
    };
    let labels = query.get("labelSelector").map(|text| pairs(text)).unwrap_or_default();
    let fields = query.get("fieldSelector").map(|text| pairs(text)).unwrap_or_default();
    labels.iter().all(|(key, value)| object["metadata"]["labels"][key] == **value)
        && fields.iter().all(|(key, value)| key == "metadata.name" && object["metadata"]["name"] == **value)
}

async fn answer<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    store: Arc<Mutex<Store>>,
    changes: watch::Receiver<u64>,
) -> std::io::Result<()> {
    let (mut head, mut byte) = (Vec::new(), [0_u8]);
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).await? == 0 {
            return Ok(());
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let line = head.lines().next().unwrap().to_owned();
    let target = line.split(' ').nth(1).unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query: Query = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(k, v)| (k.to_owned(), unescaped(v)))
        .collect();
    let (mood, known, served) = {
        let mut store = store.lock().unwrap();
        store.asked.push(line.clone());
        let bearer = format!("authorization: Bearer {}\r\n", store.token);
        let known = head.contains(&bearer) || head.contains(&bearer.replacen('a', "A", 1));
        (store.mood.unwrap_or(Mood::Well), known, store.served.contains(path))
    };
    match mood {
        Mood::Mute => {
            tokio::time::sleep(Duration::from_secs(3_600)).await;
            return Ok(());
        }
        Mood::Refuses(status) => return refuse(&mut stream, status).await,
        _ if !known => return refuse(&mut stream, 401).await,
        _ if !served => return refuse(&mut stream, 404).await,
        _ => {}
    }
    if query.contains_key("watch") {
        watch_from(&mut stream, path, &query, &store, changes).await
    } else {
        let body = list(path, &query, &store.lock().unwrap()).to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).await?;
        stream.flush().await
    }
}

async fn refuse<S: AsyncWrite + Unpin>(stream: &mut S, status: u16) -> std::io::Result<()> {
    let body =
        json!({"kind": "Status", "message": format!("refused with {status}"), "code": status}).to_string();
    let head = format!("HTTP/1.1 {status} No\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).await?;
    stream.flush().await
}

/// Pages of two at most, so that every list of more has several.
fn list(path: &str, query: &Query, store: &Store) -> Value {
    let from: usize = query.get("continue").map_or(0, |token| token.parse().unwrap());
    let none = BTreeMap::new();
    let all: Vec<&Value> =
        store.objects.get(path).unwrap_or(&none).values().filter(|object| selected(query, object)).collect();
    let page: Vec<&&Value> = all.iter().skip(from).take(2).collect();
    let next = if from + page.len() < all.len() { (from + page.len()).to_string() } else { String::new() };
    json!({"kind": "List", "metadata": {"resourceVersion": store.version.to_string(), "continue": next}, "items": page})
}

async fn watch_from<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    path: &str,
    query: &Query,
    store: &Arc<Mutex<Store>>,
    mut changes: watch::Receiver<u64>,
) -> std::io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await?;
    stream.flush().await?;
    let seconds: u64 = query["timeoutSeconds"].parse().unwrap();
    let until = tokio::time::Instant::now() + Duration::from_secs(seconds);
    let mut seen: u64 = query["resourceVersion"].parse().unwrap();
    loop {
        let (mood, events) = {
            let store = store.lock().unwrap();
            let mut events = Vec::new();
            if seen < store.forgotten {
                let status = json!({"kind": "Status", "code": 410, "message": "too old resource version"});
                events.push(json!({"type": "ERROR", "object": status}));
            } else {
                let new = store.history.iter().filter(|(version, at, _, _)| *version > seen && at == path);
                for (_, _, kind, object) in new.filter(|(_, _, _, object)| selected(query, object)) {
                    events.push(json!({"type": kind, "object": object}));
                }
                let version = store.version.to_string();
                if store.version > seen && events.is_empty() {
                    events.push(
                        json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}}),
                    );
                }
                seen = store.version;
            }
            (store.mood.unwrap_or(Mood::Well), events)
        };
        match mood {
            Mood::MuteWatch => {
                tokio::time::sleep(Duration::from_secs(3_600)).await;
                return Ok(());
            }
            Mood::Garbage => chunk(stream, "}}} this is no event\n").await?,
            Mood::Refuses(_) => return end(stream).await,
            Mood::Cut => {
                chunk(stream, "{\"type\": \"ADDED\", \"obj").await?;
                return Ok(());
            }
            _ => {}
        }
        for event in &events {
            // In two pieces, as a network may deliver it.
            let text = format!("{event}\n");
            let (one, two) = text.split_at(text.len() / 2);
            chunk(stream, one).await?;
            chunk(stream, two).await?;
            if event["type"] == "ERROR" {
                return end(stream).await;
            }
        }
        tokio::select! {
            _ = changes.changed() => {}
            () = tokio::time::sleep_until(until) => return end(stream).await,
        }
    }
}

async fn chunk<S: AsyncWrite + Unpin>(stream: &mut S, text: &str) -> std::io::Result<()> {
    stream.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).await?;
    stream.flush().await
}

async fn end<S: AsyncWrite + Unpin>(stream: &mut S) -> std::io::Result<()> {
    stream.write_all(b"0\r\n\r\n").await?;
    stream.flush().await
}
