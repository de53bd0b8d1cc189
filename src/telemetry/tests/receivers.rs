//! Goal: whatever the receiver does, whoever hands in spans is not held up, what is lost is counted, and the end comes in
//! time. Method: receivers over HTTP that take, refuse, stall or are not there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_kernel::Micros;
use weir_telemetry::export::{Counts, Exporter, Protocol, Settings};
use weir_telemetry::{Kind, Span, Status, attribute, names};

/// What a machine that is busy may add: less than a receiver that stalls does.
const BUSY: Duration = Duration::from_secs(20);

fn span(number: u8) -> Span {
    Span {
        trace_id: [7; 16],
        span_id: [number.max(1); 8],
        parent: None,
        parent_is_remote: false,
        name: names::LEASE,
        kind: Kind::Internal,
        start: Micros(1_000_000),
        end: Micros(2_000_000),
        attributes: vec![attribute(names::POOL, "p")],
        events: Vec::new(),
        events_dropped: 0,
        links: Vec::new(),
        status: Status::Unset,
    }
}

fn settings(port: u16) -> Settings {
    let mut settings = Settings::to(format!("http://127.0.0.1:{port}/v1/traces"), Protocol::Http);
    (settings.queue_max, settings.batch_max) = (100, 10);
    settings.delay = Duration::from_millis(10);
    settings
}

/// Reads one request, whole.
fn request(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let (mut read, mut piece) = (Vec::new(), [0; 4_096]);
    loop {
        let count = stream.read(&mut piece).ok().filter(|count| *count > 0)?;
        read.extend_from_slice(&piece[..count]);
        let head = read.windows(4).position(|four| four == b"\r\n\r\n");
        let Some(head) = head.map(|at| at + 4) else { continue };
        let text = String::from_utf8_lossy(&read[..head]).to_ascii_lowercase();
        let length =
            text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        if read.len() >= head + length.unwrap_or(0) {
            return Some(read);
        }
    }
}

/// Answers every request so; counts them.
fn receiver(answer: &'static str) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, asked) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&asked);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let counted = Arc::clone(&counted);
            std::thread::spawn(move || {
                while let Some(read) = request(&mut stream) {
                    assert!(read.starts_with(b"POST /v1/traces HTTP/1.1"));
                    counted.fetch_add(1, Ordering::SeqCst);
                    if answer.is_empty() {
                        std::thread::sleep(Duration::from_secs(60));
                    }
                    let _ = stream.write_all(answer.as_bytes());
                }
            });
        }
    });
    (port, asked)
}

/// Hands in far more than fits, then ends; what came of it.
async fn flood(port: u16, patience: Duration) -> (Counts, Duration) {
    let exporter = Exporter::start(settings(port)).unwrap();
    let began = Instant::now();
    for round in 0..1_000_u32 {
        exporter.take((0..10_u8).map(|number| span(number.wrapping_add(round as u8))).collect());
    }
    let handed_in = began.elapsed();
    assert!(handed_in < BUSY, "nobody is held up: {handed_in:?}");
    let began = Instant::now();
    let counts = exporter.shutdown(patience).await;
    let all = counts.exported + counts.full + counts.failed;
    assert_eq!(all, 10_000, "each is counted once: {counts:?}");
    (counts, began.elapsed())
}

#[tokio::test]
async fn a_receiver_that_takes_them_gets_what_fits() {
    let (port, asked) = receiver("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let exporter = Exporter::start(settings(port)).unwrap();
    exporter.take((0..25_u8).map(span).collect());
    let counts = exporter.shutdown(Duration::from_secs(60)).await;
    assert_eq!(counts, Counts { exported: 25, ..Counts::default() });
    assert_eq!(asked.load(Ordering::SeqCst), 3, "batches of ten");
    let (counts, _) = flood(port, Duration::from_secs(60)).await;
    assert!(counts.exported >= 100 && counts.failed == 0, "{counts:?}");
}

#[tokio::test]
async fn a_receiver_that_is_gone_holds_nobody_up() {
    // Bound, and kept so: nobody listens there.
    let bound = tokio::net::TcpSocket::new_v4().unwrap();
    bound.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = bound.local_addr().unwrap().port();
    let (counts, took) = flood(port, Duration::from_secs(3)).await;
    assert_eq!(counts.exported, 0);
    assert!(counts.full >= 9_000 && counts.failed > 0, "{counts:?}");
    assert!(took < Duration::from_secs(3) + BUSY, "{took:?}");
}

#[tokio::test]
async fn a_receiver_that_refuses_holds_nobody_up() {
    for answer in [
        "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n",
    ] {
        let (port, asked) = receiver(answer);
        let (counts, took) = flood(port, Duration::from_secs(2)).await;
        assert_eq!(counts.exported, 0);
        assert!(asked.load(Ordering::SeqCst) >= 1 && took < Duration::from_secs(2) + BUSY, "{took:?}");
    }
}

#[tokio::test]
async fn a_receiver_that_stalls_holds_nobody_up() {
    let (port, _) = receiver("");
    let (counts, took) = flood(port, Duration::from_secs(1)).await;
    assert_eq!(counts.exported, 0);
    assert!(took < Duration::from_secs(1) + BUSY, "{took:?}");
}

#[tokio::test]
async fn an_endpoint_that_is_none_is_said_at_the_start() {
    for protocol in [Protocol::Http, Protocol::Grpc] {
        let error = Exporter::start(Settings::to("http://a b".to_owned(), protocol)).unwrap_err();
        assert!(!error.is_empty());
    }
}
