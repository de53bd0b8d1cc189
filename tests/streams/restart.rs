//! Goal: what survives a `kill -9` and an orderly stop: tickets with their places, callers that come back with their key.

use crate::client::{Events, NDJSON};
use crate::harness::{Connection, PATIENCE, call};
use crate::service::{Service, log, settings};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use weir_kernel::{Cause, Event, LeaseEnd, LeaseEndCause, RequestId, Step};

const TICKETS: usize = 1_000;

fn number(id: &str) -> RequestId {
    RequestId(id.strip_prefix("default-").unwrap().parse().unwrap())
}

fn dispatched(steps: &[Step]) -> Vec<RequestId> {
    let events = steps.iter().flat_map(|step| &step.events);
    events
        .filter_map(|event| match event {
            Event::Dispatched(e) => Some(e.request),
            _ => None,
        })
        .collect()
}

/// So many tickets, one after the other; their ids in that order.
async fn tickets(service: &Service) -> Vec<String> {
    let mut connection = Connection::open(service.addr).await;
    let mut ids = Vec::with_capacity(TICKETS);
    for at in 0..TICKETS {
        let body = json!({"requestId": format!("r{at}")}).to_string();
        connection.send("POST", "/v1/admissions", &[("prefer", "respond-async")], body.as_bytes()).await;
        let reply = connection.reply().await;
        assert_eq!(reply.status, 202, "{}", reply.text());
        ids.push(reply.json()["id"].as_str().unwrap().to_owned());
    }
    ids
}

/// Must hold: none is lost, none is admitted twice, and their order is that in which they were queued.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_tickets_survive_a_kill_and_are_admitted_in_order() {
    let dir = crate::kept::tempdir().unwrap();
    let settings = settings("drainTimeout: 0s, ticketTimeout: 1h");
    let service = Service::start(dir.path(), &settings);
    service.pool_is(2.0).await;
    let ids = tickets(&service).await;
    service.queued(TICKETS as u64).await;
    service.durable().await;
    service.kill();

    let service = Service::start(dir.path(), &settings);
    service.queued(TICKETS as u64).await;
    let place = service.get(&format!("/v1/admissions/{}", ids[500])).await.json();
    assert_eq!(
        (&place["state"], &place["position"], &place["regime"]),
        (&json!("queued"), &json!(501), &json!("Unknown"))
    );
    // Half of their holders ask already when the pool opens, the others only afterwards.
    let addr = service.addr;
    let asking: Vec<_> = ids[..TICKETS / 2]
        .iter()
        .map(|id| {
            let path = format!("/v1/admissions/{id}?wait=60s");
            tokio::spawn(async move {
                let mut connection = Connection::open(addr).await;
                connection.send("GET", &path, &[], b"").await;
                let (status, headers) = connection.read_head().await;
                connection.read_body(status, headers).await
            })
        })
        .collect();
    let began = Instant::now();
    service.pool_is(0.0).await;
    let mut answers = Vec::with_capacity(TICKETS);
    for asking in asking {
        answers.push(asking.await.unwrap());
    }
    let told = began.elapsed();
    for id in &ids[TICKETS / 2..] {
        answers.push(service.get(&format!("/v1/admissions/{id}?wait=60s")).await);
    }
    println!("{TICKETS} tickets: {} holders told within {told:?}", TICKETS / 2);
    let mut sequence = 0;
    for (at, (answer, id)) in answers.iter().zip(&ids).enumerate() {
        let answer = answer.json();
        assert_eq!(answer["state"], "admitted", "{answer}");
        let admission = &answer["admission"];
        assert_eq!((&admission["id"], &admission["requestId"]), (&json!(id), &json!(format!("r{at}"))));
        let this = admission["sequence"].as_u64().unwrap();
        assert!(this >= sequence, "{id} was admitted before its predecessor");
        sequence = this;
    }
    service.kill();

    // After another one the log alone knows how they were admitted.
    let service = Service::start(dir.path(), &settings);
    for at in [0, TICKETS / 2, TICKETS - 1] {
        let again = service.get(&format!("/v1/admissions/{}", ids[at])).await.json();
        assert_eq!(
            (&again["state"], &again["admission"]),
            (&json!("admitted"), &answers[at].json()["admission"])
        );
    }
    let done = service.post(&format!("/v1/admissions/{}/complete", ids[0]), &[], "").await;
    assert_eq!(done.json()["state"], "completed");
    service.terminate();
    service.ended();
    let in_log = dispatched(&log(dir.path()));
    let want: Vec<RequestId> = ids.iter().map(|id| number(id)).collect();
    assert_eq!(in_log, want, "each once, in the order they were queued");
    assert_eq!(in_log.iter().collect::<BTreeSet<_>>().len(), TICKETS);
}

/// A caller that was held when the service was killed.
async fn asks(connection: &mut Connection, key: &str) {
    let headers = [("idempotency-key", key)];
    connection.send("POST", "/v1/admissions", &headers, b"{\"requestId\":\"back\"}").await;
}

#[tokio::test]
async fn callers_that_come_back_with_their_key_take_up_where_they_were() {
    let dir = crate::kept::tempdir().unwrap();
    let settings = settings("drainTimeout: 0s, resumeWindow: 12s");
    let service = Service::start(dir.path(), &settings);
    service.pool_is(2.0).await;
    let mut held = Connection::open(service.addr).await;
    asks(&mut held, "held").await;
    service.queued(1).await;
    let stream_key = [("idempotency-key", "stream")];
    let mut stream = Events::open(service.addr, NDJSON, &stream_key, "{}").await;
    let streamed = stream.expect("queued").await["id"].as_str().unwrap().to_owned();
    let mut gone = Connection::open(service.addr).await;
    asks(&mut gone, "gone").await;
    service.queued(3).await;
    let mut plain = Connection::open(service.addr).await;
    plain.send("POST", "/v1/admissions", &[], b"{}").await;
    service.queued(4).await;
    service.durable().await;
    service.kill();

    let service = Service::start(dir.path(), &settings);
    // Who cannot come back has ended; the rest keep their places.
    service.queued(3).await;
    let mut stream = Events::open(service.addr, NDJSON, &stream_key, "{}").await;
    let again = stream.expect("queued").await;
    assert_eq!(again["id"], json!(streamed));
    let mut held = Connection::open(service.addr).await;
    asks(&mut held, "held").await;
    let steps = || async { service.get("/v1/pools/default/log").await.text() };
    let began = Instant::now();
    while steps().await.matches("\"resumed\":true").count() < 2 {
        assert!(began.elapsed() < PATIENCE, "nobody came back");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    service.pool_is(0.0).await;
    let admitted = held.reply().await.admitted();
    assert_eq!(admitted["requestId"], "back");
    let first = number(admitted["id"].as_str().unwrap());
    let regime = stream.expect("regime").await;
    assert_eq!((&regime["from"], &regime["to"]), (&json!("Unknown"), &json!("HasEndpoints")));
    let admission = stream.expect("admitted").await["admission"].clone();
    assert_eq!(admission["id"], json!(streamed));
    assert!(first < number(&streamed), "the held call was first, as before");
    assert!(admitted["sequence"].as_u64() <= admission["sequence"].as_u64());
    // The third does not come back within the window.
    service.queued(0).await;
    service.durable().await;
    service.kill();

    // A stream that ran is cut by a kill, and its lease is lost; what the holder asks for is told.
    let service = Service::start(dir.path(), &settings);
    service.until("the stream's lease is lost", |pool| pool["leases"] == json!(1)).await;
    let seen = service.get(&format!("/v1/admissions/{streamed}")).await.json();
    assert_eq!(
        (&seen["state"], &seen["end"], &seen["cause"]),
        (&json!("ended"), &json!("Lost"), &json!("restart"))
    );
    let mut late = Events::open(service.addr, NDJSON, &stream_key, "{}").await;
    late.expect("admitted").await;
    assert_eq!(late.expect("ended").await["end"], "Lost");
    service.terminate();
    service.ended();

    let steps = log(dir.path());
    assert_eq!(dispatched(&steps), [first, number(&streamed)]);
    let restarted = |event: &&Event| matches!(event, Event::Evicted(e) if e.cause == Some(Cause::Restarted));
    assert_eq!(
        steps.iter().flat_map(|step| &step.events).filter(restarted).count(),
        2,
        "the plain one, the late one"
    );
    let lost = |event: &&Event| {
        matches!(event, Event::LeaseEnded(e)
            if (e.end, e.cause) == (LeaseEnd::Lost, Some(LeaseEndCause::Restart)))
    };
    assert_eq!(steps.iter().flat_map(|step| &step.events).filter(lost).count(), 1);
}

/// A stop waits for streams that run, and tells those that do not end in time.
#[tokio::test]
async fn c144_a_stop_waits_for_streams() {
    let dir = crate::kept::tempdir().unwrap();
    let service = Service::start(dir.path(), &settings("drainTimeout: 60s"));
    service.pool_is(0.0).await;
    let mut stream = Events::open(service.addr, NDJSON, &[], "{}").await;
    let id = stream.expect("admitted").await["admission"]["id"].as_str().unwrap().to_owned();
    service.terminate();
    service.until("a drain", |pool| pool["draining"] == json!(true)).await;
    let refused = call(service.addr, "POST", "/v1/admissions", &[("accept", NDJSON)], b"{}").await;
    refused.refused(503, "rejected-shutting-down");
    let began = Instant::now();
    assert_eq!(service.post(&format!("/v1/admissions/{id}/complete"), &[], "").await.status, 200);
    assert_eq!(stream.expect("ended").await["end"], "Completed");
    service.ended();
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());

    let service = Service::start(dir.path(), &settings("drainTimeout: 200ms"));
    service.pool_is(0.0).await;
    let mut stream = Events::open(service.addr, NDJSON, &[], "{}").await;
    stream.expect("admitted").await;
    service.terminate();
    let ended = stream.expect("ended").await;
    assert_eq!((&ended["end"], &ended["cause"]), (&json!("Lost"), &json!("restart")), "{ended}");
    stream.over().await;
    service.ended();
}

/// A ticket outlives an orderly stop as well, and its holder hears that it must come back.
#[tokio::test]
async fn a_ticket_outlives_a_stop() {
    let dir = crate::kept::tempdir().unwrap();
    let settings = settings("drainTimeout: 100ms");
    let service = Service::start(dir.path(), &settings);
    service.pool_is(2.0).await;
    let prefer = [("prefer", "respond-async")];
    let reply = service.post("/v1/admissions", &prefer, "{}").await;
    let path = reply.header("location").unwrap().to_owned();
    let (addr, asked) = (service.addr, format!("{path}?wait=50s"));
    let polling = tokio::spawn(async move { call(addr, "GET", &asked, &[], b"").await });
    // Whoever asks shows that it is alive.
    let began = Instant::now();
    while !service.get("/v1/pools/default/log").await.text().contains("\"Renewed\"") {
        assert!(began.elapsed() < PATIENCE, "nobody asked");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    service.terminate();
    polling.await.unwrap().refused(503, "rejected-shutting-down");
    service.ended();
    let service = Service::start(dir.path(), &settings);
    let seen: Value = service.get(&path).await.json();
    assert_eq!((&seen["state"], &seen["position"]), (&json!("queued"), &json!(1)), "{seen}");
    service.pool_is(0.0).await;
    let seen = service.get(&format!("{path}?wait=30s")).await.json();
    assert_eq!(seen["state"], "admitted");
}
