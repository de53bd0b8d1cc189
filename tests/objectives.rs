//! A folder of InferenceObjective objects against the binary: bands follow it while requests wait, a mistake costs nothing
//! but itself, and `weir config` tells what holds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "gateway/harness.rs"]
#[allow(dead_code, reason = "shared with the tests of the gateway")]
mod harness;
#[path = "kept/mod.rs"]
mod kept;

use harness::{PATIENCE, call};
use kept::Kept;
use serde_json::{Value, json};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn object(name: &str, group: &str, priority: &str) -> String {
    format!(
        "apiVersion: {group}/v1\nkind: InferenceObjective\nmetadata: {{name: {name}}}\nspec:\n  priority: {priority}\n  \
         poolRef: {{name: llama}}\n"
    )
}

const NOW: &str = "inference.networking.k8s.io";
const BEFORE: &str = "inference.networking.x-k8s.io";
const SETTINGS: &str = "weir: {objectives: {own: 4}, objectivesDir: objectives}\n\
    pools: {p: {inferencePool: llama, plugins: [{name: d, type: pushed-saturation-detector}], \
    flowControl: {saturationDetector: {pluginRef: d}}}}\n";

struct Served {
    child: Child,
    addr: SocketAddr,
    dir: Kept,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Served {
    fn start(dir: Kept) -> Served {
        let log = fs::File::create(dir.path().join("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .current_dir(dir.path())
            .args(["serve", "--listen", "127.0.0.1:0", "--data", "data", "--port-file", "port"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let began = Instant::now();
        let addr = loop {
            if let Ok(Ok(addr)) = fs::read_to_string(dir.path().join("port")).map(|text| text.parse()) {
                break addr;
            }
            assert!(began.elapsed() < PATIENCE, "{}", fs::read_to_string(dir.path().join("log")).unwrap());
            std::thread::sleep(Duration::from_millis(5));
        };
        Served { child, addr, dir }
    }

    async fn until(&self, what: &str, mut so: impl AsyncFnMut() -> bool) {
        let began = Instant::now();
        while !so().await {
            let log = || fs::read_to_string(self.dir.path().join("log")).unwrap();
            assert!(began.elapsed() < PATIENCE, "waited in vain for {what}: {}", log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn get(&self, path: &str) -> Value {
        call(self.addr, "GET", path, &[], b"").await.json()
    }

    /// Priorities of the bands that the pool has.
    async fn bands(&self) -> Vec<i64> {
        let pool = self.get("/v1/pools/p").await;
        pool["bands"].as_array().unwrap().iter().map(|band| band["priority"].as_i64().unwrap()).collect()
    }

    async fn has_bands(&self, want: &[i64]) {
        self.until(&format!("bands {want:?}"), async || {
            let bands = self.bands().await;
            want.iter().all(|band| bands.contains(band)) && !bands.contains(&999)
        })
        .await;
    }

    async fn priority_of(&self, objective: &str) -> i64 {
        let headers = [("x-llm-d-inference-objective", objective)];
        let reply = call(self.addr, "POST", "/v1/admissions", &headers, b"{}").await;
        reply.admitted()["priority"].as_i64().unwrap()
    }
}

fn write(dir: &Path, name: &str, text: &str) {
    fs::write(dir.join("objectives").join(name), text).unwrap();
}

fn folder() -> Kept {
    let dir = kept::tempdir().unwrap();
    fs::create_dir(dir.path().join("objectives")).unwrap();
    fs::write(dir.path().join("weir.yaml"), SETTINGS).unwrap();
    let both = [object("chat", NOW, "10"), object("own", NOW, "999")].join("---\n");
    write(dir.path(), "a.yaml", &both);
    write(dir.path(), "b.yaml", &object("batch", BEFORE, "-5"));
    dir
}

#[tokio::test]
async fn bands_follow_the_folder_while_the_service_runs() {
    let served = Served::start(folder());
    let push = json!({"endpoints": [{"name": "e", "waiting": 0, "running": 0, "kv": 0}], "saturation": 0})
        .to_string();
    let pushed = call(served.addr, "PUT", "/v1/pools/p/endpoints", &[], push.as_bytes()).await;
    assert_eq!(pushed.status, 200, "{}", pushed.text());
    served.has_bands(&[10, -5, 4]).await;
    assert_eq!(served.priority_of("chat").await, 10);
    assert_eq!(served.priority_of("batch").await, -5);
    assert_eq!(served.priority_of("own").await, 4, "the table of the file goes first");

    // A request that waits is served under what it was.
    let close = json!({"saturation": 2}).to_string();
    call(served.addr, "PUT", "/v1/pools/p/endpoints", &[], close.as_bytes()).await;
    let addr = served.addr;
    let waiting = tokio::spawn(async move {
        call(addr, "POST", "/v1/admissions", &[("x-llm-d-inference-objective", "chat")], b"{}").await
    });
    served.until("one that waits", async || served.get("/v1/pools/p").await["queue"]["requests"] == 1).await;
    write(served.dir.path(), "a.yaml", &object("chat", NOW, "20"));
    write(served.dir.path(), "b.yaml", &object("batch", BEFORE, "not-a-number"));
    served.has_bands(&[20, -5, 4]).await;
    let open = json!({"saturation": 0}).to_string();
    call(served.addr, "PUT", "/v1/pools/p/endpoints", &[], open.as_bytes()).await;
    assert_eq!(waiting.await.unwrap().admitted()["priority"], 10);
    assert_eq!(served.priority_of("chat").await, 20);
    assert_eq!(served.priority_of("batch").await, -5, "a mistake changes nothing");
    // The one file may have been read before the other was written.
    let mistake = "b.yaml: line 5: spec.priority: found \"not-a-number\"";
    let said = || fs::read_to_string(served.dir.path().join("log")).unwrap();
    served.until(mistake, async || said().contains(mistake)).await;
    assert_eq!(served.priority_of("batch").await, -5);

    // What is deleted is gone, and what the settings themselves say still holds after a reload of them.
    fs::remove_file(served.dir.path().join("objectives/a.yaml")).unwrap();
    served.until("no chat", async || served.priority_of("chat").await == 0).await;
    fs::write(served.dir.path().join("weir.yaml"), SETTINGS.replace("own: 4", "own: 6")).unwrap();
    served.until("the other settings", async || served.priority_of("own").await == 6).await;
    assert_eq!(served.priority_of("batch").await, -5);
    let steps = call(served.addr, "GET", "/v1/pools/p/log", &[], b"").await.text();
    let changes = steps.lines().filter(|line| line.contains("\"ObjectivesChanged\"")).count();
    assert!(changes >= 4, "each change is in the log: {changes}");
}

#[test]
fn the_command_line_knows_what_holds() {
    let dir = folder();
    write(dir.path(), "c.yml", "kind: [");
    write(dir.path(), "d.yaml", &object("x", NOW, "1").replace("llama", "other"));
    let weir = |args: &[&str]| {
        let done =
            Command::new(env!("CARGO_BIN_EXE_weir")).current_dir(dir.path()).args(args).output().unwrap();
        let text = [done.stdout, done.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        (done.status.code(), text)
    };
    let (code, text) = weir(&["config", "check"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("warning: weir.objectivesDir: objectives/c.yml: line 1: the document: "), "{text}");
    assert!(
        text.contains("notice: weir.objectivesDir: objectives: objectives of the InferencePool \"other\""),
        "{text}"
    );
    assert_eq!(weir(&["config", "check", "--strict"]).0, Some(1));
    let (_, text) = weir(&["config", "explain"]);
    let line = |what: &str| {
        text.lines()
            .find(|line| line.starts_with(what))
            .unwrap_or_else(|| panic!("{what}: {text}"))
            .to_owned()
    };
    assert!(line("weir.objectivesDir").contains("weir.yaml:1"), "{text}");
    assert!(
        line("pools.p.objectives.chat").contains(" 10 ") && text.contains("objectives/a.yaml:1"),
        "{text}"
    );
    assert!(
        line("pools.p.objectives.own").contains("inactive: objectives/a.yaml:8: weir.objectives goes first"),
        "{text}"
    );
    fs::remove_dir_all(dir.path().join("objectives")).unwrap();
    let (code, text) = weir(&["config", "check"]);
    assert!(
        code == Some(0) && text.contains("warning: weir.objectivesDir: objectives: No such file"),
        "{text}"
    );
}
