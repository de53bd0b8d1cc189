//! Goal: whatever is asked, it is refused by name or bounded, and admissions go on. Method: the binary under a steady load of
//! admissions while callers put every hostile question of the bench, again and again.

use crate::binary::{Served, settings};
use crate::harness::call;
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir::bench::query::hostile::{code, questions};

/// Answers of what is allowed are bounded by pages, and so are the bytes of them.
const ANSWER_MAX: usize = 4 << 20;

/// Admissions for so long as told: how many, and the longest.
async fn admissions(addr: SocketAddr, stop: &AtomicBool) -> (u64, Duration) {
    let (mut count, mut longest) = (0, Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let admitted = call(addr, "POST", "/v1/admissions", &[], b"{}").await.admitted();
        longest = longest.max(began.elapsed());
        let path = format!("/v1/admissions/{}/complete", admitted["id"].as_str().unwrap());
        assert_eq!(call(addr, "POST", &path, &[], b"").await.status, 200);
        count += 1;
    }
    (count, longest)
}

async fn attack(addr: SocketAddr, rounds: usize, from: usize, busy: &AtomicU64) {
    let all = questions();
    for (name, body, wanted) in all.iter().cycle().skip(from).take(all.len() * rounds) {
        let reply = call(addr, "POST", "/graphql", &[], body.as_bytes()).await;
        assert_eq!(reply.status, 200, "{name}: {}", reply.text());
        assert!(reply.body.len() < ANSWER_MAX, "{name}: {} bytes", reply.body.len());
        let answer: Value = reply.json();
        match (code(&answer), wanted) {
            (Some("BUSY"), _) => {
                busy.fetch_add(1, Ordering::Relaxed);
            }
            (found, Some(wanted)) => assert_eq!(found, Some(*wanted), "{name}"),
            // What is allowed is answered, in whole or until its time is over.
            (None | Some("TIMEOUT" | "NOT_YET"), None) => {}
            (found, None) => panic!("{name}: {found:?}: {answer}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c125_hostile_questions_are_bounded_and_admissions_go_on() {
    let served = Served::start(&settings("{drainTimeout: 0s, graphql: {timeout: 2s}}", "maxRequests: 400"));
    let addr = served.addr;
    served.pool_is(0.2).await;
    let (stop, busy) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let stop = stop.clone();
            tokio::spawn(async move { admissions(addr, &stop).await })
        })
        .collect();
    let attackers: Vec<_> = (0..6)
        .map(|number| {
            let busy = busy.clone();
            tokio::spawn(async move { attack(addr, 2, number * 4, &busy).await })
        })
        .collect();
    for attacker in attackers {
        attacker.await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    let (mut count, mut longest) = (0, Duration::ZERO);
    for caller in callers {
        let (more, long) = caller.await.unwrap();
        (count, longest) = (count + more, longest.max(long));
    }
    // How long is for the bench to say (this may be a debug build on a busy machine): here, that none stood still.
    assert!(count > 50, "{count} admissions");
    assert!(longest < Duration::from_secs(5), "an admission took {longest:?}");
    // And it still answers.
    let reply =
        call(served.addr, "POST", "/graphql", &[], br#"{"query": "{ projection { fault } }"}"#).await.json();
    assert_eq!(reply["data"]["projection"][0]["fault"], Value::Null, "{reply}");
}

/// A question whose caller has gone does not go on: its place is free again at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_hangs_up_holds_no_place() {
    use tokio::io::AsyncWriteExt;
    let served = Served::start(&settings("{drainTimeout: 0s, graphql: {timeout: 300s}}", "maxRequests: 400"));
    served.pool_is(0.2).await;
    for _ in 0..200 {
        served.admit().await.admitted();
    }
    let body = questions().into_iter().find(|(name, ..)| *name == "explanations").unwrap().1;
    let head = format!("POST /graphql HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    for _ in 0..12 {
        let mut stream = tokio::net::TcpStream::connect(served.addr).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
    }
    let ask = async || {
        let reply =
            call(served.addr, "POST", "/graphql", &[], br#"{"query": "{ pools { name } }"}"#).await.json();
        code(&reply).is_none()
    };
    served.until("a place to be free", ask).await;
}
