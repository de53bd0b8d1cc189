//! A log with a reload in it: what is predicted after it is near what was logged.

use super::*;
use crate::fidelity::driver;
use crate::what_if::tests::{plan, seal, settings, truth};
use weir_kernel::Micros;

#[test]
fn a_reload_is_scored_by_a_model_of_what_came_before_it() {
    let mut steps = Vec::new();
    let later = settings(&["defaultRequestTTL=8s"]);
    let reloads = [
        (Micros::from_secs(2), settings(&["defaultRequestTTL=60s"])),
        (Micros::from_secs(240), later.clone()),
        (Micros::from_secs(241), later),
    ];
    driver::run_with(&truth(), plan(480).into_iter(), &settings(&[]), &reloads, |step| steps.push(step));
    let dir = tempfile::tempdir().unwrap();
    seal(dir.path(), &steps);
    let logs = Logs::of_dir(dir.path(), None).unwrap();
    let (scored, left_out) = score(&logs, "truth", 200).unwrap();
    assert_eq!((scored.len(), left_out), (1, 0), "the first and the third change nothing");
    let one = &scored[0];
    // The budget of an empty pool follows the default TTL.
    let moved = |name: &str| (name.to_owned(), "60000000".to_owned(), "8000000".to_owned());
    assert_eq!(one.changes, [moved("no_endpoint_budget"), moved("saturation_budget")]);
    assert!(one.logged.shed() > 20, "{}", one.logged.shed());
    let off = (one.logged.shed_rate() - one.predicted.shed_rate()).abs();
    assert!(off < 0.06, "{} and {}", one.logged.shed_rate(), one.predicted.shed_rate());
    assert_ne!(one.logged, one.predicted, "it is a prediction, not a copy");
    assert_eq!(one.doubt, None);
    assert_eq!(score(&logs, "truth", 1_000_000).unwrap().1, 1);

    for step in &mut steps {
        if let Input::Started(started) = &mut step.input {
            started.kernel_behaviour += 1;
        }
    }
    let dir = tempfile::tempdir().unwrap();
    seal(dir.path(), &steps);
    let logs = Logs::of_dir(dir.path(), None).unwrap();
    let (scored, _) = score(&logs, "truth", 200).unwrap();
    assert!(scored[0].doubt.as_ref().unwrap().contains("another version"), "{:?}", scored[0].doubt);
}
