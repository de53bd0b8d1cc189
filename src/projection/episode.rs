//! Episodes: spans of a log in which something was wrong, each with its extent, its cause and who was hit.
//!
//! They follow from the steps alone, by fixed rules, so that two folds of a log find the same ones.

use crate::error::Spot;
use crate::row::Row;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_kernel::{Micros, Outcome, Reason, Regime};

/// Two spells of the same thing that are nearer than this are one episode.
const APART: Micros = Micros::from_secs(10);
/// Refusals and evictions that make a burst.
const BURST: u64 = 10;
/// Reclamation decisions that make a storm; they are up to a minute apart.
const STORM: u64 = 3;
const STORM_APART: Micros = Micros::from_secs(60);
/// Of whom it is noted that they were hit.
const HIT_MAX: usize = 64;

/// What was wrong. Numbers are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum EpisodeKind {
    /// A band with queued work was at its ceiling.
    Saturation,
    /// The pool had no endpoints.
    EmptyPool,
    /// Endpoints, but no fresh metrics.
    BlindSensor,
    /// Ten or more requests were refused or evicted.
    ShedBurst,
    /// Three or more reclamation decisions.
    ReclamationStorm,
    /// The service stopped or died, and started again.
    Restart,
    /// An operator paused the pool.
    Paused,
    /// The log could not be written.
    LogUnavailable,
}

/// An episode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Episode {
    /// What was wrong.
    pub kind: EpisodeKind,
    /// The step that it began with.
    pub from: Spot,
    /// The last step that belongs to it.
    pub to: Spot,
    /// It is over.
    pub over: bool,
    /// What it is counted in: holds, visits, sheds, decisions, requests refused outside.
    pub count: u64,
    /// For how long it held, without the gaps.
    pub held: Micros,
    /// Requests refused or evicted meanwhile.
    pub shed: u64,
    /// The same by band, flow and reason; at most 64.
    pub hit: BTreeMap<(i32, String, Reason), u64>,
    /// The highest effective gauge seen, in millionths (saturation).
    pub peak: i64,
    /// The highest band that was held (saturation).
    pub band: Option<i32>,
    /// What ended it or caused it, in words, where that is known.
    pub note: String,
}

impl Episode {
    /// The number of its record: those of a kind stand together, in the order of their beginnings.
    pub const fn number(&self) -> u64 {
        self.kind.number(self.from.seq)
    }
}

/// An episode that may still go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Open {
    episode: Episode,
    /// Since when it holds just now.
    holds: Option<Micros>,
}

/// Those that may still go on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Episodes {
    open: BTreeMap<EpisodeKind, Open>,
}

impl EpisodeKind {
    /// All there are.
    pub const ALL: [EpisodeKind; 8] = [
        EpisodeKind::Saturation,
        EpisodeKind::EmptyPool,
        EpisodeKind::BlindSensor,
        EpisodeKind::ShedBurst,
        EpisodeKind::ReclamationStorm,
        EpisodeKind::Restart,
        EpisodeKind::Paused,
        EpisodeKind::LogUnavailable,
    ];

    /// The number of the record of one that begins with this step.
    pub const fn number(self, seq: u64) -> u64 {
        ((self as u64) << 56) | (seq & ((1 << 56) - 1))
    }

    const fn apart(self) -> Micros {
        match self {
            EpisodeKind::ReclamationStorm => STORM_APART,
            _ => APART,
        }
    }

    const fn least(self) -> u64 {
        match self {
            EpisodeKind::ShedBurst => BURST,
            EpisodeKind::ReclamationStorm => STORM,
            _ => 1,
        }
    }
}

impl Episodes {
    /// Those that may go on, as they are at the last step.
    pub fn open(&self, now: Spot) -> impl Iterator<Item = Episode> {
        let enough = |open: &&Open| open.episode.count >= open.episode.kind.least();
        self.open.values().filter(enough).map(move |open| {
            let mut episode = open.episode.clone();
            if let Some(since) = open.holds {
                episode.held = episode.held + now.at.since(since);
                episode.to = now;
            }
            episode
        })
    }

    /// A step comes: what has been quiet for long is over.
    pub fn advance(&mut self, at: Micros, over: &mut Vec<Episode>) {
        let quiet =
            |open: &Open| open.holds.is_none() && at.since(open.episode.to.at) > open.episode.kind.apart();
        if self.open.values().any(quiet) {
            self.end(quiet, over);
        }
    }

    fn end(&mut self, which: impl Fn(&Open) -> bool, over: &mut Vec<Episode>) {
        self.open.retain(|_, open| {
            if !which(open) {
                return true;
            }
            if open.episode.count >= open.episode.kind.least() {
                over.push(Episode { over: true, ..open.episode.clone() });
            }
            false
        });
    }

    fn at(&mut self, kind: EpisodeKind, spot: Spot) -> &mut Open {
        self.open.entry(kind).or_insert_with(|| Open {
            episode: Episode {
                kind,
                from: spot,
                to: spot,
                over: false,
                count: 0,
                held: Micros::ZERO,
                shed: 0,
                hit: BTreeMap::new(),
                peak: 0,
                band: None,
                note: String::new(),
            },
            holds: None,
        })
    }

    /// It holds from here on, or is seen at this instant once more.
    pub fn begin(&mut self, kind: EpisodeKind, spot: Spot) -> &mut Episode {
        let open = self.at(kind, spot);
        open.episode.count += 1;
        open.episode.to = spot;
        if open.holds.is_none() {
            open.holds = Some(spot.at);
        }
        &mut open.episode
    }

    /// It happens at this instant, `times`.
    pub fn note(&mut self, kind: EpisodeKind, spot: Spot, times: u64) -> &mut Episode {
        let open = self.at(kind, spot);
        open.episode.count += times;
        open.episode.to = spot;
        &mut open.episode
    }

    /// It does not hold any more.
    pub fn cease(&mut self, kind: EpisodeKind, spot: Spot) {
        if let Some(open) = self.open.get_mut(&kind)
            && let Some(since) = open.holds.take()
        {
            open.episode.held = open.episode.held + spot.at.since(since);
            open.episode.to = spot;
        }
    }

    /// The regime from here on.
    pub fn regime(&mut self, regime: Regime, spot: Spot) {
        for (kind, of) in [
            (EpisodeKind::EmptyPool, Regime::NoEndpoints),
            (EpisodeKind::BlindSensor, Regime::NoFreshMetrics),
        ] {
            if regime == of {
                self.begin(kind, spot);
            } else {
                self.cease(kind, spot);
            }
        }
    }

    /// A run of the service begins: what held before is over with its last step, and a restart is one of its own.
    pub fn restart(&mut self, last: Spot, spot: Spot, clean: bool, over: &mut Vec<Episode>) {
        let kinds: Vec<EpisodeKind> = self.open.keys().copied().collect();
        for kind in kinds {
            self.cease(kind, last);
        }
        self.end(|open| open.episode.kind != EpisodeKind::ShedBurst, over);
        let open = self.at(EpisodeKind::Restart, last);
        open.episode.count = 1;
        open.episode.to = spot;
        open.holds = Some(last.at);
        let how =
            if clean { "stopped in order" } else { "killed, or it crashed: there is no stop in the log" };
        how.clone_into(&mut open.episode.note);
    }

    /// A request was refused or evicted.
    pub fn shed(&mut self, row: &Row, spot: Spot) {
        let Some(end) = &row.end else { return };
        let Some(reason) = end.reason.filter(|_| end.outcome != Outcome::Dispatched) else { return };
        self.shed_many((row.priority, &row.flow, reason), 1, spot);
    }

    /// Requests were refused or evicted.
    pub fn shed_many(&mut self, who: (i32, &str, Reason), times: u64, spot: Spot) {
        // A caller that gives up is not shed by us.
        if matches!(who.2, Reason::ContextCancelled | Reason::Purged) {
            return;
        }
        self.note(EpisodeKind::ShedBurst, spot, times);
        for open in self.open.values_mut() {
            let kind = open.episode.kind;
            if open.holds.is_none() && kind != EpisodeKind::ShedBurst && kind != EpisodeKind::ReclamationStorm
            {
                continue;
            }
            open.episode.shed += times;
            let key = (who.0, who.1.to_owned(), who.2);
            if open.episode.hit.len() < HIT_MAX || open.episode.hit.contains_key(&key) {
                *open.episode.hit.entry(key).or_default() += times;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(seconds: u64) -> Spot {
        Spot { seq: seconds, at: Micros::from_secs(seconds) }
    }

    #[test]
    fn near_spells_are_one_episode_and_far_ones_two() {
        let (mut episodes, mut over) = (Episodes::default(), Vec::new());
        for (second, holds) in
            [(100, true), (103, false), (110, true), (114, false), (140, true), (141, false)]
        {
            episodes.advance(Micros::from_secs(second), &mut over);
            if holds {
                episodes.begin(EpisodeKind::Saturation, spot(second));
            } else {
                episodes.cease(EpisodeKind::Saturation, spot(second));
            }
        }
        episodes.advance(Micros::from_secs(200), &mut over);
        let found: Vec<_> =
            over.iter().map(|e| (e.from.seq, e.to.seq, e.count, e.held.0 / 1_000_000)).collect();
        assert_eq!(found, [(100, 114, 2, 7), (140, 141, 1, 1)]);
    }

    #[test]
    fn a_burst_takes_ten_and_says_who_was_hit() {
        let (mut episodes, mut over) = (Episodes::default(), Vec::new());
        for second in 0..9 {
            episodes.shed_many((0, "a", Reason::TtlExpired), 1, spot(100 + second));
        }
        episodes.advance(Micros::from_secs(300), &mut over);
        assert!(over.is_empty(), "nine are no burst");
        episodes.begin(EpisodeKind::Saturation, spot(400));
        episodes.shed_many((-1, "b", Reason::Saturated), 20, spot(401));
        episodes.shed_many((-1, "b", Reason::ContextCancelled), 20, spot(401));
        episodes.cease(EpisodeKind::Saturation, spot(402));
        episodes.advance(Micros::from_secs(500), &mut over);
        assert_eq!(over.len(), 2);
        for episode in &over {
            assert_eq!((episode.shed, episode.hit[&(-1, "b".to_owned(), Reason::Saturated)]), (20, 20));
        }
    }
}
