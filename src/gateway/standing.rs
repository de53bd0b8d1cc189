//! How a waiting request is told of: its place, and the budget that runs.

use super::json::Object;
use crate::engine::Queued;
use weir_kernel::BudgetKind;

/// A request that waits, whole.
pub fn queued(object: Object, pool: &str, caller_id: Option<&str>, queued: &Queued) -> Object {
    let object = object
        .text("id", &format!("{pool}-{}", queued.id))
        .text_opt("requestId", caller_id)
        .text("pool", pool)
        .plain("sequence", queued.seq)
        .plain("priority", queued.priority)
        .text("flow", &queued.flow);
    standing(object, queued)
}

/// The members that say how it stands.
pub fn standing(object: Object, queued: &Queued) -> Object {
    let object = object
        .plain_opt("position", queued.standing.position)
        .plain("depth", queued.standing.depth)
        .text("regime", queued.regime.word())
        .plain("queuedMs", queued.at.since(queued.since).as_millis())
        .plain_opt("deadlineLeftMs", queued.deadline.map(|at| at.since(queued.at).as_millis()));
    match queued.standing.budget {
        None => object,
        Some(running) => object.object("budget", |object| {
            object
                .text("kind", kind(running.which))
                .plain("ms", running.budget.as_millis())
                .plain("leftMs", running.due.since(queued.at).as_millis())
                // By the clock of the log, in microseconds since the epoch.
                .plain("endsAt", running.due.0)
        }),
    }
}

/// The budget's word.
const fn kind(which: BudgetKind) -> &'static str {
    match which {
        BudgetKind::Saturation => "saturation",
        BudgetKind::NoEndpoint => "no-endpoint",
        BudgetKind::Whole => "whole",
    }
}
