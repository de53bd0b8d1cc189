//! The logged state, and whether this version decides as the log says.
//!
//! Where deciding again says the same as the log it moves the state as folding does, so one state is enough for both. For a
//! step where it does not, the state before it is made once more, from a copy that is some steps old.

use super::ahead::Held;
use weir_kernel::{Event, Input, KERNEL_BEHAVIOUR, State, Step, decide, fold};
use weir_log::describe::event_text;

/// A copy of the state is made after so many steps,
const STEPS: u64 = 1_024;
/// and as many more for each request in it, so that copying stays cheap beside them.
const STEPS_A_REQUEST: u64 = 4;

/// Does this version decide as the log says, under the logged settings? Else no candidate can be trusted.
#[derive(Clone, Debug, Default)]
pub struct Baseline {
    /// Steps decided again.
    pub steps: u64,
    /// Those that were decided otherwise.
    pub otherwise: u64,
    /// The first of them: sequence, as logged, as decided now.
    pub first: Option<(u64, Vec<String>, Vec<String>)>,
    /// Steps that another version of the kernel decided: not compared.
    pub foreign: u64,
}

/// The state of the log so far.
pub struct Logged {
    state: State,
    copy: Option<State>,
    /// Steps since the copy.
    since: Vec<Held>,
    behaviour: u32,
    baseline: Baseline,
}

impl Logged {
    /// The state that the log goes on from.
    pub fn new(state: State) -> Logged {
        let baseline = Baseline::default();
        Logged { state, copy: None, since: Vec::new(), behaviour: KERNEL_BEHAVIOUR, baseline }
    }

    /// After the steps taken.
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// What was found.
    pub const fn baseline(&self) -> &Baseline {
        &self.baseline
    }

    /// Takes a logged step, and decides it again where that is `wanted`. The step is given to [`Logged::keep`] after that.
    pub fn take(&mut self, step: &Step, wanted: bool) {
        if let Input::Started(started) = &step.input {
            self.behaviour = started.kernel_behaviour;
        }
        let foreign = self.behaviour != KERNEL_BEHAVIOUR;
        if !wanted || foreign {
            self.baseline.foreign += u64::from(wanted && foreign);
            self.forget();
            fold(&mut self.state, step);
            return;
        }
        let Logged { state, copy, .. } = self;
        let copy = copy.get_or_insert_with(|| state.clone());
        let events = decide(state, step.at, &step.input);
        self.baseline.steps += 1;
        if events == step.events {
            return;
        }
        self.baseline.otherwise += 1;
        if self.baseline.first.is_none() {
            let texts = |events: &[Event]| events.iter().map(event_text).collect::<Vec<_>>();
            self.baseline.first = Some((step.seq, texts(&step.events), texts(&events)));
        }
        // What was decided otherwise must not colour what follows.
        self.since.iter().for_each(|step| fold(copy, step));
        fold(copy, step);
        std::mem::swap(state, copy);
        self.forget();
    }

    /// Keeps the step that was taken last for as long as it may be needed.
    pub fn keep(&mut self, step: Held) {
        if self.copy.is_none() {
            return;
        }
        self.since.push(step);
        let requests = self.state.queued() + self.state.in_flight();
        if self.since.len() as u64 >= STEPS + STEPS_A_REQUEST * requests {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.copy = None;
        self.since.clear();
    }
}
