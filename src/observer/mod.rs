//! Watches the model servers of a pool and tells the kernel what changed, one input per round.
//!
//! Endpoints are set in the configuration or pushed; their load is scraped or pushed. Fresh or stale becomes an edge
//! here. Not here: saturation and regimes, which the kernel derives.

mod names;
mod scrape;
mod settings;
mod table;
mod text;
mod watch;

pub use names::{MetricNames, Preset};
pub use scrape::{ScrapeFault, ScrapeOptions, chain, metrics_uri};
pub use table::{ENDPOINTS_MAX, KV_DEADBAND, Known, LOGGED_EVERY, Spec, Table, TooMany};
pub use text::{Load, TextFault, read};
pub use watch::{EndpointStatus, Feed, Observer, ObserverOptions, Push, View};
