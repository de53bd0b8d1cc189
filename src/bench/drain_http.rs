//! The waiting room as callers see it: thousands of held calls over loopback HTTP, and the pool opens.

use super::BenchError;
use super::pool::failed;
use crate::engine::Place;
use crate::gateway::Service;
use crate::load::Client;
use bytes::Bytes;
use http::Method;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Room for all that are queued, in the queue and in the pool.
const YAML: &str = "
flowControl:
  priorityBands:
    - priority: 0
      maxRequests: 100000
  saturationDetector:
    pluginRef: gauge
plugins:
  - name: gauge
    type: concurrency-detector
    parameters:
      maxConcurrency: 1000
weir:
  listen: 127.0.0.1:0
";

/// From the opening of the pool until the last of `calls` held callers has its answer.
pub async fn gateway(calls: u64, endpoints: u16) -> Result<Duration, BenchError> {
    room_for_connections(2 * calls + 256)?;
    let dir = tempfile::tempdir().map_err(failed)?;
    let settings = weir_config::from_text(YAML, std::iter::empty()).map_err(failed)?;
    let service =
        Service::start(&settings, Place::Directory(dir.path().join("log"))).await.map_err(failed)?;
    let base = format!("http://{}", service.addr());
    let client = Client::default();
    push(&client, &base, 0).await?;
    let mut held = JoinSet::new();
    for n in 0..calls {
        let (client, url) = (client.clone(), format!("{base}/v1/admissions"));
        held.spawn(async move { admission(&client, &url, n).await });
    }
    wait_for(&service, calls, &mut held).await?;
    let begun = Instant::now();
    push(&client, &base, endpoints).await?;
    let mut last = begun;
    while let Some(done) = held.join_next().await {
        last = last.max(done.map_err(failed)??);
    }
    drop(client);
    let stopped = service.stop(Duration::ZERO).await.map_err(failed);
    dir.close().map_err(failed)?;
    stopped?;
    Ok(last - begun)
}

/// Both ends of every connection are in this process.
fn room_for_connections(wanted: u64) -> Result<(), BenchError> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).map_err(|e| {
        failed(format!("drain: {wanted} open files are needed and not allowed ({e}); see ulimit -n"))
    })
}

async fn push(client: &Client, base: &str, endpoints: u16) -> Result<(), BenchError> {
    let named = (0..endpoints).map(|i| json!({ "name": format!("10.0.0.{i}:8000") })).collect::<Vec<_>>();
    let body = Bytes::from(json!({ "endpoints": named }).to_string());
    let url = format!("{base}/v1/pools/default/endpoints");
    let answer = client.send(Method::PUT, &url, &[], body).await.map_err(failed)?;
    if answer.status != 200 {
        return Err(failed(format!("drain: PUT {url}: status {}", answer.status)));
    }
    Ok(())
}

/// When the answer had come; it must be an admission.
async fn admission(client: &Client, url: &str, n: u64) -> Result<Instant, BenchError> {
    let body = json!({ "requestId": format!("drain-{n}"), "fairnessId": format!("tenant-{}", n % 100), "bytes": 8_192 });
    let answer = client.send(Method::POST, url, &[], Bytes::from(body.to_string())).await.map_err(failed)?;
    let status = answer.status;
    let body = answer.whole().await.map_err(failed)?;
    if status != 200 {
        let said = String::from_utf8_lossy(&body).into_owned();
        return Err(failed(format!("drain: an admission got status {status}: {said}")));
    }
    Ok(Instant::now())
}

/// Waits until all callers are queued; one that already has an answer ends the bench.
async fn wait_for(
    service: &Service,
    calls: u64,
    held: &mut JoinSet<Result<Instant, BenchError>>,
) -> Result<(), BenchError> {
    let pool = service.engine().pools().next().ok_or_else(|| failed("drain: no pool"))?;
    loop {
        if let Some(done) = held.try_join_next() {
            done.map_err(failed)??;
            return Err(failed("drain: a call was answered while the pool was empty"));
        }
        if pool.query(weir_kernel::State::queued).await.map_err(failed)? >= calls {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
