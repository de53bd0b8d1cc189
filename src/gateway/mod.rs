//! HTTP faces: parse, check, propose an input, answer what was decided.
//!
//! Not here: deciding (the kernel), durability (the engine), what endpoints report (the observer).

mod admissions;
mod answer;
mod ask;
mod ask_body;
mod ask_headers;
mod body;
mod completion;
mod ext_proc;
mod follow;
mod health;
mod history;
mod json;
mod logs;
mod metrics;
mod options;
mod pools;
mod problem;
mod push;
mod query;
mod router;
mod scalar;
mod server;
mod service;
mod state;
mod trace;
mod wire_time;

pub use follow::all as follow_all;
pub use history::History;
pub use options::Options;
pub use router::router;
pub use server::serve;
pub use service::{Service, ServiceError};
pub use state::{Gateway, PoolFace};
