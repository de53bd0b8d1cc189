//! Goal: a stock client, which knows nothing of Weir, reads the schema, asks a question and hears a subscription. Method: the
//! package `gql` of PyPI, over HTTP and over a WebSocket with `graphql-transport-ws`. Where it is missing this is skipped, and
//! says so.

use crate::binary::{Served, settings};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A Python that has the package, if there is one.
fn python() -> Option<PathBuf> {
    let named = std::env::var_os("WEIR_GQL_PYTHON").map(PathBuf::from);
    let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv-gql/bin/python");
    let has = |python: &PathBuf| {
        let imports = "import gql.transport.aiohttp, gql.transport.websockets";
        let tried = Command::new(python).args(["-c", imports]).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    let found = named.into_iter().chain([venv, PathBuf::from("python3")]).find(has);
    if found.is_none() {
        eprintln!(
            "SKIPPED: no Python with the package gql. Set WEIR_GQL_PYTHON, or: python3 -m venv .venv-gql && \
             .venv-gql/bin/pip install 'gql[aiohttp,websockets]'"
        );
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stock_client_asks_and_subscribes() {
    let Some(python) = python() else { return };
    let served = Served::start(&settings("{drainTimeout: 0s}", "maxRequests: 40"));
    served.pool_is(0.2).await;
    let mut child = Command::new(python)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gateway/questions/gql_client.py"))
        .arg(served.addr.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Until it has heard of one, they go on.
    while child.try_wait().unwrap().is_none() {
        served.admit().await;
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["pools"], json!([{ "name": "default", "regime": "HAS_ENDPOINTS" }]));
    assert!(said["types"].as_u64().unwrap() > 60, "{said}");
    let heard = said["heard"].as_array().unwrap();
    assert_eq!(heard.len(), 3);
    for event in heard {
        assert_eq!(
            (&event["kind"], &event["__typename"]),
            (&json!("Dispatched"), &json!("Dispatched")),
            "{said}"
        );
        assert!(
            event["requestId"].as_str().unwrap().starts_with("default-") && event["waitedMs"].is_number()
        );
    }
    assert_eq!(said["code"], "GRAPHQL_VALIDATION_FAILED");
}
