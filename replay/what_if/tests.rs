//! Candidates beside logs that the truth pool left: equal settings change nothing at all, others what they must.

use super::world::World;
use super::*;
use crate::fidelity::driver::{self, Truth};
use crate::fidelity::plan::Planned;
use crate::model::{Collector, PoolModel, fit};
use crate::settings::Candidate;
use std::sync::Arc;
use weir_kernel::{Input, Micros, Outcome, Policy, State, Step};
use weir_log::reader::Bound;
use weir_log::seal::Sealer;
use weir_log::{Frame, LogError};
use weir_truth::Spec;
use weir_truth::rng::Rng;

pub(crate) fn truth() -> Truth {
    Truth {
        server: Spec { prefill_token_ns: 300_000, ..Spec::default() },
        endpoints: 2,
        join_at: Micros::ZERO,
        scrape_every: Micros::from_millis(50),
        scrape_lag: Micros::from_millis(8),
        grain: Micros(120),
        confirm: Micros::from_millis(25),
        seed: 3,
    }
}

/// Bursts that two servers cannot take, with quiet times between them.
pub(crate) fn plan(seconds: u64) -> Vec<Planned> {
    let mut rng = Rng::new(9);
    let (mut plan, mut at) = (Vec::new(), 0.0);
    while at < seconds as f64 {
        let busy = (at as u64 / 60).is_multiple_of(2);
        at += rng.exponential(if busy { 0.2 } else { 1.5 });
        let prompt = 200 + rng.below(3_000) as u32;
        let (output, class) = (4 + rng.below(60) as u32, rng.below(3) as usize);
        plan.push(Planned {
            at: Micros((at * 1e6) as u64),
            prompt,
            output,
            class,
            flow: rng.below(4) as u32,
        });
    }
    plan
}

pub(crate) fn settings(words: &[&str]) -> Policy {
    let bands = "priorityBands=[{priority: 100}, {priority: 0}, {priority: -10}]";
    let mut all = vec![bands.to_owned()];
    all.extend(words.iter().map(|word| (*word).to_owned()));
    Candidate::default().with(&all).unwrap().resolve(&Policy::default(), "truth").unwrap()
}

pub(crate) fn log(words: &[&str], seconds: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    driver::run(&truth(), &plan(seconds), &settings(words), |step| steps.push(step));
    steps
}

/// Seals the steps as a log.
pub(crate) fn seal(dir: &std::path::Path, steps: &[Step]) {
    let pool: Arc<str> = Arc::from("truth");
    let mut prev = [0; 32];
    let frames: Vec<Frame> = steps
        .chunks(50)
        .map(|chunk| {
            let frame = Frame::encode(&pool, prev, chunk[0].at, chunk).unwrap();
            prev = frame.hash;
            frame
        })
        .collect();
    Sealer::new(dir, [1; 16])
        .seal("truth", Micros(1), frames.into_iter().map(Ok::<Frame, LogError>))
        .unwrap();
}

pub(super) fn fitted(steps: &[Step]) -> PoolModel {
    let mut seen = Collector::default();
    steps.iter().for_each(|step| seen.take(step));
    fit(&seen).unwrap()
}

pub(super) struct Asked<'a> {
    pub(super) words: &'a [&'a str],
    pub(super) from: Bound,
    pub(super) to: Bound,
    pub(super) options: Options,
    pub(super) draws: u32,
}

pub(super) const PLAIN: Options =
    Options { open_loop: false, patience: PatienceRule::Observed, retry: None, seed: 1, detached: false };

pub(super) fn asked<'a>(words: &'a [&'a str]) -> Asked<'a> {
    Asked { words, from: Bound::Open, to: Bound::Open, options: PLAIN, draws: 0 }
}

pub(super) fn ask(steps: &[Step], model: &PoolModel, asked: &Asked<'_>) -> Answer {
    let words: Vec<String> = asked.words.iter().map(|word| (*word).to_owned()).collect();
    let candidate = Candidate::default().with(&words).unwrap();
    let question = Question {
        pool: "truth",
        candidate: &candidate,
        from: asked.from,
        to: asked.to,
        options: asked.options,
        draws: asked.draws,
        list: true,
        series: true,
    };
    let seen = Look::new(model, &State::new()).over(std::iter::once(Ok(steps.to_vec())));
    run(&question, model, State::new(), seen, |_| {}).unwrap()
}

pub(super) fn first(answer: &Answer) -> &World {
    &answer.worlds[0]
}

#[test]
fn c113_equal_settings_give_back_what_happened() {
    for words in [
        &["defaultRequestTTL=15s"][..],
        &["enableEviction=true"],
        &["usageLimitPolicy=soft-reflective-ceiling-policy"],
    ] {
        let steps = log(words, 240);
        let model = fitted(&steps);
        for from in [Bound::Open, Bound::Seq(steps.len() as u64 / 2)] {
            let answer = ask(&steps, &model, &Asked { from, draws: 2, ..asked(&["maxRequests=0"]) });
            for world in &answer.worlds {
                assert_eq!((world.first.as_ref(), answer.baseline.otherwise), (None, 0), "{words:?}");
                assert_eq!(world.tallies, answer.logged);
                assert_eq!(
                    (world.shares.shifted, world.shares.flipped, world.shares.lease_modelled),
                    (0, 0, 0)
                );
                assert!(world.shares.exact > 300);
            }
        }
    }
}

#[test]
fn a_shorter_budget_sheds_more_and_the_first_divergence_is_the_first_such_shed() {
    let steps = log(&["defaultRequestTTL=60s"], 360);
    let model = fitted(&steps);
    let answer = ask(&steps, &model, &asked(&["defaultRequestTTL=10s"]));
    let world = first(&answer);
    let (logged, now) = (&answer.logged.all, &world.tallies.all);
    assert!(now.shed() > logged.shed() + 50, "{} and {}", logged.shed(), now.shed());
    assert_eq!(now.decided(), logged.decided());
    assert_eq!(now.outcomes[Outcome::EvictedTTL.index()], now.shed());
    let parted = world.first.as_ref().unwrap();
    assert!(parted.candidate.iter().any(|text| text.contains("EvictedTTL")), "{parted:?}");
    let waited_10_s = steps.iter().find(|step| {
        matches!(&step.input, Input::Arrived(_)) && parted.at.since(step.at) <= Micros::from_secs(10)
    });
    assert!(waited_10_s.is_some());
    let shares = &world.shares;
    assert_eq!(shares.exact + shares.shifted + shares.flipped, logged.decided());
    assert!(shares.exact > 0 && shares.flipped >= 50);
    assert_eq!(world.changed.as_ref().unwrap().len() as u64, shares.flipped);
    assert!(now.waits.quantile(0.99).unwrap() <= Micros::from_secs(10));
}

#[test]
fn c116_what_is_predicted_is_what_then_happens_and_open_loop_is_further_off() {
    let base = log(&["detector={type: concurrency-detector, parameters: {maxConcurrency: 1}}"], 360);
    let model = fitted(&base);
    let words = ["detector={type: concurrency-detector, parameters: {maxConcurrency: 6}}"];
    let predicted = ask(&base, &model, &asked(&words));
    let open = ask(&base, &model, &Asked { options: Options { open_loop: true, ..PLAIN }, ..asked(&words) });
    let then = log(&words, 360);
    let then = ask(&then, &model, &asked(&["maxRequests=0"])).logged;
    let p95 = |tally: &Tally| tally.waits.quantile(0.95).unwrap().0 as f64 / 1e3;
    let off = |world: &World| (p95(&world.tallies.all) - p95(&then.all)).abs();
    let (near, far) = (off(first(&predicted)), off(first(&open)));
    assert!(near <= 50.0 + 0.15 * p95(&then.all), "{near} off {}, open loop {far}", p95(&then.all));
    assert!(far > 2.0 * near, "{far} and {near}, logged {}", p95(&predicted.logged.all));
    assert!(first(&predicted).shares.unobserved > 0, "some never ran in the log");
    assert!(first(&predicted).shares.lease_unknown > 0, "loads of six were never seen");
}

#[test]
fn eviction_is_predicted_where_the_log_has_none() {
    let base = log(&["enableEviction=false"], 300);
    let answer = ask(&base, &fitted(&base), &asked(&["enableEviction=true"]));
    assert_eq!(answer.logged.all.evictions(), 0);
    assert!(first(&answer).tallies.all.evictions() > 5);
    assert!(first(&answer).state().check().is_ok());
}

#[test]
fn c112_the_same_seed_gives_the_same_answer_and_shed_requests_come_again_where_asked() {
    let base = log(&["defaultRequestTTL=60s"], 240);
    let model = fitted(&base);
    let words = ["priorityBands[2].maxRequests=5"];
    let again = Options { retry: Some(Micros::from_secs(3)), ..PLAIN };
    let once = || ask(&base, &model, &Asked { options: again, ..asked(&words) });
    let (one, two) = (once(), once());
    assert_eq!(first(&one).tallies, first(&two).tallies);
    assert!(
        first(&one).tallies.all.decided() > one.logged.all.decided(),
        "those that come again are counted"
    );
    let none = ask(&base, &model, &asked(&words));
    assert_eq!(first(&none).tallies.all.decided(), none.logged.all.decided());
}

#[test]
fn unknown_settings_are_refused_before_anything_runs() {
    let candidate = Candidate::default().with(&["defaultRequestTTL=never".to_owned()]).unwrap();
    let question = Question {
        pool: "truth",
        candidate: &candidate,
        from: Bound::Open,
        to: Bound::Open,
        options: PLAIN,
        draws: 0,
        list: false,
        series: false,
    };
    let steps = log(&[], 5);
    let seen = Look::new(&PoolModel::of_nothing(), &State::new()).over(std::iter::once(Ok(steps)));
    let error = run(&question, &PoolModel::of_nothing(), State::new(), seen, |_| {});
    assert!(error.unwrap_err().to_string().contains("flowControl.defaultRequestTTL"));
}

#[test]
fn c113_a_planted_decision_makes_candidates_untrustworthy() {
    let mut steps = log(&[], 60);
    let planted = steps.iter_mut().skip(200).find_map(|step| {
        let seq = step.seq;
        step.events.iter_mut().find_map(|event| match event {
            weir_kernel::Event::Dispatched(e) => {
                e.waited = Micros(e.waited.0 + 1);
                Some(seq)
            }
            _ => None,
        })
    });
    let answer = ask(&steps, &fitted(&steps), &asked(&["defaultRequestTTL=5s"]));
    let (seq, logged, now) = answer.baseline.first.clone().unwrap();
    assert_eq!((Some(seq), answer.baseline.otherwise), (planted, 1));
    assert_ne!(logged, now);
}

#[test]
fn the_page_holds_all_it_needs() {
    let steps = log(&["defaultRequestTTL=60s"], 240);
    let model = fitted(&steps);
    let answer = ask(&steps, &model, &asked(&["defaultRequestTTL=10s"]));
    let candidate = Candidate::default().with(&["maxRequests=<7>".to_owned()]).unwrap();
    let page = page::page("truth", &candidate, &answer, &model);
    for part in [
        "First divergence",
        "first divergence",
        "Band 100",
        "saturation_budget",
        "&lt;7&gt;",
        "Queue depth",
        "class=\"apart\"",
    ] {
        assert!(page.contains(part), "{part}");
    }
    for part in ["<script", "http", "NaN", "src=", "<7>"] {
        assert!(!page.contains(part), "{part}");
    }
    assert_eq!((page.matches("<svg").count(), page.matches("</svg>").count()), (4, 4));
}
