//! A pool's thread on a log that tests steer: durable at once, held back, or failing.

use crate::engine::inbox::Intake;
use crate::engine::journal::{Journal, Port};
use crate::engine::launch::{Launch, Running};
use crate::engine::poison::Poison;
use crate::engine::pool::{Decide, End};
use crate::engine::{Clock, Decision, Pending, PoolHandle, PoolOptions};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use weir_kernel::{
    Arrival, Detector, EndpointChange, Event, Face, Micros, Observation, Policy, Pushed, Ratio, RequestId,
    Role, Slot, State, Step, fold,
};

/// What the log does with a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    AtOnce,
    Held,
}

/// Sees each batch on its way to the log, in the pool's own thread.
type Watch = Box<dyn FnMut(&[Step]) + Send>;

/// The log, as tests see it.
pub struct Script {
    mode: Mutex<Mode>,
    watch: Mutex<Option<Watch>>,
    steps: Mutex<Vec<Step>>,
    port: Arc<Port>,
}

impl Script {
    pub fn steps(&self) -> Vec<Step> {
        self.steps.lock().unwrap().clone()
    }
}

struct Scripted(Arc<Script>);

impl Journal for Scripted {
    fn submit(&mut self, steps: Arc<Vec<Step>>) {
        let last = steps.last().unwrap().seq;
        if let Some(watch) = &mut *self.0.watch.lock().unwrap() {
            watch(&steps);
        }
        let mode = self.0.mode.lock().unwrap();
        self.0.steps.lock().unwrap().extend(steps.iter().cloned());
        if *mode == Mode::AtOnce {
            self.0.port.durable_through(last);
        }
    }
}

/// One pool under test.
pub struct Rig {
    pub running: Running,
    pub pool: PoolHandle,
    pub script: Arc<Script>,
    pub clock: Clock,
}

/// How a rig starts.
pub struct Setup {
    pub policy: Policy,
    pub clock: Clock,
    pub inbox: usize,
    pub decide: Decide,
    pub state: State,
    /// While it is locked no state comes back from the log.
    pub gate: Arc<Mutex<()>>,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            policy: pushed_policy(),
            clock: Clock::manual(Micros::from_secs(1_000)),
            inbox: 10_000,
            decide: weir_kernel::decide,
            state: State::new(),
            gate: Arc::default(),
        }
    }
}

/// The gate is a figure that the test sets.
pub fn pushed_policy() -> Policy {
    Policy { detector: Detector::Pushed, ..Policy::default() }
}

/// As many at once as `limit`.
pub fn concurrency_policy(limit: u64) -> Policy {
    let Detector::Concurrency { mode, max_tokens, headroom, output_estimate, .. } = Detector::concurrency()
    else {
        unreachable!("it is that detector");
    };
    let detector = Detector::Concurrency { mode, max_requests: limit, max_tokens, headroom, output_estimate };
    Policy { detector, ..Policy::default() }
}

impl Setup {
    pub fn policy(policy: Policy) -> Setup {
        Setup { policy, ..Setup::default() }
    }

    pub fn start(self) -> Rig {
        let script: Arc<OnceLock<Arc<Script>>> = Arc::default();
        let (logged, gate, before) = (Arc::clone(&script), self.gate, self.state.clone());
        // As the log has it: what is durable, and no more.
        let rebuild = Box::new(move || {
            let _open = gate.lock().unwrap();
            let (mut state, script) = (before.clone(), logged.get().unwrap());
            let durable = script.port.durable();
            script.steps().iter().filter(|step| step.seq <= durable).for_each(|step| fold(&mut state, step));
            Ok(state)
        });
        let launch = Launch {
            name: "p".to_owned(),
            state: self.state,
            clock: self.clock.clone(),
            options: PoolOptions {
                policy: self.policy,
                objectives: BTreeMap::from([("batch".to_owned(), -5)]),
                keep_objectives: false,
            },
            inbox_arrivals_max: self.inbox,
            decide: self.decide,
            rebuild,
            poison: Poison::load(None, "p"),
            pseudonyms: None,
        };
        let running = launch
            .start(|port| {
                let mode = Mutex::new(Mode::AtOnce);
                let made = Arc::new(Script { mode, watch: Mutex::default(), steps: Mutex::default(), port });
                script.set(Arc::clone(&made)).ok().unwrap();
                Box::new(Scripted(made))
            })
            .unwrap();
        let pool = running.handle.clone();
        Rig { running, pool, script: Arc::clone(script.get().unwrap()), clock: self.clock }
    }
}

impl Rig {
    /// One endpoint, and the pool open or shut.
    pub fn open_pool(&self, saturation: i64) {
        self.observe(
            vec![EndpointChange::Joined { slot: Slot(0), name: "e0".to_owned(), role: Role::Decode }],
            saturation,
        );
    }

    pub fn saturate(&self, saturation: i64) {
        self.observe(Vec::new(), saturation);
    }

    fn observe(&self, changes: Vec<EndpointChange>, saturation: i64) {
        let requested_at = self.clock.now();
        let pushed = Pushed::Pool(Ratio(saturation));
        // The lane takes a few unread ones only.
        wait("room for an observation", || {
            self.pool.observe(Observation { requested_at, changes: changes.clone(), pushed }).is_ok()
        });
    }

    pub fn admit(&self, caller_id: &str) -> Pending {
        self.pool.admit(self.arrival(caller_id)).unwrap()
    }

    pub fn arrival(&self, caller_id: &str) -> Arrival {
        Arrival {
            caller_id: caller_id.to_owned(),
            received_at: self.clock.now(),
            face: Face::Proxy,
            bytes: 100,
            ..Arrival::default()
        }
    }

    /// From now on batches are seen on their way to the log.
    pub fn watch(&self, watch: impl FnMut(&[Step]) + Send + 'static) {
        *self.script.watch.lock().unwrap() = Some(Box::new(watch));
    }

    /// From now on batches stay in flight.
    pub fn hold(&self) {
        *self.script.mode.lock().unwrap() = Mode::Held;
    }

    /// Everything becomes durable, now and from now on.
    pub fn release(&self) {
        let mut mode = self.script.mode.lock().unwrap();
        *mode = Mode::AtOnce;
        let last = self.script.steps.lock().unwrap().last().map_or(0, |step| step.seq);
        self.script.port.durable_through(last);
    }

    pub fn fail(&self, failing: bool) {
        self.script.port.failing(failing);
    }

    pub fn steps(&self) -> Vec<Step> {
        self.script.steps()
    }

    pub fn logged(&self, holds: impl Fn(&Event) -> bool) -> usize {
        self.script
            .steps
            .lock()
            .unwrap()
            .iter()
            .flat_map(|step| &step.events)
            .filter(|event| holds(event))
            .count()
    }

    pub fn intake(&self) -> Intake {
        self.pool.0.inbox.lock().intake
    }

    /// Looks at the state.
    pub fn peek<T: Send + 'static>(&self, see: impl FnOnce(&State) -> T + Send + 'static) -> T {
        wait_for(self.pool.peek(see)).unwrap()
    }

    /// Holds up the pool's thread until what is returned is dropped: what is sent meanwhile is taken in together.
    pub fn stall(&self) -> mpsc::Sender<()> {
        let (hold, held) = mpsc::channel();
        let (reached, at_it) = mpsc::channel();
        drop(self.pool.peek(move |_| {
            reached.send(()).unwrap();
            let _dropped = held.recv();
        }));
        at_it.recv().unwrap();
        hold
    }

    /// Waits until nothing is in any queue or lease any more.
    pub fn wait_idle(&self) {
        wait("an idle pool", || self.peek(|state| state.queued() == 0 && state.in_flight() == 0));
    }

    /// The log folds to the live state, and each request has one outcome and at most one lease end.
    pub fn check(&self) {
        let (seq, live) = self.peek(|state| {
            state.check().unwrap();
            (state.seq(), state.digest())
        });
        wait("the log has every step", || {
            self.script.steps.lock().unwrap().last().is_some_and(|step| step.seq >= seq)
        });
        let mut folded = State::new();
        let (mut outcomes, mut ends) = (BTreeMap::new(), BTreeMap::new());
        for step in self.steps().iter().filter(|step| step.seq <= seq) {
            fold(&mut folded, step);
            for event in &step.events {
                let (of, id) = match event {
                    Event::Rejected(_) => (&mut outcomes, RequestId(step.seq)),
                    Event::Dispatched(e) => (&mut outcomes, e.request),
                    Event::Evicted(e) => (&mut outcomes, e.request),
                    Event::LeaseEnded(e) => (&mut ends, e.request),
                    _ => continue,
                };
                assert_eq!(of.insert(id, step.seq), None, "request {id} twice");
            }
        }
        assert_eq!(folded.digest(), live);
    }

    pub fn stop(self) -> End {
        self.pool.0.inbox.leave();
        self.running.thread.join().unwrap()
    }
}

/// Between two looks, so that who looks does not keep the locks from those who work.
const PAUSE: Duration = Duration::from_millis(1);

/// Waits for a condition; a test that waits longer than this has failed.
pub fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < until, "waited too long for {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Waits for a future without a runtime.
pub fn wait_for<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
        assert!(Instant::now() < until, "waited too long for an answer");
        std::thread::sleep(PAUSE);
    }
}

/// Is there an answer by now?
pub fn is_decided(pending: &mut Pending) -> Option<Decision> {
    match std::pin::Pin::new(pending).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(decision) => Some(decision),
        Poll::Pending => None,
    }
}
