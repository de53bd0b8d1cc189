//! The thread that sends. While the receiver does not take spans it pauses for longer and longer, and encodes nothing: the
//! queue fills, and what comes then is dropped where it costs least.

use super::complaints::Complaints;
use super::convert;
use super::queue::Shared;
use super::settings::{Protocol, Settings};
use crate::span::Span;
use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::KeyValue;
use opentelemetry_otlp::tonic_types::metadata::MetadataMap;
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanExporter as _;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// The first pause after a failure; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Starts it.
///
/// # Errors
/// The settings make no exporter; no thread.
pub fn start(
    shared: Arc<Shared>,
    batches: mpsc::UnboundedReceiver<Vec<Span>>,
    stopping: watch::Receiver<Option<Instant>>,
    ended: watch::Sender<bool>,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no runtime for the export of traces: {error}"))?;
    // Its connections belong to that runtime.
    let built = {
        let _inside = runtime.enter();
        exporter(&shared.settings)
    };
    let exporter = match built {
        Ok(exporter) => exporter,
        Err(error) => {
            // Dropped where other tasks run it would panic.
            runtime.shutdown_background();
            return Err(error);
        }
    };
    let work = move || {
        let mut worker = Worker {
            exporter,
            scope: convert::scope(),
            shared,
            stopping,
            pause: Duration::ZERO,
            complaints: Complaints::default(),
        };
        runtime.block_on(worker.run(batches));
        let _ = ended.send(true);
        // A connection that hangs must not hold up the end.
        runtime.shutdown_background();
    };
    std::thread::Builder::new()
        .name("weir-traces".to_owned())
        .spawn(work)
        .map_err(|error| format!("no thread for the export of traces: {error}"))?;
    Ok(())
}

fn exporter(settings: &Settings) -> Result<SpanExporter, String> {
    let (endpoint, timeout) = (settings.endpoint.clone(), settings.timeout);
    let built = match settings.protocol {
        Protocol::Grpc => {
            let mut headers = HeaderMap::new();
            for (key, value) in &settings.headers {
                match (HeaderName::try_from(key), HeaderValue::try_from(value)) {
                    (Ok(key), Ok(value)) => headers.insert(key, value),
                    _ => return Err(format!("the header {key:?} is none")),
                };
            }
            let metadata = MetadataMap::from_headers(headers);
            let builder = SpanExporter::builder().with_tonic();
            builder.with_endpoint(endpoint).with_timeout(timeout).with_metadata(metadata).build()
        }
        Protocol::Http => {
            let headers: HashMap<String, String> = settings.headers.iter().cloned().collect();
            let builder = SpanExporter::builder().with_http();
            let builder = builder.with_protocol(opentelemetry_otlp::Protocol::HttpBinary);
            builder.with_endpoint(endpoint).with_timeout(timeout).with_headers(headers).build()
        }
    };
    let mut exporter = built.map_err(|error| error.to_string())?;
    let attributes = settings.resource.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    exporter.set_resource(&Resource::builder_empty().with_attributes(attributes).build());
    Ok(exporter)
}

struct Worker {
    exporter: SpanExporter,
    scope: opentelemetry::InstrumentationScope,
    shared: Arc<Shared>,
    stopping: watch::Receiver<Option<Instant>>,
    pause: Duration,
    complaints: Complaints,
}

impl Worker {
    async fn run(&mut self, mut batches: mpsc::UnboundedReceiver<Vec<Span>>) {
        let mut waiting: Vec<Span> = Vec::new();
        let mut open = true;
        while open || !waiting.is_empty() {
            if open && waiting.len() < self.shared.settings.batch_max {
                open = self.gather(&mut batches, &mut waiting).await;
            }
            if waiting.is_empty() {
                continue;
            }
            let rest = waiting.split_off(waiting.len().min(self.shared.settings.batch_max));
            let batch = std::mem::replace(&mut waiting, rest);
            if !self.send(batch).await && !self.rest().await {
                break;
            }
        }
        // The time to stop is over: what is left counts as dropped.
        batches.close();
        let mut left = waiting.len();
        while let Ok(batch) = batches.try_recv() {
            left += batch.len();
        }
        self.shared.counters.add_failed(left);
        self.shared.waiting.fetch_sub(left, Ordering::AcqRel);
    }

    /// Waits until a batch is full, has waited long enough, or nothing more comes (false).
    async fn gather(&mut self, batches: &mut mpsc::UnboundedReceiver<Vec<Span>>, to: &mut Vec<Span>) -> bool {
        let mut due = (!to.is_empty()).then(|| Instant::now() + self.shared.settings.delay);
        while to.len() < self.shared.settings.batch_max {
            let next = async {
                match due {
                    Some(due) => tokio::time::timeout_at(due, batches.recv()).await,
                    None => Ok(batches.recv().await),
                }
            };
            match next.await {
                Ok(Some(mut batch)) => {
                    to.append(&mut batch);
                    due.get_or_insert_with(|| Instant::now() + self.shared.settings.delay);
                }
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
        true
    }

    /// Sends a batch; false if the receiver did not take it, which is then lost.
    async fn send(&mut self, batch: Vec<Span>) -> bool {
        let count = batch.len();
        let spans = batch.into_iter().map(|span| convert::span(span, &self.scope)).collect();
        let mut stopping = self.stopping.clone();
        let sent = tokio::select! {
            sent = tokio::time::timeout(self.shared.settings.timeout, self.exporter.export(spans)) => match sent {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("no answer within {:?}", self.shared.settings.timeout)),
            },
            () = over(&mut stopping) => Err("no answer yet, and the service stops".to_owned()),
        };
        self.shared.waiting.fetch_sub(count, Ordering::AcqRel);
        match sent {
            Ok(()) => {
                self.shared.counters.add_exported(count);
                if self.complaints.well() {
                    tracing::info!("the receiver of traces takes spans again");
                }
                self.pause = Duration::ZERO;
                true
            }
            Err(why) => {
                self.shared.counters.add_failed(count);
                if self.complaints.due(&why, Instant::now()) {
                    tracing::warn!(
                        spans = count,
                        "traces: {} does not take spans, which are dropped (the log has them): {why}",
                        self.shared.settings.endpoint
                    );
                }
                self.pause = (self.pause * 2).clamp(PAUSE_FIRST, PAUSE_MAX);
                false
            }
        }
    }

    /// Lets the receiver be for a while; false if that is all the time that is left.
    async fn rest(&mut self) -> bool {
        let mut stopping = self.stopping.clone();
        let until = *stopping.borrow();
        if let Some(until) = until {
            // One more try, if it can still come to anything.
            let pause = PAUSE_FIRST.min(self.pause);
            if Instant::now() + pause >= until {
                return false;
            }
            tokio::time::sleep(pause).await;
            return true;
        }
        tokio::select! {
            () = tokio::time::sleep(self.pause) => true,
            _ = stopping.wait_for(Option::is_some) => true,
        }
    }
}

/// Resolves when the time to stop is over; never, if there is no stop.
async fn over(stopping: &mut watch::Receiver<Option<Instant>>) {
    let until = match stopping.wait_for(Option::is_some).await {
        Ok(until) => *until,
        Err(_) => return std::future::pending().await,
    };
    if let Some(until) = until {
        tokio::time::sleep_until(until).await;
    }
}
