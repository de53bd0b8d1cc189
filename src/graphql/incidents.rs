//! Regimes, and episodes in which something was wrong, in plain words.

use crate::ask::{Ask, Out};
use crate::fault::Fault;
use crate::values::{self, ms, ratio, span, time};
use serde_json::{Value, json};
use weir_kernel::{Micros, Ratio};
use weir_projection::{Episode, EpisodeKind, PoolProjection, RegimeBegan};

const LIST: usize = 100;
const LIST_MAX: usize = 1_000;

/// `Query.regimes`.
pub fn regimes(ask: &Ask<'_>) -> Result<Out, Fault> {
    let pool = ask.pool()?;
    let (from, to) = ask.span(pool)?;
    let count = ask.count("first", LIST_MAX)?.unwrap_or(LIST);
    // One more than is shown, for the end of the last one.
    let found = pool.regimes(from, Micros::MAX, count + 1, ask.work())?;
    let known = pool.at().at;
    let shown = found.iter().enumerate().take(count).filter(|(_, began)| began.spot.at < to);
    let shown = shown.map(|(place, began)| regime(began, found.get(place + 1), known));
    Ok(Out::Value(shown.collect()))
}

fn regime(began: &RegimeBegan, next: Option<&RegimeBegan>, known: Micros) -> Value {
    let until = next.map(|next| next.spot.at);
    let lasted = until.unwrap_or(known).since(began.spot.at);
    let how = if began.by_start {
        "the service started, so nothing was known of the pool"
    } else {
        values::regime_text(began.regime)
    };
    let so_far = if until.is_none() { ", so far" } else { "" };
    json!({
        "regime": values::regime(began.regime),
        "previous": values::regime(began.from),
        "from": time(began.spot.at),
        "until": until.map(time),
        "durationMs": ms(lasted),
        "sequence": began.spot.seq,
        "endpoints": began.endpoints,
        "freshEndpoints": began.fresh,
        "byStart": began.by_start,
        "text": format!("{how}, for {}{so_far}", span(lasted)),
    })
}

/// `Query.incidents`.
pub fn list(ask: &Ask<'_>) -> Result<Out, Fault> {
    let pools: Vec<_> = match ask.text("pool")? {
        Some(name) => vec![ask.pool_named(&name)?],
        None => ask.pools().collect(),
    };
    let count = ask.count("first", LIST_MAX)?.unwrap_or(LIST);
    let mut found = Vec::new();
    for pool in pools {
        let (from, to) = ask.span(pool)?;
        for episode in pool.episodes(from, to, count, ask.work())? {
            found.push((episode.from.at, value(pool, &episode)));
        }
    }
    found.sort_by_key(|(at, _)| *at);
    Ok(Out::Value(found.into_iter().take(count).map(|(_, value)| value).collect()))
}

const fn kind(kind: EpisodeKind) -> &'static str {
    match kind {
        EpisodeKind::Saturation => "SATURATION",
        EpisodeKind::EmptyPool => "EMPTY_POOL",
        EpisodeKind::BlindSensor => "BLIND_SENSOR",
        EpisodeKind::ShedBurst => "SHED_BURST",
        EpisodeKind::ReclamationStorm => "RECLAMATION_STORM",
        EpisodeKind::Restart => "RESTART",
        EpisodeKind::Paused => "PAUSED",
        EpisodeKind::LogUnavailable => "LOG_UNAVAILABLE",
    }
}

/// A number and what is counted.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn cause(episode: &Episode) -> String {
    let band = episode.band.map(|band| format!("band {band}")).unwrap_or_default();
    match episode.kind {
        EpisodeKind::Saturation => format!(
            "{band} and below were held at their ceiling {}; the gauge reached {}",
            counted(episode.count, "time", "times"),
            Ratio(episode.peak)
        ),
        EpisodeKind::EmptyPool => "the pool had no endpoints".to_owned(),
        EpisodeKind::BlindSensor => "endpoints existed, but none had fresh metrics".to_owned(),
        EpisodeKind::ShedBurst => format!(
            "{} refused or evicted in one burst",
            counted(episode.count, "request was", "requests were")
        ),
        EpisodeKind::ReclamationStorm => {
            format!("{} decisions to take leases back for {band}, near each other", episode.count)
        }
        EpisodeKind::Restart => format!("the service restarted; it had been {}", episode.note),
        EpisodeKind::Paused => format!("an operator paused the pool, {}", episode.note),
        EpisodeKind::LogUnavailable => {
            let refused = counted(episode.count, "request was", "requests were");
            format!("the log could not be written; {refused} refused unseen")
        }
    }
}

fn value(pool: &PoolProjection, episode: &Episode) -> Value {
    let lasted = episode.to.at.since(episode.from.at);
    let mut hit: Vec<_> = episode.hit.iter().collect();
    hit.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let worst = hit
        .first()
        .map(|((band, flow, _), count)| format!("; hit hardest: flow {flow} in band {band} ({count})"));
    let hit_value = hit.iter().map(|((band, flow, reason), count)| {
        json!({ "band": band, "flow": flow, "reason": values::reason(*reason), "count": count })
    });
    let cause = cause(episode);
    let going = if episode.over { "" } else { " and goes on" };
    json!({
        "kind": kind(episode.kind),
        "pool": pool.name(),
        "from": time(episode.from.at),
        "until": episode.over.then(|| time(episode.to.at)),
        "fromSequence": episode.from.seq,
        "untilSequence": episode.to.seq,
        "durationMs": ms(lasted),
        "heldMs": ms(episode.held),
        "count": episode.count,
        "cause": cause,
        "text": format!(
            "{cause}. It lasted {}{going}; {} shed meanwhile{}.",
            span(lasted),
            counted(episode.shed, "request was", "requests were"),
            worst.unwrap_or_default()
        ),
        "shed": episode.shed,
        "hit": hit_value.collect::<Vec<_>>(),
        "peakSaturation": (episode.kind == EpisodeKind::Saturation).then(|| ratio(Ratio(episode.peak))),
        "band": episode.band,
    })
}
