//! Goal: no order of a few facts breaks an invariant. Method: every sequence of up to seven inputs over three requests
//! (which may be revoked) and two endpoints; after each step `check`, the oracle of the random worlds, and a folded twin beside the live state.
//!
//! All inputs of a sequence come at one instant; only `Pass` moves the clock, to the next deadline. A state that was
//! reached before by as many inputs is not expanded again, nor is an input that changes nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../worlds/oracle/mod.rs"]
mod oracle;

use oracle::Oracle;
use std::collections::{BTreeMap, HashSet};
use weir_kernel::*;

const DEPTH: usize = 7;

/// The alphabet. What does not apply (a request that is there already, an endpoint that is not) is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Letter {
    /// Priority 0, a budget of its own of 1 s; its stream dies with the service.
    ArriveShort,
    /// Priority 10, a deadline in 1.5 s, an idempotency key.
    ArriveKeyed,
    /// The same call again.
    Repeat,
    /// Priority -1, a ticket, which may be taken back for the others.
    ArriveTicket,
    /// Endpoint 1 has room.
    Light,
    /// Endpoint 1 is full.
    Heavy,
    Stale,
    Left,
    /// Endpoint 2 has room.
    OtherLight,
    OtherLeft,
    EndOldest,
    CancelNewest,
    /// An operator's order for the newest lease.
    RevokeNewest,
    /// The holder of the ticket begins to wait, or no longer does.
    WatchTicket,
    Restart,
    Pass,
}

const LETTERS: [Letter; 16] = [
    Letter::ArriveShort,
    Letter::ArriveKeyed,
    Letter::Repeat,
    Letter::ArriveTicket,
    Letter::Light,
    Letter::Heavy,
    Letter::Stale,
    Letter::Left,
    Letter::OtherLight,
    Letter::OtherLeft,
    Letter::EndOldest,
    Letter::CancelNewest,
    Letter::RevokeNewest,
    Letter::WatchTicket,
    Letter::Restart,
    Letter::Pass,
];

#[derive(Clone)]
struct Node {
    live: State,
    folded: State,
    oracle: Oracle,
    path: Vec<Letter>,
}

fn settings() -> Policy {
    let mut policy = Policy {
        saturation_budget: Micros::from_secs(2),
        no_endpoint_budget: Micros::from_secs(3),
        blind_after: Micros::from_secs(1),
        resume_window: Micros::from_millis(500),
        lease_timeout: Micros::from_secs(4),
        ticket_timeout: Micros::from_millis(2_500),
        flow_idle: Micros::from_secs(10),
        eviction: Eviction {
            enabled: true,
            confirmation_timeout: Micros::from_millis(700),
            ..Eviction::default()
        },
        ..Policy::default()
    };
    // A lone ticket reaches its bound before the budgets end it; band 0 turns its order as soon as one has waited.
    policy.bounds.template = BandBounds { starvation: Micros::from_millis(600), reject_hopeless: true };
    let ordering =
        Ordering::NewestFirstWhenStanding { target: Micros::from_millis(300), window: Micros::ZERO };
    policy.bands = BTreeMap::from([
        (0, BandSettings { max_requests: 1, ordering, ..BandSettings::default() }),
        (10, BandSettings { fairness: Fairness::RoundRobin, ..BandSettings::default() }),
    ]);
    policy
}

impl Node {
    fn root() -> Node {
        let (live, folded) = (State::new(), State::new());
        let mut root = Node { live, folded, oracle: Oracle::new(), path: Vec::new() };
        let at = Micros::from_secs(1_000);
        root.take(at, start());
        let change = PolicyChange { policy: Box::new(settings()), digest: [0; 32] };
        root.take(at, Input::PolicyChanged(change));
        root
    }

    /// Takes a step and checks everything about it; says whether it changed anything.
    fn take(&mut self, at: Micros, input: Input) -> bool {
        let step = step(&mut self.live, at, input);
        fold(&mut self.folded, &step);
        let broken = self.live.check().map_err(|broken| broken.to_string());
        if let Err(broken) = broken.and_then(|()| self.oracle.take(&step, &self.live)) {
            panic!("{:?}: {broken}\n{step:#?}", self.path);
        }
        !step.events.iter().all(|event| matches!(event, Event::Ignored { .. }))
    }

    fn sample(&self, slot: u16, waiting: i32, running: i32) -> Input {
        let before = self.live.endpoints().find(|e| e.slot == Slot(slot));
        let mut changes = Vec::new();
        let (w, r, kv) = before.as_ref().and_then(|e| e.sample).unwrap_or_default();
        if before.is_none() {
            let (slot, name) = (Slot(slot), format!("e{slot}"));
            changes.push(EndpointChange::Joined { slot, name, role: Role::Decode });
        }
        let (waiting, running, kv) = (waiting - w as i32, running - r as i32, 1_000 - kv as i32);
        changes.push(EndpointChange::Sampled { slot: Slot(slot), waiting, running, kv });
        Input::Observed(Observation { requested_at: self.live.now(), changes, pushed: Pushed::Keep })
    }

    fn change(&self, change: EndpointChange) -> Input {
        let changes = vec![change];
        Input::Observed(Observation { requested_at: self.live.now(), changes, pushed: Pushed::Keep })
    }

    /// The input that a letter stands for here, if it applies.
    fn input(&self, letter: Letter) -> Option<Input> {
        let now = self.live.now();
        let first_time = !self.path.contains(&letter);
        let there = |slot: u16| self.live.endpoints().any(|e| e.slot == Slot(slot));
        match letter {
            Letter::ArriveShort | Letter::ArriveKeyed | Letter::ArriveTicket if !first_time => None,
            Letter::Repeat if !first_time || !self.path.contains(&Letter::ArriveKeyed) => None,
            Letter::ArriveShort => Some(Input::Arrived(Arrival {
                fairness_id: "a".into(),
                bytes: 10,
                ttl: Some(Micros::from_secs(1)),
                face: Face::Proxy,
                ..Arrival::default()
            })),
            Letter::ArriveKeyed | Letter::Repeat => Some(Input::Arrived(Arrival {
                priority: Some(10),
                bytes: 20,
                deadline: Some(now + Micros::from_millis(1_500)),
                idempotency: Some(Idempotency { key: [7; 16], body: [7; 8] }),
                ..Arrival::default()
            })),
            Letter::ArriveTicket => Some(Input::Arrived(Arrival {
                fairness_id: "c".into(),
                priority: Some(-1),
                bytes: 30,
                face: Face::Ticket,
                choose_endpoint: true,
                ..Arrival::default()
            })),
            Letter::Light => Some(self.sample(1, 0, 1)),
            Letter::Heavy => there(1).then(|| self.sample(1, 9, 8)),
            Letter::OtherLight => Some(self.sample(2, 0, 2)),
            Letter::Stale => there(1).then(|| self.change(EndpointChange::Stale { slot: Slot(1) })),
            Letter::Left => there(1).then(|| self.change(EndpointChange::Left { slot: Slot(1) })),
            Letter::OtherLeft => there(2).then(|| self.change(EndpointChange::Left { slot: Slot(2) })),
            Letter::EndOldest => self.live.leases().next().map(|request| {
                Input::Ended(Ended { request, termination: Termination::Natural, usage: None })
            }),
            Letter::CancelNewest => {
                let newest = self.live.queued_requests().chain(self.live.leases()).max()?;
                Some(Input::Cancelled(Cancelled { request: newest, cause: Cause::ClientDisconnect }))
            }
            Letter::RevokeNewest => self.live.leases().max().map(|request| Input::Revoke {
                request,
                by: String::new(),
                why: String::new(),
            }),
            Letter::WatchTicket => {
                let face = |id: RequestId| {
                    self.live
                        .lease(id)
                        .map(|l| l.face)
                        .or_else(|| self.live.queued_request(id).map(|q| q.face))
                };
                let all = self.live.queued_requests().chain(self.live.leases());
                let request = all.filter(|id| face(*id) == Some(Face::Ticket)).max()?;
                let watching =
                    self.path.iter().filter(|letter| **letter == Letter::WatchTicket).count() % 2 == 0;
                Some(Input::Watched { request, watching })
            }
            Letter::Restart => Some(start()),
            Letter::Pass => Some(Input::TimePassed),
        }
    }

    /// The letters that cannot come again.
    fn spent(&self) -> Vec<Letter> {
        let once = [Letter::ArriveShort, Letter::ArriveKeyed, Letter::Repeat, Letter::ArriveTicket];
        once.into_iter().filter(|letter| self.path.contains(letter)).collect()
    }

    /// The world after one more letter; `None` if it does not apply or changes nothing.
    fn after(&self, letter: Letter) -> Option<Node> {
        let input = self.input(letter)?;
        let mut next = self.clone();
        next.path.push(letter);
        let now = self.live.now();
        let at = match letter {
            Letter::Pass => self.live.next_deadline().unwrap_or(now + Micros::from_secs(1)).max(now),
            _ => now,
        };
        let changed = next.take(at, input) || at > now;
        // A driver comes at once where it is asked to.
        let mut asked = 0;
        while next.live.next_deadline().is_some_and(|due| due <= at) {
            next.take(at, Input::TimePassed);
            asked += 1;
            assert!(asked < 4, "{:?}: steps without end", next.path);
        }
        changed.then_some(next)
    }
}

fn start() -> Input {
    Input::Started(Started { kernel_behaviour: KERNEL_BEHAVIOUR, version: "test".into(), wall: Micros::ZERO })
}

/// Goes on from a node in every direction that leads somewhere new.
struct Search {
    /// States that were gone on from, by how many inputs led there.
    seen: [HashSet<([u8; 32], Vec<Letter>)>; DEPTH],
    steps: u64,
}

impl Search {
    fn expand(&mut self, node: &Node) {
        let depth = node.path.len();
        for letter in LETTERS {
            let Some(after) = node.after(letter) else { continue };
            self.steps += 1;
            assert!(after.folded.restate() == after.live.restate(), "{:?}: fold is not live", after.path);
            if depth + 1 < DEPTH && self.seen[depth].insert((after.live.digest(), after.spent())) {
                self.expand(&after);
            }
        }
    }
}

#[test]
fn every_order_of_up_to_seven_inputs_keeps_every_invariant() {
    let mut search = Search { seen: Default::default(), steps: 0 };
    search.expand(&Node::root());
    let expanded: usize = search.seen.iter().map(HashSet::len).sum();
    println!("{} steps from {} states", search.steps, expanded + 1);
    assert!(search.steps > 500_000, "the alphabet has shrunk: {} steps", search.steps);
}
