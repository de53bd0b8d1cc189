//! HTTP faces: parse, check, propose an input, answer what was decided.
//!
//! Not here: deciding (the kernel), durability (the engine), what endpoints report (the observer).

mod accept;
mod admin;
mod admissions;
mod answer;
mod ask;
mod ask_body;
mod ask_headers;
pub mod auth;
mod body;
mod completion;
mod door;
mod envoy;
mod ext_authz;
mod ext_proc;
mod ext_proc_grpc;
mod follow;
mod grpc;
mod h2c;
mod health;
mod history;
mod inquiry;
mod json;
mod lease;
mod logs;
mod malformed;
mod metrics;
mod options;
mod outcome;
#[doc(hidden)]
pub mod parsers;
mod pools;
mod problem;
mod proxy;
mod push;
mod query;
mod room;
mod router;
mod scalar;
mod segment;
mod server;
mod service;
mod socket;
mod standing;
mod state;
mod stream;
mod ticket;
pub mod tls;
mod trace;
mod traces;
mod usage;
mod wire_time;
mod wish;

pub use door::{DoorError, files as door_files};
pub use ext_proc_grpc::message as ext_proc_messages;
pub use follow::all as follow_all;
pub use grpc::message as grpc_messages;
pub use grpc::serve as serve_grpc;
pub use history::History;
pub use options::{EnvoyOptions, Options, ProxyOptions};
pub use router::router;
pub use server::serve;
pub use service::{Service, ServiceError};
pub use state::{Gateway, PoolFace};
pub use traces::follow as follow_traces;
