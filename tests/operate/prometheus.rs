//! A Prometheus that runs scrapes a Weir that runs: the target is up, its series can be asked for, quantiles are numbers,
//! exemplars lead to traces, and the alerts of `deploy/prometheus` are evaluated on it.

use crate::file;
use crate::rig::{Weir, until};
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// A process that ends with the test.
struct Prometheus {
    process: Child,
    port: u16,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Prometheus {
    /// Scrapes this every two seconds. `None`, said loudly, where there is none.
    fn start(dir: &std::path::Path, target: std::net::SocketAddr) -> Option<Prometheus> {
        let settings = format!(
            "global: {{scrape_interval: 2s, evaluation_interval: 2s}}\nrule_files: ['{}']\n\
             scrape_configs: [{{job_name: weir, static_configs: [{{targets: ['{target}']}}]}}]\n",
            file("deploy/prometheus/rules.yaml").display()
        );
        std::fs::write(dir.join("prometheus.yaml"), settings).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let output = File::create(dir.join("prometheus.out")).unwrap();
        let started = Command::new("prometheus")
            .arg(format!("--config.file={}", dir.join("prometheus.yaml").display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("tsdb").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--enable-feature=exemplar-storage")
            .stdout(Stdio::null())
            .stderr(output)
            .spawn();
        match started {
            Ok(process) => Some(Prometheus { process, port }),
            Err(error) => {
                eprintln!("SKIPPED: prometheus: {error} (Debian's package prometheus)");
                None
            }
        }
    }

    /// The data of an answer of its API, if it gives one.
    fn ask(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        // HTTP/1.0, so that the answer comes in one piece and ends with the connection.
        stream.write_all(format!("GET /api/v1/{path} HTTP/1.0\r\nhost: p\r\n\r\n").as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let answer: Value = serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()?;
        (answer["status"] == "success").then(|| answer["data"].clone())
    }

    /// The value of the only series that a question gives.
    fn value(&self, question: &str) -> Option<f64> {
        let mut escaped = String::new();
        for byte in question.bytes() {
            escaped.push_str(&format!("%{byte:02X}"));
        }
        let found = self.ask(&format!("query?query={escaped}"))?;
        let series = found["result"].as_array()?;
        assert!(series.len() <= 1, "{question}: {found}");
        series.first()?["value"][1].as_str()?.parse().ok()
    }
}

#[test]
fn a_running_prometheus_scrapes_a_running_weir() {
    let dir = crate::kept::tempdir().unwrap();
    let settings = "plugins: [{name: d, type: pushed-saturation-detector}]\nflowControl: {saturationDetector: {pluginRef: d}}\n";
    let weir = Weir::start(dir.path(), settings, &[], &[]);
    let Some(prometheus) = Prometheus::start(dir.path(), weir.addr) else { return };
    weir.pool_is(1, 0.1);
    let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
    for _ in 0..7 {
        let (status, text) = weir.call("POST", "/v1/admissions", &[("traceparent", &parent)], "{}");
        assert_eq!(status, 200, "{text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        let path = format!("/v1/admissions/{}/complete", answer["admission"]["id"].as_str().unwrap());
        assert_eq!(weir.call("POST", &path, &[], "").0, 200);
    }
    until("the target", || {
        // A scrape that is too slow on a busy machine is followed by another.
        let targets = prometheus.ask("targets")?;
        let target = &targets["activeTargets"][0];
        (target["health"] == "up" && target["lastError"] == "").then_some(())
    });
    until("the arrivals", || {
        (prometheus.value("weir_flow_control_arrivals_total{inference_pool=\"default\"}") == Some(7.0))
            .then_some(())
    });
    assert_eq!(prometheus.value("weir_flow_control_requests_total{outcome=\"Dispatched\"}"), Some(7.0));
    assert_eq!(prometheus.value("weir_flow_control_regime == 1"), Some(1.0));
    // Each histogram has the bucket without bound, else these were no numbers.
    for name in [
        "weir_flow_control_request_queue_duration_seconds",
        "weir_request_processing_duration_seconds",
        "weir_log_commit_duration_seconds",
        "weir_kernel_step_duration_seconds",
    ] {
        let quantile = prometheus.value(&format!("histogram_quantile(0.5, {name}_bucket)"));
        assert!(quantile.is_some_and(f64::is_finite), "{name}: {quantile:?}");
        let whole = prometheus.value(&format!("{name}_bucket{{le=\"+Inf\"}} - on () {name}_count"));
        assert_eq!(whole, Some(0.0), "{name}");
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    for name in
        ["weir_flow_control_requests_total", "weir_flow_control_request_queue_duration_seconds_bucket"]
    {
        let path = format!("query_exemplars?query={name}&start={}&end={}", now - 600, now + 600);
        let found = until("exemplars", || {
            prometheus.ask(&path).filter(|found| found.as_array().is_some_and(|found| !found.is_empty()))
        });
        let exemplar = &found[0]["exemplars"][0];
        assert_eq!(exemplar["labels"]["trace_id"], TRACE, "{found}");
    }
    let rules = until("the rules", || {
        let rules = prometheus.ask("rules")?["groups"][0]["rules"].as_array()?.clone();
        rules.iter().all(|rule| rule["health"] == "ok").then_some(rules)
    });
    assert!(rules.len() >= 10, "{rules:#?}");
    assert!(rules.iter().all(|rule| rule["state"] != "firing"), "nothing is wrong: {rules:#?}");
}
