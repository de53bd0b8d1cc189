//! Bands and flows coming and going (contract.md rows 9, 26).

use crate::script::{Script, Show, check};
use crate::settings::{budgets, pushed};
use weir_kernel::*;

#[test]
fn a_band_is_provisioned_on_first_use_and_collected_when_idle() {
    Script::new(Policy { max_dynamic_bands: 1, ..pushed() }).show(&[Show::Life]).check(
        "
        t=0   pool 1 sat=0
        t=0   arrive a prio=5 => band+5, flow+default-flow/5, a:admit
        t=0   arrive b prio=6 => b:429 rejected-band-limit
        t=5m  pass => flow-
        t=15m pass => a:Lost timeout@600s, band-5
        t=15m arrive c prio=6 => band+6, flow+default-flow/6, c:admit
        ",
    );
}

#[test]
fn a_negative_priority_has_a_template_of_its_own() {
    let small = BandSettings { max_requests: 1, ..BandSettings::default() };
    check(
        Policy { negative_template: Some(small), ..pushed() },
        "
        t=0 pool 1 sat=1
        t=0 arrive a prio=-1
        t=0 arrive b prio=-1 => b:429 rejected-saturated
        t=0 arrive c prio=1
        t=0 arrive d prio=1
        ",
    );
}

#[test]
fn c075_a_flow_with_queued_requests_is_not_idle() {
    Script::new(budgets(pushed(), 0, 0)).show(&[Show::Life]).check(
        "
        t=0   pool 1 sat=1
        t=0   arrive r1 flow=f => flow+f/0
        t=12m pool 1 sat=0 => r1:admit
        t=16m is flows=1
        t=17m pass => flow-
        ",
    );
}

#[test]
fn c077_a_band_that_is_wanted_stays_and_goes_when_it_is_not() {
    Script::new(pushed()).show(&[Show::Life]).check(
        "
        t=0   pool 1 sat=0
        t=0   objectives chat=50 => band+50
        t=25m arrive r1 obj=chat => flow+default-flow/50, r1:admit
        t=26m objectives -chat
        t=27m pool 1 sat=1
        t=27m arrive r2 prio=50
        t=28m pass   => r2:429 rejected-ttl-expired
        t=33m pass   => flow-
        t=40m end r1 => r1:Lost timeout@2100s, ignored
        t=43m pass   => band-50
        t=44m objectives chat=50 => band+50
        t=44m objectives -chat => band-50
        ",
    );
}

#[test]
fn c079_an_arrival_at_the_instant_its_flow_is_collected_is_served() {
    Script::new(pushed()).show(&[Show::Life]).check(
        "
        t=0   pool 1 sat=0
        t=0   arrive r1 flow=f => flow+f/0, r1:admit
        t=5m  arrive r2 flow=f => r2:admit
        t=10m pass => r1:Lost timeout, flow-
        t=10m arrive r3 flow=f => flow+f/0, r3:admit
        ",
    );
}

#[test]
fn a_band_that_is_taken_from_the_settings_serves_what_is_queued() {
    let mut with = pushed();
    with.bands.insert(7, BandSettings { max_requests: 3, ..BandSettings::default() });
    Script::new(with).other("without", pushed()).show(&[Show::Life]).check(
        "
        t=0  pool 1 sat=1
        t=0  arrive r1 prio=7 => flow+default-flow/7
        t=1  settings without
        t=2  pool 1 sat=0 => r1:admit
        t=17m pass => flow-@302s, r1:Lost timeout@602s, band-7@902s
        ",
    );
}

#[test]
fn fairness_and_order_can_change_while_requests_wait() {
    let with = |fairness| {
        let mut policy = pushed();
        policy.bands.insert(0, BandSettings { fairness, ..BandSettings::default() });
        policy
    };
    Script::new(with(Fairness::GlobalStrict))
        .other("turns", with(Fairness::RoundRobin))
        .other("served", with(Fairness::ProgramAware(ProgramAware::default())))
        .check(
            "
            t=0 pool 1 sat=1
            t=0 arrive a1 flow=a
            t=0 arrive a2 flow=a
            t=0 arrive a3 flow=a
            t=0 arrive b1 flow=b
            t=1 settings served
            t=2 settings turns
            t=3 pool 1 sat=0 => a1:admit, b1:admit, a2:admit, a3:admit
            ",
        );
}

#[test]
fn flow_numbers_come_round_without_taking_one_that_is_in_use() {
    let state = check(pushed(), "t=0 pool 1 sat=1\nt=0 arrive r1 flow=a\nt=0 arrive r2 flow=b");
    let mut snapshot = state.restate();
    if let Some(Event::RestatedCore(core)) = snapshot.first_mut() {
        core.numbers[1] = u64::from(u32::MAX);
    }
    let mut state = State::from_restated(&snapshot).unwrap();
    let now = state.now();
    let mut opened = Vec::new();
    for flow in ["c", "d", "e"] {
        let arrival = Arrival { fairness_id: flow.into(), received_at: now, ..Arrival::default() };
        let step = step(&mut state, now, Input::Arrived(arrival));
        opened.extend(step.events.iter().filter_map(|event| match event {
            Event::FlowOpened { flow, .. } => Some(flow.0),
            _ => None,
        }));
        state.check().unwrap();
    }
    assert_eq!(opened, [u32::MAX, 2, 3]);
    assert_eq!(state.queued(), 5);
}

#[test]
fn programs_are_forgotten_when_no_band_asks_for_them() {
    let mut aware = pushed();
    let fairness = Fairness::ProgramAware(ProgramAware::default());
    aware.bands.insert(0, BandSettings { fairness, ..BandSettings::default() });
    let state = Script::new(aware).other("strict", pushed()).check(
        "
        t=0 pool 1 sat=0
        t=0 arrive r1 flow=p => r1:admit
        t=1 end r1 usage=10+10 => r1:Completed
        t=2 settings strict
        ",
    );
    assert_eq!(state.attained_service("p", Micros::from_secs(60)), None);
}
