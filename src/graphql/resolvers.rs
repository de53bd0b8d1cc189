//! Which fields have a resolver of their own; all others are looked up in what their parent was answered with.

use crate::ask::{Ask, Out};
use crate::fault::Fault;
use crate::{configurations, events, explain, incidents, reclamations, request, series, state};

/// Answers a field.
pub type Resolver = fn(&Ask<'_>) -> Result<Out, Fault>;

/// The resolver of a field, if it has one.
pub fn of(parent: &str, field: &str) -> Option<Resolver> {
    let found: Resolver = match (parent, field) {
        ("Query", "pools") => state::pools,
        ("Query", "pool") => state::pool,
        ("Query", "request") => request::by_id,
        ("Query", "requests") => request::connection,
        ("Query", "events") => events::page,
        ("Query", "outcomes") => series::outcomes,
        ("Query", "waits") => series::waits,
        ("Query", "queue") => series::queue,
        ("Query", "saturation") => series::saturation,
        ("Query", "regimes") => incidents::regimes,
        ("Query", "reclamations") => reclamations::list,
        ("Query", "configurations") => configurations::all,
        ("Query", "stateAt") => state::at,
        ("Query", "incidents") => incidents::list,
        ("Query", "projection") => state::projection,
        ("Request", "revocations") => reclamations::of_request,
        ("Request", "timeline") => request::timeline,
        ("Request", "events") => events::of_request,
        ("Request", "explanation") => explain::of_request,
        ("RequestConnection", "totalCount") => request::total,
        ("Victim" | "QueuedRequest" | "LeaseState", "request") => request::by_parent,
        ("Victim", "revocation") => reclamations::of_victim,
        ("Configurations", "history") => configurations::history,
        ("Configurations", "at") => configurations::at,
        ("Configurations", "diff") => configurations::diff,
        ("PoolState", "queue") => state::queue,
        ("PoolState", "leases") => state::leases,
        ("PoolState", "revocations") => state::revocations,
        _ => return None,
    };
    Some(found)
}
