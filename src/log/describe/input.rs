//! Inputs as text.

use super::time::{show_span, show_time};
use weir_kernel::{
    AdminAction, Arrival, ArrivedMany, EndpointChange, Input, Observation, Pushed, Termination,
};

/// The name of an input's kind.
pub const fn input_kind(input: &Input) -> &'static str {
    match input {
        Input::Started(_) => "Started",
        Input::Arrived(_) => "Arrived",
        Input::Cancelled(_) => "Cancelled",
        Input::Observed(_) => "Observed",
        Input::Ended(_) => "Ended",
        Input::FirstByte { .. } => "FirstByte",
        Input::Renewed { .. } => "Renewed",
        Input::TimePassed => "TimePassed",
        Input::PolicyChanged(_) => "PolicyChanged",
        Input::ObjectivesChanged(_) => "ObjectivesChanged",
        Input::Stopping { .. } => "Stopping",
        Input::Stopped => "Stopped",
        Input::LogResumed { .. } => "LogResumed",
        Input::Admin(_) => "Admin",
        Input::ArrivedMany(_) => "ArrivedMany",
        Input::Revoke { .. } => "Revoke",
        Input::Undeliverable { .. } => "Undeliverable",
        Input::Watched { .. } => "Watched",
    }
}

/// What an input says, without its kind; empty where the kind says all.
pub fn input_text(input: &Input) -> String {
    match input {
        Input::Started(s) => format!("version={} kernel_behaviour={}", s.version, s.kernel_behaviour),
        Input::Arrived(arrival) => arrival_text(arrival),
        Input::Cancelled(c) => format!("request={} cause={}", c.request, c.cause.word()),
        Input::Observed(observation) => observation_text(observation),
        Input::Ended(e) => {
            let how = match e.termination {
                Termination::Natural => "natural",
                Termination::ClientDisconnect => "client-disconnect",
                Termination::Evicted => "evicted",
                Termination::Error => "error",
            };
            let usage =
                e.usage.map_or_else(String::new, |u| format!(" tokens={}+{}", u.prompt, u.completion));
            format!("request={} {how}{usage}", e.request)
        }
        Input::FirstByte { request } | Input::Renewed { request } | Input::Undeliverable { request } => {
            format!("request={request}")
        }
        Input::Revoke { request, by, why } => format!("request={request} by={by:?} why={why:?}"),
        Input::Watched { request, watching } => {
            format!("request={request} {}", if *watching { "begun" } else { "over" })
        }
        Input::TimePassed | Input::Stopped => String::new(),
        Input::PolicyChanged(change) => format!("policy={}", super::event::hex(&change.digest[..6])),
        Input::ObjectivesChanged(change) => {
            let set: Vec<String> = change.set.iter().map(|(name, p)| format!("{name:?}:{p}")).collect();
            format!("set=[{}] removed={:?}", set.join(" "), change.removed)
        }
        Input::Stopping { drain_until } => format!("drain_until={}", show_time(*drain_until)),
        Input::Admin(order) => {
            format!("{} by={:?} why={:?}", admin_text(&order.action), order.by, order.why)
        }
        Input::ArrivedMany(many) => many_text(many),
        Input::LogResumed { since, refused } => format!("since={} refused={refused}", show_time(*since)),
    }
}

fn admin_text(action: &AdminAction) -> String {
    match action {
        AdminAction::Pause => "pause".to_owned(),
        AdminAction::Resume => "resume".to_owned(),
        AdminAction::Purge { request } => format!("purge request={request}"),
        AdminAction::PurgeFlow { fairness_id, priority } => {
            format!("purge fairness={fairness_id:?} priority={priority}")
        }
        AdminAction::Drain { until } => format!("drain until={}", show_time(*until)),
    }
}

fn many_text(many: &ArrivedMany) -> String {
    let mut text = format!(
        "priority={} count={} bytes>={} since={}",
        many.priority,
        many.count,
        many.bytes,
        show_time(many.since)
    );
    for (name, count) in
        [("objective_unknown", many.objective_unknown), ("ttl_unreadable", many.ttl_unreadable)]
    {
        if count > 0 {
            text.push_str(&format!(" {name}={count}"));
        }
    }
    text
}

fn arrival_text(arrival: &Arrival) -> String {
    let mut text = format!("{} id={:?}", arrival.face.word(), arrival.caller_id);
    let mut add = |name: &str, value: String| text.push_str(&format!(" {name}={value}"));
    if let Some(objective) = &arrival.objective {
        add("objective", format!("{objective:?}"));
    }
    if !arrival.fairness_id.is_empty() {
        add("fairness", format!("{:?}", arrival.fairness_id));
    }
    if let Some(priority) = arrival.priority {
        add("priority", priority.to_string());
    }
    if let Some(model) = &arrival.model {
        add("model", format!("{model:?}"));
    }
    add("bytes", arrival.bytes.to_string());
    if let Some(tokens) = arrival.prompt_tokens {
        add("prompt_tokens", tokens.to_string());
    }
    if let Some(ttl) = arrival.ttl {
        add("ttl", show_span(ttl));
    }
    if arrival.ttl_unreadable {
        add("ttl", "unreadable".to_owned());
    }
    if let Some(slo) = arrival.slo_ttft {
        add("slo_ttft", show_span(slo));
    }
    if let Some(deadline) = arrival.deadline {
        add("deadline", show_time(deadline));
    }
    if let Some(key) = arrival.idempotency {
        add("key", super::event::hex(&key.key[..6]));
    }
    if let Some(trace) = arrival.trace {
        add("trace", super::event::hex(&trace.trace_id));
    }
    text
}

fn observation_text(observation: &Observation) -> String {
    let mut parts: Vec<String> = observation.changes.iter().map(change_text).collect();
    match observation.pushed {
        Pushed::Keep => {}
        Pushed::Clear => parts.push("pushed=none".to_owned()),
        Pushed::Pool(ratio) => parts.push(format!("pushed={ratio}")),
        Pushed::Stages { prefill, decode } => parts.push(format!("pushed={prefill}/{decode}")),
    }
    parts.join(" ")
}

fn change_text(change: &EndpointChange) -> String {
    match change {
        EndpointChange::Joined { slot, name, role } => format!("+{}:{name}({role:?})", slot.0),
        EndpointChange::Left { slot } => format!("-{}", slot.0),
        EndpointChange::Sampled { slot, waiting, running, kv } => {
            format!("{}:waiting{waiting:+},running{running:+},kv{kv:+}", slot.0)
        }
        EndpointChange::Stale { slot } => format!("{}:stale", slot.0),
    }
}
