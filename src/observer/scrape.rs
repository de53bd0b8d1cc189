//! One scrape of one endpoint: a GET over a kept connection, bounded in time and size.

use super::names::MetricNames;
use super::text::{Load, TextFault, read};
use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::time::Duration;
use thiserror::Error;

/// How endpoints are scraped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapeOptions {
    /// From the start of one round to the start of the next (default 50 ms).
    pub interval: Duration,
    /// A scrape that takes longer has failed (default 1 s). Scrapes of one endpoint never overlap.
    pub timeout: Duration,
    /// The longest body that is read, in bytes (default 4 MiB).
    pub bytes_max: usize,
    /// What is read from it.
    pub names: MetricNames,
}

impl Default for ScrapeOptions {
    fn default() -> Self {
        ScrapeOptions {
            interval: Duration::from_millis(50),
            timeout: Duration::from_secs(1),
            bytes_max: 4 << 20,
            names: super::Preset::Vllm.names(),
        }
    }
}

/// Why a scrape gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ScrapeFault {
    /// No connection, or it broke.
    #[error("{0}")]
    Connection(String),
    /// Not within the time allowed.
    #[error("no answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// Not 200.
    #[error("status {0}, expected 200")]
    Status(u16),
    /// A body longer than allowed.
    #[error("the body is longer than {0} bytes")]
    TooLong(usize),
    /// The body says nothing usable.
    #[error(transparent)]
    Text(#[from] TextFault),
    /// The address is no `http://` URL.
    #[error("{0:?} is not an http:// URL")]
    Url(String),
}

impl ScrapeFault {
    /// Every word of [`ScrapeFault::word`].
    pub const WORDS: [&'static str; 6] = ["connection", "timeout", "status", "too-long", "metrics", "url"];

    /// The word for counters.
    pub const fn word(&self) -> &'static str {
        Self::WORDS[self.index()]
    }

    /// Position of the word in [`ScrapeFault::WORDS`].
    pub const fn index(&self) -> usize {
        match self {
            ScrapeFault::Connection(_) => 0,
            ScrapeFault::Timeout(_) => 1,
            ScrapeFault::Status(_) => 2,
            ScrapeFault::TooLong(_) => 3,
            ScrapeFault::Text(_) => 4,
            ScrapeFault::Url(_) => 5,
        }
    }
}

/// Scrapes over kept HTTP/1.1 connections, one per endpoint.
#[derive(Clone)]
pub(super) struct Scraper {
    client: Client<HttpConnector, Empty<Bytes>>,
}

impl Scraper {
    pub fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(1).build(connector);
        Scraper { client }
    }

    /// Scrapes once.
    pub async fn scrape(&self, url: &str, options: &ScrapeOptions) -> Result<Load, ScrapeFault> {
        tokio::time::timeout(options.timeout, self.fetch(url, options))
            .await
            .unwrap_or(Err(ScrapeFault::Timeout(options.timeout)))
    }

    async fn fetch(&self, url: &str, options: &ScrapeOptions) -> Result<Load, ScrapeFault> {
        let uri = metrics_uri(url)?;
        let request = Request::get(uri)
            .header(header::ACCEPT, "text/plain; version=0.0.4")
            .body(Empty::new())
            .map_err(|_| ScrapeFault::Url(url.to_owned()))?;
        let response =
            self.client.request(request).await.map_err(|error| ScrapeFault::Connection(chain(&error)))?;
        if response.status() != StatusCode::OK {
            return Err(ScrapeFault::Status(response.status().as_u16()));
        }
        let body = Limited::new(response.into_body(), options.bytes_max).collect().await.map_err(
            |error| match error.downcast_ref::<http_body_util::LengthLimitError>() {
                Some(_) => ScrapeFault::TooLong(options.bytes_max),
                None => ScrapeFault::Connection(error.to_string()),
            },
        )?;
        Ok(read(&body.to_bytes(), &options.names)?)
    }
}

/// Checks the address of an endpoint's metrics.
///
/// # Errors
/// It is not an absolute `http://` URL.
pub fn metrics_uri(url: &str) -> Result<Uri, ScrapeFault> {
    let uri: Uri = url.parse().map_err(|_| ScrapeFault::Url(url.to_owned()))?;
    // A port that is none is left out of the URI as if there were none.
    let port_is_one = uri.authority().is_some_and(|authority| {
        let after_host = authority.as_str().rsplit(['@', ']']).next().unwrap_or_default();
        let port = after_host.rsplit_once(':').map(|(_, port)| port);
        port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
    });
    if uri.scheme_str() == Some("http") && uri.host().is_some_and(|host| !host.is_empty()) && port_is_one {
        Ok(uri)
    } else {
        Err(ScrapeFault::Url(url.to_owned()))
    }
}

/// An error and what it rests on, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_urls_are_scraped() {
        assert!(metrics_uri("http://127.0.0.1:8000/metrics").is_ok());
        for bad in [
            "",
            "/metrics",
            "127.0.0.1:8000",
            "https://h/metrics",
            "ftp://h/",
            "http://",
            "http://h:99999/metrics",
            "http://h:0/",
        ] {
            assert_eq!(metrics_uri(bad), Err(ScrapeFault::Url(bad.to_owned())), "{bad}");
        }
    }
}
