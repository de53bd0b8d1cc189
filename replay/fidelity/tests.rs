//! The measurement itself, on a few minutes of arrivals.

use super::matrix::matrix;
use super::run::measure;
use super::score::holds;
use crate::what_if::tests::plan;

#[test]
fn equal_settings_are_exact_and_a_prediction_is_near() {
    let (bases, rows) = matrix();
    let rows: Vec<_> =
        rows.into_iter().filter(|row| ["a-a-ttl-15s", "ttl-15s-to-60s"].contains(&row.name)).collect();
    let measured = measure(&bases, &rows, &plan(400), 4, None).unwrap();
    let (changed, same) = (&measured[0], &measured[1]);
    assert!(same.same && same.equal, "{same:?}");
    assert_eq!((same.predicted, same.shares.flipped), (same.actual, 0));
    assert!(!changed.same && changed.base != changed.actual, "{changed:?}");
    assert!(holds(&changed.predicted, &changed.actual, &changed.noise)[0], "{changed:?}");
    let (low, high) = changed.intervals[0];
    assert!(low <= changed.predicted.shed_rate && changed.predicted.shed_rate <= high);
}
