//! The ways to run the pool that are compared, each on the same plan.

use super::figures::Figures;
use super::plan::{INTERACTIVE, PRIORITIES};
use crate::load::{Class, Classes, Planned, Row};
use crate::observer::TooMany;
use crate::sim::gate::{Choice, KernelGate};
use crate::sim::truth::Spec;
use crate::sim::world::{PushAll, WorldSpec, run};
use std::collections::BTreeMap;
use weir_kernel::{
    BandBounds, BandSettings, Bounds, Eviction, Face, Fairness, HoldbackDomain, Micros, Policy, Ratio,
    Sizing, UsageLimit,
};

/// Servers of the pool.
pub const ENDPOINTS: usize = 4;

/// Who decides, and what the engine knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// One dispatch per millisecond on the raw gauge, endpoints chosen by a scheduler behind it.
    Seed,
    /// Until blocked, with in-flight credit; endpoints chosen by the kernel.
    Weir,
}

/// One way to run the pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Way {
    pub rules: Rules,
    /// The ceiling of the batch band, in (0, 1]; the interactive band has 1.
    pub ceiling: f64,
    /// Taking sheddable leases back, and how many at a time.
    pub reclaim: Option<Sizing>,
    /// The starvation bound of the batch band; zero = none.
    pub bound: Micros,
    /// The engine schedules by the bands' priorities as well.
    pub engine: bool,
}

impl Way {
    /// These rules with this ceiling of the batch band and nothing else.
    pub const fn new(rules: Rules, ceiling: f64) -> Way {
        Way { rules, ceiling, reclaim: None, bound: Micros::ZERO, engine: false }
    }
}

/// What the pool can give, in tokens per second: everything that the rows ask for, given to it at once.
pub fn capacity(rows: &[Row]) -> f64 {
    let all =
        |row: &Row| Planned { at: Micros::ZERO, prompt: row.input, output: row.output, class: 0, flow: 0 };
    let plan: Vec<Planned> = rows.iter().map(all).collect();
    uncontrolled(&plan, Micros::from_secs(30)).tokens
}

/// The pool and its sensor, until `until`.
pub fn world(until: Micros) -> WorldSpec {
    WorldSpec {
        server: Spec::default(),
        endpoints: ENDPOINTS,
        scrape_every: Micros::from_millis(50),
        scrape_lag: Micros::from_millis(10),
        until,
        seed: 1,
    }
}

/// The two classes, with the objectives that name them.
pub fn classes() -> Classes {
    let class = |(name, _): (&str, i32)| Class { objective: Some(name.to_owned()), share: 0.5 };
    Classes { classes: PRIORITIES.map(class).to_vec(), flows: 4 }
}

/// The kernel's settings for this way.
pub fn policy(way: &Way) -> Policy {
    let band = BandSettings { fairness: Fairness::RoundRobin, ..BandSettings::default() };
    let batch = BandSettings { saturation_budget: Some(Micros::ZERO), ..band.clone() };
    let min = Ratio((way.ceiling * 1e6).round() as i64);
    let usage_limit = if min < Ratio::ONE {
        UsageLimit::Holdback { min, max: Ratio::ONE, domain: HoldbackDomain::Rank }
    } else {
        UsageLimit::Static { threshold: Ratio::ONE }
    };
    let (top, lowest) = (PRIORITIES[0].1, PRIORITIES[1].1);
    let mut bounds = Bounds::default();
    if !way.bound.is_zero() {
        bounds.bands.insert(lowest, BandBounds { starvation: way.bound, ..BandBounds::default() });
    }
    Policy {
        in_flight_credit: way.rules == Rules::Weir,
        bands: BTreeMap::from([(top, band.clone()), (0, band.clone()), (lowest, batch)]),
        usage_limit,
        eviction: Eviction {
            enabled: way.reclaim.is_some(),
            sizing: way.reclaim.unwrap_or(Sizing::Deficit),
            ..Eviction::default()
        },
        bounds,
        ..Policy::default()
    }
}

/// The plan under one way.
pub fn measure(way: &Way, plan: &[Planned], until: Micros) -> Result<Figures, TooMany> {
    let choice = match way.rules {
        Rules::Seed => Choice::LeastGiven,
        Rules::Weir => Choice::Kernel,
    };
    let gate = KernelGate::new(policy(way), &PRIORITIES, ENDPOINTS, choice, &classes(), plan.len(), |_| {})?;
    let gate = gate.through(Face::Stream);
    let mut gate = if way.engine { gate.engine_priority(&PRIORITIES) } else { gate };
    Ok(Figures::of(plan, &run(&world(until), plan, &mut gate), until))
}

/// The plan with no control at all: everything at once, to the endpoint that has been given least.
pub fn uncontrolled(plan: &[Planned], until: Micros) -> Figures {
    Figures::of(plan, &run(&world(until), plan, &mut PushAll::new(ENDPOINTS, plan.len())), until)
}

/// The interactive requests of the plan on a pool that has nothing else to do.
pub fn unloaded(plan: &[Planned], until: Micros) -> Figures {
    let alone: Vec<Planned> = plan.iter().filter(|request| request.class == INTERACTIVE).copied().collect();
    uncontrolled(&alone, until)
}
