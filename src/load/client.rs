//! A small HTTP/1.1 client: kept connections, bounded answers, one kind of failure.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::time::Duration;

/// Bytes of an answer that are read at most.
const ANSWER_MAX: usize = 1 << 20;

/// Why there was no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The address is none.
    #[error("address {url:?} is not allowed; allowed: http://HOST:PORT ({why})")]
    Address {
        /// What was given.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// No connection came about.
    #[error("no connection")]
    Connect,
    /// The connection ended in the middle.
    #[error("connection broken")]
    Broken,
    /// More than is read.
    #[error("answer larger than 1 MiB")]
    TooLarge,
    /// Not of the form that was expected.
    #[error("answer not understood")]
    NotUnderstood,
}

/// An answer's head and what is still to come.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    body: Incoming,
}

impl Answer {
    /// The next piece of the body; nothing at its end.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(_)) => return Err(Failure::Broken),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// The whole body.
    ///
    /// # Errors
    /// The connection broke, or there is more than a MiB.
    pub async fn whole(mut self) -> Result<Bytes, Failure> {
        let mut all = BytesMut::new();
        while let Some(piece) = self.piece().await? {
            if all.len() + piece.len() > ANSWER_MAX {
                return Err(Failure::TooLarge);
            }
            all.extend_from_slice(&piece);
        }
        Ok(all.freeze())
    }
}

/// The client; clones share their connections.
#[derive(Clone, Debug)]
pub struct Client(legacy::Client<HttpConnector, Full<Bytes>>);

impl Default for Client {
    fn default() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(Duration::from_secs(5)));
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .build(connector);
        Client(client)
    }
}

impl Client {
    /// Sends one request with a JSON body (or none, where it is empty).
    ///
    /// # Errors
    /// No address, no connection, or a connection that broke before the answer's head.
    pub async fn send(
        &self,
        method: Method,
        url: &str,
        headers: &[(&'static str, &str)],
        body: Bytes,
    ) -> Result<Answer, Failure> {
        let mut request = Request::builder().method(method).uri(url);
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let address = |e: http::Error| Failure::Address { url: url.to_owned(), why: e.to_string() };
        let request = request.body(Full::new(body)).map_err(address)?;
        if request.uri().scheme_str() != Some("http") {
            let why = match request.uri().scheme_str() {
                Some("https") => "TLS is not spoken here: put a proxy that does on loopback",
                _ => "http:// is missing",
            };
            let why = why.to_owned();
            return Err(Failure::Address { url: url.to_owned(), why });
        }
        let answer = self
            .0
            .request(request)
            .await
            .map_err(|e| if e.is_connect() { Failure::Connect } else { Failure::Broken })?;
        let (head, body) = answer.into_parts();
        Ok(Answer { status: head.status, headers: head.headers, body })
    }
}
