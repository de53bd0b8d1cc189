//! Pools as they are, and as they were at a moment; how far the read models are.

use crate::ask::{Ask, Out};
use crate::fault::Fault;
use crate::values::{self, hold, ms, ratio, time};
use serde_json::{Value, json};
use weir_kernel::{
    BandOrigin, Event, Fairness, Micros, Ordering, Outcome, RequestId, RestatedQueued, Role, State,
    Whereabouts,
};
use weir_log::describe::parse_time;
use weir_projection::{Moment, PoolProjection};

const LIST: usize = 100;
const LIST_MAX: usize = 1_000;

/// `Query.pools`.
pub fn pools(ask: &Ask<'_>) -> Result<Out, Fault> {
    Ok(Out::Value(ask.pools().map(|pool| pool_value(pool)).collect()))
}

/// `Query.pool`.
pub fn pool(ask: &Ask<'_>) -> Result<Out, Fault> {
    match ask.pool() {
        Ok(pool) => Ok(pool_value(pool).into()),
        Err(Fault::NoPool { .. }) => Ok(Out::None),
        Err(fault) => Err(fault),
    }
}

/// A pool as it is.
pub fn pool_value(pool: &PoolProjection) -> Value {
    pool.with_state(|state| {
        let (raw, effective) = state.saturation();
        let outcomes = Outcome::ALL.iter().zip(state.counters().outcomes);
        let outcomes =
            outcomes.map(|(outcome, count)| json!({ "outcome": values::outcome(*outcome), "count": count }));
        json!({
            "name": pool.name(),
            "sequence": state.seq(),
            "time": time(state.now()),
            "regime": values::regime(state.regime()),
            "regimeSince": time(state.regime_since()),
            "queued": state.queued(),
            "queuedBytes": state.queued_bytes(),
            "inFlight": state.in_flight(),
            "saturation": ratio(raw),
            "effectiveSaturation": ratio(effective),
            "endpoints": state.endpoint_count(),
            "freshEndpoints": state.endpoint_count() - state.stale_endpoints(),
            "hold": state.hold().map(hold),
            "paused": pause(state),
            "draining": state.is_draining(),
            "outcomes": outcomes.collect::<Vec<_>>(),
        })
    })
}

fn pause(state: &State) -> Option<Value> {
    state.paused().map(|pause| json!({ "since": time(pause.since), "by": pause.by, "why": pause.why }))
}

/// `Query.stateAt`. What may be long (queue, leases) is not in it: those fields find the same state again.
pub fn at(ask: &Ask<'_>) -> Result<Out, Fault> {
    let pool = ask.pool()?;
    let moment = ask.moment(pool)?;
    let found = ask.state_at(pool, moment)?;
    let state = &found.state;
    let as_of = match moment {
        Moment::Time(at) => at.min(pool.at().at).max(state.now()),
        Moment::Seq(_) => state.now(),
    };
    let (raw, effective) = state.saturation();
    Ok(json!({
        "pool": pool.name(),
        "sequence": state.seq(),
        "time": time(state.now()),
        "asOf": time(as_of),
        "digest": values::hex(&state.digest()),
        "foldedSteps": found.folded,
        "regime": values::regime(state.regime()),
        "regimeSince": time(state.regime_since()),
        "saturation": ratio(raw),
        "effectiveSaturation": ratio(effective),
        "hold": state.hold().map(hold),
        "paused": pause(state),
        "draining": state.is_draining(),
        "queuedRequests": state.queued(),
        "queuedBytes": state.queued_bytes(),
        "inFlight": state.in_flight(),
        "bands": bands(state),
        "flows": flows(state),
        "endpoints": endpoints(state),
    })
    .into())
}

fn bands(state: &State) -> Vec<Value> {
    let (_, effective) = state.saturation();
    let band = |band: weir_kernel::BandView| {
        json!({
            "priority": band.priority,
            "origin": match band.origin {
                BandOrigin::Configured => "configured",
                BandOrigin::Desired => "desired",
                BandOrigin::Provisioned => "provisioned",
            },
            "requests": band.requests,
            "bytes": band.bytes,
            "maxRequests": band.settings.max_requests,
            "maxBytes": band.settings.max_bytes,
            "flows": band.flows,
            "ceiling": ratio(band.ceiling),
            "blocked": effective >= band.ceiling,
            "ordering": ordering(band.settings.ordering),
            "fairness": fairness(&band.settings.fairness),
        })
    };
    state.bands().map(band).collect()
}

/// As the canonical form of the settings spells it.
fn ordering(ordering: Ordering) -> String {
    serde_json::to_value(ordering).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

fn fairness(fairness: &Fairness) -> String {
    let value = serde_json::to_value(fairness).unwrap_or_default();
    match &value {
        Value::String(word) => word.clone(),
        Value::Object(fields) => fields.keys().next().cloned().unwrap_or_default(),
        _ => String::new(),
    }
}

fn flows(state: &State) -> Vec<Value> {
    let mut flows: Vec<_> = state.flows().collect();
    flows.sort_by_key(|(name, band, _)| (std::cmp::Reverse(*band), *name));
    let flow = |(name, band, requests): (&str, i32, u64)| json!({ "name": name, "band": band, "requests": requests });
    flows.into_iter().take(LIST_MAX).map(flow).collect()
}

fn endpoints(state: &State) -> Vec<Value> {
    let endpoint = |endpoint: weir_kernel::EndpointView<'_>| {
        let role = match endpoint.role {
            Role::Decode => "decode",
            Role::Prefill => "prefill",
            Role::Both => "both",
            Role::Other => "other",
        };
        json!({
            "name": endpoint.name,
            "role": role,
            "waiting": endpoint.sample.map(|(waiting, ..)| waiting),
            "running": endpoint.sample.map(|(_, running, _)| running),
            "kvCache": endpoint.sample.map(|(.., kv)| f64::from(kv) / 10_000.0),
            "stale": endpoint.stale,
            "leases": endpoint.leases,
        })
    };
    state.endpoints().map(endpoint).collect()
}

/// The state that the parent shows.
fn parent<T>(ask: &Ask<'_>, look: impl FnOnce(&State, &str, Micros) -> T) -> Result<T, Fault> {
    let name = ask.of_parent("pool")?;
    let pool = ask.pool_named(name)?;
    let found = ask.state_at(pool, Moment::Seq(ask.number_of_parent("sequence")?))?;
    let as_of = parse_time(ask.of_parent("asOf")?).unwrap_or_else(|_| found.state.now());
    Ok(look(&found.state, name, as_of))
}

/// `PoolState.queue`.
pub fn queue(ask: &Ask<'_>) -> Result<Out, Fault> {
    let count = ask.count("first", LIST_MAX)?.unwrap_or(LIST);
    parent(ask, |state, pool, as_of| {
        let mut places: Vec<(Place, RequestId)> =
            state.restate().iter().filter_map(|event| place(state, event)).collect();
        places.sort_unstable();
        let shown = places.iter().take(count).enumerate().filter_map(|(position, (_, id))| {
            let queued = state.queued_request(*id)?;
            Some(json!({
                "requestId": format!("{pool}-{id}"),
                "position": position + 1,
                "flow": queued.flow,
                "band": queued.priority,
                "enqueuedAt": time(queued.enqueued_at),
                "waitedMs": ms(as_of.since(queued.enqueued_at)),
                "bytes": queued.bytes,
                "deadline": queued.deadline.map(time),
                "due": queued.due.filter(|due| *due < Micros::MAX).map(time),
                "face": queued.face.word(),
            }))
        });
        Out::Value(shown.collect())
    })
}

/// Highest band first, then by the order of the band, then by arrival.
type Place = (std::cmp::Reverse<i32>, weir_kernel::OrderKey, u64);

fn place(state: &State, event: &Event) -> Option<(Place, RequestId)> {
    let Event::RestatedQueued(queued) = event else { return None };
    let RestatedQueued { request, order, .. } = **queued;
    let priority = state.queued_request(request)?.priority;
    Some(((std::cmp::Reverse(priority), order, request.0), request))
}

/// `PoolState.leases`.
pub fn leases(ask: &Ask<'_>) -> Result<Out, Fault> {
    let count = ask.count("first", LIST_MAX)?.unwrap_or(LIST);
    parent(ask, |state, pool, as_of| lease_list(state, (pool, as_of), state.leases(), count))
}

/// `PoolState.revocations`.
pub fn revocations(ask: &Ask<'_>) -> Result<Out, Fault> {
    let count = ask.count("first", LIST_MAX)?.unwrap_or(LIST);
    parent(ask, |state, pool, as_of| lease_list(state, (pool, as_of), state.revoked(), count))
}

fn lease_list(
    state: &State,
    (pool, as_of): (&str, Micros),
    ids: impl Iterator<Item = RequestId>,
    count: usize,
) -> Out {
    let shown = ids.take(count).filter_map(|id| {
        let lease = state.lease(id)?;
        let endpoint = match lease.at {
            Whereabouts::At(slot) => state.endpoint_name(slot),
            Whereabouts::Unknown | Whereabouts::Gone => None,
        };
        Some(json!({
            "requestId": format!("{pool}-{id}"),
            "band": lease.priority,
            "admittedAt": time(lease.dispatched_at),
            "ranMs": ms(as_of.since(lease.dispatched_at)),
            "endpoint": endpoint,
            "face": lease.face.word(),
            "lapsesAt": lease.lapses_at.map(time),
            "revokedAt": lease.revocation.map(|revocation| time(revocation.issued_at)),
            "revocationDue": lease.revocation.map(|revocation| time(revocation.due)),
        }))
    });
    Out::Value(shown.collect())
}

/// `Query.projection`.
pub fn projection(ask: &Ask<'_>) -> Result<Out, Fault> {
    let mut list = Vec::new();
    for pool in ask.pools() {
        let position = pool.position()?;
        list.push(json!({
            "pool": pool.name(),
            "sequence": position.at.seq,
            "time": time(position.at.at),
            "head": position.head,
            "lag": position.head.saturating_sub(position.at.seq),
            "begun": time(position.begun.at),
            "begunSequence": position.begun.seq,
            "committedSequence": position.committed.seq,
            "requests": position.rows,
            "openRequests": position.open,
            "keptStates": position.states,
            "fault": position.fault,
        }));
    }
    Ok(Out::Value(list.into()))
}
