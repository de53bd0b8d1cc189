//! `POST /ext-proc`: Envoy's external processing over plain HTTP (`http_service` of its ext_proc filter).
//!
//! Envoy posts the headers of a request and holds it until it hears back: a mutation lets it go on, an immediate
//! response ends it. The call is held while the request is queued; Envoy closes it when its client goes away.
//!
//! **What this face cannot see:** anything after its answer. The end of the request is unknown, so its lease ends in
//! the step that admits it (`Untracked`). In-flight credit then charges every dispatch until the next sample shows
//! it, which the utilization detector over scraped metrics copes with; the concurrency detector, which counts our own
//! leases, sees none of these requests, and must not be used with this face. Nothing can be revoked here either.

mod message;

use super::admissions::{self, Decided};
use super::answer::{self, ADMISSION};
use super::ask;
use super::auth::Actor;
use super::body;
use super::envoy::{About, Denial, Question, control_headers, onward};
use super::json::{Object, write_text};
use super::problem::{Fault, Invalid};
use super::query;
use super::state::Gateway;
use super::trace::traceparent;
use super::traces::{Caller, Onward};
use crate::engine::Admitted;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use http::request::Parts;
use message::{Phase, Request};
use std::sync::Arc;
use weir_kernel::{Face, Micros};

/// Lets the request go on, untouched: the answer for every phase that nothing is decided in.
fn pass(phase: Phase) -> Response {
    let body = Object::new().object(phase.answer(), |object| object).finish();
    answer::json(StatusCode::OK, body)
}

/// Lets an admitted request go on, without its control headers and with the admission's id.
fn admitted(request: &Request, pool: &str, admitted: &Admitted, onward: Option<&Onward>) -> Response {
    let id = format!("{pool}-{}", admitted.id);
    // What is set below is overwritten, not removed.
    let names = || request.headers.iter().map(|(name, _)| name.as_str());
    let (mut headers, mut remove) = (vec![(ADMISSION, &*id)], control_headers(names(), &[ADMISSION]));
    onward::headers(onward, names(), &mut headers, &mut remove);
    let body = Object::new().object("requestHeaders", |object| {
        object.object("response", |object| {
            object.object("headerMutation", |object| {
                let object = set(object, &headers);
                if remove.is_empty() { object } else { object.plain("removeHeaders", strings(&remove)) }
            })
        })
    });
    answer::json(StatusCode::OK, body.finish())
}

/// Ends a request with the same status, reason headers and body as the held face.
fn denied(denial: &Denial) -> Response {
    let message = Object::new().object("immediateResponse", |object| {
        object
            .object("status", |object| object.plain("code", denial.status.as_u16()))
            .object("headers", |object| set(object, &denial.headers()))
            .text("body", &message::base64(&denial.body))
            .text("details", &denial.details())
    });
    answer::json(StatusCode::OK, message.finish())
}

fn set(object: Object, headers: &[(&str, &str)]) -> Object {
    object.list("setHeaders", headers, |object, (name, value)| {
        object
            .object("header", |object| {
                object.text("key", name).text("rawValue", &message::base64(value.as_bytes()))
            })
            .text("appendAction", "OVERWRITE_IF_EXISTS_OR_ADD")
    })
}

fn strings(words: &[&str]) -> String {
    let mut out = vec![b'['];
    for (index, word) in words.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_text(&mut out, word);
    }
    out.push(b']');
    String::from_utf8(out).unwrap_or_default()
}

/// Reads a message: the headers in it.
///
/// # Errors
/// It has not the shape of one.
pub fn read(message: &[u8]) -> Result<Vec<(String, Vec<u8>)>, Invalid> {
    message::read(message).map(|request| request.headers)
}

/// The headers as the ask reader takes them.
fn pairs(request: &Request) -> impl Iterator<Item = (&str, &[u8])> {
    request.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()))
}

/// `POST /ext-proc`, held until decided. `?pool=NAME`, or `x-weir-pool` on the call itself, names the pool for every
/// request of this filter; without either, `x-weir-pool` of the request does.
pub async fn process(State(gateway): State<Arc<Gateway>>, call: http::Request<Body>) -> Response {
    let (parts, body) = call.into_parts();
    let read = async {
        let body = body::read(&parts, body, admissions::bounds(&gateway)).await?;
        Ok((message::read(&body)?, pool_of(&parts)?))
    };
    let (request, pool) = match read.await {
        Ok(read) => read,
        // Envoy's own message is not of the right shape: said to Envoy, which answers its client with 500.
        Err(error) => {
            admissions::count(&gateway, &error);
            return answer::fault(&error, None);
        }
    };
    if request.phase != Phase::RequestHeaders || request.observability {
        return pass(request.phase);
    }
    match decide(&gateway, &parts, &request, pool).await {
        Ok(response) => response,
        Err((error, caller_id)) => {
            admissions::count(&gateway, &error);
            denied(&Denial::fault(&error, caller_id.as_deref()))
        }
    }
}

fn pool_of(parts: &Parts) -> Result<Option<String>, Fault> {
    let mut named = None;
    for (name, value) in query::pairs(parts.uri.query())? {
        if name != "pool" {
            return Err(Invalid::new("query", name.as_bytes(), "pool").into());
        }
        named = Some(ask::label("pool", value.as_bytes())?);
    }
    match (named, parts.headers.get("x-weir-pool")) {
        (None, Some(value)) => Ok(Some(ask::label("x-weir-pool", value.as_bytes())?)),
        (named, _) => Ok(named),
    }
}

async fn decide(
    gateway: &Gateway,
    parts: &Parts,
    request: &Request,
    pool: Option<String>,
) -> Result<Response, (Fault, Option<String>)> {
    let question = Question::read(pairs(request)).map_err(|invalid| (invalid.into(), None))?;
    let caller_id = question.caller_id().to_owned();
    let failed = |fault: Fault| (fault, Some(caller_id.clone()));
    // After Envoy's own patience the answer comes to nobody.
    let patience = parts.headers.get("x-envoy-expected-rq-timeout-ms").map(|value| value.as_bytes());
    let patience = patience.and_then(|ms| ask::whole("", ms, ask::DEADLINE_MS_MAX, "").ok());
    let about = About {
        patience: patience.map(Micros::from_millis),
        trace: parts.headers.get("traceparent").and_then(|value| traceparent(value.as_bytes())),
        face: Face::Untracked,
        choose_endpoint: false,
        actor: parts.extensions.get::<Actor>().cloned(),
    };
    let face = question.pool(gateway, pool.as_deref()).map_err(failed)?;
    let name = face.handle.name();
    let arrival = question.arrive(gateway, face, about).map_err(failed)?;
    let from = Caller::of(&arrival);
    match admissions::decide(face, arrival).await.map_err(failed)? {
        Decided::Admitted(admission) => {
            let onward = gateway.onward(face, admission.id, from);
            Ok(admitted(request, name, &admission, onward.as_ref()))
        }
        Decided::Refused(refusal) => Ok(denied(&Denial::refused(name, &caller_id, &refusal))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Refused;
    use axum::body::to_bytes;
    use base64::Engine as _;
    use weir_kernel::{Outcome, Reason, Regime, RequestId};

    async fn body(response: Response) -> serde_json::Value {
        assert_eq!(response.status(), 200);
        serde_json::from_slice(&to_bytes(response.into_body(), 1 << 20).await.unwrap()).unwrap()
    }

    fn text(value: &serde_json::Value) -> String {
        let bytes = base64::engine::general_purpose::STANDARD.decode(value.as_str().unwrap()).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[tokio::test]
    async fn an_admission_takes_the_control_headers_away() {
        let header = |name: &str| (name.to_owned(), Vec::new());
        let names = [
            ":path",
            "x-request-id",
            "traceparent",
            "x-llm-d-inference-objective",
            "x-weir-pool",
            "x-weir-pool",
            "x-weir-admission",
        ];
        let request = Request {
            phase: Phase::RequestHeaders,
            headers: names.iter().map(|name| header(name)).collect(),
            observability: false,
        };
        let admission = Admitted {
            id: RequestId(9),
            seq: 10,
            waited: Micros(0),
            priority: 0,
            flow: String::new(),
            endpoint: None,
            regime: Regime::HasEndpoints,
            face: Face::Untracked,
            shadow: false,
            repeated: false,
        };
        let value = body(admitted(&request, "p", &admission, None)).await;
        let mutation = &value["requestHeaders"]["response"]["headerMutation"];
        assert_eq!(
            mutation["removeHeaders"],
            serde_json::json!(["x-llm-d-inference-objective", "x-weir-pool"])
        );
        assert_eq!(mutation["setHeaders"][0]["header"]["key"], "x-weir-admission");
        assert_eq!(text(&mutation["setHeaders"][0]["header"]["rawValue"]), "p-9");
    }

    #[tokio::test]
    async fn a_refusal_carries_what_the_held_face_carries() {
        let refusal = Refused {
            id: RequestId(9),
            seq: 10,
            outcome: Outcome::RejectedCapacity,
            reason: Reason::BandLimit,
            regime: Regime::HasEndpoints,
            waited: Micros(0),
            priority: -1,
            retry_after: Some(3),
            limit: None,
            cause: None,
            repeated: false,
        };
        let value = body(denied(&Denial::refused("p", "r\"1", &refusal))).await;
        let answer = &value["immediateResponse"];
        assert_eq!(answer["status"]["code"], 429);
        assert_eq!(answer["details"], "weir_rejected-band-limit");
        let headers: Vec<(String, String)> = answer["headers"]["setHeaders"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| {
                (item["header"]["key"].as_str().unwrap().to_owned(), text(&item["header"]["rawValue"]))
            })
            .collect();
        for (name, want) in [
            ("content-type", "application/problem+json"),
            ("x-weir-dropped-reason", "rejected-band-limit"),
            ("x-llm-d-request-dropped-reason", "rejected-saturated"),
            ("retry-after", "3"),
        ] {
            assert!(headers.contains(&(name.to_owned(), want.to_owned())), "{name}: {headers:?}");
        }
        let problem: serde_json::Value = serde_json::from_str(&text(&answer["body"])).unwrap();
        assert_eq!(problem["requestId"], "r\"1");
        assert_eq!(problem["outcome"], "RejectedCapacity");
    }

    #[tokio::test]
    async fn a_phase_that_is_not_ours_is_passed_in_kind() {
        let value = body(pass(Phase::ResponseHeaders)).await;
        assert_eq!(value, serde_json::json!({"responseHeaders": {}}));
    }
}
