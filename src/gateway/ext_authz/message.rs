//! `envoy.service.auth.v3`, as far as it is used, by the field numbers of its `.proto` files.

use crate::gateway::grpc::message::{HeaderMap, HeaderValueOption, HttpStatus, RpcStatus};
use std::collections::BTreeMap;

/// What Envoy asks.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CheckRequest {
    /// About the request.
    #[prost(message, optional, tag = "1")]
    pub attributes: Option<Attributes>,
}

/// `AttributeContext`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Attributes {
    /// The request.
    #[prost(message, optional, tag = "4")]
    pub request: Option<Request>,
    /// What the route says (`context_extensions`).
    #[prost(btree_map = "string, string", tag = "10")]
    pub context_extensions: BTreeMap<String, String>,
}

/// `AttributeContext.Request`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Request {
    /// Of HTTP.
    #[prost(message, optional, tag = "2")]
    pub http: Option<HttpRequest>,
}

/// `AttributeContext.HttpRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HttpRequest {
    /// Headers; values of one name are joined by commas.
    #[prost(btree_map = "string, string", tag = "3")]
    pub headers: BTreeMap<String, String>,
    /// Headers as they came (`encode_raw_headers`).
    #[prost(message, optional, tag = "13")]
    pub header_map: Option<HeaderMap>,
    /// Bytes of the body, -1 if not known.
    #[prost(int64, tag = "9")]
    pub size: i64,
}

/// What Envoy is told.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CheckResponse {
    /// OK lets the request go on.
    #[prost(message, optional, tag = "1")]
    pub status: Option<RpcStatus>,
    /// How.
    #[prost(oneof = "HttpResponse", tags = "2, 3")]
    pub http_response: Option<HttpResponse>,
}

/// How a request goes on, or ends.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum HttpResponse {
    /// It ends.
    #[prost(message, tag = "2")]
    Denied(Denied),
    /// It goes on.
    #[prost(message, tag = "3")]
    Ok(OkHttp),
}

/// `DeniedHttpResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Denied {
    /// The status.
    #[prost(message, optional, tag = "1")]
    pub status: Option<HttpStatus>,
    /// The headers.
    #[prost(message, repeated, tag = "2")]
    pub headers: Vec<HeaderValueOption>,
    /// The body.
    #[prost(string, tag = "3")]
    pub body: String,
}

/// `OkHttpResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OkHttp {
    /// Headers to set.
    #[prost(message, repeated, tag = "2")]
    pub headers: Vec<HeaderValueOption>,
    /// Headers to remove.
    #[prost(string, repeated, tag = "5")]
    pub headers_to_remove: Vec<String>,
}
