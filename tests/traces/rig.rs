//! The real service and a real OTLP receiver, each a process of its own, and a plain HTTP client.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use weir_telemetry::{Sampler, Span, Spans};

/// What is waited for comes within this, or the test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something is there.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A process that ends with the test.
pub struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port for a program that takes no 0. Below those that the system gives out by itself, so that nobody gets it before the
/// program does.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id().wrapping_mul(64).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 12_000 + (number % 20_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A tool of the virtual environment that `.ci/run` makes; said loudly where it is not there.
fn tool(file: &str) -> Option<PathBuf> {
    let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv-otel");
    let venv = std::env::var_os("WEIR_OTEL_VENV").map_or(venv, PathBuf::from);
    let found = match file {
        "oteltap" => Some(venv.join("bin/oteltap")),
        _ => fs::read_dir(venv.join("lib")).ok().and_then(|mut entries| {
            let python = entries.next()?.ok()?.path();
            Some(python.join("site-packages/rotel/rotel-agent"))
        }),
    };
    let found = found.filter(|path| path.is_file());
    if found.is_none() {
        eprintln!(
            "SKIPPED: no {file}. python3 -m venv .venv-otel && .venv-otel/bin/pip install oteltap==1.0.0 rotel==0.0.1a15"
        );
    }
    found
}

/// A receiver and where it writes what it gets.
pub struct Receiver {
    _process: Running,
    pub port: u16,
    output: PathBuf,
}

impl Receiver {
    /// OTLP over HTTP; every span is a line of JSON.
    pub fn oteltap(dir: &Path) -> Option<Receiver> {
        let port = free_port();
        let args = ["--port".to_owned(), port.to_string()];
        Some(Receiver::start(dir, &tool("oteltap")?, &args, port))
    }

    /// OTLP over gRPC; every span is told in words.
    pub fn rotel(dir: &Path) -> Option<Receiver> {
        let (port, other) = (free_port(), free_port());
        let pid_file = dir.join("rotel.pid").display().to_string();
        let args = format!(
            "start --otlp-grpc-endpoint 127.0.0.1:{port} --otlp-http-endpoint 127.0.0.1:{other} --debug-log traces \
             --debug-log-verbosity detailed --exporter blackhole --pid-file {pid_file}"
        );
        let args: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
        Some(Receiver::start(dir, &tool("rotel")?, &args, port))
    }

    fn start(dir: &Path, program: &Path, args: &[String], port: u16) -> Receiver {
        let output = dir.join("received");
        let file = File::create(&output).unwrap();
        let child = Command::new(program)
            .args(args)
            .env("PYTHONUNBUFFERED", "1")
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        let receiver = Receiver { _process: Running(child), port, output };
        until("the receiver", || TcpStream::connect(("127.0.0.1", port)).ok());
        receiver
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).unwrap()).into_owned()
    }

    /// Every span so far, by its id.
    pub fn spans(&self) -> BTreeMap<String, Value> {
        let text = self.text();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let spans = lines.filter(|value| value.get("spanId").is_some());
        let mut found = BTreeMap::new();
        for span in spans {
            let id = span["spanId"].as_str().unwrap().to_owned();
            assert!(found.insert(id, plain(&span)).is_none(), "a span came twice: {span}");
        }
        found
    }
}

/// What must be equal of two spans in JSON, however each was written.
pub fn plain(span: &Value) -> Value {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let events = list(&span["events"]);
    let events =
        events.iter().map(|event| json!([event["name"], event["timeUnixNano"], event["attributes"]]));
    let links = list(&span["links"]);
    let links = links.iter().map(|link| json!([link["traceId"], link["spanId"], link["attributes"]]));
    json!({
        "trace": span["traceId"],
        "parent": span["parentSpanId"].as_str().unwrap_or_default(),
        "name": span["name"],
        "kind": span["kind"],
        "start": span["startTimeUnixNano"],
        "end": span["endTimeUnixNano"],
        "attributes": span["attributes"],
        "events": events.collect::<Vec<_>>(),
        "links": links.collect::<Vec<_>>(),
        "status": span["status"]["code"].as_u64().unwrap_or(0),
        "message": span["status"]["message"].as_str().unwrap_or_default(),
    })
}

/// The spans that the log of a stopped service makes, likewise.
pub fn from_log(dir: &Path) -> BTreeMap<String, Value> {
    let logs = weir_log::reader::Logs::open(&dir.join("data")).unwrap();
    let open = weir_log::reader::Bound::Open;
    let (mut spans, mut made) = (Spans::new("default", Sampler::EVERYTHING), Vec::<Span>::new());
    for step in logs.reader("default", open, open).steps() {
        spans.apply(&step.unwrap(), &mut made);
    }
    let document = weir_telemetry::document(&[], &made);
    let spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    let one = |span: &Value| (span["spanId"].as_str().unwrap().to_owned(), plain(span));
    spans.iter().map(one).collect()
}

/// The service.
pub struct Weir {
    process: Running,
    pub addr: SocketAddr,
}

impl Weir {
    /// With these settings, more arguments, and variables of OpenTelemetry.
    pub fn start(dir: &Path, settings: &str, args: &[&str], otel: &[(&str, String)]) -> Weir {
        let (config, port_file) = (dir.join("weir.yaml"), dir.join("port"));
        fs::write(&config, settings).unwrap();
        let _ = fs::remove_file(&port_file);
        let child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["serve", "--listen", "127.0.0.1:0", "--config"])
            .arg(&config)
            .arg("--data")
            .arg(dir.join("data"))
            .arg("--port-file")
            .arg(&port_file)
            .args(args)
            .env("OTEL_BSP_SCHEDULE_DELAY", "20")
            .envs(otel.iter().map(|(name, value)| (*name, value.as_str())))
            .stdout(Stdio::null())
            .stderr(File::create(dir.join("weir.err")).unwrap())
            .spawn()
            .unwrap();
        let mut process = Running(child);
        let addr = until("the service", || {
            assert!(process.0.try_wait().unwrap().is_none(), "the service ended at its start");
            fs::read_to_string(&port_file).ok()?.trim().parse().ok()
        });
        Weir { process, addr }
    }

    /// SIGTERM; how long the end took.
    pub fn stop(mut self) -> Duration {
        let pid = self.process.0.id().to_string();
        let began = Instant::now();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let status = self.process.0.wait().unwrap();
        assert!(status.success(), "{status}");
        began.elapsed()
    }

    /// Sends a request; what comes of it can be read.
    pub fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nhost: weir\r\nconnection: close\r\ncontent-length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
        BufReader::new(stream)
    }

    /// The whole answer: status and body.
    pub fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
        whole(self.send(method, path, headers, body))
    }

    /// The pool has so many endpoints, and is so saturated.
    pub fn pool_is(&self, endpoints: usize, saturation: f64) {
        let list: Vec<Value> = (0..endpoints)
            .map(|e| json!({"name": format!("e{e}"), "waiting": 0, "running": 0, "kv": 0}))
            .collect();
        let body = json!({"endpoints": list, "saturation": saturation}).to_string();
        let (status, text) = self.call("PUT", "/v1/pools/default/endpoints", &[], &body);
        assert_eq!(status, 200, "{text}");
    }

    /// Waits until so many requests are queued.
    pub fn queued(&self, want: u64) {
        until(&format!("{want} queued"), || {
            let (_, body) = self.call("GET", "/v1/pools/default", &[], "");
            let pool: Value = serde_json::from_str(&body).unwrap();
            (pool["queue"]["requests"] == json!(want)).then_some(())
        });
    }
}

/// Reads an answer to its end.
pub fn whole(mut answer: BufReader<TcpStream>) -> (u16, String) {
    let mut text = String::new();
    answer.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

/// Reads up to the line that holds this.
pub fn line_with(answer: &mut BufReader<TcpStream>, what: &str) -> String {
    loop {
        let mut line = String::new();
        assert!(answer.read_line(&mut line).unwrap() > 0, "the stream ended before {what}");
        if line.contains(what) {
            return line;
        }
    }
}
