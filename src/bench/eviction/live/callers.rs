//! Who calls: sheddable streams that come again whenever they end, and bursts of high priority.

use super::Failure;
use super::world::World;
use serde_json::json;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Sheddable streams at a time: more than the pool takes.
const SHEDDABLE: usize = 36;
/// Requests of a burst.
const BURST: usize = 4;
/// Between the end of a burst and the next.
const PAUSE: Duration = Duration::from_millis(200);
/// The longest that a burst may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request's prompt and output, in tokens.
#[derive(Clone, Copy)]
struct Size(usize, u32);

const LONG: Size = Size(1_000, 800);
const SHORT: Size = Size(150, 8);

/// What callers heard.
pub struct Heard {
    /// Of high priority, with a whole answer.
    pub served: u64,
    /// Sheddable, with the word `evicted`, or cut.
    pub evicted: u64,
}

/// Drives the world for so long once the pool is full.
pub async fn drive(world: &World, stretch: Duration) -> Result<Heard, Failure> {
    let evicted = Arc::new(AtomicU64::new(0));
    let mut sheddable = JoinSet::new();
    for who in 0..SHEDDABLE {
        sheddable.spawn(again_and_again(world.addr, who, Arc::clone(&evicted)));
    }
    world.full().await?;
    let (began, mut served) = (Instant::now(), 0);
    for burst in 0.. {
        if began.elapsed() >= stretch {
            break;
        }
        let mut calls = JoinSet::new();
        for n in 0..BURST {
            calls.spawn(call(world.addr, format!("high-{burst}-{n}"), 10, SHORT));
        }
        let all = tokio::time::timeout(PATIENCE, calls.join_all()).await;
        for answer in all.map_err(|_| "a burst was not served in time")? {
            let answer = answer?;
            if !answer.contains("data: [DONE]") {
                return Err(format!("not served: {}", answer.lines().next().unwrap_or_default()).into());
            }
            served += 1;
        }
        tokio::time::sleep(PAUSE).await;
    }
    // Whoever is dropped has left.
    sheddable.shutdown().await;
    Ok(Heard { served, evicted: evicted.load(Ordering::Relaxed) })
}

async fn again_and_again(addr: SocketAddr, who: usize, evicted: Arc<AtomicU64>) {
    for turn in 0.. {
        match call(addr, format!("shed-{who}-{turn}"), -1, LONG).await {
            // One that was cut has heard of it as far as it still could.
            Ok(answer) if answer.contains("data: [DONE]") => {}
            Ok(_) => drop(evicted.fetch_add(1, Ordering::Relaxed)),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// A streamed completion, and all that came back of it.
async fn call(addr: SocketAddr, id: String, priority: i32, Size(prompt, output): Size) -> io::Result<String> {
    let mut stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    // Four characters a token.
    let body = json!({"model": "m", "prompt": "word".repeat(prompt), "max_tokens": output, "stream": true});
    let body = body.to_string();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: bench\r\nconnection: close\r\ncontent-type: application/json\r\n\
         x-request-id: {id}\r\nx-weir-priority: {priority}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    let mut bytes = Vec::new();
    // A stream that is cut may end in an error: what came before it counts.
    let read = stream.read_to_end(&mut bytes).await;
    if bytes.is_empty() {
        read?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
