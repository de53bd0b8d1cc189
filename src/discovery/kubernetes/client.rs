//! Two verbs of the API server: a list, whole, and a watch, line by line. A connection each, so that one that hangs hangs
//! alone; every read has its time and its size.

use super::place::Cluster;
use crate::observer::chain;
use bytes::{Bytes, BytesMut};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// The largest page of a list, in bytes.
const PAGE_BYTES_MAX: usize = 64 << 20;
/// The largest event of a watch, in bytes; an object is at most 1.5 MiB in the server's store.
const LINE_BYTES_MAX: usize = 8 << 20;
/// The most of an error's own words that is passed on, in characters.
const WORDS_MAX: usize = 200;

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// From the connection to the head of an answer, and for the whole of a page.
    pub answer: Duration,
    /// No answer for this long is said, and waited for.
    pub slow: Duration,
    /// How long the server is asked to keep a watch open.
    pub watch: Duration,
    /// How much longer than that a watch may say nothing.
    pub grace: Duration,
    /// The first wait before something that failed is tried again; it doubles.
    pub retry_min: Duration,
    /// The longest such wait, and how often what is not served is asked for.
    pub retry_max: Duration,
}

impl Default for Times {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Times {
            answer: seconds(15),
            slow: crate::discovery::SLOW,
            watch: seconds(30),
            grace: seconds(10),
            retry_min: Duration::from_millis(500),
            retry_max: seconds(30),
        }
    }
}

/// Why a question was not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiFault {
    /// Token or authorities cannot be read.
    #[error("{path}: {error}")]
    Credentials {
        /// The file.
        path: String,
        /// What is wrong.
        error: String,
    },
    /// No connection, or it broke.
    #[error("{0}")]
    Connection(String),
    /// Nothing came in time.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Silent(Duration),
    /// Refused.
    #[error("status {status}: {words}")]
    Status {
        /// The status.
        status: u16,
        /// What the server said.
        words: String,
    },
    /// The version that was asked for is too old: list again.
    #[error("the resource version is gone")]
    Gone,
    /// What came is not what an API server says.
    #[error("{0}")]
    Garbage(String),
}

/// Asks one API server.
#[derive(Debug)]
pub struct Client {
    cluster: Cluster,
    token_file: PathBuf,
    ca_file: PathBuf,
    /// How long things may take.
    pub times: Times,
}

/// A connection's own task ends with the answer.
struct Connection(tokio::task::JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Client {
    /// For this server; the files are read whenever they are needed, since both are exchanged now and then.
    pub fn new(cluster: Cluster, token_file: PathBuf, ca_file: PathBuf, times: Times) -> Client {
        Client { cluster, token_file, ca_file, times }
    }

    /// A whole answer.
    ///
    /// # Errors
    /// There is none that can be used.
    pub async fn get(&self, path: &str) -> Result<Value, ApiFault> {
        let limit = self.times.answer;
        let whole = async {
            let (body, _connection) = self.ask(path).await?;
            let body = Limited::new(body, PAGE_BYTES_MAX).collect().await;
            let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
                Some(_) => ApiFault::Garbage(format!("an answer of more than {PAGE_BYTES_MAX} bytes")),
                None => ApiFault::Connection(error.to_string()),
            })?;
            serde_json::from_slice(&body.to_bytes()).map_err(|error| not_json(&error))
        };
        timeout(limit, whole).await.unwrap_or(Err(ApiFault::Silent(limit)))
    }

    /// The beginning of a watch.
    ///
    /// # Errors
    /// It does not begin.
    pub async fn watch(&self, path: &str) -> Result<Lines, ApiFault> {
        let limit = self.times.answer;
        let (body, connection) =
            timeout(limit, self.ask(path)).await.unwrap_or(Err(ApiFault::Silent(limit)))?;
        let patience = self.times.watch + self.times.grace;
        Ok(Lines { body, patience, read: BytesMut::new(), searched: 0, _connection: connection })
    }

    async fn ask(&self, path: &str) -> Result<(Incoming, Connection), ApiFault> {
        let broken = |error: &dyn std::error::Error| ApiFault::Connection(chain(error));
        let Cluster { host, port, tls, .. } = &self.cluster;
        let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(|error| broken(&error))?;
        // Nothing is sent that could wait for more.
        let _ = stream.set_nodelay(true);
        let mut request = Request::get(path)
            .header(header::HOST, self.cluster.authority())
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, concat!("weir/", env!("CARGO_PKG_VERSION")));
        let stream: Box<dyn Stream> = if *tls {
            request = request.header(header::AUTHORIZATION, self.bearer()?);
            let name = ServerName::try_from(host.clone())
                .map_err(|error| ApiFault::Connection(format!("{host:?}: {error}")))?;
            let connector = TlsConnector::from(Arc::new(self.tls()?));
            Box::new(connector.connect(name, stream).await.map_err(|error| broken(&error))?)
        } else {
            Box::new(stream)
        };
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| broken(&error))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| broken(&error))?;
        let connection = Connection(tokio::spawn(async move {
            // What goes wrong on it shows where it is read.
            let _ = connection.await;
        }));
        let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
        let status = response.status();
        if status == StatusCode::OK {
            return Ok((response.into_body(), connection));
        }
        if status == StatusCode::GONE {
            return Err(ApiFault::Gone);
        }
        let words = Limited::new(response.into_body(), 64 << 10).collect().await;
        let words = words.map(|body| words_of(&body.to_bytes())).unwrap_or_default();
        Err(ApiFault::Status { status: status.as_u16(), words })
    }

    fn bearer(&self) -> Result<header::HeaderValue, ApiFault> {
        let wrong =
            |error: String| ApiFault::Credentials { path: self.token_file.display().to_string(), error };
        let token = std::fs::read_to_string(&self.token_file).map_err(|error| wrong(error.to_string()))?;
        let mut value = header::HeaderValue::from_str(&format!("Bearer {}", token.trim()))
            .map_err(|_| wrong("it is no token: it has characters that no header may have".to_owned()))?;
        if token.trim().is_empty() {
            return Err(wrong("it is empty".to_owned()));
        }
        value.set_sensitive(true);
        Ok(value)
    }

    fn tls(&self) -> Result<ClientConfig, ApiFault> {
        let wrong = |error: String| ApiFault::Credentials { path: self.ca_file.display().to_string(), error };
        let mut roots = RootCertStore::empty();
        let found = CertificateDer::pem_file_iter(&self.ca_file).map_err(|error| wrong(error.to_string()))?;
        for certificate in found {
            let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
            roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(wrong("there is no certificate in it".to_owned()));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(error.to_string()))?;
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The events of a watch.
pub struct Lines {
    body: Incoming,
    patience: Duration,
    read: BytesMut,
    /// So much of it holds no end of a line.
    searched: usize,
    _connection: Connection,
}

impl Lines {
    /// The next one; nothing if the server ended the watch in order.
    ///
    /// # Errors
    /// The connection broke, or nothing came for too long, or it is no JSON.
    pub async fn next(&mut self) -> Result<Option<Value>, ApiFault> {
        loop {
            if let Some(end) = self.read[self.searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.read.split_to(self.searched + end + 1);
                self.searched = 0;
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return serde_json::from_slice(&line).map(Some).map_err(|error| not_json(&error));
            }
            self.searched = self.read.len();
            if self.read.len() > LINE_BYTES_MAX {
                return Err(ApiFault::Garbage(format!("an event of more than {LINE_BYTES_MAX} bytes")));
            }
            let frame = timeout(self.patience, self.body.frame()).await;
            match frame.map_err(|_| ApiFault::Silent(self.patience))? {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.read.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => return Err(ApiFault::Connection(chain(&error))),
                None if self.read.iter().all(u8::is_ascii_whitespace) => return Ok(None),
                None => return Err(ApiFault::Connection("the watch ended within an event".to_owned())),
            }
        }
    }
}

fn not_json(error: &serde_json::Error) -> ApiFault {
    ApiFault::Garbage(format!("what the API server sent is no JSON: {error}"))
}

/// The message of a `Status` object, else the beginning of what was said.
fn words_of(body: &[u8]) -> String {
    let status: Option<Value> = serde_json::from_slice(body).ok();
    let message = status.as_ref().and_then(|status| status["message"].as_str());
    let text = message.map_or_else(|| String::from_utf8_lossy(body).into_owned(), str::to_owned);
    text.chars().filter(|c| !c.is_control()).take(WORDS_MAX).collect()
}

/// `key=value` of a query, the value escaped.
pub fn query(key: &str, value: &str) -> String {
    let mut text = format!("{key}=");
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}
