//! The configuration: YAML in, one validated and explained set of effective values out.
//!
//! A setting is declared once, in `tables`: key, unit, bounds, default, manual line. A document is read into a tree that
//! keeps lines (`yaml`, `node`), the environment is laid over it (`env`), and each section is read against its table
//! (`section`), so that every mistake is told at once, with path, place, what was found and what is allowed.
//! Not here: anything that acts on a setting.

mod bounds;
mod ceilings;
mod discovery;
mod duration;
mod effective;
mod env;
mod eviction;
mod explain;
mod flow;
mod gates;
mod layers;
mod load;
mod nearest;
mod node;
mod objectives;
mod plugins;
mod pool;
mod quantity;
mod reference;
mod report;
mod scalar;
mod section;
mod service;
mod table;
mod tables;
mod ttl;
mod yaml;

pub use discovery::read_endpoints;
pub use duration::{DurationError, format_duration, parse_duration};
pub use effective::*;
pub use env::PREFIX as ENV_PREFIX;
pub use eviction::derived_grace;
pub use layers::layer;
pub use load::{DEFAULT_FILE, DEFAULT_POOL, from_text, load, load_again, resolve};
pub use nearest::nearest;
pub use node::{Entry, Node, Origin, Value};
pub use objectives::{Folder as ObjectivesFolder, ObjectError, Objective, read_objects};
pub use plugins::{Plugin, fairness_name, ordering_name, parse_plugin};
pub use quantity::{QuantityError, parse_quantity};
pub use reference::reference;
pub use report::{Mistake, MistakeKind, Mistakes, Notice};
pub use scalar::{Scalar, url as base_url, url_key};
pub use section::Row;
pub use ttl::{BudgetOrigin, effective_ttl, header_ttl};
pub use yaml::{YamlError, parse as parse_yaml};
