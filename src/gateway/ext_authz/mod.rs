//! `envoy.service.auth.v3.Authorization`: Envoy's external authorization over gRPC, for gateways that have only that.
//!
//! A call is held while its request is queued, and dropped when the client leaves, which ends the request. As with
//! ext_proc over HTTP nothing is seen after the answer: the lease ends in the step that admits the request
//! (`Untracked`), and nothing can be taken back.

pub mod message;

use super::admissions::{self, Decided};
use super::answer::ADMISSION;
use super::auth::Actor;
use super::envoy::{About, Denial, Pace, Question, control_headers, onward};
use super::grpc::message::{HeaderValueOption, HttpStatus, RpcStatus};
use super::problem::Fault;
use super::state::Gateway;
use super::traces::{Caller, Onward};
use message::{CheckRequest, CheckResponse, Denied, HttpRequest, HttpResponse, OkHttp};
use std::sync::Arc;
use weir_kernel::{Face, Micros, Trace};

/// The key of `context_extensions` by which a route names its pool.
const POOL: &str = "weir-pool";

/// What is known of a call beside its message.
#[derive(Debug)]
pub struct Call {
    /// The pool that Envoy's settings name.
    pub pool: Option<String>,
    /// The trace context of Envoy's call.
    pub trace: Option<Trace>,
    /// How long Envoy waits.
    pub patience: Option<Micros>,
    /// Who calls, where callers are known.
    pub actor: Option<Actor>,
}

/// The service, on one connection.
#[derive(Clone, Debug)]
pub struct Authorization {
    gateway: Arc<Gateway>,
    pace: Pace,
}

/// A refusal, or an admission's id and what the model server is told of its trace.
type Verdict = Result<(String, Option<Onward>), Denial>;

impl Authorization {
    /// Over a gateway.
    pub fn new(gateway: Arc<Gateway>, pace: Pace) -> Self {
        Authorization { gateway, pace }
    }

    /// Holds the call until its request is decided. Dropped before, the request is cancelled.
    pub async fn check(&self, call: Call, request: CheckRequest) -> CheckResponse {
        let attributes = request.attributes.unwrap_or_default();
        let named = attributes.context_extensions.get(POOL).cloned().or(call.pool);
        let http = attributes.request.and_then(|request| request.http).unwrap_or_default();
        let about = About {
            patience: call.patience,
            trace: call.trace,
            face: Face::Untracked,
            choose_endpoint: false,
            actor: call.actor,
        };
        let verdict = self.decide(&http, named.as_deref(), about).await;
        // A call has no reaction to wait for: it counts as under way until it is handed to the connection.
        let _under_way = self.pace.turn().await;
        match verdict {
            Ok((id, onward)) => admitted(&http, &id, onward.as_ref()),
            Err(denial) => denied(&denial),
        }
    }

    async fn decide(&self, http: &HttpRequest, named: Option<&str>, about: About) -> Verdict {
        let fault = |fault: Fault, caller_id: Option<&str>| {
            admissions::count(&self.gateway, &fault);
            Denial::fault(&fault, caller_id)
        };
        let mut question =
            Question::read(pairs(http).into_iter()).map_err(|invalid| fault(invalid.into(), None))?;
        let caller_id = question.caller_id().to_owned();
        let failed = |error: Fault| fault(error, Some(&caller_id));
        // -1: not known, as of a body that comes in chunks.
        if let Ok(bytes) = u64::try_from(http.size) {
            question.suggest_bytes(bytes);
        }
        let pool = question.pool(&self.gateway, named).map_err(failed)?;
        let arrival = question.arrive(&self.gateway, pool, about).map_err(failed)?;
        let from = Caller::of(&arrival);
        match admissions::decide(pool, arrival).await.map_err(failed)? {
            Decided::Admitted(admission) => {
                let onward = self.gateway.onward(pool, admission.id, from);
                Ok((format!("{}-{}", pool.handle.name(), admission.id), onward))
            }
            Decided::Refused(refused) => Err(Denial::refused(pool.handle.name(), &caller_id, &refused)),
        }
    }
}

/// Reads a message: the headers in it, none if it is no message.
pub fn read_check(message: &[u8]) -> Vec<(String, Vec<u8>)> {
    let request = <CheckRequest as prost::Message>::decode(message).ok();
    let http = request.and_then(|request| request.attributes?.request?.http).unwrap_or_default();
    pairs(&http).into_iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect()
}

/// The headers, in whichever of its two ways Envoy hands them over.
fn pairs(http: &HttpRequest) -> Vec<(&str, &[u8])> {
    match &http.header_map {
        Some(map) => map.headers.iter().map(|header| (header.key.as_str(), header.bytes())).collect(),
        None => http.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect(),
    }
}

fn admitted(http: &HttpRequest, id: &str, onward: Option<&Onward>) -> CheckResponse {
    let pairs = pairs(http);
    let names = || pairs.iter().map(|(name, _)| *name);
    let (mut set, mut remove) = (vec![(ADMISSION, id)], control_headers(names(), &[ADMISSION]));
    onward::headers(onward, names(), &mut set, &mut remove);
    CheckResponse {
        status: Some(RpcStatus { code: tonic::Code::Ok as i32, message: String::new() }),
        http_response: Some(HttpResponse::Ok(OkHttp {
            headers: set.iter().map(|(name, value)| HeaderValueOption::set_text(name, value)).collect(),
            headers_to_remove: remove.into_iter().map(str::to_owned).collect(),
        })),
    }
}

fn denied(denial: &Denial) -> CheckResponse {
    let headers = denial.headers();
    CheckResponse {
        status: Some(RpcStatus { code: denial.grpc_code() as i32, message: denial.details() }),
        http_response: Some(HttpResponse::Denied(Denied {
            status: Some(HttpStatus { code: i32::from(denial.status.as_u16()) }),
            headers: headers.iter().map(|(name, value)| HeaderValueOption::set_text(name, value)).collect(),
            body: String::from_utf8_lossy(&denial.body).into_owned(),
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::super::grpc::message::{HeaderMap, HeaderValue};
    use super::*;

    #[test]
    fn headers_are_read_in_either_form_and_control_headers_removed() {
        let names = ["accept", "x-llm-d-inference-objective", "x-weir-admission", "x-weir-pool"];
        let plain = HttpRequest {
            headers: names.iter().map(|name| ((*name).to_owned(), "v".to_owned())).collect(),
            ..HttpRequest::default()
        };
        let value = |name: &&str| HeaderValue {
            key: (*name).to_owned(),
            value: String::new(),
            raw_value: "v".into(),
        };
        let raw = HttpRequest {
            header_map: Some(HeaderMap { headers: names.iter().map(value).collect() }),
            ..HttpRequest::default()
        };
        assert_eq!(pairs(&plain), pairs(&raw));
        for http in [plain, raw] {
            let response = admitted(&http, "p-9", None);
            assert_eq!(response.status.unwrap().code, 0);
            let Some(HttpResponse::Ok(ok)) = response.http_response else { panic!("denied") };
            assert_eq!(ok.headers_to_remove, ["x-llm-d-inference-objective", "x-weir-pool"]);
            assert_eq!(ok.headers, [HeaderValueOption::set_text("x-weir-admission", "p-9")]);
        }
    }

    #[test]
    fn a_refusal_keeps_status_headers_and_body() {
        let denial = Denial::fault(&Fault::ShuttingDown, Some("r"));
        let response = denied(&denial);
        assert_eq!(response.status.unwrap().code, 14);
        let Some(HttpResponse::Denied(denied)) = response.http_response else { panic!("let through") };
        assert_eq!(denied.status.unwrap().code, 503);
        assert!(
            denied
                .headers
                .contains(&HeaderValueOption::set_text("x-weir-dropped-reason", "rejected-shutting-down"))
        );
        assert!(denied.body.contains("\"requestId\":\"r\""), "{}", denied.body);
    }
}
