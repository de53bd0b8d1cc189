//! What a reader must know beside the figures: assumptions, what a cut range hides, how good baseline and model are.
//!
//! The text, the page, JSON and the other commands take their words from here. Not here: the figures.

use super::lockstep::Answer;
use super::logged::Baseline;
use super::options::PatienceRule;
use crate::model::PoolModel;
use weir_kernel::{Micros, Policy};
use weir_log::describe::show_span;

/// What stands for the pool in the naive baseline.
pub const OPEN_LOOP: &str =
    "open loop: recorded load and services, as if the candidate had not changed them; a naive baseline";

/// The model is judged bad from here on: median error, and bias to either side.
const BAD: f64 = 0.25;

/// The longest time that a request may wait under these settings; a budget without an end counts as none.
fn longest_budget(policy: &Policy) -> Micros {
    let of_bands = policy.bands.values().flat_map(|band| [band.saturation_budget, band.no_endpoint_budget]);
    let all = [policy.saturation_budget, policy.no_endpoint_budget].into_iter().chain(of_bands.flatten());
    all.max().unwrap_or_default()
}

/// What makes the figures doubtful, beside the baseline.
pub fn warnings(answer: &Answer, model: &PoolModel) -> Vec<String> {
    let mut all = Vec::new();
    let budget = longest_budget(&answer.policy);
    let length = answer.times.1.since(answer.times.0);
    if budget.0 > length.0 / 2 {
        all.push(format!(
            "the candidate's longest budget ({}) is more than half of the range ({}): it may end after the range, and \
             what still waits there is in no shed rate",
            show_span(budget),
            show_span(length)
        ));
    }
    let quality = &model.quality;
    let bias = quality.bias.exp_m1();
    if !answer.options.open_loop && (quality.median_error > BAD || bias.abs() > BAD) {
        all.push(format!(
            "the model explains this log badly (median error {:.1} %, bias {:+.1} %): modelled figures are a guess",
            quality.median_error * 100.0,
            bias * 100.0
        ));
    }
    all
}

/// The rule's word, as on the command line.
pub const fn patience_word(rule: PatienceRule) -> &'static str {
    match rule {
        PatienceRule::Observed => "observed",
        PatienceRule::Infinite => "infinite",
        PatienceRule::KaplanMeier => "kaplan-meier",
    }
}

/// What is assumed where no log can tell, in one line.
pub fn assumed(answer: &Answer) -> String {
    let patience = match answer.options.patience {
        PatienceRule::Observed => "callers give up when the log says so and never otherwise",
        PatienceRule::Infinite => "nobody gives up while queued",
        PatienceRule::KaplanMeier => {
            "beyond what the log shows, patience is drawn from its product-limit estimate"
        }
    };
    let retry = answer.options.retry.map_or_else(
        || "shed requests do not come again".to_owned(),
        |after| format!("what only the candidate sheds comes again once after {}", show_span(after)),
    );
    format!("{patience}; {retry}; servers and sensor as logged")
}

/// Whether the logged settings, decided again, give the log; then what was not compared.
pub fn baseline(found: &Baseline) -> Vec<String> {
    let mut all = Vec::new();
    if let Some((seq, ..)) = &found.first {
        all.push(format!(
            "NOT TRUSTWORTHY: under the logged settings {} of {} steps are decided otherwise than logged, first \
             sequence {seq}",
            found.otherwise, found.steps
        ));
    } else if found.steps == 0 {
        all.push(
            "NOT COMPARED: no step was decided again under the logged settings; whether this version decides as the \
             log's did is unknown"
                .to_owned(),
        );
    } else {
        all.push(format!(
            "baseline: {} steps decided again under the logged settings, all as logged",
            found.steps
        ));
    }
    if found.taken > 0 {
        all.push(format!(
            "{} others, between those, are taken as logged; `verify` decides every step",
            found.taken
        ));
    }
    if found.foreign > 0 {
        all.push(format!(
            "{} steps were decided by another version of the kernel and are not compared",
            found.foreign
        ));
    }
    all
}

/// One line for tables of many candidates: why none of them can be trusted as far as they seem; none = no reason.
pub fn doubt(found: &Baseline) -> Option<String> {
    (found.otherwise > 0 || found.foreign > 0).then(|| baseline(found).join("; "))
}

/// Requests without an outcome where the range ends, in the log and for the candidate; none where there are none.
pub fn waiting(answer: &Answer) -> Option<(u64, u64)> {
    let candidate = answer.worlds.first().map_or(0, |world| world.tallies.all.waiting);
    let both = (answer.logged.all.waiting, candidate);
    (both != (0, 0)).then_some(both)
}
