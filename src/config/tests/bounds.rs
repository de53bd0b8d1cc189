//! Goal: bounds of bands come from a document into the policy, and only where they are asked for.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use weir_config::from_text;
use weir_kernel::{BandBounds, Micros, Ordering, Policy};

fn policy_of(text: &str) -> Policy {
    from_text(text, []).unwrap().pools["default"].policy.clone()
}

#[test]
fn bounds_of_bands_reach_the_policy_and_are_left_out_where_there_are_none() {
    let turning =
        Ordering::NewestFirstWhenStanding { target: Micros::from_millis(500), window: Micros::from_secs(5) };
    let policy = policy_of(
        "
plugins: [{name: fresh, type: newest-first-when-standing, parameters: {target: 500ms}}]
flowControl:
  defaultRequestTTL: 15s
  defaultPriorityBand: {starvationBound: 9s}
  defaultNegativePriorityBand: {rejectHopeless: true, defaultRequestTTL: 0s, starvationBound: 10m}
  priorityBands:
  - {priority: 10, orderingPolicyRef: fresh}
  - {priority: -10, rejectHopeless: true}
",
    );
    let bounds =
        |seconds, reject_hopeless| BandBounds { starvation: Micros::from_secs(seconds), reject_hopeless };
    assert_eq!(policy.bands[&10].ordering, turning);
    for (priority, want) in [
        (10, bounds(0, false)),
        (0, bounds(9, false)),
        (7, bounds(9, false)),
        (-10, bounds(0, true)),
        (-7, bounds(600, true)),
    ] {
        assert_eq!(policy.bounds_for(priority), want, "priority {priority}");
    }
    assert_eq!(policy.bounds.bands.keys().copied().collect::<Vec<_>>(), [-10, 0]);
    let text = policy_of("flowControl: {priorityBands: [{priority: 10}]}").to_canonical_json();
    assert!(!text.contains("bounds"), "{text}");
}
