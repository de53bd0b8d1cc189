//! Goal: every processing mode works, or is refused with a line that says what to set.

use crate::client::{Connection, post};
use crate::rig::{Rig, Setup};
use serde_json::json;

/// A rig whose listener `light` has these modes.
async fn with(modes: &'static [&'static str], filter: &'static [&'static str]) -> Option<Rig> {
    let rig = Rig::start(Setup { modes: Some(modes), filter, ..Setup::default() }).await?;
    rig.pool_is(1, 0.0).await;
    Some(rig)
}

/// A response that runs holds its lease until it ends.
async fn ends_are_seen(rig: &Rig) {
    let mut running =
        Connection::send(rig.at("light"), "/v1/completions", &[("x-test", "hold")], b"{}").await;
    running.begun(8).await;
    rig.in_flight(1).await;
    rig.upstream.go();
    assert!(running.reply().await.whole);
    rig.in_flight(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_ends_are_not_shown_they_are_not_made_up() {
    for modes in [
        &["request_header_mode: SEND", "response_header_mode: SKIP"][..],
        &["request_header_mode: SEND", "response_header_mode: SEND"],
    ] {
        let Some(rig) = with(modes, &[]).await else { return };
        let light = rig.at("light");
        rig.until("the modes to be learned", async || {
            assert_eq!(post(light, &[("x-test", "events")], b"{}").await.status, 200);
            rig.weir_log().contains("set response_header_mode and response_trailer_mode to SEND")
        })
        .await;
        assert_eq!(post(light, &[], b"{}").await.status, 200);
        let faces = rig.inputs("Arrived").await;
        assert_eq!(faces.last().unwrap()["face"], "Untracked", "{modes:?}");
        assert!(faces.len() < 40, "learned after {} requests", faces.len());
        rig.in_flight(0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_filter_allows_it_weir_asks_to_see_the_end() {
    let modes = &["request_header_mode: SEND", "response_header_mode: SKIP"];
    let Some(rig) = with(modes, &["allow_mode_override: true"]).await else { return };
    ends_are_seen(&rig).await;
    assert_eq!(rig.inputs("Arrived").await[0]["face"], "ExtProcClosed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_streamed_response_is_read_as_it_passes() {
    let modes = &["request_header_mode: SEND", "response_header_mode: SEND", "response_body_mode: STREAMED"];
    let Some(rig) = with(modes, &[]).await else { return };
    ends_are_seen(&rig).await;
    let ended = rig.inputs("Ended").await.remove(0);
    assert_eq!(ended["usage"], json!({"prompt": 7, "completion": 5}));
    assert_eq!(rig.inputs("FirstByte").await.len(), 1);
    // A client that leaves in the middle is told from an answer that ends.
    let failed = post(rig.at("light"), &[("x-test", "fail")], b"{}").await;
    assert_eq!(failed.status, 500);
    rig.in_flight(0).await;
    assert_eq!(rig.inputs("Ended").await.last().unwrap()["termination"], "Error");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_buffered_request_is_held_at_its_body() {
    for mode in [
        &["request_header_mode: SEND", "response_trailer_mode: SEND", "request_body_mode: BUFFERED"][..],
        &["request_header_mode: SEND", "response_trailer_mode: SEND", "request_body_mode: BUFFERED_PARTIAL"],
    ] {
        let Some(rig) = with(mode, &[]).await else { return };
        let light = rig.at("light");
        rig.pool_is(1, 1.0).await;
        let chunked = b"14\r\n{\"model\":\"small\"   }\r\n0\r\n\r\n";
        let headers = [("transfer-encoding", "chunked"), ("x-weir-priority", "7")];
        let waiting = tokio::spawn(async move { post(light, &headers, chunked).await });
        rig.queued(1).await;
        let arrived = rig.inputs("Arrived").await.remove(0);
        assert_eq!((&arrived["bytes"], &arrived["model"]), (&json!(20), &json!("small")), "{mode:?}");
        rig.pool_is(1, 0.0).await;
        assert_eq!(waiting.await.unwrap().status, 200);
        let seen = rig.upstream.seen().remove(0);
        assert_eq!(seen.body, "{\"model\":\"small\"   }");
        assert!(seen.headers.contains_key("x-weir-admission"), "{:?}", seen.headers);
        assert!(!seen.headers.contains_key("x-weir-priority"), "{:?}", seen.headers);
        assert_eq!(post(light, &[], b"").await.status, 200, "no body");
        ends_are_seen(&rig).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_body_modes_pass_bodies_unchanged() {
    let modes = &[
        "request_header_mode: SEND",
        "request_body_mode: STREAMED",
        "response_header_mode: SEND",
        "response_body_mode: BUFFERED",
    ];
    let Some(rig) = with(modes, &[]).await else { return };
    let body = vec![b'x'; 300_000];
    let reply = post(rig.at("light"), &[], &body).await;
    assert_eq!((reply.status, reply.json()["usage"]["prompt_tokens"].clone()), (200, json!(7)));
    assert_eq!(rig.upstream.seen()[0].body.len(), body.len());
    rig.in_flight(0).await;
    assert_eq!(rig.inputs("Ended").await[0]["usage"], json!({"prompt": 7, "completion": 5}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn observability_holds_nobody() {
    let modes = &["request_header_mode: SEND", "response_trailer_mode: SEND"];
    let Some(rig) = with(modes, &["observability_mode: true"]).await else { return };
    rig.pool_is(1, 1.0).await;
    let reply = post(rig.at("light"), &[], b"{}").await;
    assert_eq!(reply.status, 200, "let through, closed as the pool is");
    // It was queued here, and left when it had ended there.
    rig.until("its end", async || !rig.events("Evicted").await.is_empty()).await;
    rig.queued(0).await;
    rig.pool_is(1, 0.0).await;
    assert_eq!(post(rig.at("light"), &[], b"{}").await.status, 200);
    rig.until("its admission", async || !rig.events("LeaseEnded").await.is_empty()).await;
    assert!(rig.weir_log().contains("observability_mode is on"), "{}", rig.weir_log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mode_that_shows_no_headers_is_refused_in_words() {
    let modes = &["request_header_mode: SKIP", "request_body_mode: BUFFERED"];
    let Some(rig) = with(modes, &[]).await else { return };
    let reply = post(rig.at("light"), &[], b"{}").await;
    let problem = reply.refused(500, "rejected-internal", "rejected-internal");
    assert!(problem["detail"].as_str().unwrap().contains("set it to SEND"), "{problem}");
    assert!(rig.weir_log().contains("request_header_mode is SKIP"), "{}", rig.weir_log());
    // Seen only once its response is there: too late for anything but a word.
    let modes = &["request_header_mode: SKIP", "response_header_mode: SEND"];
    let Some(rig) = with(modes, &[]).await else { return };
    assert_eq!(post(rig.at("light"), &[], b"{}").await.status, 200);
    assert!(rig.weir_log().contains("request_header_mode is SKIP"), "{}", rig.weir_log());
}
