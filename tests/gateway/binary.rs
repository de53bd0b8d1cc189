//! Goal: the binary starts, says what holds, takes other settings while it runs, and stops in order.

use crate::harness::{PATIENCE, Reply, call};
use crate::kept::Kept;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// A running `weir serve` with a pushed saturation.
pub struct Served {
    pub child: Child,
    pub addr: SocketAddr,
    pub dir: Kept,
    pub lines: Receiver<String>,
}

pub const PUSHED: &str = "plugins: [{name: d, type: pushed-saturation-detector}]\n";

pub fn settings(weir: &str, flow_control: &str) -> String {
    format!("{PUSHED}weir: {weir}\nflowControl: {{saturationDetector: {{pluginRef: d}}, {flow_control}}}\n")
}

impl Served {
    pub fn start(settings: &str) -> Served {
        Served::start_in(crate::kept::tempdir().unwrap(), settings, &[])
    }

    /// In a directory that may hold more than the settings, which is where it runs.
    pub fn start_in(dir: Kept, settings: &str, more: &[&str]) -> Served {
        std::fs::write(dir.path().join("weir.yaml"), settings).unwrap();
        let (child, addr, lines) = spawn(dir.path(), more);
        Served { child, addr, dir, lines }
    }

    /// Starts once more on the same directory, after the end.
    pub fn again(&mut self) {
        (self.child, self.addr, self.lines) = spawn(self.dir.path(), &[]);
    }

    pub fn file(&self) -> PathBuf {
        self.dir.path().join("weir.yaml")
    }

    /// Other settings, in one go.
    pub fn write(&self, settings: &str) {
        replace(&self.file(), settings);
    }

    pub async fn get(&self, path: &str) -> Reply {
        call(self.addr, "GET", path, &[], b"").await
    }

    pub async fn admit(&self) -> Reply {
        call(self.addr, "POST", "/v1/admissions", &[], b"{}").await
    }

    pub fn admitting(&self, count: usize) -> Vec<JoinHandle<Reply>> {
        let addr = self.addr;
        (0..count)
            .map(|_| tokio::spawn(async move { call(addr, "POST", "/v1/admissions", &[], b"{}").await }))
            .collect()
    }

    pub async fn pool_is(&self, saturation: f64) {
        let body = json!({"endpoints": [{"name": "e"}], "saturation": saturation}).to_string();
        let reply = call(self.addr, "PUT", "/v1/pools/default/endpoints", &[], body.as_bytes()).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }

    pub async fn until(&self, what: &str, mut so: impl AsyncFnMut() -> bool) {
        let began = Instant::now();
        while !so().await {
            assert!(began.elapsed() < PATIENCE, "waited in vain for: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub async fn queued(&self, want: usize) {
        self.until("the queue", async || {
            self.get("/v1/pools/default").await.json()["queue"]["requests"] == json!(want)
        })
        .await;
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    /// Waits for a line that holds this.
    pub fn said(&self, what: &str) -> String {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            match self.lines.recv_timeout(Duration::from_millis(100)) {
                Ok(line) if line.contains(what) => return line,
                Ok(_) | Err(_) => {}
            }
        }
        panic!("never said: {what}");
    }

    /// Waits until it has said all of these, in any order.
    pub fn said_all(&self, whats: &[&str]) {
        let (began, mut left) = (Instant::now(), whats.to_vec());
        while !left.is_empty() {
            assert!(began.elapsed() < PATIENCE, "never said: {left:?}");
            if let Ok(line) = self.lines.recv_timeout(Duration::from_millis(100)) {
                left.retain(|what| !line.contains(what));
            }
        }
    }

    /// Its exit code.
    pub fn ended(&mut self) -> Option<i32> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(began.elapsed() < PATIENCE, "does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The log of the stopped service.
    pub fn log(&self) -> Vec<Value> {
        let logs = weir_log::reader::Logs::open(&self.dir.path().join("data")).unwrap();
        let open = weir_log::reader::Bound::Open;
        let steps = logs.reader("default", open, open).steps();
        steps.map(|step| weir_log::describe::step_json(&step.unwrap()).unwrap()).collect()
    }

    pub fn outcomes(log: &[Value]) -> Vec<String> {
        let events = log.iter().flat_map(|step| step["events"].as_array().unwrap().clone());
        events
            .filter_map(|event| {
                let inner = event.get("Evicted").or(event.get("Rejected"))?.clone();
                Some(format!("{} {}", inner["outcome"].as_str()?, inner["reason"].as_str()?))
            })
            .collect()
    }
}

/// Puts a file in the place of another: nobody who looks meanwhile finds half of it, or none.
pub fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, file).unwrap();
}

/// The service on the settings and the data of this directory, its address, and what it says.
fn spawn(dir: &Path, more: &[&str]) -> (Child, SocketAddr, Receiver<String>) {
    let port_file = dir.join("port");
    // Of an earlier start.
    let _ = std::fs::remove_file(&port_file);
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["serve", "--config"])
        .arg(dir.join("weir.yaml"))
        .args(if more.contains(&"--listen") { &[][..] } else { &["--listen", "127.0.0.1:0"] })
        .arg("--data")
        .arg(dir.join("data"))
        .arg("--port-file")
        .arg(&port_file)
        .args(more)
        .current_dir(dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (to, lines) = std::sync::mpsc::channel();
    let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let each = |stream: Box<dyn std::io::Read + Send>, to: std::sync::mpsc::Sender<String>| {
        std::thread::spawn(move || {
            BufReader::new(stream).lines().map_while(Result::ok).for_each(|l| drop(to.send(l)))
        });
    };
    each(Box::new(out), to.clone());
    each(Box::new(err), to);
    let began = Instant::now();
    loop {
        // It may be there and not be written yet.
        if let Some(addr) = std::fs::read_to_string(&port_file).ok().and_then(|text| text.parse().ok()) {
            return (child, addr, lines);
        }
        if let Some(status) = child.try_wait().unwrap() {
            panic!("ended at once: {status}: {:?}", lines.iter().collect::<Vec<_>>());
        }
        if began.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("does not start: {:?}", lines.iter().collect::<Vec<_>>());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Ended already, or the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c001_what_holds_is_said_at_the_start() {
    let mut served = Served::start(&settings("{}", "maxRequests: 7"));
    served.said("listens on http://127.0.0.1:");
    served.said("data: ");
    let pool = served.said("pool default: ");
    for want in [
        "enforce",
        "defaultRequestTTL 1m0s",
        "noEndpointRequestTTL 1m0s",
        "maxRequests 7",
        "endpoints pushed",
    ] {
        assert!(pool.contains(want), "{want} in: {pool}");
    }
    served.signal("INT");
    assert_eq!(served.ended(), Some(0));
}

/// Without a drain everything queued ends at once, with its own reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c016_c146_without_a_drain_all_end_at_once() {
    let mut served = Served::start(&settings("{drainTimeout: 0s}", ""));
    served.pool_is(1.5).await;
    let held = served.admitting(50);
    served.queued(50).await;
    served.signal("TERM");
    let began = Instant::now();
    for reply in held {
        let problem = reply.await.unwrap().refused(503, "rejected-shutting-down");
        assert_eq!(problem["outcome"], "EvictedOther");
    }
    assert!(began.elapsed() < Duration::from_secs(40), "not at their budgets of a minute");
    assert_eq!(served.ended(), Some(0));
    let log = served.log();
    assert_eq!(Served::outcomes(&log), vec!["EvictedOther ShuttingDown"; 50]);
    assert_eq!(log.last().unwrap()["input"], "Stopped");
}

/// Not ready at once, alive to the end; new requests are refused with the reason, queued ones are still served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c144_queued_requests_are_served_while_draining() {
    let mut served = Served::start(&settings("{drainTimeout: 60s}", ""));
    served.pool_is(1.5).await;
    let held = served.admitting(4);
    served.queued(4).await;
    served.until("ready", async || served.get("/readyz").await.status == 200).await;
    served.signal("TERM");
    served.until("not ready", async || served.get("/readyz").await.status == 503).await;
    assert_eq!(served.get("/healthz").await.status, 200);
    served.until("refused", async || served.admit().await.status == 503).await;
    served.admit().await.refused(503, "rejected-shutting-down");
    served.signal("TERM");
    served.pool_is(0.0).await;
    for reply in held {
        reply.await.unwrap().admitted();
    }
    assert_eq!(served.ended(), Some(0));
    assert!(Served::outcomes(&served.log()).iter().all(|outcome| outcome == "RejectedOther ShuttingDown"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_has_an_end() {
    let mut served = Served::start(&settings("{drainTimeout: 300ms}", ""));
    served.pool_is(1.5).await;
    let held = served.admitting(3);
    served.queued(3).await;
    let began = Instant::now();
    served.signal("TERM");
    for reply in held {
        reply.await.unwrap().refused(503, "rejected-shutting-down");
    }
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert_eq!(served.ended(), Some(0));
}

/// What was decided is there again after a restart: the lease of a held admission lives on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_outlives_the_process() {
    let text = settings("{drainTimeout: 0s}", "");
    let mut served = Served::start(&text);
    served.pool_is(0.0).await;
    let id = served.admit().await.admitted()["id"].as_str().unwrap().to_owned();
    served.signal("KILL");
    assert_eq!(served.ended(), None);
    served.again();
    let shown = served.get(&format!("/v1/admissions/{id}")).await;
    assert_eq!(shown.json()["state"], "admitted", "{}", shown.text());
    let done = call(served.addr, "POST", &format!("/v1/admissions/{id}/complete"), &[], b"").await;
    assert_eq!(done.status, 200, "{}", done.text());
}

/// Other settings are in force once the file has changed; an invalid file changes nothing and says why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_change_while_it_runs() {
    let mut served = Served::start(&settings("{objectives: {gold: 5}}", ""));
    served.pool_is(0.0).await;
    let budget = async || {
        served.get("/v1/pools/default").await.json()["budgets"]["defaultRequestTtlMs"].as_u64().unwrap()
    };
    assert_eq!(budget().await, 60_000);
    let changed = settings("{objectives: {gold: 9}}", "defaultRequestTTL: 7s");
    served.write(&changed);
    served.signal("HUP");
    served.until("7s", async || budget().await == 7_000).await;
    let headers = [("x-llm-d-inference-objective", "gold")];
    served
        .until("the new objective", async || {
            let reply = call(served.addr, "POST", "/v1/admissions", &headers, b"").await;
            reply.admitted()["priority"] == 9
        })
        .await;
    served.write(&changed.replace("defaultRequestTTL", "defaultRequestTtl"));
    served.signal("HUP");
    served.said("the settings are not changed");
    assert_eq!(budget().await, 7_000);
    served.signal("TERM");
    assert_eq!(served.ended(), Some(0));
}

/// Settings that are not valid stop the start; so does a port that is taken.
#[test]
fn c089_a_start_that_cannot_be_is_refused() {
    let dir = crate::kept::tempdir().unwrap();
    let file = dir.path().join("weir.yaml");
    std::fs::write(&file, "flowControl: {defaultRequestTtl: 5s}\n").unwrap();
    let run = |listen: &str, file: Option<&PathBuf>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["serve", "--listen", listen, "--data"]).arg(dir.path().join("data"));
        if let Some(file) = file {
            command.arg("--config").arg(file);
        }
        command.current_dir(dir.path()).output().unwrap()
    };
    let output = run("127.0.0.1:0", Some(&file));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(error.contains("defaultRequestTtl") && error.contains("defaultRequestTTL"), "{error}");
    std::fs::write(&file, "").unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let output = run(&taken.local_addr().unwrap().to_string(), None);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && error.contains("listen 127.0.0.1:"), "{error}");
}
