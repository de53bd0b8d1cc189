//! What is written is what was logged.

use super::arrivals::Arrivals;
use super::requests::Requests;
use super::*;
use crate::what_if::tests::log;
use weir_kernel::Input;

#[test]
fn every_request_has_one_row_and_rows_are_well_formed() {
    let steps = log(&["defaultRequestTTL=8s"], 90);
    let mut table = Requests::new("truth", Bound::Open);
    let mut rows: Vec<Value> = steps.iter().flat_map(|step| table.take(step)).collect();
    rows.extend(table.rest());
    let arrived = steps.iter().filter(|step| matches!(step.input, Input::Arrived(_))).count();
    assert_eq!(rows.len(), arrived);
    let of = |outcome: &str| rows.iter().filter(|row| row["outcome"] == outcome).count();
    assert!(of("Dispatched") > 50 && of("EvictedTTL") > 0);
    for row in rows.iter().filter(|row| row["lease_end"] == "Completed") {
        let at = |key: &str| row[key].as_u64().unwrap();
        assert!(at("arrived_us") <= at("decided_us") && at("decided_us") < at("first_byte_us"));
        assert!(at("first_byte_us") <= at("ended_us") && at("completion_tokens") > 0);
    }
    let mut text = Vec::new();
    csv::header(&mut text, &rows[0]).unwrap();
    rows.iter().for_each(|row| csv::row(&mut text, row).unwrap());
    let text = String::from_utf8(text).unwrap();
    let widths: std::collections::BTreeSet<usize> =
        text.lines().map(|line| line.split(',').count()).collect();
    assert_eq!(widths.len(), 1);
    assert_eq!(text.lines().count(), arrived + 1);
}

#[test]
fn arrivals_are_a_trace_in_order() {
    let steps = log(&[], 60);
    let (mut trace, mut out) = (Arrivals::new(7), Vec::new());
    steps.iter().for_each(|step| trace.take(step, &mut out).unwrap());
    trace.rest(&mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let rows: Vec<Vec<f64>> =
        text.lines().map(|line| line.split(',').map(|cell| cell.parse().unwrap()).collect()).collect();
    assert_eq!((rows.len() as u64, rows[0][0]), (trace.counts().0, 0.0));
    assert!(rows.windows(2).all(|pair| pair[0][0] <= pair[1][0]));
    let plan = crate::what_if::tests::plan(60);
    assert_eq!((rows[5][1], rows[5][2]), (f64::from(plan[5].prompt), f64::from(plan[5].output)));
}

#[test]
fn cells_are_quoted_where_they_must_be() {
    let mut out = Vec::new();
    csv::row(&mut out, &json!({ "a": "x,y", "b": "say \"hi\"", "c": null, "d": 3 })).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "\"x,y\",\"say \"\"hi\"\"\",,3\n");
}
