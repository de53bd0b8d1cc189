//! GraphQL over the read models of Weir's decision log: the questions that are asked after an incident.
//!
//! The schema is `graphql/schema.graphql`: its text is its source. Every question is held to limits before any work is
//! done, and stops when its time is over. Not here: HTTP and tokens (the gateway), and the read models themselves
//! (`weir-projection`).

mod ask;
mod configurations;
mod difference;
mod events;
mod explain;
mod fault;
mod groups;
mod incidents;
mod limits;
mod playbook;
mod reclamations;
mod request;
mod resolvers;
mod schema;
mod series;
mod service;
mod state;
mod table;
mod values;
mod watch;
mod workers;

pub use ask::Terms;
pub use async_graphql::Value;
pub use fault::Fault;
pub use limits::Limits;
pub use playbook::{QUESTIONS, Question};
pub use schema::SDL;
pub use service::{Options, Place, Service, block_on, encode, refusal};
pub use table::render;
