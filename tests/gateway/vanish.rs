//! Goal: ten thousand callers that begin a request and stop, and ten thousand held ones whose callers vanish, cost the
//! service nothing that lasts: every place is free again, memory returns to its level, and it answers throughout.
//! Method: the real binary; its own figures say when, the system says how much memory.

use crate::binary::{Served, settings};
use crate::harness::{Reply, call};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};

/// Callers of each kind, where there is time for them.
const MANY: usize = 10_000;
/// The same beside other tests on a busy machine.
const FEWER: usize = 3_000;

/// Connections that are being opened at once: less than the system holds for a listener.
const AT_ONCE: usize = 250;

/// How long a half request is waited for: longer than it takes to send them all.
const STALL: &str = "20s";

/// The longest that any of it may take.
const LONG: Duration = Duration::from_secs(120);

/// What is allowed beyond the level of before, in MiB: what the allocator and tables keep for the next time. The callers
/// take 250 to 300 MiB while they are there; that what is kept does not grow is what several waves show.
const KEPT_MIB: u64 = 128;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_stall_or_vanish_take_nothing_with_them() {
    waves(1, FEWER).await;
}

/// Ten thousand of each, again and again: what is kept does not grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "two minutes alone; cargo test --test gateway vanish -- --ignored --nocapture"]
async fn wave_upon_wave_leaves_nothing() {
    waves(3, MANY).await;
}

async fn waves(waves: usize, many: usize) {
    let many = with_files_for(many);
    let text = settings(
        &format!(
            "{{drainTimeout: 0s, log: {{cacheBytes: 1Mi, rotateBytes: 1Mi}}, gateway: {{headTimeout: {STALL}, bodyTimeout: {STALL}}}}}"
        ),
        "defaultRequestTTL: 10m, priorityBands: [{priority: 0, maxRequests: 20000}]",
    );
    let mut served = Served::start_in(crate::kept::tempdir().unwrap(), &text, &[]);
    saturate(&served).await;
    let before = memory(&served, "VmRSS");
    println!("before: {before} MiB");
    served.until("ready", async || served.get("/readyz").await.status == 200).await;
    let asking = Asking::start(served.addr);
    let mut after = Vec::new();
    for wave in 1..=waves {
        let began = Instant::now();
        let stalled = stall(served.addr, many).await;
        println!("wave {wave}: sent in {:?}", began.elapsed());
        until(&served, "half requests to be open", "connections", |open| open >= many as f64).await;
        println!("wave {wave}: {many} half requests, {} MiB", memory(&served, "VmRSS"));
        // Their time runs out; they are not closed by us.
        idle(&served).await;
        drop(stalled);
        println!("wave {wave}: all of them gone, {} MiB", memory(&served, "VmRSS"));

        let held = hold(served.addr, many).await;
        served.queued_are(many).await;
        println!("wave {wave}: {many} held requests, {} MiB", memory(&served, "VmRSS"));
        vanish(held);
        idle(&served).await;
        after.push(settled(&served, before + KEPT_MIB).await);
        println!(
            "wave {wave}: after it {} MiB, peak so far {} MiB",
            after[wave - 1],
            memory(&served, "VmHWM")
        );
    }
    let (answers, slowest) = asking.stop().await;
    println!("answered meanwhile: {answers}, slowest {slowest:?}");
    assert!(answers > 20, "it was asked {answers} times");
    assert!(
        after.iter().all(|after| *after <= before + KEPT_MIB),
        "{before} MiB before, after each wave {after:?}"
    );
    served.signal("TERM");
    assert_eq!(served.ended(), Some(0));
    let evicted = Served::outcomes(&served.log());
    assert_eq!(evicted.len(), waves * many);
    let other = evicted.iter().find(|outcome| *outcome != "EvictedContextCancelled ContextCancelled");
    assert_eq!(other, None);
}

/// This process opens as many files as well; where it may not, there are fewer callers, and it says so.
fn with_files_for(many: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    let files = limit.maximum.map_or(usize::MAX, |files| usize::try_from(files).unwrap());
    if files < many + 1_000 {
        println!("ONLY {} CALLERS: no more than {files} files may be open here", files - 1_000);
    }
    many.min(files.saturating_sub(1_000))
}

async fn saturate(served: &Served) {
    let body = json!({"endpoints": [{"name": "e"}], "saturation": 1.5}).to_string();
    let reply = call(served.addr, "PUT", "/v1/pools/default/endpoints", &[], body.as_bytes()).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// What the system says of the process, in MiB.
fn memory(served: &Served, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", served.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// Memory once it is within the bound, or at last if it does not get there.
async fn settled(served: &Served, bound: u64) -> u64 {
    let began = Instant::now();
    loop {
        let now = memory(served, "VmRSS");
        if now <= bound || began.elapsed() > Duration::from_secs(30) {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Connections that have sent this, the n-th by its number.
async fn opened(addr: SocketAddr, many: usize, send: fn(usize) -> &'static str) -> Vec<TcpStream> {
    let (mut opening, mut open) = (JoinSet::new(), Vec::with_capacity(many));
    for n in 0..many {
        if opening.len() >= AT_ONCE {
            open.push(opening.join_next().await.unwrap().unwrap());
        }
        opening.spawn(async move {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            stream.write_all(send(n).as_bytes()).await.unwrap();
            stream
        });
    }
    while let Some(stream) = opening.join_next().await {
        open.push(stream.unwrap());
    }
    open
}

/// Half requests: of a head, or of a body.
async fn stall(addr: SocketAddr, many: usize) -> Vec<TcpStream> {
    opened(addr, many, |n| match n % 4 {
        0 => "POST /v1/admissions HTTP/1.1\r\nhost: t\r\ncontent-le",
        1 => "POST /v1/admissions HTTP/1.1\r\nhost: t\r\ncontent-length: 100\r\n\r\n{\"fairnessId\": ",
        2 => {
            "PUT /v1/pools/default/endpoints HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n40\r\n{"
        }
        _ => "G",
    })
    .await
}

async fn hold(addr: SocketAddr, many: usize) -> Vec<TcpStream> {
    opened(addr, many, |_| "POST /v1/admissions HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\n\r\n{}").await
}

/// Some close, some are reset, some sent more before.
fn vanish(held: Vec<TcpStream>) {
    for (n, stream) in held.into_iter().enumerate() {
        if n % 3 == 0 {
            stream.set_zero_linger().unwrap();
        } else if n % 3 == 1 {
            let _ = stream.try_write(b"\r\n");
        }
    }
}

/// Until there is nobody but whoever asks.
async fn idle(served: &Served) {
    until(served, "everybody to be gone", "connections", |open| open <= 2.0).await;
    served.queued_are(0).await;
    let pool = served.get("/v1/pools/default").await.json();
    assert_eq!(
        (&pool["queue"]["requests"], &pool["queue"]["bytes"], &pool["leases"]),
        (&json!(0), &json!(0), &json!(0))
    );
}

async fn until(served: &Served, what: &str, figure: &str, so: impl Fn(f64) -> bool) {
    let began = Instant::now();
    loop {
        let text = served.get("/metrics").await.text();
        let name = format!("weir_gateway_{figure} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name)).unwrap();
        if so(line.parse().unwrap()) {
            return;
        }
        assert!(began.elapsed() < LONG, "waited in vain for {what}: {line}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

impl Served {
    async fn queued_are(&self, want: usize) {
        let began = Instant::now();
        loop {
            let queued = self.get("/v1/pools/default").await.json()["queue"]["requests"].clone();
            if queued == json!(want) {
                return;
            }
            assert!(began.elapsed() < LONG, "waited in vain for {want} queued: {queued}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A caller that asks on and on whether it is alive and ready, and expects so.
struct Asking {
    stop: Arc<AtomicBool>,
    asked: JoinHandle<(usize, Duration)>,
}

impl Asking {
    fn start(addr: SocketAddr) -> Asking {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let asked = tokio::spawn(async move {
            let (mut answers, mut slowest) = (0, Duration::ZERO);
            while !stopped.load(Ordering::Relaxed) {
                for path in ["/readyz", "/v1/pools/default"] {
                    let began = Instant::now();
                    let reply: Reply = call(addr, "GET", path, &[], b"").await;
                    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
                    slowest = slowest.max(began.elapsed());
                    answers += 1;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            (answers, slowest)
        });
        Asking { stop, asked }
    }

    async fn stop(self) -> (usize, Duration) {
        self.stop.store(true, Ordering::Relaxed);
        self.asked.await.unwrap()
    }
}
