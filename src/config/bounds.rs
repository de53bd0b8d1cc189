//! What a band bounds beyond its limits, and whether it can ever have an effect.

use crate::duration::format_duration;
use crate::plugins::{fairness_name, ordering_name};
use crate::section::{Reading, Section};
use weir_kernel::{BandBounds, BandSettings, Fairness, Micros, Ordering};

/// Reads the bounds of a band or template with these settings; `global` is the pool's own queue-wait budget.
pub fn read(
    reading: &mut Reading,
    section: &Section<'_>,
    settings: &BandSettings,
    global: Micros,
) -> BandBounds {
    let starvation = section.span(reading, "starvationBound");
    let reject_hopeless = section.flag(reading, "rejectHopeless");
    let budget = settings.saturation_budget.unwrap_or(global);
    let below = || format!("below {}, the defaultRequestTTL of the band", format_duration(budget));
    let spent = |span: Micros| !budget.is_zero() && span >= budget;
    if !starvation.is_zero() && spent(starvation) {
        section.refuse(reading, "starvationBound", below());
    }
    if let Ordering::NewestFirstWhenStanding { target, .. } = settings.ordering
        && spent(target)
    {
        let allowed = format!(
            "an ordering that can have an effect; this one has a target of {}, allowed: {}",
            format_duration(target),
            below()
        );
        section.refuse(reading, "orderingPolicyRef", allowed);
    }
    if reject_hopeless && let Some(policy) = unknown_place(settings) {
        let allowed = format!("false with {policy}: where a request will stand is not known when it comes");
        section.refuse(reading, "rejectHopeless", allowed);
    }
    BandBounds { starvation, reject_hopeless }
}

/// The policy under which a place is not known when a request comes.
const fn unknown_place(settings: &BandSettings) -> Option<&'static str> {
    match (settings.ordering, &settings.fairness) {
        (Ordering::Edf | Ordering::SloDeadline, _) => Some(ordering_name(settings.ordering)),
        (_, Fairness::ProgramAware(_)) => Some(fairness_name(&settings.fairness)),
        (Ordering::Fcfs | Ordering::NewestFirstWhenStanding { .. }, _) => None,
    }
}
