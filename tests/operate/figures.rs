//! Every metric that a dashboard, an alert or a runbook names exists; alerts fire on what they are for; the exposition is what
//! Prometheus' own tool likes.

use crate::rig::Weir;
use crate::{file, files, read, said, tool};
use serde_json::Value;
use std::collections::BTreeSet;

const SETTINGS: &str = "flowControl: {enableEviction: true, maxRequests: '10', maxBytes: 1Mi}\n";

/// The exposition of a service with everything on, in this form.
fn exposition(accept: &str) -> String {
    let dir = crate::kept::tempdir().unwrap();
    // Nobody is there, which is all the same to the names.
    let otel = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9".to_owned())];
    let weir = Weir::start(dir.path(), SETTINGS, &[], &otel);
    weir.pool_is(2, 0.5);
    let (status, text) = weir.call("GET", "/metrics", &[("accept", accept)], "");
    assert_eq!(status, 200);
    text
}

/// Names of metrics as they can be asked for.
fn exposed() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in exposition("*/*").lines() {
        let Some(rest) = line.strip_prefix("# TYPE ") else { continue };
        let (name, kind) = rest.split_once(' ').unwrap();
        if kind == "histogram" {
            names.extend(["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}")));
        }
        names.insert(name.to_owned());
    }
    assert!(names.len() > 60, "{names:?}");
    names
}

/// The words of a text that look like metrics of ours.
fn named(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("weir_") {
        let before = text[..at].chars().next_back();
        let word: String = text[at..]
            .chars()
            .take_while(|c| c.is_ascii_lowercase() || *c == '_' || c.is_ascii_digit())
            .collect();
        let after = text[at + word.len()..].chars().next();
        let whole = !before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_' || c == '/');
        // The beginning of a regular expression is none.
        if whole && after != Some('(') {
            found.insert(word);
        }
    }
    found
}

#[test]
fn every_metric_that_is_named_exists() {
    let exposed = exposed();
    let mut places = files("deploy/grafana/dashboards", ".json");
    places.extend(files("docs/runbooks", ".md"));
    places.extend(files("deploy/prometheus", ".yaml"));
    let mut seen = 0;
    for place in places {
        for name in named(&read(&place)) {
            assert!(exposed.contains(&name), "{place} names {name}, which is not exposed");
            seen += 1;
        }
    }
    assert!(seen > 80, "{seen}");
}

#[test]
fn dashboards_are_readable_and_every_panel_asks_something() {
    for place in files("deploy/grafana/dashboards", ".json") {
        let board: Value = serde_json::from_str(&read(&place)).unwrap();
        let panels = board["panels"].as_array().unwrap();
        assert!(panels.len() >= 8 && board["uid"].as_str().unwrap().starts_with("weir-"), "{place}");
        for panel in panels {
            let targets = panel["targets"].as_array().unwrap();
            assert!(
                !targets.is_empty()
                    && targets.iter().all(|target| !target["expr"].as_str().unwrap().is_empty())
            );
        }
        // PromQL, as Prometheus reads it: variables of Grafana stand for any value.
        let rules: Vec<Value> = panels
            .iter()
            .flat_map(|panel| panel["targets"].as_array().unwrap())
            .enumerate()
            .map(|(n, target)| {
                let expr = target["expr"].as_str().unwrap().replace("$pool", ".*").replace("$tenant", ".*");
                serde_json::json!({"record": format!("panel:{n}"), "expr": expr})
            })
            .collect();
        let rules = serde_json::json!({"groups": [{"name": "panels", "rules": rules}]}).to_string();
        let dir = crate::kept::tempdir().unwrap();
        let path = dir.path().join("panels.yaml");
        std::fs::write(&path, rules).unwrap();
        if let Some(output) = tool("promtool", &["check", "rules", path.to_str().unwrap()], b"") {
            assert!(output.status.success(), "{place}: {}", said(&output));
        }
    }
}

#[test]
fn every_alert_has_its_runbook_and_each_runbook_its_query() {
    let rules = read("deploy/prometheus/rules.yaml");
    let of = |key: &str| -> Vec<String> {
        let lines = rules.lines().filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix(key));
        lines.map(|value| value.trim().to_owned()).collect()
    };
    let (alerts, runbooks) = (of("alert:"), of("runbook:"));
    assert!(alerts.len() >= 10 && alerts.len() == runbooks.len());
    let tests = read("deploy/prometheus/rules.test.yaml");
    for (alert, runbook) in alerts.iter().zip(&runbooks) {
        let text = read(runbook);
        assert!(text.contains(&format!("Alert `{alert}`")), "{runbook} is not that of {alert}");
        assert!(tests.contains(&format!("alertname: {alert}\n")), "{alert} is not tried");
        let query = text.split("Playbook: `").nth(1).and_then(|rest| rest.split('`').next()).unwrap();
        assert!(query.starts_with("graphql/queries/") && query.ends_with(".graphql"), "{runbook}: {query}");
        if file("graphql/queries").is_dir() {
            assert!(file(query).is_file(), "{runbook} names {query}, which is not there");
        }
    }
    let pages: BTreeSet<String> = files("docs/runbooks", ".md").into_iter().collect();
    assert_eq!(pages, runbooks.into_iter().collect(), "a page without an alert, or the other way round");
}

#[test]
fn prometheus_own_tool_takes_the_rules_and_they_fire_on_what_they_are_for() {
    for args in [
        &["check", "rules", "deploy/prometheus/rules.yaml"][..],
        &["test", "rules", "deploy/prometheus/rules.test.yaml"],
        // The rules are where compose mounts them.
        &["check", "config", "--syntax-only", "deploy/prometheus/prometheus.yaml"],
    ] {
        let Some(output) = tool("promtool", args, b"") else { return };
        assert!(output.status.success(), "{args:?}: {}", said(&output));
    }
}

#[test]
fn prometheus_own_tool_likes_the_exposition() {
    let text = exposition("text/plain");
    let Some(output) = tool("promtool", &["check", "metrics"], text.as_bytes()) else { return };
    // What the system that Weir follows calls its metrics, it calls them.
    let theirs = ["milliseconds", "flow_control_retry_after_seconds"];
    let text = said(&output);
    let complaints: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("weir_") && !theirs.iter().any(|name| line.contains(name)))
        .collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
    assert!(!text.contains("error while linting"), "{text}");
}

#[test]
fn open_metrics_is_served_to_whoever_asks_for_it() {
    let accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.1";
    let text = exposition(accept);
    assert!(text.ends_with("# EOF\n"), "{}", &text[text.len() - 80..]);
    assert!(text.contains("# TYPE weir_flow_control_requests counter\n"));
    for accept in [
        "text/plain",
        "application/openmetrics-text;q=0, */*",
        "application/openmetrics-text;q=0.1, text/plain;q=0.2",
    ] {
        assert!(!exposition(accept).contains("# EOF"), "{accept}");
    }
}
