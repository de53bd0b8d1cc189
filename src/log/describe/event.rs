//! Events as text.

use super::line;
use super::time::{show_span, show_time};
use weir_kernel::{
    BandOrigin, BudgetKind, BudgetSource, DemandSized, Dispatched, Enqueued, Event, Evicted, Hold, Ignored,
    LeaseEndCause, LeaseEnded, Micros, ReclamationDecided, Rejected, RejectedMany, RevocationEnded,
    RevocationIssued, RevocationOrder,
};

/// The name of an event's kind.
pub const fn event_kind(event: &Event) -> &'static str {
    match event {
        Event::StartNoted { .. } => "StartNoted",
        Event::PolicyAdopted => "PolicyAdopted",
        Event::ObjectivesAdopted => "ObjectivesAdopted",
        Event::BandOpened { .. } => "BandOpened",
        Event::BandChanged { .. } => "BandChanged",
        Event::BandClosed { .. } => "BandClosed",
        Event::FlowOpened { .. } => "FlowOpened",
        Event::FlowClosed { .. } => "FlowClosed",
        Event::Enqueued(_) => "Enqueued",
        Event::Rejected(_) => "Rejected",
        Event::Repeated { .. } => "Repeated",
        Event::Dispatched(_) => "Dispatched",
        Event::Evicted(_) => "Evicted",
        Event::LeaseEnded(_) => "LeaseEnded",
        Event::RenewalNoted { .. } => "RenewalNoted",
        Event::FirstByteNoted { .. } => "FirstByteNoted",
        Event::Viewed => "Viewed",
        Event::GaugeMoved { .. } => "GaugeMoved",
        Event::RegimeChanged { .. } => "RegimeChanged",
        Event::Held { .. } => "Held",
        Event::HoldLifted => "HoldLifted",
        Event::TurnTaken { .. } => "TurnTaken",
        Event::ServiceCharged { .. } => "ServiceCharged",
        Event::ServiceRescaled { .. } => "ServiceRescaled",
        Event::ProgramForgotten { .. } => "ProgramForgotten",
        Event::ClassRebudgeted { .. } => "ClassRebudgeted",
        Event::CeilingTicked { .. } => "CeilingTicked",
        Event::DrainBegun { .. } => "DrainBegun",
        Event::StopNoted => "StopNoted",
        Event::RefusalsNoted { .. } => "RefusalsNoted",
        Event::Ignored { .. } => "Ignored",
        Event::KeyForgotten { .. } => "KeyForgotten",
        Event::RecoveryEnded => "RecoveryEnded",
        Event::OrphansSettled { .. } => "OrphansSettled",
        Event::RestatedCore(_) => "RestatedCore",
        Event::RestatedPolicy { .. } => "RestatedPolicy",
        Event::RestatedObjective { .. } => "RestatedObjective",
        Event::RestatedBand(_) => "RestatedBand",
        Event::RestatedFlow(_) => "RestatedFlow",
        Event::RestatedEndpoint(_) => "RestatedEndpoint",
        Event::RestatedQueued(_) => "RestatedQueued",
        Event::RestatedLease(_) => "RestatedLease",
        Event::RestatedKey(_) => "RestatedKey",
        Event::RestatedProgram(_) => "RestatedProgram",
        Event::Paused => "Paused",
        Event::Resumed => "Resumed",
        Event::PurgeBegun { .. } => "PurgeBegun",
        Event::RejectedMany(_) => "RejectedMany",
        Event::RestatedPause(_) => "RestatedPause",
        Event::RestatedPurge { .. } => "RestatedPurge",
        Event::RevocationIssued(_) => "RevocationIssued",
        Event::RevocationEnded(_) => "RevocationEnded",
        Event::ConfirmedLate { .. } => "ConfirmedLate",
        Event::Reclaimed(_) => "Reclaimed",
        Event::WatchNoted { .. } => "WatchNoted",
        Event::RestatedRevocation(_) => "RestatedRevocation",
        Event::RestatedRevocations(_) => "RestatedRevocations",
        Event::ReclamationDecided(_) => "ReclamationDecided",
        Event::ReclamationShut { .. } => "ReclamationShut",
        Event::RestatedReclamation(_) => "RestatedReclamation",
        Event::DemandSized(_) => "DemandSized",
        Event::BandBounded { .. } => "BandBounded",
        Event::OrderTurned(_) => "OrderTurned",
        Event::BoundReached(_) => "BoundReached",
        Event::FoundHopeless(_) => "FoundHopeless",
        Event::RestatedLine(_) => "RestatedLine",
    }
}

/// What an event says, its kind first.
pub fn event_text(event: &Event) -> String {
    let details = details(event);
    let kind = event_kind(event);
    if details.is_empty() { kind.to_owned() } else { format!("{kind}({details})") }
}

fn details(event: &Event) -> String {
    match event {
        Event::PolicyAdopted
        | Event::ObjectivesAdopted
        | Event::Viewed
        | Event::HoldLifted
        | Event::StopNoted
        | Event::Paused
        | Event::Resumed
        | Event::RecoveryEnded => String::new(),
        Event::StartNoted { queued, leases, resumable_until } => {
            format!("queued={queued} leases={leases} resumable_until={}", show_time(*resumable_until))
        }
        Event::BandOpened { priority, origin, .. } | Event::BandChanged { priority, origin, .. } => {
            format!("priority={priority} {}", origin_word(*origin))
        }
        Event::BandClosed { priority } => format!("priority={priority}"),
        Event::FlowOpened { flow, priority } => format!("flow={} priority={priority}", flow.0),
        Event::FlowClosed { flow } => format!("flow={}", flow.0),
        Event::Enqueued(e) => enqueued(e),
        Event::Rejected(e) => rejected(e),
        Event::Repeated { of, resumed } => format!("of={of}{}", if *resumed { " resumed" } else { "" }),
        Event::Dispatched(e) => dispatched(e),
        Event::Evicted(e) => evicted(e),
        Event::LeaseEnded(e) => lease_ended(e),
        Event::RenewalNoted { request } | Event::FirstByteNoted { request } => format!("request={request}"),
        Event::GaugeMoved { endpoints, fresh, saturation } => {
            format!("saturation={saturation} fresh={fresh}/{endpoints}")
        }
        Event::RegimeChanged { from, to, endpoints, fresh } => {
            format!("{from} -> {to} fresh={fresh}/{endpoints}")
        }
        Event::Held { by } => hold(by),
        Event::TurnTaken { priority, last } => match last {
            Some(flow) => format!("priority={priority} flow={}", flow.0),
            None => format!("priority={priority} from the start"),
        },
        Event::ServiceCharged { request, service } => format!("request={request} service={service}"),
        Event::ServiceRescaled { epoch, shift } => format!("epoch={} shift={shift}", show_time(*epoch)),
        Event::ProgramForgotten { program } => format!("program={program:?}"),
        Event::ClassRebudgeted { priority, header_class, saturation_budget, no_endpoint_budget } => {
            let class = header_class.map_or_else(|| "none".to_owned(), show_span);
            let (busy, empty) = (show_span(*saturation_budget), show_span(*no_endpoint_budget));
            format!("priority={priority} class={class} budget={busy} no_endpoint_budget={empty}")
        }
        Event::CeilingTicked { tick } => format!("tick={tick}"),
        Event::DrainBegun { until } => format!("until={}", show_time(*until)),
        Event::RefusalsNoted { refused } => format!("refused={refused}"),
        Event::Ignored { what } => match what {
            Ignored::UnknownRequest => "unknown request",
            Ignored::AlreadyEnded => "already ended",
            Ignored::UnknownSlot => "unknown slot",
            Ignored::NoChange => "no change",
            Ignored::NotQueued => "not queued",
            Ignored::EmptyFlow => "empty flow",
            Ignored::AlreadyRevoked => "already revoked",
            Ignored::NotRunning => "not running",
        }
        .to_owned(),
        Event::KeyForgotten { key } => format!("key={}", hex(&key[..6])),
        Event::PurgeBegun { requests } => format!("requests={requests}"),
        Event::RejectedMany(e) => rejected_many(e),
        Event::OrphansSettled { kept, lost } => format!("kept={kept} lost={lost}"),
        Event::RestatedCore(_)
        | Event::RestatedPolicy { .. }
        | Event::RestatedObjective { .. }
        | Event::RestatedBand(_)
        | Event::RestatedFlow(_)
        | Event::RestatedEndpoint(_)
        | Event::RestatedQueued(_)
        | Event::RestatedLease(_)
        | Event::RestatedKey(_)
        | Event::RestatedProgram(_)
        | Event::RestatedPause(_)
        | Event::RestatedPurge { .. }
        | Event::RestatedRevocation(_)
        | Event::RestatedRevocations(_)
        | Event::RestatedReclamation(_)
        | Event::RestatedLine(_) => restated(event),
        Event::BandBounded { .. }
        | Event::OrderTurned(_)
        | Event::BoundReached(_)
        | Event::FoundHopeless(_) => line::details(event),
        Event::ReclamationDecided(e) => reclaimed(e),
        Event::DemandSized(e) => sized(e),
        Event::ReclamationShut { until: Micros::MAX } => "until the view is back".to_owned(),
        Event::ReclamationShut { until } => format!("until={}", show_time(*until)),
        Event::RevocationIssued(e) => issued(e),
        Event::RevocationEnded(e) => revocation_ended(e),
        Event::ConfirmedLate { number, request, late } => {
            format!("request={request} number={number} late={}", show_span(*late))
        }
        Event::Reclaimed(e) => {
            let (after, took) = (show_span(e.after), show_span(e.took));
            format!("request={} number={} after={after} took={took}", e.request, e.number)
        }
        Event::WatchNoted { request, watching } => {
            format!("request={request} {}", if *watching { "begun" } else { "over" })
        }
    }
}

fn restated(event: &Event) -> String {
    // Of snapshots only; seen when two of them are compared, where every field counts.
    let text = format!("{event:?}");
    text.split_once(['(', ' ']).map_or(String::new(), |(_, rest)| rest.trim_end_matches(')').to_owned())
}

fn enqueued(e: &Enqueued) -> String {
    let source = match e.budget_source {
        BudgetSource::Global => "global",
        BudgetSource::Band => "band",
        BudgetSource::Header => "header",
    };
    let (budget, empty) = (show_span(e.saturation_budget), show_span(e.no_endpoint_budget));
    let unknown = if e.objective_unknown { " objective unknown" } else { "" };
    format!(
        "priority={} flow={} budget={budget} no_endpoint_budget={empty} from={source} depth={}{unknown}",
        e.priority, e.flow.0, e.depth
    )
}

fn rejected(e: &Rejected) -> String {
    let mut text = format!(
        "{} {} regime={} priority={} saturation={}",
        e.outcome.word(),
        e.reason.word(),
        e.regime,
        e.priority,
        e.saturation
    );
    if let Some(limit) = &e.limit {
        text.push_str(&format!(" limit={:?} held={} of {}", limit.which.word(), limit.held, limit.limit));
    }
    if let Some(cause) = e.cause {
        text.push_str(&format!(" cause={}", cause.word()));
    }
    if let Some(seconds) = e.retry_after {
        text.push_str(&format!(" retry_after={seconds}s"));
    }
    text
}

fn rejected_many(e: &RejectedMany) -> String {
    let mut text =
        format!("{} {} regime={} saturation={}", e.outcome.word(), e.reason.word(), e.regime, e.saturation);
    if let Some(limit) = &e.limit {
        text.push_str(&format!(" limit={:?} held={} of {}", limit.which.word(), limit.held, limit.limit));
    }
    if let Some(cause) = e.cause {
        text.push_str(&format!(" cause={}", cause.word()));
    }
    if let [first, Some(last)] = e.retry_after {
        text.push_str(&format!(" retry_after={}s..{last}s", first.unwrap_or(0)));
    }
    text
}

fn dispatched(e: &Dispatched) -> String {
    let endpoint = e.endpoint.map_or_else(String::new, |slot| format!(" endpoint={}", slot.0));
    format!(
        "request={} waited={} saturation={} (raw {}) ceiling={} observed={}{endpoint}",
        e.request,
        show_span(e.waited),
        e.effective,
        e.raw,
        e.ceiling,
        e.observed
    )
}

fn evicted(e: &Evicted) -> String {
    let mut text = format!(
        "request={} {} {} regime={} waited={}",
        e.request,
        e.outcome.word(),
        e.reason.word(),
        e.regime,
        show_span(e.waited)
    );
    if let Some(spent) = &e.budget {
        let which = match spent.which {
            BudgetKind::Saturation => "saturation",
            BudgetKind::NoEndpoint => "no-endpoint",
            BudgetKind::Whole => "whole",
        };
        let from = show_time(spent.charged_from);
        text.push_str(&format!(" {which}_budget={} from={from}", show_span(spent.budget)));
    }
    if let Some(cause) = e.cause {
        text.push_str(&format!(" cause={}", cause.word()));
    }
    if let Some(deadline) = e.deadline {
        text.push_str(&format!(" deadline={}", show_time(deadline)));
    }
    if let Some(by) = &e.held_by {
        text.push_str(&format!(" held_by=[{}]", hold(by)));
    }
    text
}

fn lease_ended(e: &LeaseEnded) -> String {
    let cause = match e.cause {
        None => String::new(),
        Some(LeaseEndCause::Restart) => " cause=restart".to_owned(),
        Some(LeaseEndCause::Timeout) => " cause=timeout".to_owned(),
        Some(LeaseEndCause::NotAtEngine) => " cause=not-at-engine".to_owned(),
        Some(LeaseEndCause::Cancelled(cause)) => format!(" cause={}", cause.word()),
    };
    format!("request={} {} ran={}{cause}", e.request, e.end.word(), show_span(e.ran))
}

fn reclaimed(e: &ReclamationDecided) -> String {
    let victims: Vec<String> = e
        .victims
        .iter()
        .map(|victim| {
            format!("{}:priority={},age={}", victim.request, victim.priority, show_span(victim.age))
        })
        .collect();
    format!(
        "number={} demand={} depth={} saturation={} (effective {}, raw {}, stale={}/{}) ceiling={} target={} pending={} \
         in_flight={} credit={} wanted={} cap={} evictable={} victims=[{}]",
        e.number,
        e.demand,
        e.depth,
        e.saturation,
        e.effective,
        e.raw,
        e.stale,
        e.endpoints,
        e.ceiling,
        e.target,
        e.pending,
        e.in_flight,
        e.credit,
        e.wanted,
        e.cap,
        e.evictable,
        victims.join(" ")
    )
}

fn sized(e: &DemandSized) -> String {
    // Shares of the gauge are in steps of 1e-12.
    let share = |steps: u64| format!("{:.6}", steps as f64 / 1e12);
    let slot = e.slot.map_or_else(|| "none".to_owned(), share);
    format!(
        "number={} demand={} charge={} mean={} slot={slot} took={} round_trip={} ended={} in {} natural={} hidden={} \
         wanted={}",
        e.number,
        e.demand,
        share(e.charge),
        share(e.mean),
        show_span(e.took),
        show_span(e.round_trip),
        e.ended,
        show_span(e.since),
        e.natural,
        e.hidden,
        e.wanted
    )
}

fn issued(e: &RevocationIssued) -> String {
    let order = match e.order {
        RevocationOrder::Operator => String::new(),
        RevocationOrder::Reclamation { decision, demand } => format!(" decision={decision} demand={demand}"),
    };
    format!(
        "request={} number={} by={}{order} priority={} age={} debit={} due={}",
        e.request,
        e.number,
        e.order.word(),
        e.priority,
        show_span(e.age),
        e.debit,
        show_time(e.due)
    )
}

fn revocation_ended(e: &RevocationEnded) -> String {
    let cooling =
        e.cooling_until.map_or_else(String::new, |until| format!(" cooling_until={}", show_time(until)));
    format!("request={} number={} {} took={}{cooling}", e.request, e.number, e.end.word(), show_span(e.took))
}

fn hold(by: &Hold) -> String {
    match by {
        Hold::Regime(regime) => format!("regime={regime}"),
        Hold::Band { priority, saturation, ceiling, stale, endpoints } => {
            format!("priority={priority} saturation={saturation} ceiling={ceiling} stale={stale}/{endpoints}")
        }
        Hold::Recovery => "recovery".to_owned(),
        Hold::Paused => "paused".to_owned(),
    }
}

const fn origin_word(origin: BandOrigin) -> &'static str {
    match origin {
        BandOrigin::Configured => "configured",
        BandOrigin::Desired => "desired",
        BandOrigin::Provisioned => "provisioned",
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
