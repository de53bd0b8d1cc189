//! The messages that Envoy's gRPC faces share, as far as they are used: `envoy.config.core.v3`, `envoy.type.v3`,
//! `google.protobuf.Struct`, `google.rpc.Status`.
//!
//! Written out here, by the field numbers of the public `.proto` files: what Weir does not read is skipped in decoding,
//! and nothing of Envoy's other thousand messages is built.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use std::collections::BTreeMap;

/// A message as it goes over a connection: behind a byte that says that it is not packed, and its length in four.
pub fn framed(message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(message.encoded_len() as u32);
    message.encode_raw(&mut bytes);
    bytes.freeze()
}

/// `envoy.config.core.v3.HeaderMap`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderMap {
    /// In their order.
    #[prost(message, repeated, tag = "1")]
    pub headers: Vec<HeaderValue>,
}

/// `envoy.config.core.v3.HeaderValue`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderValue {
    /// The name, in lower case as Envoy hands it over.
    #[prost(string, tag = "1")]
    pub key: String,
    /// The value, where it is text (older Envoys).
    #[prost(string, tag = "2")]
    pub value: String,
    /// The value as bytes.
    #[prost(bytes = "bytes", tag = "3")]
    pub raw_value: Bytes,
}

impl HeaderValue {
    /// The value, wherever it stands.
    pub fn bytes(&self) -> &[u8] {
        if self.raw_value.is_empty() { self.value.as_bytes() } else { &self.raw_value }
    }
}

/// `envoy.config.core.v3.HeaderValueOption`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderValueOption {
    /// Name and value.
    #[prost(message, optional, tag = "1")]
    pub header: Option<HeaderValue>,
    /// One of `HeaderAppendAction`.
    #[prost(int32, tag = "3")]
    pub append_action: i32,
}

/// `HeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD`.
const OVERWRITE_IF_EXISTS_OR_ADD: i32 = 2;

impl HeaderValueOption {
    /// Sets a header, in place of whatever stands there: as bytes, which is where ext_proc looks.
    pub fn set(name: &str, value: &str) -> Self {
        let raw_value = Bytes::copy_from_slice(value.as_bytes());
        let header = HeaderValue { key: name.to_owned(), value: String::new(), raw_value };
        HeaderValueOption { header: Some(header), append_action: OVERWRITE_IF_EXISTS_OR_ADD }
    }

    /// The same as text, which is where ext_authz looks.
    pub fn set_text(name: &str, value: &str) -> Self {
        let header = HeaderValue { key: name.to_owned(), value: value.to_owned(), raw_value: Bytes::new() };
        HeaderValueOption { header: Some(header), append_action: OVERWRITE_IF_EXISTS_OR_ADD }
    }
}

/// `envoy.type.v3.HttpStatus`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HttpStatus {
    /// The status.
    #[prost(int32, tag = "1")]
    pub code: i32,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RpcStatus {
    /// A gRPC status code.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// In words.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// `google.protobuf.Struct`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Struct {
    /// By name.
    #[prost(btree_map = "string, message", tag = "1")]
    pub fields: BTreeMap<String, Value>,
}

/// `google.protobuf.Value`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Value {
    /// One of the kinds that are used.
    #[prost(oneof = "Kind", tags = "3, 5")]
    pub kind: Option<Kind>,
}

/// The kinds of [`Value`] that are used.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Kind {
    /// Text.
    #[prost(string, tag = "3")]
    Text(String),
    /// A struct.
    #[prost(message, tag = "5")]
    Struct(Struct),
}

impl Struct {
    /// A struct of one member.
    pub fn of(name: &str, kind: Kind) -> Self {
        Struct { fields: BTreeMap::from([(name.to_owned(), Value { kind: Some(kind) })]) }
    }
}
