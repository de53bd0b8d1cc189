//! What is told beside the figures: a cut range, a baseline that was not compared, a bad model, the naive baseline.

use super::tests::{Asked, PLAIN, ask, asked, first, fitted, log, settings};
use super::*;
use crate::model::PoolModel;
use crate::settings::Candidate;
use serde_json::{Value, json};
use weir_kernel::{Input, KERNEL_BEHAVIOUR, Micros, Step};
use weir_log::reader::Bound;

fn as_json(answer: &Answer, model: &PoolModel) -> Value {
    json::json("truth", &Candidate::default(), answer, model)
}

fn as_page(answer: &Answer, model: &PoolModel) -> String {
    page::page("truth", &Candidate::default(), answer, model)
}

/// The step in whose queue most requests wait.
fn fullest(steps: &[Step]) -> u64 {
    let mut state = weir_kernel::State::new();
    let queued = steps.iter().map(|step| {
        weir_kernel::fold(&mut state, step);
        (state.queued(), step.seq)
    });
    queued.max().unwrap().1
}

#[test]
fn outcomes_and_what_still_waits_are_the_requests_of_any_range() {
    let steps = log(&["defaultRequestTTL=60s"], 240);
    let model = fitted(&steps);
    let cut = fullest(&steps);
    let again = Options { retry: Some(Micros::from_secs(3)), ..PLAIN };
    for (from, to, words, options) in [
        (Bound::Open, Bound::Open, "defaultRequestTTL=10s", PLAIN),
        (Bound::Open, Bound::Seq(cut), "defaultRequestTTL=10s", PLAIN),
        (Bound::Seq(cut / 2), Bound::Seq(cut), "defaultRequestTTL=300s", PLAIN),
        (Bound::Seq(cut), Bound::Seq(cut + 50), "defaultRequestTTL=5s", PLAIN),
        (Bound::Open, Bound::Seq(cut), "priorityBands[2].maxRequests=5", again),
    ] {
        let answer = ask(&steps, &model, &Asked { from, to, options, ..asked(&[words]) });
        let (world, case) = (first(&answer), format!("{words} from {from:?} to {to:?}"));
        let (logged, now) = (&answer.logged.all, &world.tallies.all);
        assert_eq!(logged.decided() + logged.waiting, answer.requests, "{case}");
        assert_eq!(now.decided() + now.waiting, world.asked, "{case}");
        assert_eq!((logged.arrivals, now.arrivals), (answer.requests, world.asked), "{case}");
        if options.retry.is_none() {
            assert_eq!(world.asked, answer.requests, "{case}");
        } else {
            assert!(world.asked > answer.requests, "{case}");
        }
        if to == Bound::Seq(cut) {
            assert!(logged.waiting > 5, "{case}: {}", logged.waiting);
            assert_eq!(caveats::waiting(&answer), Some((logged.waiting, now.waiting)));
        }
        let told = as_json(&answer, &model);
        assert_eq!(told["stillWaiting"], json!({ "logged": logged.waiting, "candidate": now.waiting }));
        assert_eq!(told["requestsInRange"], json!({ "logged": answer.requests, "candidate": world.asked }));
        assert_eq!(told["outcomes"]["all"]["logged"]["stillWaiting"], logged.waiting);
        let line = format!(
            "Still waiting at the end of the range: logged {}, candidate {}",
            logged.waiting, now.waiting
        );
        assert_eq!(as_page(&answer, &model).contains(&line), logged.waiting + now.waiting > 0, "{case}");
    }
}

#[test]
fn a_budget_that_may_end_after_the_range_is_warned_of() {
    let steps = log(&[], 60);
    let model = fitted(&steps);
    let mut answer = ask(&steps, &model, &asked(&[]));
    let secs = Micros::from_secs;
    for (saturation, no_endpoint, of_band, warned) in [
        (5, 5, None, None),
        (50, 5, None, Some("50s")),
        (5, 51, None, Some("51s")),
        (5, 5, Some(52), Some("52s")),
        (0, 0, None, None),
    ] {
        answer.policy = settings(&[]);
        (answer.policy.saturation_budget, answer.policy.no_endpoint_budget) =
            (secs(saturation), secs(no_endpoint));
        answer.policy.bands.get_mut(&-10).unwrap().no_endpoint_budget = of_band.map(secs);
        let told = warned.map(|span| format!("longest budget ({span})"));
        let found = caveats::warnings(&answer, &model).join("; ");
        assert_eq!(found.contains("longest budget"), warned.is_some(), "{found}");
        if let Some(told) = told {
            assert!(found.contains(&told) && as_page(&answer, &model).contains(&told), "{found}");
            assert!(as_json(&answer, &model)["warnings"].to_string().contains(&told));
        }
    }
}

#[test]
fn runs_that_part_with_the_settings_themselves_part_at_the_beginning() {
    let steps = log(&["defaultRequestTTL=60s"], 240);
    let model = fitted(&steps);
    let from = fullest(&steps);
    let answer = ask(&steps, &model, &Asked { from: Bound::Seq(from), ..asked(&["defaultRequestTTL=10ms"]) });
    let parted = &as_json(&answer, &model)["firstDivergence"];
    assert_eq!((&parted["sequence"], &parted["fromBeginning"]), (&from.into(), &true.into()), "{parted}");
    let told = format!("from the beginning, before sequence {from} (other settings)");
    assert_eq!(parted["place"], told);
    assert!(as_page(&answer, &model).contains(&told));
    let later = ask(&steps, &model, &asked(&["defaultRequestTTL=10s"]));
    let parted = &as_json(&later, &model)["firstDivergence"];
    assert_eq!(parted["fromBeginning"], false, "{parted}");
}

/// As another version of the kernel had decided it.
fn foreign(mut steps: Vec<Step>) -> Vec<Step> {
    for step in &mut steps {
        if let Input::Started(started) = &mut step.input {
            started.kernel_behaviour = KERNEL_BEHAVIOUR + 1;
        }
    }
    steps
}

#[test]
fn c113_what_was_not_compared_is_never_called_trustworthy() {
    let steps = log(&[], 60);
    let model = fitted(&steps);
    let own = ask(&steps, &model, &asked(&[]));
    assert_eq!(as_json(&own, &model)["baseline"]["trustworthy"], true);
    assert!(as_page(&own, &model).contains("steps decided again under the logged settings, all as logged"));
    assert_eq!(doubt(&own.baseline), None);

    let steps = foreign(steps);
    let other = ask(&steps, &model, &asked(&[]));
    assert_eq!((other.baseline.steps, other.baseline.foreign), (0, steps.len() as u64));
    let told = as_json(&other, &model);
    assert_eq!(told["baseline"]["trustworthy"], Value::Null);
    let page = as_page(&other, &model);
    for text in [caveats::baseline(&other.baseline).join(" "), page] {
        assert!(text.contains("NOT COMPARED") && !text.contains("all as logged"), "{text}");
        assert!(text.contains(&format!("{} steps were decided by another version", steps.len())));
    }
    assert!(doubt(&other.baseline).unwrap().contains("another version"));
    let taken = logged::Baseline { steps: 9, taken: 4, ..logged::Baseline::default() };
    assert!(caveats::baseline(&taken)[1].contains("4 others, between those, are taken as logged"));
    let otherwise = logged::Baseline { otherwise: 1, first: Some((7, vec![], vec![])), ..taken };
    assert!(doubt(&otherwise).unwrap().contains("NOT TRUSTWORTHY"));
    assert_eq!(otherwise.is_trustworthy(), Some(false));
}

#[test]
fn the_naive_baseline_is_labelled_and_has_no_figures_of_the_model() {
    let steps = log(&[], 120);
    let model = fitted(&steps);
    let words = ["defaultRequestTTL=5s"];
    let fitted = ask(&steps, &model, &Asked { draws: 2, ..asked(&words) });
    let options = Options {
        open_loop: true,
        patience: PatienceRule::Infinite,
        retry: Some(Micros::from_millis(1_500)),
        seed: 9,
        ..PLAIN
    };
    let open = ask(&steps, &model, &Asked { options, ..asked(&words) });
    let (a, b) = (as_json(&fitted, &model), as_json(&open, &model));
    assert_eq!((&a["modelRule"], &b["modelRule"]), (&"fitted".into(), &"open-loop".into()));
    assert!(
        a["model"]["medianError"].is_number() && a["openLoop"].is_null() && a["leaseSeconds"].is_object()
    );
    assert!(b["model"].is_null() && b["openLoop"].is_string() && b["leaseSeconds"].is_null());
    let of = |told: &Value| {
        let all = &told["assumptions"];
        (all["patience"].clone(), all["retrySeconds"].clone(), all["seed"].clone(), all["draws"].clone())
    };
    assert_eq!(of(&a), ("observed".into(), Value::Null, 1.into(), 2.into()));
    assert_eq!(of(&b), ("infinite".into(), 1.5.into(), 9.into(), 0.into()));
    let (a, b) = (as_page(&fitted, &model), as_page(&open, &model));
    assert!(
        a.contains("median error of") && a.contains("Seed 1, 2 more draws") && a.contains(print::INTERVAL)
    );
    assert!(!a.contains(caveats::OPEN_LOOP) && a.contains("callers give up when the log says so"));
    assert!(
        b.contains(caveats::OPEN_LOOP)
            && b.contains("nobody gives up while queued")
            && b.contains("after 1.5s")
    );
    assert!(!b.contains("median error") && !b.contains(print::INTERVAL));
}

#[test]
fn a_model_that_explains_the_log_badly_is_judged() {
    let steps = log(&[], 60);
    let good = fitted(&steps);
    let answer = ask(&steps, &good, &asked(&["defaultRequestTTL=5s"]));
    let with = |median_error: f64, bias: f64| {
        let mut model = good.clone();
        (model.quality.median_error, model.quality.bias) = (median_error, bias.ln_1p());
        model
    };
    for (model, bad) in [
        (with(0.24, 0.24), false),
        (with(0.26, 0.0), true),
        (with(0.01, 0.26), true),
        (with(0.01, -0.26), true),
    ] {
        let words = "the model explains this log badly";
        let found = caveats::warnings(&answer, &model).join("; ");
        assert_eq!(found.contains(words), bad, "{:?}: {found}", model.quality);
        assert_eq!(as_page(&answer, &model).contains(words), bad);
        assert_eq!(as_json(&answer, &model)["warnings"].to_string().contains(words), bad);
    }
}
