//! `envoy.service.ext_proc.v3`, as far as it is used, by the field numbers of its `.proto` file.

use crate::gateway::grpc::message::{HeaderMap, HeaderValueOption, HttpStatus, Struct};
use bytes::Bytes;

/// What Envoy sends.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessingRequest {
    /// The part of the request or of its response.
    #[prost(oneof = "Part", tags = "2, 3, 4, 5, 6, 7")]
    pub request: Option<Part>,
    /// Envoy waits for no answer and heeds none.
    #[prost(bool, tag = "10")]
    pub observability_mode: bool,
    /// In the first message of a stream: how bodies come.
    #[prost(message, optional, tag = "11")]
    pub protocol_config: Option<ProtocolConfiguration>,
}

/// A part of a request or of its response.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Part {
    /// The request's headers.
    #[prost(message, tag = "2")]
    RequestHeaders(HttpHeaders),
    /// The response's headers, perhaps of an answer of Envoy's own.
    #[prost(message, tag = "3")]
    ResponseHeaders(HttpHeaders),
    /// The request's body, or a chunk of it.
    #[prost(message, tag = "4")]
    RequestBody(Body),
    /// The response's body, or a chunk of it.
    #[prost(message, tag = "5")]
    ResponseBody(Body),
    /// The request's trailers.
    #[prost(message, tag = "6")]
    RequestTrailers(Trailers),
    /// The response's trailers.
    #[prost(message, tag = "7")]
    ResponseTrailers(Trailers),
}

/// How bodies come: values of [`BodyMode`].
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ProtocolConfiguration {
    /// Of the request.
    #[prost(enumeration = "BodyMode", tag = "1")]
    pub request_body_mode: i32,
    /// Of the response.
    #[prost(enumeration = "BodyMode", tag = "2")]
    pub response_body_mode: i32,
}

/// `ProcessingMode.BodySendMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum BodyMode {
    /// It does not.
    None = 0,
    /// Chunk by chunk, each answered before the next.
    Streamed = 1,
    /// Whole.
    Buffered = 2,
    /// Its beginning.
    BufferedPartial = 3,
    /// Chunk by chunk, and to be sent back.
    FullDuplex = 4,
    /// gRPC message by gRPC message.
    Grpc = 5,
}

/// Headers.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HttpHeaders {
    /// They.
    #[prost(message, optional, tag = "1")]
    pub headers: Option<HeaderMap>,
    /// Nothing follows.
    #[prost(bool, tag = "3")]
    pub end_of_stream: bool,
}

/// A body or a chunk of one; `HttpBody` and `StreamedBodyResponse` are alike in these fields.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Body {
    /// The bytes.
    #[prost(bytes = "bytes", tag = "1")]
    pub body: Bytes,
    /// No body follows.
    #[prost(bool, tag = "2")]
    pub end_of_stream: bool,
}

/// Trailers, which nothing is read from.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Trailers {}

/// What Envoy is told.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessingResponse {
    /// The answer, of the same part.
    #[prost(oneof = "Answer", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub response: Option<Answer>,
    /// By namespace.
    #[prost(message, optional, tag = "8")]
    pub dynamic_metadata: Option<Struct>,
    /// Other modes for the rest of this stream; heeded only where the filter allows it.
    #[prost(message, optional, tag = "9")]
    pub mode_override: Option<ProcessingMode>,
}

/// An answer.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Answer {
    /// To the request's headers.
    #[prost(message, tag = "1")]
    RequestHeaders(Common),
    /// To the response's headers.
    #[prost(message, tag = "2")]
    ResponseHeaders(Common),
    /// To (a chunk of) the request's body.
    #[prost(message, tag = "3")]
    RequestBody(Common),
    /// To (a chunk of) the response's body.
    #[prost(message, tag = "4")]
    ResponseBody(Common),
    /// To the request's trailers.
    #[prost(message, tag = "5")]
    RequestTrailers(TrailersResponse),
    /// To the response's trailers.
    #[prost(message, tag = "6")]
    ResponseTrailers(TrailersResponse),
    /// Ends the request here.
    #[prost(message, tag = "7")]
    Immediate(ImmediateResponse),
}

/// `HeadersResponse` and `BodyResponse`, which are alike.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Common {
    /// What changes; nothing, if absent.
    #[prost(message, optional, tag = "1")]
    pub response: Option<CommonResponse>,
}

/// What changes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CommonResponse {
    /// In the headers.
    #[prost(message, optional, tag = "2")]
    pub header_mutation: Option<HeaderMutation>,
    /// In the body.
    #[prost(message, optional, tag = "3")]
    pub body_mutation: Option<BodyMutation>,
    /// Choose the route again, with the headers as they are now.
    #[prost(bool, tag = "5")]
    pub clear_route_cache: bool,
}

/// Headers to set and to remove.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderMutation {
    /// To set.
    #[prost(message, repeated, tag = "1")]
    pub set_headers: Vec<HeaderValueOption>,
    /// To remove.
    #[prost(string, repeated, tag = "2")]
    pub remove_headers: Vec<String>,
}

/// A chunk that goes on.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BodyMutation {
    /// The one kind that is used.
    #[prost(oneof = "Mutation", tags = "3")]
    pub mutation: Option<Mutation>,
}

/// The kind of [`BodyMutation`] that is used.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Mutation {
    /// In full duplex only.
    #[prost(message, tag = "3")]
    Streamed(Body),
}

/// Changes of trailers: none.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TrailersResponse {}

/// A response in place of the upstream's.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ImmediateResponse {
    /// Its status.
    #[prost(message, optional, tag = "1")]
    pub status: Option<HttpStatus>,
    /// Its headers.
    #[prost(message, optional, tag = "2")]
    pub headers: Option<HeaderMutation>,
    /// Its body.
    #[prost(bytes = "bytes", tag = "3")]
    pub body: Bytes,
    /// Its gRPC status, for callers that speak gRPC.
    #[prost(message, optional, tag = "4")]
    pub grpc_status: Option<GrpcStatus>,
    /// For the access log (`%RESPONSE_CODE_DETAILS%`).
    #[prost(string, tag = "5")]
    pub details: String,
}

/// A gRPC status code.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct GrpcStatus {
    /// The code.
    #[prost(uint32, tag = "1")]
    pub status: u32,
}

/// `envoy.extensions.filters.http.ext_proc.v3.ProcessingMode`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ProcessingMode {
    /// `HeaderSendMode`.
    #[prost(int32, tag = "1")]
    pub request_header_mode: i32,
    /// `HeaderSendMode`.
    #[prost(int32, tag = "2")]
    pub response_header_mode: i32,
    /// `BodySendMode`.
    #[prost(enumeration = "BodyMode", tag = "3")]
    pub request_body_mode: i32,
    /// `BodySendMode`.
    #[prost(enumeration = "BodyMode", tag = "4")]
    pub response_body_mode: i32,
    /// `HeaderSendMode`.
    #[prost(int32, tag = "5")]
    pub request_trailer_mode: i32,
    /// `HeaderSendMode`.
    #[prost(int32, tag = "6")]
    pub response_trailer_mode: i32,
}

/// `HeaderSendMode.SEND`.
pub const SEND: i32 = 1;
