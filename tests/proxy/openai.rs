//! Goal: the stock OpenAI client, against the real binaries: `weir serve --upstream` in front of `weir simpool`.
//!
//! The client is the package `openai` of PyPI. Where it is missing these tests are skipped, and say so.

use crate::harness::{PATIENCE, call};
use crate::kept::Kept;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A Python that has the package, if there is one.
fn python() -> Option<PathBuf> {
    let named = std::env::var_os("WEIR_OPENAI_PYTHON").map(PathBuf::from);
    let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv-openai/bin/python");
    let has = |python: &PathBuf| {
        let tried = Command::new(python).args(["-c", "import openai"]).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    let found = named.into_iter().chain([venv, PathBuf::from("python3")]).find(has);
    if found.is_none() {
        eprintln!(
            "SKIPPED: no Python with the package openai. Set WEIR_OPENAI_PYTHON, or: python3 -m venv .venv-openai && \
             .venv-openai/bin/pip install openai"
        );
    }
    found
}

/// A child that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Stack {
    addr: SocketAddr,
    urls: Vec<String>,
    _pool: Running,
    _weir: Running,
    _dir: Kept,
}

impl Stack {
    /// So many servers with these arguments, and the service before them with these settings.
    fn start(servers: usize, simpool: &[&str], settings: &str) -> Stack {
        let dir = crate::kept::tempdir().unwrap();
        let weir = env!("CARGO_BIN_EXE_weir");
        let mut pool = Command::new(weir)
            .args(["simpool", "--json", "--endpoints", &servers.to_string()])
            .args(simpool)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(pool.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pool = Running(pool);
        let said: Value = serde_json::from_str(&line).unwrap();
        let urls: Vec<String> = said["endpoints"]
            .as_array()
            .unwrap()
            .iter()
            .map(|url| url.as_str().unwrap().to_owned())
            .collect();
        fs::write(dir.path().join("weir.yaml"), settings).unwrap();
        let port = dir.path().join("port");
        let log = fs::File::create(dir.path().join("weir.log")).unwrap();
        let weir = Command::new(weir)
            .args(["serve", "--listen", "127.0.0.1:0", "--upstream", &urls.join(","), "--config"])
            .arg(dir.path().join("weir.yaml"))
            .arg("--data")
            .arg(dir.path().join("data"))
            .arg("--port-file")
            .arg(&port)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let weir = Running(weir);
        let began = Instant::now();
        let addr = loop {
            if let Ok(Ok(addr)) = fs::read_to_string(&port).map(|text| text.parse()) {
                break addr;
            }
            let log = || fs::read_to_string(dir.path().join("weir.log")).unwrap_or_default();
            assert!(began.elapsed() < PATIENCE, "does not start: {}", log());
            std::thread::sleep(Duration::from_millis(5));
        };
        Stack { addr, urls, _dir: dir, _pool: pool, _weir: weir }
    }

    async fn until(&self, what: &str, mut so: impl FnMut(&Value) -> bool) {
        let began = Instant::now();
        loop {
            let pool = call(self.addr, "GET", "/v1/pools/default", &[], b"").await.json();
            if so(&pool) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "waited in vain for {what}: {pool}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn client(&self, python: &Path, args: &[&str]) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/proxy/openai_client.py");
        let mut command = Command::new(python);
        let (what, more) = args.split_first().unwrap();
        command.arg(script).arg(what).arg(format!("http://{}", self.addr)).args(more);
        command.env("NO_PROXY", "*").stdout(Stdio::piped()).stderr(Stdio::inherit());
        command
    }

    fn run(&self, python: &Path, args: &[&str]) -> Value {
        let done = self.client(python, args).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
        serde_json::from_slice(&done.stdout).unwrap()
    }
}

fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share).round() as usize]
}

/// 200 chat completions streamed at once across three priorities, on three servers that hold a tenth of them each.
#[tokio::test]
async fn two_hundred_streams_at_once_across_three_priorities() {
    const COUNT: usize = 200;
    const TOKENS: usize = 24;
    let Some(python) = python() else { return };
    let settings = "weir:\n  objectives: {chat: 10, batch: -5}\n";
    let stack = Stack::start(3, &["--max-num-seqs", "8", "--step", "20ms"], settings);
    stack.until("the pool", |pool| pool["regime"] == "HasEndpoints").await;
    let said = stack.run(&python, &["load", &COUNT.to_string(), &TOKENS.to_string()]);
    assert_eq!(said["models"], json!(["sim"]));
    let results = said["results"].as_array().unwrap();
    assert_eq!(results.len(), COUNT);
    let mut median = Vec::new();
    for class in ["chat", "default", "batch"] {
        let of: Vec<&Value> = results.iter().filter(|result| result["class"] == class).collect();
        for result in &of {
            assert_eq!(result["error"], Value::Null, "{result}");
            assert_eq!(
                (&result["words"], &result["completion_tokens"]),
                (&json!(TOKENS), &json!(TOKENS)),
                "{result}"
            );
            assert_eq!(result["finish"], "length");
        }
        let mut ttft: Vec<f64> = of.iter().map(|result| result["ttft"].as_f64().unwrap() * 1e3).collect();
        let (p50, p95) = (percentile(&mut ttft, 0.5), percentile(&mut ttft, 0.95));
        println!("{class}: {} streams, TTFT p50 {p50:.0} ms, p95 {p95:.0} ms", of.len());
        median.push(p50);
    }
    assert!(median[0] < median[1] && median[1] < median[2], "the higher priority first: {median:?}");
    stack.until("no lease", |pool| pool["leases"] == 0).await;
    let pool = call(stack.addr, "GET", "/v1/pools/default", &[], b"").await.json();
    assert_eq!(pool["outcomes"]["Dispatched"], COUNT, "{pool}");
    // Every server had its part, and each knows of the requests that finished.
    let mut finished = Vec::new();
    for url in &stack.urls {
        let server: SocketAddr = url.trim_start_matches("http://").parse().unwrap();
        let text = call(server, "GET", "/metrics", &[], b"").await.text();
        let line = text.lines().find(|line| line.starts_with("vllm:request_success_total")).unwrap();
        finished.push(line.rsplit(' ').next().unwrap().parse::<usize>().unwrap());
    }
    println!("finished per server: {finished:?}");
    assert_eq!(finished.iter().sum::<usize>(), COUNT);
    assert!(finished.iter().all(|count| *count > COUNT / 6), "{finished:?}");
    // What each used went into the log.
    let text = call(stack.addr, "GET", "/metrics", &[], b"").await.text();
    assert!(text.contains("weir_gateway_proxied 0.0\n"), "{text}");
}

/// A refusal is an error of the client's own kind, with our reason as its code.
#[tokio::test]
async fn a_refusal_is_shown_as_what_it_is() {
    let Some(python) = python() else { return };
    let settings = "flowControl: {noEndpointRequestTTL: 100ms}\n";
    // Servers that load for an hour serve nobody.
    let stack = Stack::start(1, &["--cold-start", "1h"], settings);
    let result = stack.run(&python, &["one"]);
    let error = &result["error"];
    assert_eq!((&error["kind"], &error["status"]), (&json!("InternalServerError"), &json!(503)), "{error}");
    assert_eq!(
        (&error["code"], &error["type"]),
        (&json!("rejected-no-fresh-metrics"), &json!("server_error"))
    );
    assert!(error["text"].as_str().unwrap().contains("none with fresh metrics"), "{error}");
}
