//! Questions about a span of time: buckets, regimes, settings, decisions, revocations, episodes; and the state at a
//! moment. Not here: requests (`query.rs`).

use crate::bucket::Bucket;
use crate::commit::numbered;
use crate::db::Kind;
use crate::episode::{Episode, EpisodeKind};
use crate::error::ProjectionError;
use crate::pool::PoolProjection;
use crate::record::{Decided, PolicyBegan, RegimeBegan, Revocation};
use crate::work::Work;
use std::ops::RangeInclusive;
use weir_kernel::{Micros, State, Step, fold};
use weir_log::reader::Bound;

/// How fine buckets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// Ten seconds.
    Fine,
    /// Ten minutes.
    Coarse,
}

/// A moment of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// After this step.
    Seq(u64),
    /// After the last step that is not later than this.
    Time(Micros),
}

/// A state, and how it was found.
#[derive(Debug)]
pub struct Found {
    /// The state.
    pub state: State,
    /// Steps that were folded for it.
    pub folded: u64,
}

/// How often a long fold asks whether it may go on.
const CHECK_EVERY: u64 = 32;

impl PoolProjection {
    /// Gives the buckets that begin in `from..to`, in order; the last one may not be over yet.
    ///
    /// # Errors
    /// The database cannot be read; the time is over; what `take` says.
    pub fn buckets(
        &self,
        grain: Grain,
        from: Micros,
        to: Micros,
        work: &Work,
        mut take: impl FnMut(&Bucket) -> Result<(), ProjectionError>,
    ) -> Result<(), ProjectionError> {
        if to <= from {
            return Ok(());
        }
        let within = |bucket: &Bucket| bucket.start >= from && bucket.start < to;
        // What is in memory is looked at first: a commit in between cannot hide anything, and what is met twice is skipped.
        let unwritten: Vec<Bucket> = {
            let inner = self.read();
            let full = &inner.folder.closed.full;
            let (fine, coarse) = inner.folder.seen.meter.current();
            let (list, current) = match grain {
                Grain::Fine => (&full.fine, fine),
                Grain::Coarse => (&full.coarse, coarse),
            };
            list.iter()
                .chain([&current])
                .filter(|bucket| within(bucket) && bucket.last_seq > 0)
                .cloned()
                .collect()
        };
        let kind = match grain {
            Grain::Fine => Kind::Fine,
            Grain::Coarse => Kind::Coarse,
        };
        let until = unwritten.first().map_or(to.0, |bucket| bucket.start.0);
        if let Some(last) = until.checked_sub(1) {
            self.db.range(self.name(), kind, from.0..=last, |_, bucket: Bucket| {
                work.check()?;
                take(&bucket)?;
                Ok(true)
            })?;
        }
        unwritten.iter().try_for_each(take)
    }

    /// The regimes that were in force at some time in `from..to`, in order, at most `limit`.
    ///
    /// # Errors
    /// The database cannot be read; the time is over.
    pub fn regimes(
        &self,
        from: Micros,
        to: Micros,
        limit: usize,
        work: &Work,
    ) -> Result<Vec<RegimeBegan>, ProjectionError> {
        let unwritten = self.read().folder.closed.regimes.clone();
        let mut found: Vec<RegimeBegan> = Vec::new();
        let mut take = |regime: RegimeBegan| {
            if regime.spot.at >= to || found.len() >= limit {
                return false;
            }
            // The one before the first step in the span was in force when it began.
            if regime.spot.at <= from {
                found.clear();
            }
            if !found.contains(&regime) {
                found.push(regime);
            }
            true
        };
        let mut going = true;
        let before = numbered(self.seq_before(from)?, 0).saturating_sub(1);
        let first = self.db.last_to(self.name(), Kind::Regime, before)?.unwrap_or(0);
        self.db.range(self.name(), Kind::Regime, first..=u64::MAX, |_, regime| {
            work.check()?;
            going = take(regime);
            Ok(going)
        })?;
        for regime in unwritten {
            going = going && take(regime);
        }
        Ok(found)
    }

    /// Every setting that came into force, the oldest first.
    ///
    /// # Errors
    /// The database cannot be read; the time is over.
    pub fn policies(&self, work: &Work) -> Result<Vec<PolicyBegan>, ProjectionError> {
        self.policies_of(0..=u64::MAX, work)
    }

    /// Those that came into force by these steps, in order.
    ///
    /// # Errors
    /// As [`PoolProjection::policies`].
    pub fn policies_of(
        &self,
        steps: RangeInclusive<u64>,
        work: &Work,
    ) -> Result<Vec<PolicyBegan>, ProjectionError> {
        let unwritten = self.read().folder.closed.policies.clone();
        let mut found: Vec<PolicyBegan> = Vec::new();
        self.db.range(self.name(), Kind::Policy, steps.clone(), |_, policy| {
            work.check()?;
            found.push(policy);
            Ok(true)
        })?;
        let last = found.last().map_or(0, |policy| policy.spot.seq);
        let later = |policy: &PolicyBegan| policy.spot.seq > last && steps.contains(&policy.spot.seq);
        found.extend(unwritten.into_iter().filter(later));
        Ok(found)
    }

    /// The reclamation decisions of `from..to`, in order, at most `limit`.
    ///
    /// # Errors
    /// The database cannot be read; the time is over.
    pub fn reclamations(
        &self,
        from: Micros,
        to: Micros,
        limit: usize,
        work: &Work,
    ) -> Result<Vec<Decided>, ProjectionError> {
        let unwritten = self.read().folder.closed.decided.clone();
        let mut found: Vec<Decided> = Vec::new();
        let within = |decided: &Decided| decided.spot.at >= from && decided.spot.at < to;
        let first = self.first_decided(from, work)?;
        self.db.range(self.name(), Kind::Reclamation, first..=u64::MAX, |_, decided: Decided| {
            work.check()?;
            let going = decided.spot.at < to && found.len() < limit;
            if going && within(&decided) {
                found.push(decided);
            }
            Ok(going)
        })?;
        let last = found.last().map_or(0, |decided| decided.decision.number);
        found.extend(unwritten.into_iter().filter(|d| d.decision.number > last && within(d)));
        found.truncate(limit);
        Ok(found)
    }

    /// A sequence at or before the first step at or after `at`, from the buckets: it need not be the nearest.
    fn seq_before(&self, at: Micros) -> Result<u64, ProjectionError> {
        let Some(start) = self.db.last_to(self.name(), Kind::Fine, at.0)? else { return Ok(0) };
        let bucket: Option<Bucket> = self.db.get(self.name(), Kind::Fine, start)?;
        Ok(bucket.map_or(0, |bucket| bucket.first_seq))
    }

    /// The number of the first written decision at or after `from`: they follow each other in time.
    fn first_decided(&self, from: Micros, work: &Work) -> Result<u64, ProjectionError> {
        let Some((mut low, high)) = self.db.ends(self.name(), Kind::Reclamation)? else { return Ok(0) };
        let mut high = high + 1;
        while low < high {
            work.check()?;
            let middle = low + (high - low) / 2;
            let decided: Option<Decided> = self.db.get(self.name(), Kind::Reclamation, middle)?;
            match decided {
                Some(decided) if decided.spot.at < from => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// A reclamation decision by its number.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn reclamation(&self, number: u64) -> Result<Option<Decided>, ProjectionError> {
        let unwritten =
            self.read().folder.closed.decided.iter().find(|d| d.decision.number == number).cloned();
        unwritten.map_or_else(|| self.db.get(self.name(), Kind::Reclamation, number), |found| Ok(Some(found)))
    }

    /// A revocation by its number.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn revocation(&self, number: u64) -> Result<Option<Revocation>, ProjectionError> {
        let unwritten = {
            let inner = self.read();
            let closed = || inner.folder.closed.revocations.iter().find(|r| r.number == number);
            inner.folder.seen.revocations.get(&number).or_else(closed).cloned()
        };
        unwritten.map_or_else(|| self.db.get(self.name(), Kind::Revocation, number), |found| Ok(Some(found)))
    }

    /// The revocations of a decision: their numbers follow each other from the first one on, at most `limit`.
    ///
    /// # Errors
    /// The database cannot be read; the time is over.
    pub fn revocations(
        &self,
        first: u64,
        limit: usize,
        work: &Work,
    ) -> Result<Vec<Revocation>, ProjectionError> {
        let mut found = Vec::new();
        for number in (first..).take(limit) {
            work.check()?;
            match self.revocation(number)? {
                Some(revocation) => found.push(revocation),
                None => break,
            }
        }
        Ok(found)
    }

    /// The episodes that touch `from..to`, by their beginning, at most `limit`.
    ///
    /// # Errors
    /// The database cannot be read; the time is over.
    pub fn episodes(
        &self,
        from: Micros,
        to: Micros,
        limit: usize,
        work: &Work,
    ) -> Result<Vec<Episode>, ProjectionError> {
        let mut found: Vec<Episode> = Vec::new();
        let touches = |episode: &Episode| episode.from.at < to && (episode.to.at >= from || !episode.over);
        let unwritten: Vec<Episode> = {
            let inner = self.read();
            let seen = &inner.folder.seen;
            inner.folder.closed.episodes.iter().cloned().chain(seen.episodes.open(seen.at)).collect()
        };
        let before = self.seq_before(from)?.saturating_sub(1);
        for kind in EpisodeKind::ALL {
            // Those of a kind do not overlap, so of those that began before only the last can touch the span.
            let (least, most) = (kind.number(0), kind.number(u64::MAX));
            let first = self.db.last_to(self.name(), Kind::Episode, kind.number(before))?;
            let (first, had) = (first.unwrap_or(0).max(least), found.len());
            self.db.range(self.name(), Kind::Episode, first..=most, |_, episode: Episode| {
                work.check()?;
                let going = episode.from.at < to && found.len() - had < limit;
                if going && touches(&episode) {
                    found.push(episode);
                }
                Ok(going)
            })?;
        }
        for episode in unwritten.into_iter().filter(touches) {
            if !found.iter().any(|other| (other.from, other.kind) == (episode.from, episode.kind)) {
                found.push(episode);
            }
        }
        found.sort_by_key(|episode| (episode.from, episode.kind));
        found.truncate(limit);
        Ok(found)
    }

    /// The state of the pool at a moment: from the nearest state that is kept, by folding what follows.
    ///
    /// # Errors
    /// A moment before what is kept, or after the end; the log cannot be read; the time is over.
    pub fn state_at(&self, moment: Moment, work: &Work) -> Result<Found, ProjectionError> {
        let head = self.source.head(self.name())?;
        let points = self.read().folder.seen.points.clone();
        let (start, to) = match moment {
            Moment::Seq(wanted) if wanted > head => {
                return Err(ProjectionError::Beyond { pool: self.name().to_owned(), wanted, head });
            }
            Moment::Seq(seq) => (seq, Bound::Seq(seq)),
            Moment::Time(at) => {
                let before = points.iter().rev().find(|spot| spot.at <= at).map_or(0, |spot| spot.seq);
                (before, Bound::Time(at))
            }
        };
        let (mut state, from) = self.kept_state(&points, start)?;
        let mut folded = 0;
        if moment != Moment::Seq(from.seq) {
            for step in self.source.steps(self.name(), Bound::Seq(from.seq + 1), to)? {
                let step = step?;
                if folded % CHECK_EVERY == 0 {
                    work.check()?;
                }
                fold(&mut state, &step);
                folded += 1;
            }
        }
        Ok(Found { state, folded })
    }

    /// Gives steps of the log in order, until `take` has enough and says false.
    ///
    /// # Errors
    /// The log cannot be read; the time is over; what `take` says.
    pub fn steps(
        &self,
        from: Bound,
        to: Bound,
        work: &Work,
        mut take: impl FnMut(Step) -> Result<bool, ProjectionError>,
    ) -> Result<(), ProjectionError> {
        for (place, step) in self.source.steps(self.name(), from, to)?.enumerate() {
            if (place as u64).is_multiple_of(CHECK_EVERY) {
                work.check()?;
            }
            if !take(step?)? {
                break;
            }
        }
        Ok(())
    }
}
