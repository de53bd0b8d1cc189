//! A state in a few lines: what a decision rests on.

use weir_kernel::State;
use weir_log::describe::{show_span, show_time};

/// Queued requests that are told one by one.
const TOLD: usize = 10;

/// Name and value of what is in the state, in an order that stays.
pub fn lines(state: &State) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    let mut add = |name: &str, value: String| lines.push((name.to_owned(), value));
    add("sequence", state.seq().to_string());
    add("time", show_time(state.now()));
    add("regime", format!("{} since {}", state.regime(), show_time(state.regime_since())));
    let (raw, effective) = state.saturation();
    add("saturation", format!("raw {raw}, effective {effective}"));
    add("held by", state.hold().map_or_else(|| "nothing".to_owned(), |hold| format!("{hold:?}")));
    let deadline = state.next_deadline().map_or_else(|| "none".to_owned(), show_time);
    add("next deadline", deadline);
    add("queued", format!("{} requests, {} bytes", state.queued(), state.queued_bytes()));
    for id in state.queued_requests().take(TOLD) {
        if let Some(queued) = state.queued_request(id) {
            let due = queued.due.map_or_else(|| "never".to_owned(), show_time);
            let value = format!(
                "flow {} @ {}, since {}, due {due}",
                queued.flow,
                queued.priority,
                show_time(queued.enqueued_at)
            );
            add(&format!("queued {id}"), value);
        }
    }
    for band in state.bands() {
        let value = format!(
            "ceiling {}, {} of {} requests, {} of {} bytes, {} flows",
            band.ceiling,
            band.requests,
            band.settings.max_requests,
            band.bytes,
            band.settings.max_bytes,
            band.flows
        );
        add(&format!("band {}", band.priority), value);
    }
    for endpoint in state.endpoints() {
        let sample = endpoint.sample.map_or_else(
            || "never sampled".to_owned(),
            |(waiting, running, kv)| {
                format!("waiting {waiting}, running {running}, kv {}.{:02} %", kv / 100, kv % 100)
            },
        );
        let stale = if endpoint.stale { ", stale" } else { "" };
        let value = format!("{sample}{stale}, {} leases", endpoint.leases);
        add(&format!("endpoint {} ({})", endpoint.slot.0, endpoint.name), value);
    }
    add("leases", state.in_flight().to_string());
    let revocations = state.revocations();
    if revocations.issued > 0 {
        add("revocations", format!("{} issued, {} outstanding", revocations.issued, revocations.outstanding));
    }
    if let Some(pause) = state.paused() {
        add(
            "paused",
            format!("by {} for {}: {}", pause.by, show_span(state.now().since(pause.since)), pause.why),
        );
    }
    lines
}

/// The lines of both, those that differ with both values.
pub fn between(before: &[(String, String)], after: &[(String, String)]) -> Vec<(String, String, String)> {
    let of = |all: &[(String, String)], name: &str| {
        all.iter().find(|(n, _)| n == name).map_or_else(|| "-".to_owned(), |(_, value)| value.clone())
    };
    let gone = before.iter().filter(|(name, _)| !after.iter().any(|(n, _)| n == name));
    let names = after.iter().chain(gone).map(|(name, _)| name);
    names.map(|name| (name.clone(), of(before, name), of(after, name))).collect()
}
