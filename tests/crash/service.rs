//! The real service as a child process.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Six at once; what is held by callers that were cut lapses soon.
pub const SETTINGS: &str = "
plugins:
- type: concurrency-detector
  parameters: {maxConcurrency: 3}
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  defaultRequestTTL: 150ms
weir: {listen: '127.0.0.1:0', leaseTimeout: 250ms, resumeWindow: 200ms, drainTimeout: 0s}
pools:
  default:
    endpoints: [{name: e0, url: 'http://127.0.0.1:9'}, {name: e1, url: 'http://127.0.0.1:10'}]
";

pub struct Service {
    child: Child,
    addr: SocketAddr,
}

impl Service {
    pub fn start(dir: &Path, settings: &str) -> Service {
        let (config, port_file) = (dir.join("weir.yaml"), dir.join("port"));
        std::fs::write(&config, settings).unwrap();
        // Left by the run before.
        let _ = std::fs::remove_file(&port_file);
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["serve", "--config"])
            .arg(&config)
            .arg("--data")
            .arg(dir.join("data"))
            .arg("--port-file")
            .arg(&port_file)
            .env("WEIR_LOG", "error")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let addr = loop {
            if let Some(addr) =
                std::fs::read_to_string(&port_file).ok().and_then(|text| text.trim().parse().ok())
            {
                break addr;
            }
            assert!(child.try_wait().unwrap().is_none(), "the service ended at its start");
            assert!(Instant::now() < until, "the service does not start");
            std::thread::sleep(Duration::from_millis(2));
        };
        Service { child, addr }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM, and an orderly end.
    pub fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Only after a failed assertion is it still there.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
