//! Starts a pool's thread on a recovered state.

use super::clock::Clock;
use super::comeback::Rebuild;
use super::handle::{PoolHandle, PoolStatus, RegimeNote, Shared};
use super::inbox::Inbox;
use super::journal::{Journal, Port};
use super::poison::Poison;
use super::pool::{Decide, End, Pool};
use super::pseudonym::Pseudonyms;
use super::service::{EngineError, PoolOptions};
use super::turn::policy_changed;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tokio::sync::{broadcast, watch};
use weir_kernel::{Input, KERNEL_BEHAVIOUR, ObjectivesChange, Regime, Started, State};

/// Batches that a subscriber may be behind before it is told that it lagged.
const SUBSCRIBERS_BATCHES: usize = 1_024;

/// What a pool starts from.
pub(super) struct Launch {
    pub name: String,
    /// As recovered: everything in it is durable.
    pub state: State,
    pub clock: Clock,
    pub options: PoolOptions,
    pub inbox_arrivals_max: usize,
    pub decide: Decide,
    /// Brings the state back where the kernel failed.
    pub rebuild: Rebuild,
    /// What made it fail before.
    pub poison: Poison,
    /// What takes the place of callers' ids in the log.
    pub pseudonyms: Option<Arc<Pseudonyms>>,
}

/// A pool whose thread runs.
pub(super) struct Running {
    pub handle: PoolHandle,
    pub thread: JoinHandle<End>,
}

impl Launch {
    /// Starts the thread; `journal` is made with the port through which the log answers.
    pub fn start(self, journal: impl FnOnce(Arc<Port>) -> Box<dyn Journal>) -> Result<Running, EngineError> {
        let first = first_inputs(&self.state, self.options);
        let inbox = Arc::new(Inbox::new(self.inbox_arrivals_max));
        let port = Port::new(Arc::clone(&inbox), self.state.seq());
        let woken = Arc::clone(&inbox);
        self.clock.on_advance(move || woken.poke());
        let status = PoolStatus {
            durable: self.state.seq(),
            regime: Regime::Unknown,
            log_writable: true,
            stopping: false,
            failed: false,
            recovering: false,
            faults: 0,
            views_lost: 0,
        };
        let (steps, following) = broadcast::channel(SUBSCRIBERS_BATCHES);
        let shared = Arc::new(Shared {
            name: self.name,
            clock: self.clock,
            inbox,
            steps,
            status: Mutex::new(status),
            pseudonyms: self.pseudonyms,
            timings: Mutex::default(),
            beginning: Mutex::new(Some((self.state.restate(), following))),
            poison: self.poison,
            worked_until: AtomicU64::new(0),
            regimes: watch::Sender::new(RegimeNote { regime: Regime::Unknown, seq: self.state.seq() }),
        });
        let handle = PoolHandle(Arc::clone(&shared));
        let pool = Pool::new(self.state, self.decide, shared, Arc::clone(&port), journal(port), self.rebuild);
        let thread = std::thread::Builder::new()
            .name(format!("weir-pool-{}", handle.name()))
            .spawn(move || pool.run(first))
            .map_err(|error| EngineError::Thread {
                pool: handle.name().to_owned(),
                error: error.to_string(),
            })?;
        Ok(Running { handle, thread })
    }
}

/// The start, and what differs between the settings and the log.
fn first_inputs(state: &State, options: PoolOptions) -> Vec<Input> {
    let started = Started {
        kernel_behaviour: KERNEL_BEHAVIOUR,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        wall: Clock::wall(),
    };
    let mut first = vec![Input::Started(started)];
    if state.seq() == 0 || *state.policy() != options.policy {
        first.push(policy_changed(options.policy));
    }
    let known: BTreeMap<&str, i32> = state.objectives().collect();
    let change = ObjectivesChange {
        set: options
            .objectives
            .iter()
            .filter(|(name, priority)| known.get(name.as_str()) != Some(priority))
            .map(|(name, priority)| (name.clone(), *priority))
            .collect(),
        removed: known
            .keys()
            .filter(|name| !options.keep_objectives && !options.objectives.contains_key(**name))
            .map(|name| (*name).to_owned())
            .collect(),
    };
    if !change.set.is_empty() || !change.removed.is_empty() {
        first.push(Input::ObjectivesChanged(change));
    }
    first
}
