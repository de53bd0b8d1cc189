//! Follows the durable steps of each pool: into the figures, and once a second into one line that sums up what was
//! dropped. It says as well where requests wait for a pool that was never seen.

use super::history::History;
use super::lines::Lines;
use super::metrics::Metrics;
use super::never_seen::NeverSeen;
use super::state::{Gateway, Objectives, PoolFace};
use crate::engine::PoolHandle;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;
use weir_kernel::{Input, Reason, Regime, State};

/// How often what was dropped is summed up in one line.
const SUMMARY_EVERY: Duration = Duration::from_secs(1);

/// Begins to follow every pool of a gateway.
pub fn all(gateway: &Gateway) -> Vec<JoinHandle<()>> {
    let follow = |pool: &PoolFace| {
        let (metrics, objectives) = (Arc::clone(&gateway.metrics), Arc::clone(&pool.objectives));
        let sampler = gateway.traces.get().map(|exporter| exporter.sampler()).unwrap_or_default();
        let lines = Lines::of(pool.handle.name(), sampler);
        start(pool.handle.clone(), metrics, objectives, gateway.history.clone(), lines)
    };
    gateway.pools().map(follow).collect()
}

/// Begins to follow a pool, from its state at this moment on.
fn start(
    pool: PoolHandle,
    metrics: Arc<Metrics>,
    objectives: Arc<Objectives>,
    history: History,
    mut lines: Option<Lines>,
) -> JoinHandle<()> {
    // Each run counts from its first step on. Who comes too late for that subscribes before the state is looked at: what
    // comes in between is skipped by its sequence.
    let (beginning, mut steps) = match pool.beginning() {
        Some((state, steps)) => (Some(state), steps),
        None => (None, pool.subscribe()),
    };
    tokio::spawn(async move {
        let name = pool.name().to_owned();
        match beginning {
            Some(state) => metrics.restate(&name, &state),
            None if !restate(&pool, &metrics).await => return,
            None => {}
        }
        learn(&pool, &objectives).await;
        let (mut said, mut never_seen) = (BTreeMap::new(), NeverSeen::default());
        let mut tick = tokio::time::interval(SUMMARY_EVERY);
        loop {
            tokio::select! {
                batch = steps.recv() => match batch {
                    Ok(batch) => {
                        metrics.apply(&name, &batch);
                        if let Some(lines) = &mut lines {
                            lines.apply(&batch);
                        }
                        if batch.iter().any(|step| matches!(step.input, Input::ObjectivesChanged(_))) {
                            learn(&pool, &objectives).await;
                        }
                    }
                    Err(RecvError::Lagged(_)) => {
                        if let Some(lines) = &mut lines {
                            lines.gap();
                        }
                        catch_up(&name, &metrics, &history).await;
                        learn(&pool, &objectives).await;
                    }
                    Err(RecvError::Closed) => break,
                },
                _ = tick.tick() => {
                    summary(&name, &metrics, &mut said);
                    say_unseen(&pool, &metrics, &mut never_seen);
                }
            }
        }
        summary(&name, &metrics, &mut said);
    })
}

/// What the broadcast lost is read from the log, so that the figures stay equal to it.
async fn catch_up(pool: &str, metrics: &Arc<Metrics>, history: &History) {
    let (pool, metrics, history) = (pool.to_owned(), Arc::clone(metrics), history.clone());
    let read = tokio::task::spawn_blocking(move || {
        let from = metrics.seq(&pool) + 1;
        let steps = history.steps(&pool, Some(from));
        let read = steps.and_then(|steps| {
            for step in steps {
                metrics.apply(&pool, &[step?]);
            }
            Ok(())
        });
        if let Err(error) = read {
            metrics.gateway.gaps.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(pool, %error, "the figures fell behind the log and could not catch up");
        }
    });
    // A panic there leaves a gap, which the next batch shows.
    let _ = read.await;
}

async fn restate(pool: &PoolHandle, metrics: &Metrics) -> bool {
    match pool.query(State::restate).await {
        Ok(events) => {
            metrics.restate(pool.name(), &events);
            true
        }
        Err(_) => false,
    }
}

/// The table of objectives as it is now; a pool that does not answer keeps the one it had.
async fn learn(pool: &PoolHandle, objectives: &Objectives) {
    let table =
        |state: &State| state.objectives().map(|(name, priority)| (name.to_owned(), priority)).collect();
    if let Ok(table) = pool.query(table).await {
        objectives.set(table);
    }
}

/// One line at most, whatever the number of drops: each of them is in the decision log.
fn summary(pool: &str, metrics: &Metrics, said: &mut BTreeMap<Reason, u64>) {
    let now = metrics.refusals(pool);
    if let Some((total, reasons)) = since(said, &now) {
        tracing::info!(pool, dropped = total, "dropped:{reasons}");
    }
    *said = now;
}

/// A name that is mistyped must not look like a pool that is slow.
fn say_unseen(pool: &PoolHandle, metrics: &Metrics, never_seen: &mut NeverSeen) {
    let unknown = pool.status().regime == Regime::Unknown;
    let waiting = if unknown { metrics.waiting(pool.name()) } else { 0 };
    if never_seen.due(unknown, waiting, Instant::now()) {
        tracing::warn!(
            pool = pool.name(),
            waiting,
            "this pool was not seen since the start: who asks waits without a budget (GET /v1/pools/{}/endpoints says more)",
            pool.name()
        );
    }
}

/// What came since the last line: in all, and by reason.
fn since(said: &BTreeMap<Reason, u64>, now: &BTreeMap<Reason, u64>) -> Option<(u64, String)> {
    let mut total = 0;
    let mut text = String::new();
    for (reason, count) in now {
        let new = count - said.get(reason).copied().unwrap_or(0);
        if new > 0 {
            total += new;
            text.push_str(&format!(" {}={new}", reason.word()));
        }
    }
    (total > 0).then_some((total, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many drops a second has, they are one line, whose figures add up over the lines.
    #[test]
    fn c138_drops_are_summed_up() {
        let count =
            |saturated, late| BTreeMap::from([(Reason::Saturated, saturated), (Reason::TtlExpired, late)]);
        let nothing = BTreeMap::new();
        let first = count(300_000, 2);
        let said = since(&nothing, &first);
        let text = " rejected-saturated=300000 rejected-ttl-expired=2".to_owned();
        assert_eq!(said, Some((300_002, text)));
        assert_eq!(since(&first, &first), None, "no line without a drop");
        assert_eq!(since(&first, &count(300_001, 2)), Some((1, " rejected-saturated=1".to_owned())));
    }
}
