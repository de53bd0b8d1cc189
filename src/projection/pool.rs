//! The read models of one pool: the fold in memory, what is written of it, and how both come back after a kill.
//!
//! Not here: what is written and when (`commit.rs`), who calls (`follow.rs`), and the questions (`query.rs`, `ask.rs`).

use crate::chunk::Zone;
use crate::commit::group_begin;
use crate::db::{Db, Kind};
use crate::error::{ProjectionError, Spot};
use crate::fold::{Folder, Seen};
use crate::ids::Ids;
use crate::note::NoteZone;
use crate::source::{Feed, Source};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use weir_kernel::{Event, State, fold};
use weir_log::reader::Bound;
use weir_log::snapshot::usable;
use weir_log::{Frame, Head};

/// What is in memory of a pool.
#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub folder: Folder,
    /// What the written chunks hold, in the order of their first rows.
    pub zones: Vec<Arc<Zone>>,
    /// Filters of the chunks whose group is not full yet.
    pub ids: Vec<Arc<Ids>>,
    /// What the written notes hold.
    pub note_zones: Vec<Arc<NoteZone>>,
    pub committed: Spot,
    pub checkpoint_parts: u16,
    pub since_point: u64,
    pub since_commit: u64,
    pub fault: Option<String>,
}

/// One pool's read models.
#[derive(Debug)]
pub struct PoolProjection {
    name: String,
    pub(crate) db: Arc<Db>,
    pub(crate) source: Source,
    inner: RwLock<Inner>,
}

/// How far a pool's read models are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// Nothing before this is in them.
    pub begun: Spot,
    /// The last step that is in them.
    pub at: Spot,
    /// The last step that is written.
    pub committed: Spot,
    /// The last sequence of the log.
    pub head: u64,
    /// Ended requests.
    pub rows: u64,
    /// Requests that have not ended.
    pub open: u64,
    /// Kept states.
    pub states: u64,
    /// What keeps it from going on.
    pub fault: Option<String>,
}

impl PoolProjection {
    /// Comes back from what is written, or begins anew where that does not fit the log.
    ///
    /// # Errors
    /// The log or the database cannot be read.
    pub fn open(name: &str, db: Arc<Db>, source: Source) -> Result<PoolProjection, ProjectionError> {
        let pool = PoolProjection { name: name.to_owned(), db, source, inner: RwLock::default() };
        pool.reload()?;
        Ok(pool)
    }

    /// Forgets what is in memory and comes back from what is written.
    ///
    /// # Errors
    /// As [`PoolProjection::open`].
    pub fn reload(&self) -> Result<(), ProjectionError> {
        let inner = match self.come_back() {
            Ok(Some(inner)) => inner,
            Ok(None) => self.begin()?,
            Err(error) if error.calls_for_rebuild() => {
                tracing::warn!(pool = self.name, %error, "the projections are folded anew");
                self.wipe()?;
                self.begin()?
            }
            Err(error) => return Err(error),
        };
        *self.write() = inner;
        Ok(())
    }

    /// The pool.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn other_log(&self, why: impl Into<String>) -> ProjectionError {
        ProjectionError::OtherLog { pool: self.name.clone(), why: why.into() }
    }

    fn come_back(&self) -> Result<Option<Inner>, ProjectionError> {
        let Some((_, parts)) = self.db.bytes(&self.name, Kind::Checkpoint, 0)? else { return Ok(None) };
        let Some(seen) = self.db.get::<Seen>(&self.name, Kind::Checkpoint, 0)? else { return Ok(None) };
        if let Some(from) = self.source.oldest(&self.name)?.filter(|oldest| *oldest > seen.at.seq + 1) {
            let wanted = format!("sequence {}, with which the projections go on,", seen.at.seq + 1);
            return Err(ProjectionError::Trimmed { pool: self.name.clone(), wanted, from });
        }
        let mut inner = Inner { checkpoint_parts: parts, committed: seen.at, ..Inner::default() };
        self.db.range(&self.name, Kind::Zone, 0..=u64::MAX, |_, zone: Zone| {
            inner.zones.push(Arc::new(zone));
            Ok(true)
        })?;
        self.db.range(&self.name, Kind::Ids, group_begin(seen.written)..=u64::MAX, |_, ids: Ids| {
            inner.ids.push(Arc::new(ids));
            Ok(true)
        })?;
        self.db.range(&self.name, Kind::NoteZone, 0..=u64::MAX, |_, zone: NoteZone| {
            inner.note_zones.push(Arc::new(zone));
            Ok(true)
        })?;
        let state = self.state_behind(&seen)?;
        inner.since_point =
            seen.at.seq.saturating_sub(seen.points.last().map_or(seen.begun.seq, |spot| spot.seq));
        inner.folder = Folder { state, seen, ..Folder::default() };
        Ok(Some(inner))
    }

    /// The kernel's state after the last step of a checkpoint.
    fn state_behind(&self, seen: &Seen) -> Result<State, ProjectionError> {
        let head = self.source.head(&self.name)?;
        if head < seen.at.seq {
            return Err(self.other_log(format!("they end at sequence {}, the log at {head}", seen.at.seq)));
        }
        let (mut state, from) = self.kept_state(&seen.points, seen.at.seq)?;
        let (from, to) = (Bound::Seq(from.seq + 1), Bound::Seq(seen.at.seq));
        if state.seq() < seen.at.seq {
            for step in self.source.steps(&self.name, from, to)? {
                fold(&mut state, &step?);
            }
        }
        let found = Spot { seq: state.seq(), at: state.now() };
        if found != seen.at {
            return Err(
                self.other_log(format!("they end at {:?}, that step of the log is {found:?}", seen.at))
            );
        }
        Ok(state)
    }

    /// The newest state that is at hand and not after `seq`: one of ours, one of the log's, or the empty one.
    pub(crate) fn kept_state(&self, points: &[Spot], seq: u64) -> Result<(State, Spot), ProjectionError> {
        let ours = points.iter().rev().find(|spot| spot.seq <= seq).copied();
        let logs = self.source.logs()?;
        let of_log = logs.snapshots(&self.name).iter().rev().find(|at| at.seq <= seq);
        if let Some(at) = of_log.filter(|at| ours.is_none_or(|spot| spot.seq < at.seq))
            && let Ok((state, head)) = usable(at, u64::MAX)
        {
            return Ok((state, Spot { seq: head.seq, at: head.at }));
        }
        let Some(spot) = ours else {
            return match self.source.oldest(&self.name)? {
                Some(oldest) if oldest > 1 => Err(ProjectionError::Trimmed {
                    pool: self.name.clone(),
                    wanted: format!("the state after sequence {seq}"),
                    from: oldest,
                }),
                _ => Ok((State::new(), Spot::default())),
            };
        };
        let kept: Option<(Spot, Vec<Event>)> = self.db.get(&self.name, Kind::State, spot.seq)?;
        let Some((_, events)) = kept else { return Err(self.other_log("a kept state is gone")) };
        let state = State::from_restated(&events).map_err(|error| self.other_log(error.to_string()))?;
        Ok((state, spot))
    }

    /// From the first step of the log, or from the oldest state that the log still has.
    fn begin(&self) -> Result<Inner, ProjectionError> {
        if self.source.oldest(&self.name)?.is_none_or(|oldest| oldest <= 1) {
            return Ok(Inner::default());
        }
        let logs = self.source.logs()?;
        for at in logs.snapshots(&self.name) {
            match usable(at, u64::MAX) {
                Ok((state, head)) => {
                    let folder = Folder::from_state(state, head.hash);
                    // Kept at once: it cannot be folded again once the log has let go of its snapshot.
                    return Ok(Inner { folder, since_point: u64::MAX, ..Inner::default() });
                }
                Err(error) => {
                    tracing::warn!(pool = self.name, %error, "this snapshot of the log cannot be used")
                }
            }
        }
        Err(ProjectionError::Trimmed {
            pool: self.name.clone(),
            wanted: "the beginning of the log, or a snapshot of it,".to_owned(),
            from: self.source.oldest(&self.name)?.unwrap_or(0),
        })
    }

    fn wipe(&self) -> Result<(), ProjectionError> {
        // The checkpoint first: without it, the rest is nothing that is read.
        self.db.clear(&self.name, Kind::Checkpoint, 0..=u64::MAX)?;
        self.db.clear_pool(&self.name)?;
        self.db.flush()
    }

    /// Takes in the next batches of the log, if there are any; gives how many steps.
    ///
    /// # Errors
    /// The log cannot be read; a batch that does not follow what was folded.
    pub fn advance(&self, feed: &mut Feed) -> Result<u64, ProjectionError> {
        let after = {
            let inner = self.read();
            let seen = &inner.folder.seen;
            Head { seq: seen.at.seq, hash: seen.hash, at: seen.at.at }
        };
        let mut taken = 0;
        let mut last = after;
        for frame in feed.next(after)? {
            last.admits(&frame.header).map_err(|error| self.other_log(error.to_string()))?;
            taken += self.take(&frame)?;
            last = Head::of(&frame);
        }
        Ok(taken)
    }

    fn take(&self, frame: &Frame) -> Result<u64, ProjectionError> {
        let steps = frame.steps().map_err(weir_log::LogError::from)?;
        let mut inner = self.write();
        for step in &steps {
            inner.folder.take(step);
        }
        inner.folder.seen.hash = Head::of(frame).hash;
        inner.since_commit += steps.len() as u64;
        inner.since_point = inner.since_point.saturating_add(steps.len() as u64);
        Ok(steps.len() as u64)
    }

    /// How far it is.
    ///
    /// # Errors
    /// The end of the log cannot be read.
    pub fn position(&self) -> Result<Position, ProjectionError> {
        let head = self.source.head(&self.name)?;
        let inner = self.read();
        let seen = &inner.folder.seen;
        Ok(Position {
            begun: seen.begun,
            at: seen.at,
            committed: inner.committed,
            head: head.max(seen.at.seq),
            rows: seen.written + seen.pending.len() as u64,
            open: seen.open.len() as u64,
            states: seen.points.len() as u64,
            fault: inner.fault.clone(),
        })
    }

    /// The last step that is in them.
    pub fn at(&self) -> Spot {
        self.read().folder.seen.at
    }

    /// The last sequence of the log.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn head(&self) -> Result<u64, ProjectionError> {
        Ok(self.source.head(&self.name)?)
    }

    /// Waits until the log goes on after `past`; false if it does not within the time.
    pub fn wait(&self, past: u64, timeout: std::time::Duration) -> bool {
        self.source.wait(&self.name, past, timeout)
    }

    /// Looks at the pool's state after the last step.
    pub fn with_state<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.read().folder.state)
    }
}
