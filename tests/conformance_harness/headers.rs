//! What a request's headers ask for.

use serde_json::Value;
use weir_kernel::{Arrival, Micros};

/// Fills in what the headers of a vector's request say.
pub fn read(headers: &Value, arrival: &mut Arrival) {
    let named = |name: &str| headers[name].as_str();
    arrival.slo_ttft = slo(named("x-llm-d-slo-ttft-ms").or(named("x-slo-ttft-ms")));
    if let Some(text) = named("x-llm-d-inference-ttl") {
        ttl(text, arrival);
    }
}

/// Milliseconds to the first token; what is no such number, or beyond a count of nanoseconds, is no target.
fn slo(text: Option<&str>) -> Option<Micros> {
    let ms = text?.parse::<u64>().ok()?;
    (ms <= i64::MAX.unsigned_abs() / 1_000_000).then(|| Micros::from_millis(ms))
}

/// The caller's queue-wait budget; what cannot be read, or is not above zero, is none.
pub fn ttl(text: &str, arrival: &mut Arrival) {
    arrival.ttl = weir_config::header_ttl(text);
    arrival.ttl_unreadable = arrival.ttl.is_none();
}
