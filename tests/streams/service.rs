//! The real service as a child process on a data directory that outlives it.

use crate::harness::{PATIENCE, Reply, call};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weir_kernel::Step;

/// A pool whose saturation is pushed; nobody's budget ends within a test.
pub fn settings(weir: &str) -> String {
    format!(
        "plugins: [{{name: d, type: pushed-saturation-detector}}]\nweir: {{{weir}}}\n\
         flowControl: {{saturationDetector: {{pluginRef: d}}, defaultRequestTTL: 1h, noEndpointRequestTTL: 1h}}\n"
    )
}

pub struct Service {
    child: Child,
    pub addr: SocketAddr,
}

impl Service {
    pub fn start(dir: &Path, settings: &str) -> Service {
        let (config, port_file) = (dir.join("weir.yaml"), dir.join("port"));
        std::fs::write(&config, settings).unwrap();
        // Left by the run before.
        let _ = std::fs::remove_file(&port_file);
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["serve", "--listen", "127.0.0.1:0", "--config"])
            .arg(&config)
            .arg("--data")
            .arg(dir.join("data"))
            .arg("--port-file")
            .arg(&port_file)
            .env("WEIR_LOG", "error")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let began = Instant::now();
        let addr = loop {
            let read = std::fs::read_to_string(&port_file).ok();
            if let Some(addr) = read.and_then(|text| text.trim().parse().ok()) {
                break addr;
            }
            assert!(child.try_wait().unwrap().is_none(), "the service ended at its start");
            assert!(began.elapsed() < PATIENCE, "the service does not start");
            std::thread::sleep(Duration::from_millis(2));
        };
        Service { child, addr }
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM.
    pub fn terminate(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }

    /// Waits for an orderly end.
    pub fn ended(mut self) {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return;
            }
            assert!(began.elapsed() < PATIENCE, "does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub async fn get(&self, path: &str) -> Reply {
        call(self.addr, "GET", path, &[], b"").await
    }

    pub async fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        call(self.addr, "POST", path, headers, body.as_bytes()).await
    }

    pub async fn pool(&self) -> Value {
        self.get("/v1/pools/default").await.json()
    }

    /// One idle endpoint, so saturated.
    pub async fn pool_is(&self, saturation: f64) {
        let endpoint = json!({"name": "e", "waiting": 0, "running": 0, "kv": 0});
        let body = json!({"endpoints": [endpoint], "saturation": saturation}).to_string();
        let reply = call(self.addr, "PUT", "/v1/pools/default/endpoints", &[], body.as_bytes()).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }

    pub async fn until(&self, what: &str, mut so: impl FnMut(&Value) -> bool) {
        let began = Instant::now();
        loop {
            let pool = self.pool().await;
            if so(&pool) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "waited in vain for: {what}: {pool}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until all that is shown now is durable, so that a kill leaves it.
    pub async fn durable(&self) {
        self.until("all to be durable", |pool| {
            pool["log"]["durable"].as_u64().unwrap() >= pool["log"]["sequence"].as_u64().unwrap()
        })
        .await;
    }

    pub async fn queued(&self, want: u64) {
        self.until(&format!("{want} queued"), |pool| pool["queue"]["requests"] == json!(want)).await;
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Only after a failed assertion is it still there.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The log of the stopped service.
pub fn log(dir: &Path) -> Vec<Step> {
    let logs = weir_log::reader::Logs::open(&dir.join("data")).unwrap();
    let open = weir_log::reader::Bound::Open;
    logs.reader("default", open, open).steps().map(Result::unwrap).collect()
}
