//! `eviction`: how running requests are taken back, and the grace that follows from the sensor.
//!
//! Not here: the decision itself (the kernel), and llm-d's own names for the same constants beyond reading them.

use crate::duration::format_duration;
use crate::effective::ControllerSettings;
use crate::node::Origin;
use crate::plugins::{mark, staleness};
use crate::scalar::Scalar;
use crate::section::{Reading, Section};
use weir_kernel::{Detector, Eviction, Micros, Sizing};

/// What an engine is given to free the slot and the memory of a request that was aborted.
const ENGINE_RECLAIM: Micros = Micros::from_millis(250);
/// Where running requests are counted by Weir itself, their end is seen at once.
const LEADING: Micros = Micros::from_millis(10);
/// The staleness threshold that is assumed of a figure which somebody else computes.
const PUSHED_STALENESS: Micros = Micros::from_millis(200);
/// Shorter scrape intervals count as this.
const REFRESH_FLOOR: Micros = Micros::from_millis(50);
/// What the end of a stream may well take: one flush of the log and a connection's end, on a busy machine.
const STREAM_END: Micros = Micros::from_millis(100);

/// How long after a revoked request's end the gauge may still show it: the detector's own staleness threshold, the scrape
/// interval and the engine's time (contract.md row 27). A detector that counts leases needs hardly any.
pub fn derived_grace(detector: &Detector, interval: Micros) -> Micros {
    match detector {
        Detector::Concurrency { .. } => LEADING,
        Detector::Utilization { .. } | Detector::Pushed => {
            staleness(detector).unwrap_or(PUSHED_STALENESS) + interval.max(REFRESH_FLOOR) + ENGINE_RECLAIM
        }
    }
}

/// Reads the section `eviction` of a pool, whose requests wait for `budget` at most (zero: for any time). What it leaves out
/// is llm-d's constant of `controller`, or derived.
pub fn read(
    reading: &mut Reading,
    own: &Section<'_>,
    controller: &ControllerSettings,
    detector: &Detector,
    interval: Micros,
    budget: Micros,
) -> Eviction {
    let section = own.section(reading, "eviction");
    let constants = own.section(reading, "controller");
    let from = reading.rows.len();
    let cap = match section.value(reading, "maxRevocationsPerDecision") {
        Some(Scalar::Amount(cap)) => cap,
        _ => {
            let cap = controller.max_revocations_per_decision;
            let note = format!("follows {}", constants.at("maxRevocationsPerDecision"));
            let path = section.at("maxRevocationsPerDecision");
            reading.row(&path, Scalar::Amount(cap), "", &Origin::Default, &note);
            cap
        }
    };
    let on_demand = section.text(reading, "sizing").as_deref() == Some("demand");
    let demand_cap = section.amount(reading, "maxRevocationsOnDemand");
    unused_cap(reading, &section, on_demand);
    let mut span = |key: &str, older: &str, derived: Option<Micros>, value: Micros| {
        let set = constants.node(older).is_some();
        section.span_set(reading, key).unwrap_or_else(|| {
            let (value, note) = match derived.filter(|_| !set) {
                Some(derived) => (derived, "derived from the detector and the scrape interval".to_owned()),
                None => (value, format!("follows {}", constants.at(older))),
            };
            reading.row(&section.at(key), Scalar::Span(value), "us", &Origin::Default, &note);
            value
        })
    };
    let timeout_set = section.node("confirmationTimeout").is_some()
        || constants.node("evictionConfirmationTimeout").is_some();
    let timeout = span(
        "confirmationTimeout",
        "evictionConfirmationTimeout",
        None,
        controller.eviction_confirmation_timeout,
    );
    let grace = span(
        "confirmationGrace",
        "evictionConfirmationGrace",
        Some(derived_grace(detector, interval)),
        controller.eviction_confirmation_grace,
    );
    if controller.enable_eviction {
        let of = |key: &str, older: &str| match constants.node(older) {
            Some(_) if section.node(key).is_none() => constants.at(older),
            _ => section.at(key),
        };
        unfit_timeout(reading, &of("confirmationTimeout", "evictionConfirmationTimeout"), timeout);
        let derived = derived_grace(detector, interval);
        unfit_grace(reading, &of("confirmationGrace", "evictionConfirmationGrace"), (grace, derived), budget);
        return Eviction {
            enabled: true,
            max_revocations: u32::try_from(cap).unwrap_or(u32::MAX),
            confirmation_timeout: timeout,
            confirmation_grace: grace,
            sizing: if on_demand { Sizing::Demand } else { Sizing::Deficit },
            max_revocations_on_demand: match on_demand {
                true => u32::try_from(demand_cap).unwrap_or(u32::MAX),
                false => Eviction::default().max_revocations_on_demand,
            },
        };
    }
    for row in reading.rows[from..].iter_mut().filter(|row| !row.path.ends_with("confirmationTimeout")) {
        mark(row, "enableEviction is off");
    }
    let default = Eviction::default();
    Eviction {
        confirmation_timeout: if timeout_set { timeout } else { default.confirmation_timeout },
        ..default
    }
}

/// A victim whose stream takes longer to end has timed out, and is not taken again: the next decision takes others.
fn unfit_timeout(reading: &mut Reading, path: &str, timeout: Micros) {
    if timeout < STREAM_END {
        let text = format!(
            "{} is less than the end of a stream may take, {}: requests that are ending count as timed out, and others are \
             taken in their place",
            format_duration(timeout),
            format_duration(STREAM_END)
        );
        reading.report.warn(path, text);
    }
}

fn unfit_grace(reading: &mut Reading, path: &str, (grace, derived): (Micros, Micros), budget: Micros) {
    let text = if grace < derived {
        format!(
            "{} is less than the {} that the gauge may take to show what has ended: decisions may be made on what is gone, \
             and take more than is needed",
            format_duration(grace),
            format_duration(derived)
        )
    } else if grace >= budget && !budget.is_zero() {
        format!(
            "{} is not less than defaultRequestTTL, {}: whoever waits gives up before a second decision",
            format_duration(grace),
            format_duration(budget)
        )
    } else {
        return;
    };
    reading.report.warn(path, text);
}

/// Of the two caps one counts.
fn unused_cap(reading: &mut Reading, section: &Section<'_>, on_demand: bool) {
    let (unused, why) = match on_demand {
        true => ("maxRevocationsPerDecision", "sizing is demand"),
        false => ("maxRevocationsOnDemand", "sizing is deficit"),
    };
    let path = section.at(unused);
    for row in reading.rows.iter_mut().filter(|row| row.path == path) {
        mark(row, why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grace_is_the_sensors() {
        let scraped = Detector::Utilization {
            queue_depth: 5,
            kv: weir_kernel::Ratio(800_000),
            staleness: Micros::from_millis(500),
            headroom: weir_kernel::Ratio::ZERO,
        };
        for (detector, interval, grace) in [
            (Detector::utilization(), 50, 500),
            (Detector::utilization(), 10, 500),
            (scraped, 200, 950),
            (Detector::Pushed, 50, 500),
            (Detector::concurrency(), 5_000, 10),
        ] {
            let found = derived_grace(&detector, Micros::from_millis(interval));
            assert_eq!(found, Micros::from_millis(grace), "{detector:?} every {interval} ms");
        }
    }

    #[test]
    fn times_of_eviction_that_cannot_work_are_told_of() {
        let of = |text: &str| crate::from_text(text, []).unwrap();
        let with = |more: &str| {
            of(&format!("flowControl: {{enableEviction: true}}\npools: {{default: {{{more}}}}}\n"))
        };
        for fine in
            ["", "eviction: {confirmationGrace: 500ms}", "controller: {evictionConfirmationTimeout: 100ms}"]
        {
            assert!(with(fine).warnings.is_empty(), "{fine}: {:?}", with(fine).warnings);
        }
        for (section, path, words) in [
            ("eviction: {confirmationTimeout: 1ns}", "eviction.confirmationTimeout", "1µs is less than"),
            ("eviction: {confirmationGrace: 0s}", "eviction.confirmationGrace", "0s is less than the 500ms"),
            (
                "eviction: {confirmationGrace: 2562047h}",
                "eviction.confirmationGrace",
                "not less than defaultRequestTTL",
            ),
            ("eviction: {confirmationGrace: 60s}", "eviction.confirmationGrace", "1m0s is not less"),
            (
                "controller: {evictionConfirmationGrace: 499ms}",
                "controller.evictionConfirmationGrace",
                "take more than is needed",
            ),
            (
                "eviction: {confirmationTimeout: 9s}, controller: {evictionConfirmationTimeout: 99ms}",
                "controller.evictionConfirmationGrace",
                "",
            ),
        ] {
            let (found, path) = (with(section), format!("pools.default.{path}"));
            let told: Vec<_> =
                found.warnings.iter().map(|warning| (warning.path.as_str(), &warning.text)).collect();
            match words {
                "" => assert!(told.is_empty(), "{section}: {told:?}"),
                _ => assert!(
                    told.len() == 1 && told[0].0 == path && told[0].1.contains(words),
                    "{section}: {told:?}"
                ),
            }
        }
        // Off, nothing of it counts; a grace that is derived is told of where the budget is even shorter.
        assert!(of("pools: {default: {eviction: {confirmationGrace: 1ms}}}\n").warnings.is_empty());
        let short = of("flowControl: {enableEviction: true, defaultRequestTTL: 400ms}\n");
        assert!(
            short.warnings.iter().any(|warning| warning.path == "pools.default.eviction.confirmationGrace")
        );
    }
}
