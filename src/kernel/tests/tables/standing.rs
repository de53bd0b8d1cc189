//! Where a queued request stands: its place, the depth of its band, the budget that runs.

use crate::script::check;
use crate::settings::{bands, pushed};
use weir_kernel::*;

fn secs(secs: u64) -> Micros {
    Micros::from_secs(secs)
}

/// How those that are queued stand, and when they are due, in the order of their arrival.
fn all(state: &State) -> Vec<(Standing, Option<Micros>)> {
    let ids = state.queued_requests();
    ids.map(|id| (state.standing(id).unwrap(), state.queued_request(id).unwrap().due)).collect()
}

#[test]
fn a_place_is_counted_in_the_line_of_the_band_and_the_budget_is_that_of_the_regime() {
    let state = check(
        pushed(),
        "
        t=0  pool 1 sat=1
        t=0  arrive r1
        t=1s arrive r2 flow=other
        t=2s arrive r3
        ",
    );
    for ((standing, due), position) in all(&state).into_iter().zip(1..) {
        assert_eq!((standing.position, standing.depth), (Some(position), 3));
        let want = RunningBudget { which: BudgetKind::Saturation, budget: secs(60), due: due.unwrap() };
        assert_eq!(standing.budget, Some(want));
    }
    assert_eq!(state.standing(RequestId(9_999)), None);
}

#[test]
fn under_round_robin_the_line_is_that_of_the_flow() {
    let state = check(
        Policy { bands: bands([(0, |band| band.fairness = Fairness::RoundRobin)]), ..pushed() },
        "
        t=0  pool 0
        t=0  arrive r1 flow=a
        t=0  arrive r2 flow=a
        t=0  arrive r3 flow=b
        ",
    );
    let all = all(&state);
    let places: Vec<_> = all.iter().map(|(standing, _)| standing.position).collect();
    assert_eq!(places, [Some(1), Some(2), Some(1)]);
    let budget = all[0].0.budget.unwrap();
    assert_eq!((budget.which, budget.budget), (BudgetKind::NoEndpoint, secs(60)));
}
