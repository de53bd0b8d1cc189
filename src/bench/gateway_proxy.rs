//! The proxy's part of `weir bench gateway`: chat completions through Weir, beside a pass-through proxy that does nothing
//! else, on the same client library, to the same model server, in the same process.
//!
//! First both as fast as they go, in turns; then each at half of what Weir gave, on a fixed schedule: a call that is late
//! counts from when it should have been sent, so that waits are not hidden by those who wait.

use super::Case;
use super::gateway::{CONNECTIONS, Failure, STRETCH, WARM, Weir, whole};
use crate::gateway::{Options, ProxyOptions};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use axum::serve::ListenerExt;
use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{Request, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const PATH: &str = "/v1/chat/completions";

/// What the model server answers.
const ANSWER: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":0,"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"a few words of an answer, as short as answers come"},"finish_reason":"stop"}],"usage":{"prompt_tokens":256,"completion_tokens":12,"total_tokens":268}}"#;

/// Bytes of a prompt.
const PROMPT: usize = 1_024;

/// Cases and notes of the proxy, within this time.
pub async fn measure(dir: &std::path::Path, lasting: Duration) -> Result<(Vec<Case>, Vec<String>), Failure> {
    let server = listen(Router::new().route(PATH, post(|_: Bytes| async { answer(ANSWER) }))).await?;
    let options = Options { proxy: Some(ProxyOptions::default()), ..Options::default() };
    let weir = Weir::start(dir, options, &server.to_string()).await?;
    let bare = pass_through(server).await?;
    let began = Instant::now();
    let mut pairs = Vec::new();
    while pairs.len() < 3 || began.elapsed() + 6 * STRETCH < lasting / 2 {
        let first = if pairs.len() % 2 == 0 { bare } else { weir.addr };
        let second = if first == bare { weir.addr } else { bare };
        let (first, second) = (turn(first, None).await?.rate, turn(second, None).await?.rate);
        pairs.push(if pairs.len() % 2 == 0 { (second, first) } else { (first, second) });
    }
    let ratio = |pair: &(f64, f64)| pair.0 / pair.1.max(1.0);
    pairs.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
    let ratios: Vec<String> = pairs.iter().map(|pair| format!("{:.2}", ratio(pair))).collect();
    let (rate, reference) = pairs[pairs.len() / 2];
    let half = rate / 2.0;
    let mut halves = Vec::new();
    while halves.is_empty() || began.elapsed() + 4 * STRETCH < lasting {
        halves.push((turn(weir.addr, Some(half)).await?, turn(bare, Some(half)).await?));
    }
    let added = |pair: &(Turn, Turn)| pair.0.p99 - pair.1.p99;
    halves.sort_by(|a, b| added(a).total_cmp(&added(b)));
    let flush = weir.flush_us() / 1e3;
    weir.stop().await?;
    let (proxied, passed) = halves.swap_remove(halves.len() / 2);
    let bar = 2.0 * flush + 1.0;
    let cases = vec![
        Case::beside("gateway/proxy", rate, "requests/s", reference).target("ratio >= 0.6"),
        Case::beside("gateway/proxy/half/p50", proxied.p50, "ms", passed.p50),
        Case::beside("gateway/proxy/half/p99", proxied.p99, "ms", passed.p99),
        Case::alone("gateway/proxy/half/added-p99", proxied.p99 - passed.p99, "ms")
            .target("<= 2 flushes + 1 ms"),
        Case::alone("gateway/proxy/flush/mean", flush, "ms"),
    ];
    let notes = vec![
        format!("proxy: ratios of all turns: {}", ratios.join(" ")),
        format!(
            "proxy: half load is {half:.0} requests/s; 2 flushes + 1 ms are {bar:.2} ms; the median turn by what was added"
        ),
        "proxy: the model server, both proxies and all callers share this process".to_owned(),
    ];
    Ok((cases, notes))
}

fn answer(text: &'static str) -> impl axum::response::IntoResponse {
    ([("content-type", "application/json")], text)
}

async fn listen(app: Router) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    // Ends with the runtime.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(addr)
}

#[derive(Clone)]
struct Passing {
    client: Client<HttpConnector, Body>,
    to: Authority,
}

/// A proxy that reads nothing, decides nothing and writes nothing down.
async fn pass_through(server: SocketAddr) -> Result<SocketAddr, Failure> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let passing = Passing {
        client: Client::builder(TokioExecutor::new()).build(connector),
        to: server.to_string().parse()?,
    };
    Ok(listen(Router::new().fallback(pass).with_state(passing)).await?)
}

async fn pass(State(passing): State<Passing>, mut request: Request<Body>) -> Result<Response, StatusCode> {
    let mut uri = std::mem::take(request.uri_mut()).into_parts();
    uri.scheme = Some(Scheme::HTTP);
    uri.authority = Some(passing.to);
    *request.uri_mut() = Uri::from_parts(uri).map_err(|_| StatusCode::BAD_REQUEST)?;
    request.headers_mut().remove(http::header::HOST);
    let response = passing.client.request(request).await.map_err(|_| StatusCode::BAD_GATEWAY)?;
    Ok(response.map(Body::new))
}

/// What one stretch gave.
struct Turn {
    rate: f64,
    p50: f64,
    p99: f64,
}

/// Calls for a stretch, as fast as they go or so many a second.
async fn turn(addr: SocketAddr, rate: Option<f64>) -> io::Result<Turn> {
    let (count, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let every = rate.map(|rate| Duration::from_secs_f64(CONNECTIONS as f64 / rate.max(1.0)));
    let mut callers = Vec::with_capacity(CONNECTIONS);
    let start = Instant::now() + Duration::from_millis(50);
    for number in 0..CONNECTIONS {
        // Spread over one round, so that no two begin together.
        let schedule = every.map(|every| (start + every.mul_f64(number as f64 / CONNECTIONS as f64), every));
        let caller = Caller::open(addr, number).await?;
        callers.push(tokio::spawn(caller.calls(schedule, Arc::clone(&count), Arc::clone(&stop))));
    }
    tokio::time::sleep(WARM).await;
    count.store(true, Ordering::Relaxed);
    let began = Instant::now();
    tokio::time::sleep(STRETCH).await;
    count.store(false, Ordering::Relaxed);
    let took = began.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    let mut waits = Vec::new();
    for caller in callers {
        waits.extend(caller.await??);
    }
    waits.sort_unstable();
    let at = |share: f64| {
        let index = (waits.len() as f64 * share) as usize;
        waits.get(index).map_or(0.0, |us| f64::from(*us) / 1e3)
    };
    Ok(Turn { rate: waits.len() as f64 / took, p50: at(0.5), p99: at(0.99) })
}

/// One connection that asks one thing after the other.
struct Caller {
    stream: TcpStream,
    buffer: Vec<u8>,
    request: Vec<u8>,
}

impl Caller {
    async fn open(addr: SocketAddr, number: usize) -> io::Result<Caller> {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        let prompt = "word ".repeat(PROMPT / 5);
        let body = format!(r#"{{"model":"bench","messages":[{{"role":"user","content":"{prompt}"}}]}}"#);
        let request = format!(
            "POST {PATH} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\nx-request-id: bench-{number:08}\r\n\
             x-llm-d-inference-fairness-id: tenant-{:02}\r\ncontent-length: {}\r\n\r\n{body}",
            number % 16,
            body.len()
        );
        Ok(Caller { stream, buffer: Vec::with_capacity(4_096), request: request.into_bytes() })
    }

    /// What each call took that counted, in microseconds.
    async fn calls(
        mut self,
        mut schedule: Option<(Instant, Duration)>,
        count: Arc<AtomicBool>,
        stop: Arc<AtomicBool>,
    ) -> io::Result<Vec<u32>> {
        let mut waits = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let began = match &mut schedule {
                None => Instant::now(),
                Some((at, every)) => {
                    let due = *at;
                    *at += *every;
                    tokio::time::sleep_until(due.into()).await;
                    // The timer's own grain is not ours.
                    if due.elapsed() < Duration::from_millis(2) { Instant::now() } else { due }
                }
            };
            self.stream.write_all(&self.request).await?;
            loop {
                if whole(&self.buffer)?.is_some() {
                    break;
                }
                if self.stream.read_buf(&mut self.buffer).await? == 0 {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed within an answer"));
                }
            }
            self.buffer.clear();
            if count.load(Ordering::Relaxed) {
                waits.push(u32::try_from(began.elapsed().as_micros()).unwrap_or(u32::MAX));
            }
        }
        Ok(waits)
    }
}
