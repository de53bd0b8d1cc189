//! Decisions to take leases back, and what became of each revocation.

use crate::ask::{Ask, Out};
use crate::fault::Fault;
use crate::request;
use crate::values::{ms, ratio, span, time};
use serde_json::{Value, json};
use weir_kernel::{RevocationOrder, Victim};
use weir_projection::{Decided, PoolProjection, Revocation};

const LIST: usize = 100;
const LIST_MAX: usize = 500;

/// `Query.reclamations`.
pub fn list(ask: &Ask<'_>) -> Result<Out, Fault> {
    let pool = ask.pool()?;
    let (from, to) = ask.span(pool)?;
    let count = ask.count("first", LIST_MAX)?.unwrap_or(LIST);
    let found = pool.reclamations(from, to, count, ask.work())?;
    Ok(Out::Value(found.iter().map(|decided| value(pool.name(), decided)).collect()))
}

fn value(pool: &str, decided: &Decided) -> Value {
    let decision = &decided.decision;
    let victim = |victim: &Victim| {
        json!({
            "requestId": format!("{pool}-{}", victim.request),
            "band": victim.priority,
            "ageMs": ms(victim.age),
            "decision": decision.number,
        })
    };
    json!({
        "number": decision.number,
        "sequence": decided.spot.seq,
        "time": time(decided.spot.at),
        "pool": pool,
        "demandBand": decision.demand,
        "depth": decision.depth,
        "saturation": ratio(decision.saturation),
        "rawSaturation": ratio(decision.raw),
        "effectiveSaturation": ratio(decision.effective),
        "ceiling": ratio(decision.ceiling),
        "target": ratio(decision.target),
        "pending": ratio(decision.pending),
        "inFlight": decision.in_flight,
        "credit": ratio(decision.credit),
        "wanted": decision.wanted,
        "cap": decision.cap,
        "evictable": decision.evictable,
        "endpoints": decision.endpoints,
        "staleEndpoints": decision.stale,
        "victims": decision.victims.iter().map(victim).collect::<Vec<_>>(),
        "text": text(decided),
    })
}

/// A decision in plain words, with its sum.
fn text(decided: &Decided) -> String {
    let d = &decided.decision;
    let victims = d.victims.len() as u64;
    let short = if victims >= d.wanted {
        "as many as wanted".to_owned()
    } else if victims >= u64::from(d.cap) {
        format!("fewer than wanted: one decision takes {} at the most", d.cap)
    } else {
        format!("fewer than wanted: {} leases could be told", d.evictable)
    };
    format!(
        "{} waited in band {} at saturation {} against a ceiling of {}. To fall by {} (less {} expected of earlier \
         revocations), {} of {} leases had to end: ceil(({} - {}) × {} / {}). {} were taken back, {}.",
        d.depth,
        d.demand,
        d.saturation,
        d.ceiling,
        d.target,
        d.pending,
        d.wanted,
        d.in_flight,
        d.target,
        d.pending,
        d.in_flight,
        d.saturation,
        victims,
        short,
    )
}

/// A revocation.
fn revocation_value(pool: &str, revocation: &Revocation) -> Value {
    let (decision, demand) = match revocation.order {
        RevocationOrder::Operator => (None, None),
        RevocationOrder::Reclamation { decision, demand } => (Some(decision), Some(demand)),
    };
    json!({
        "number": revocation.number,
        "requestId": format!("{pool}-{}", revocation.request),
        "orderedBy": revocation.order.word(),
        "by": revocation.by.as_ref().map(|(by, _)| by),
        "why": revocation.by.as_ref().map(|(_, why)| why),
        "decision": decision,
        "demandBand": demand,
        "issuedAt": time(revocation.issued.at),
        "issuedSequence": revocation.issued.seq,
        "band": revocation.priority,
        "ageMs": ms(revocation.age),
        "debit": ratio(revocation.debit),
        "due": time(revocation.due),
        "end": revocation.ended.map(|(end, _)| end.word()),
        "endedAt": revocation.ended.map(|(_, spot)| time(spot.at)),
        "tookMs": revocation.ended.map(|(_, spot)| ms(spot.at.since(revocation.issued.at))),
        "lateMs": revocation.late.map(ms),
        "reclaimedAt": revocation.reclaimed_at.map(time),
    })
}

fn revocations(pool: &PoolProjection, numbers: &[u64], ask: &Ask<'_>) -> Result<Vec<Revocation>, Fault> {
    let mut found = Vec::new();
    for number in numbers {
        ask.work().check()?;
        found.extend(pool.revocation(*number)?);
    }
    Ok(found)
}

/// `Request.revocations`.
pub fn of_request(ask: &Ask<'_>) -> Result<Out, Fault> {
    let (pool, row) = request::parent(ask)?;
    let numbers = row.lease.map(|lease| lease.revocations).unwrap_or_default();
    let found = revocations(pool, &numbers, ask)?;
    Ok(Out::Value(found.iter().map(|revocation| revocation_value(pool.name(), revocation)).collect()))
}

/// `Victim.revocation`.
pub fn of_victim(ask: &Ask<'_>) -> Result<Out, Fault> {
    let (pool, id) = request::parse_id(ask.of_parent("requestId")?)?;
    let wanted = ask.number_of_parent("decision")?;
    let pool = ask.pool_named(pool)?;
    let numbers = pool.request(id, ask.work())?.and_then(|row| row.lease).map(|lease| lease.revocations);
    let found = revocations(pool, &numbers.unwrap_or_default(), ask)?;
    let by_decision = |revocation: &&Revocation| matches!(revocation.order, RevocationOrder::Reclamation { decision, .. } if decision == wanted);
    let one = found.iter().find(by_decision);
    Ok(one.map_or(Out::None, |revocation| Out::Value(revocation_value(pool.name(), revocation))))
}

/// Why a request was taken back, in plain words.
pub fn story(pool: &PoolProjection, revocation: &Revocation) -> Result<String, Fault> {
    let how = match revocation.ended {
        Some((end, spot)) => {
            format!("; that ended after {}: {}", span(spot.at.since(revocation.issued.at)), end.word())
        }
        None => String::new(),
    };
    Ok(match revocation.order {
        RevocationOrder::Operator => {
            let (by, why) = revocation.by.clone().unwrap_or_default();
            format!("It was ordered back by an operator ({by}: {why}) after {}{how}.", span(revocation.age))
        }
        RevocationOrder::Reclamation { decision, demand } => {
            let sizing =
                pool.reclamation(decision)?.map(|decided| format!(" {}", text(&decided))).unwrap_or_default();
            format!(
                "It was taken back for band {demand} (decision {decision}) after it had run {}{how}.{sizing}",
                span(revocation.age)
            )
        }
    })
}
