//! Answers, each of the kind that its part wants: any other makes Envoy end the request with 500.

use super::message::{
    Answer, Body, BodyMode, BodyMutation, Common, CommonResponse, GrpcStatus, HeaderMutation,
    ImmediateResponse, Mutation, Part, ProcessingResponse, TrailersResponse,
};
use super::modes::Modes;
use crate::gateway::answer::ADMISSION;
use crate::gateway::envoy::{Denial, control_headers, onward};
use crate::gateway::grpc::message::{HeaderValueOption, HttpStatus, Kind, Struct};
use crate::gateway::traces::Onward;
use bytes::Bytes;

/// The header that names the chosen endpoint, and its key in the dynamic metadata.
pub const DESTINATION: &str = "x-gateway-destination-endpoint";

/// The namespace of dynamic metadata that Envoy's load balancers look into.
const LB: &str = "envoy.lb";

fn answer(response: Answer) -> ProcessingResponse {
    ProcessingResponse { response: Some(response), dynamic_metadata: None, mode_override: None }
}

/// Lets a part go on as it is. In full duplex a chunk goes on only by being sent back.
pub fn pass(part: Part, modes: Modes) -> ProcessingResponse {
    let body = |chunk: Body, mode: BodyMode| match mode {
        BodyMode::FullDuplex => Common { response: Some(echo(chunk)) },
        _ => Common::default(),
    };
    answer(match part {
        Part::RequestHeaders(_) => Answer::RequestHeaders(Common::default()),
        Part::ResponseHeaders(_) => Answer::ResponseHeaders(Common::default()),
        Part::RequestBody(chunk) => Answer::RequestBody(body(chunk, modes.request)),
        Part::ResponseBody(chunk) => Answer::ResponseBody(body(chunk, modes.response)),
        Part::RequestTrailers(_) => Answer::RequestTrailers(TrailersResponse {}),
        Part::ResponseTrailers(_) => Answer::ResponseTrailers(TrailersResponse {}),
    })
}

fn echo(chunk: Body) -> CommonResponse {
    CommonResponse {
        body_mutation: Some(BodyMutation { mutation: Some(Mutation::Streamed(chunk)) }),
        ..CommonResponse::default()
    }
}

/// Which part the decision is the answer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The request's headers.
    Headers,
    /// Its body, which was waited for.
    Body,
    /// Its trailers, which came where a body was waited for. Headers cannot be changed any more then.
    Trailers,
}

/// What becomes of the header that names the chosen endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Where Weir does not pick, others may.
    Untouched,
    /// To this address.
    To(String),
    /// Weir picks, but has not: whatever the caller wrote there must not lead the request anywhere.
    Nowhere,
}

/// Lets an admitted request go on: without its control headers, with the admission's id and the endpoint's address.
pub fn admitted(
    at: At,
    modes: Modes,
    names: &[&str],
    id: &str,
    destination: &Destination,
    onward: Option<&Onward>,
) -> ProcessingResponse {
    let mut set = vec![(ADMISSION, id)];
    let mut remove = control_headers(names.iter().copied(), &[ADMISSION]);
    onward::headers(onward, names.iter().copied(), &mut set, &mut remove);
    let address = match destination {
        Destination::To(address) => Some(address.as_str()),
        Destination::Nowhere | Destination::Untouched => None,
    };
    set.extend(address.map(|address| (DESTINATION, address)));
    if *destination == Destination::Nowhere {
        remove.push(DESTINATION);
    }
    let mutation = HeaderMutation {
        set_headers: set.iter().map(|(name, value)| HeaderValueOption::set(name, value)).collect(),
        remove_headers: remove.into_iter().map(str::to_owned).collect(),
    };
    let common = Common {
        response: Some(CommonResponse { header_mutation: Some(mutation), ..CommonResponse::default() }),
    };
    let metadata = |address: &str| {
        let text = Kind::Text(address.to_owned());
        Struct::of(LB, Kind::Struct(Struct::of(DESTINATION, text)))
    };
    ProcessingResponse {
        response: Some(match at {
            At::Headers => Answer::RequestHeaders(common),
            At::Body => Answer::RequestBody(common),
            At::Trailers => Answer::RequestTrailers(TrailersResponse {}),
        }),
        dynamic_metadata: address.map(metadata),
        mode_override: modes.wish().filter(|_| at == At::Headers),
    }
}

/// Ends a request with a refusal.
pub fn denied(denial: &Denial, grpc: bool) -> ProcessingResponse {
    let set_headers =
        denial.headers().iter().map(|(name, value)| HeaderValueOption::set(name, value)).collect();
    answer(Answer::Immediate(ImmediateResponse {
        status: Some(HttpStatus { code: i32::from(denial.status.as_u16()) }),
        headers: Some(HeaderMutation { set_headers, remove_headers: Vec::new() }),
        body: Bytes::copy_from_slice(&denial.body),
        grpc_status: grpc.then(|| GrpcStatus { status: denial.grpc_code() as u32 }),
        details: denial.details(),
    }))
}

#[cfg(test)]
mod tests {
    use super::super::message::{HttpHeaders, Trailers};
    use super::*;
    use crate::gateway::problem::Fault;
    use prost::Message;

    const LIGHT: Modes = Modes::NO_BODIES;
    const DUPLEX: Modes = Modes { request: BodyMode::FullDuplex, response: BodyMode::FullDuplex };

    fn texts(mutation: &HeaderMutation) -> Vec<(String, String)> {
        let text = |option: &HeaderValueOption| {
            let header = option.header.as_ref().unwrap();
            assert_eq!(option.append_action, 2, "in place of what was there");
            (header.key.clone(), String::from_utf8(header.bytes().to_vec()).unwrap())
        };
        mutation.set_headers.iter().map(text).collect()
    }

    #[test]
    fn every_part_gets_its_own_kind_of_answer() {
        let headers = HttpHeaders::default();
        let body = Body { body: Bytes::from_static(b"x"), end_of_stream: true };
        for (part, modes, want) in [
            (Part::RequestHeaders(headers.clone()), LIGHT, Answer::RequestHeaders(Common::default())),
            (Part::ResponseHeaders(headers), DUPLEX, Answer::ResponseHeaders(Common::default())),
            (Part::RequestBody(body.clone()), LIGHT, Answer::RequestBody(Common::default())),
            (
                Part::ResponseBody(body.clone()),
                DUPLEX,
                Answer::ResponseBody(Common { response: Some(echo(body)) }),
            ),
            (Part::RequestTrailers(Trailers {}), DUPLEX, Answer::RequestTrailers(TrailersResponse {})),
            (Part::ResponseTrailers(Trailers {}), LIGHT, Answer::ResponseTrailers(TrailersResponse {})),
        ] {
            assert_eq!(pass(part, modes).response, Some(want));
        }
    }

    #[test]
    fn an_admission_names_its_endpoint_twice_and_drops_the_control_headers() {
        let names = [":path", "x-weir-pool", "x-llm-d-inference-fairness-id", DESTINATION, "accept"];
        let to = Destination::To("10.0.0.1:8000".to_owned());
        let message = admitted(At::Headers, DUPLEX, &names, "p-9", &to, None);
        let Some(Answer::RequestHeaders(common)) = &message.response else { panic!("{message:?}") };
        let mutation = common.response.as_ref().unwrap().header_mutation.as_ref().unwrap();
        let set =
            [(ADMISSION.to_owned(), "p-9".to_owned()), (DESTINATION.to_owned(), "10.0.0.1:8000".to_owned())];
        assert_eq!(texts(mutation), set);
        assert_eq!(mutation.remove_headers, ["x-weir-pool", "x-llm-d-inference-fairness-id"]);
        let want =
            Struct::of(LB, Kind::Struct(Struct::of(DESTINATION, Kind::Text("10.0.0.1:8000".to_owned()))));
        assert_eq!(message.dynamic_metadata, Some(want));
        assert!(message.mode_override.is_none());
        assert_eq!(ProcessingResponse::decode(message.encode_to_vec().as_slice()).unwrap(), message);
    }

    #[test]
    fn a_caller_cannot_choose_where_weir_does() {
        let removed = |destination| {
            let message = admitted(At::Headers, DUPLEX, &[DESTINATION], "p-9", &destination, None);
            assert!(message.dynamic_metadata.is_none());
            let Some(Answer::RequestHeaders(common)) = message.response else { panic!("another part") };
            common.response.unwrap().header_mutation.unwrap().remove_headers
        };
        assert_eq!(removed(Destination::Nowhere), [DESTINATION]);
        assert!(removed(Destination::Untouched).is_empty());
    }

    #[test]
    fn where_no_body_is_shown_the_end_is_asked_for() {
        let message = admitted(At::Headers, LIGHT, &[], "p-9", &Destination::Untouched, None);
        let wish = message.mode_override.unwrap();
        assert_eq!((wish.response_header_mode, wish.response_trailer_mode), (1, 1));
        assert!(message.dynamic_metadata.is_none());
    }

    #[test]
    fn a_refusal_speaks_http_and_grpc() {
        let denial = Denial::fault(&Fault::LogUnavailable, Some("r"));
        let message = denied(&denial, true);
        let Some(Answer::Immediate(immediate)) = message.response else { panic!("not immediate") };
        assert_eq!(immediate.status.unwrap().code, 503);
        assert_eq!(immediate.grpc_status.unwrap().status, 14);
        assert_eq!(immediate.details, "weir_rejected-log-unavailable");
        let headers = texts(&immediate.headers.unwrap());
        let want = ("x-llm-d-request-dropped-reason".to_owned(), "rejected-internal".to_owned());
        assert!(headers.contains(&want), "{headers:?}");
        let Some(Answer::Immediate(plain)) = denied(&denial, false).response else { panic!("not immediate") };
        assert!(plain.grpc_status.is_none());
    }
}
