//! Which flow of a band is served next.
//!
//! Not here: service accounting (`service.rs`), order inside a flow (`ordering.rs`).

use crate::queues::{Band, Flow, Place, Ready, ServiceKey};
use crate::{Fairness, FlowId, Micros, ProgramAware, RequestId, service};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use core::ops::Bound;

/// The head that the band's policy serves next (of the flow it chooses the last one, while the band's order is turned), and its flow where a turn has to be noted.
pub(crate) fn pick(
    band: &Band,
    flows: &BTreeMap<FlowId, Flow>,
    now: Micros,
) -> Option<(Place, Option<FlowId>)> {
    let newest_first = band.is_newest_first();
    let next = |line: &BTreeSet<Place>| if newest_first { line.last() } else { line.first() }.copied();
    match &band.ready {
        Ready::Strict(line) => next(line).map(|place| (place, None)),
        Ready::Turns { flows: waiting, last } => {
            let last = last.and_then(|id| flows.get(&id)).map(|flow| &flow.name);
            let id = next_turn(waiting, last)?;
            next(&flows.get(&id)?.line).map(|place| (place, Some(id)))
        }
        Ready::Service { by_service, by_wait, keys } => {
            let Fairness::ProgramAware(params) = &band.settings.fairness else { return None };
            let id = least_served(params, by_service, by_wait, keys, now)?;
            next(&flows.get(&id)?.line).map(|place| (place, None))
        }
    }
}

/// Round robin: the first name after the last one served, else the first.
fn next_turn(waiting: &BTreeMap<Arc<str>, FlowId>, last: Option<&Arc<str>>) -> Option<FlowId> {
    let after =
        last.and_then(|name| waiting.range::<Arc<str>, _>((Bound::Excluded(name), Bound::Unbounded)).next());
    after.or_else(|| waiting.first_key_value()).map(|(_, id)| *id)
}

/// The flow with the best score, ties by the arrival of their heads, found by looking from both ends at once: the
/// least served and the longest waiting. No flow further in can beat the best one seen once the score of the two
/// frontiers combined does not (the threshold algorithm of Fagin, Lotem and Naor, 2001), so few flows are looked at.
fn least_served(
    params: &ProgramAware,
    by_service: &BTreeSet<(u128, FlowId)>,
    by_wait: &BTreeMap<RequestId, FlowId>,
    keys: &BTreeMap<FlowId, ServiceKey>,
    now: Micros,
) -> Option<FlowId> {
    let since = |id: &FlowId| keys.get(id).map(|key| key.since);
    let (service_min, service_max) = (by_service.first()?.0, by_service.last()?.0);
    let oldest = since(by_wait.first_key_value()?.1)?;
    let newest = since(by_wait.last_key_value()?.1)?;
    let (wait_min, wait_max) = (now.since(newest).0, now.since(oldest).0);
    let score = |service: u128, since: Micros| {
        service::score(params, service, service_min, service_max, now.since(since).0, wait_min, wait_max)
    };
    let mut best: Option<(i128, RequestId, FlowId)> = None;
    for ((service, least), (head, longest)) in by_service.iter().zip(by_wait.iter()) {
        let frontier = score(*service, since(longest)?);
        // Heads further in came later, so a tie with the frontier goes to the best one seen.
        if best.is_some_and(|(found, first, _)| frontier < found || (frontier == found && first < *head)) {
            break;
        }
        for id in [least, longest] {
            let Some(key) = keys.get(id) else { continue };
            let mine = score(key.service, key.since);
            if best.is_none_or(|(found, first, _)| mine > found || (mine == found && key.head < first)) {
                best = Some((mine, key.head, *id));
            }
        }
    }
    best.map(|(_, _, id)| id)
}
