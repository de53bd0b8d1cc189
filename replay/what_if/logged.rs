//! The logged state, and whether this version decides as the log says.
//!
//! Where deciding again says the same as the log it moves the state as folding does, so one state is enough for both. For a
//! step where it does not, the state before it is made once more, from a copy that is some steps old.
//!
//! Of a long log only a part is decided again, in stretches: a version that decides otherwise does so again and again, and
//! a single step that was tampered with is for `verify` to find, which decides every one.

use super::ahead::Held;
use weir_kernel::{Event, Input, KERNEL_BEHAVIOUR, State, Step, decide_within, fold};
use weir_log::describe::event_text;

/// A copy of the state is made after so many steps,
const STEPS: u64 = 1_024;
/// and as many more for each request in it, so that copying stays cheap beside them.
const STEPS_A_REQUEST: u64 = 4;

/// So many steps are decided again in any case, and after each start and change of settings as many as a stretch has;
const ALL: u64 = 100_000;
/// of the others one stretch of so many
const STRETCH: u64 = 4_096;
/// in so many stretches; all of them as soon as one step differs.
const ONE_IN: u64 = 4;

/// Does this version decide as the log says, under the logged settings? Else no candidate can be trusted.
#[derive(Clone, Debug, Default)]
pub struct Baseline {
    /// Steps decided again.
    pub steps: u64,
    /// Steps of a long log between those: taken as they were logged.
    pub taken: u64,
    /// Those that were decided otherwise.
    pub otherwise: u64,
    /// The first of them: sequence, as logged, as decided now.
    pub first: Option<(u64, Vec<String>, Vec<String>)>,
    /// Steps that another version of the kernel decided: not compared.
    pub foreign: u64,
}

impl Baseline {
    /// Does this version decide as the log says? None where no step was compared.
    pub fn is_trustworthy(&self) -> Option<bool> {
        (self.steps > 0).then_some(self.otherwise == 0)
    }
}

/// The state of the log so far.
pub struct Logged {
    state: State,
    copy: Option<State>,
    /// Steps since the copy.
    since: Vec<Held>,
    /// Up to this step all are decided again, counted as [`Baseline`] does.
    all: u64,
    /// Room for what is decided.
    room: Vec<Event>,
    behaviour: u32,
    baseline: Baseline,
}

impl Logged {
    /// The state that the log goes on from.
    pub fn new(state: State) -> Logged {
        Logged {
            state,
            copy: None,
            since: Vec::new(),
            all: ALL,
            room: Vec::new(),
            behaviour: KERNEL_BEHAVIOUR,
            baseline: Baseline::default(),
        }
    }

    /// After the steps taken.
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// What was found.
    pub const fn baseline(&self) -> &Baseline {
        &self.baseline
    }

    /// Is the next step one of those that are decided again?
    fn is_due(&mut self, input: &Input) -> bool {
        let place = self.baseline.steps + self.baseline.taken;
        if matches!(input, Input::Started(_) | Input::PolicyChanged(_)) {
            self.all = self.all.max(place + STRETCH);
        }
        place < self.all || self.baseline.otherwise > 0 || (place / STRETCH).is_multiple_of(ONE_IN)
    }

    /// Takes a logged step; where that is `wanted`, it may be decided again. The step is given to [`Logged::keep`] after
    /// that.
    pub fn take(&mut self, step: &Step, wanted: bool) {
        if let Input::Started(started) = &step.input {
            self.behaviour = started.kernel_behaviour;
        }
        let foreign = self.behaviour != KERNEL_BEHAVIOUR;
        if !wanted || foreign || !self.is_due(&step.input) {
            self.baseline.foreign += u64::from(wanted && foreign);
            self.baseline.taken += u64::from(wanted && !foreign);
            self.forget();
            fold(&mut self.state, step);
            return;
        }
        let Logged { state, copy, room, .. } = self;
        let copy = copy.get_or_insert_with(|| state.clone());
        *room = decide_within(state, step.at, &step.input, std::mem::take(room));
        self.baseline.steps += 1;
        if *room == step.events {
            return;
        }
        self.baseline.otherwise += 1;
        if self.baseline.first.is_none() {
            let texts = |events: &[Event]| events.iter().map(event_text).collect::<Vec<_>>();
            self.baseline.first = Some((step.seq, texts(&step.events), texts(room)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::Batch;
    use std::rc::Rc;
    use weir_kernel::{Ignored, Micros, RequestId};

    /// Steps that change nothing, of which some say something that is not so.
    fn run(steps: u64, planted: impl Fn(u64) -> bool) -> Baseline {
        let nothing = |what| vec![Event::Ignored { what }];
        let step = |seq: u64| Step {
            seq,
            at: Micros(seq),
            input: Input::FirstByte { request: RequestId(1 << 40) },
            events: nothing(if planted(seq) { Ignored::NoChange } else { Ignored::UnknownRequest }),
        };
        let mut logged = Logged::new(State::new());
        let batch = Rc::new(Batch::new((1..=steps).map(step).collect(), Vec::new()));
        for place in 0..batch.len() {
            let held = Held::new(batch.clone(), place);
            logged.take(&held, true);
            logged.keep(held);
        }
        assert_eq!(logged.state().seq(), steps);
        logged.baseline().clone()
    }

    #[test]
    fn of_a_long_log_a_part_is_decided_again() {
        let whole = run(ALL, |_| false);
        assert_eq!((whole.steps, whole.taken, whole.otherwise), (ALL, 0, 0));
        let long = run(ALL + 100 * STRETCH, |_| false);
        assert_eq!(long.steps + long.taken, ALL + 100 * STRETCH);
        let share = (long.steps - ALL) as f64 / (100 * STRETCH) as f64;
        assert!((share - 1.0 / ONE_IN as f64).abs() < 0.02, "{share}");
    }

    #[test]
    fn a_version_that_decides_otherwise_is_found_and_looked_at_closely() {
        let steps = ALL + 40 * STRETCH;
        let planted = |seq: u64| seq > ALL + STRETCH && seq.is_multiple_of(1_000);
        let found = run(steps, planted);
        let first = found.first.as_ref().map(|(seq, _, _)| *seq).unwrap();
        assert!(first < ALL + STRETCH * (ONE_IN + 1), "{first}");
        assert_eq!(found.otherwise, (first..=steps).filter(|seq| planted(*seq)).count() as u64);
    }
}
