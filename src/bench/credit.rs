//! `weir bench credit`: how a pool that is seen only by scrapes is kept full and not flooded, in virtual time.
//!
//! The same arrivals go through four gates into the same truth servers: everything at once (what the pool can do at
//! most), the raw gauge until it blocks, the raw gauge with one dispatch per millisecond (the seed system's pace),
//! and the in-flight credit of the kernel. A waiting room of 3,000 stands before the pool when it opens.

use super::{BenchError, Budget, Case, Findings};
use crate::load::{self, Classes, Planned, Row};
use crate::sim::gate::{Choice, KernelGate};
use crate::sim::rng::Rng;
use crate::sim::truth::{Gauges, Spec};
use crate::sim::world::{Gate, Outcome, PushAll, WorldSpec, run as run_world};
use std::collections::VecDeque;
use weir_kernel::{Micros, Policy};

const ENDPOINTS: usize = 4;
const STANDING: usize = 3_000;
const HORIZON: Micros = Micros::from_secs(20);
/// The class that must be served soon, and its share of the arrivals.
const INTERACTIVE: (&str, i32, f64) = ("interactive", 100, 0.3);
const BATCH: (&str, i32) = ("batch", -10);

/// One kind of traffic.
struct Traffic {
    /// Its part of a case's name.
    name: &'static str,
    /// Arrivals per second: more than the pool can serve.
    rate: f64,
    /// Sizes to draw from.
    sizes: Vec<(u32, u32)>,
}

/// Runs both kinds of traffic through all gates.
pub fn run(_budget: Budget) -> Result<Findings, BenchError> {
    let failed = |e: &dyn std::fmt::Display| BenchError(format!("credit: {e}"));
    let rows = load::parse(crate::demo::TRACE_NAME, crate::demo::TRACE).map_err(|e| failed(&e))?;
    let sizes = |rows: &[Row]| rows.iter().map(|row| (row.input, row.output)).collect();
    // Sizes of the trace are bound by prefill; those of a chat by decode and its slots.
    let code = Traffic { name: "code", rate: 24.0, sizes: sizes(&rows) };
    let chat =
        Traffic { name: "chat", rate: 80.0, sizes: vec![(200, 120), (500, 250), (900, 400), (400, 180)] };
    let mut findings = Findings::new("credit");
    for traffic in [code, chat] {
        measure(&traffic, &mut findings).map_err(|e| failed(&e))?;
    }
    findings.notes.push(format!(
        "virtual time: {ENDPOINTS} servers, {} s, {STANDING} queued when the pool opens, samples each 50 ms and 10 ms late",
        HORIZON.as_millis() / 1_000
    ));
    findings
        .notes
        .push("saturation: mean over servers of max(waiting / 5, kv / 0.8), as it truly was".to_owned());
    findings.notes.push(
        "TTFT of interactive requests that arrived before the last 2 s; unserved ones count in full"
            .to_owned(),
    );
    Ok(findings)
}

fn measure(traffic: &Traffic, findings: &mut Findings) -> Result<(), crate::observer::TooMany> {
    let words =
        [format!("{}={}", INTERACTIVE.0, INTERACTIVE.2), format!("{}={}", BATCH.0, 1.0 - INTERACTIVE.2)];
    let classes = Classes::parse(&words, 8).unwrap_or(Classes { classes: Vec::new(), flows: 1 });
    let plan = plan(traffic);
    let world = WorldSpec {
        server: Spec::default(),
        endpoints: ENDPOINTS,
        scrape_every: Micros::from_millis(50),
        scrape_lag: Micros::from_millis(10),
        until: HORIZON,
        seed: 1,
    };
    let kernel = |in_flight_credit| {
        let policy = Policy { in_flight_credit, ..Policy::default() };
        let priorities = [(INTERACTIVE.0, INTERACTIVE.1), BATCH];
        let choice = if in_flight_credit { Choice::Kernel } else { Choice::LeastGiven };
        KernelGate::new(policy, &priorities, ENDPOINTS, choice, &classes, plan.len(), |_| {})
    };
    let push_all = run_world(&world, &plan, &mut PushAll::new(ENDPOINTS, plan.len()));
    let raw = run_world(&world, &plan, &mut RawGauge::new(plan.len()));
    let pace = run_world(&world, &plan, &mut kernel(false)?);
    let rule = run_world(&world, &plan, &mut kernel(true)?);

    let reference = throughput(&push_all);
    let paced = interactive_ttft(&plan, &pace);
    for (gate, seen) in [("push-all", &push_all), ("raw", &raw), ("pace", &pace), ("rule", &rule)] {
        let case = |what: &str| format!("credit/{}/{gate}/{what}", traffic.name);
        let is_rule = gate == "rule";
        let target = |text: &'static str| if is_rule { text } else { "" };
        let share = Case::beside(case("throughput"), throughput(seen), "tokens/s", reference);
        findings.cases.push(share.target(target(">= 0.95 of push-all")));
        let worst = Case::alone(case("worst-saturation"), seen.worst_saturation, "");
        findings.cases.push(worst.target(target("<= 2")));
        findings.cases.push(Case::alone(case("engine-queue/mean"), seen.engine_queue_mean, "requests"));
        findings.cases.push(Case::alone(
            case("engine-queue/max"),
            f64::from(seen.engine_queue_max),
            "requests",
        ));
        let ttft = interactive_ttft(&plan, seen);
        for (name, quantile) in [("ttft/p50", 0.5), ("ttft/p95", 0.95)] {
            let of = |sorted: &[Micros]| {
                let rank = (quantile * sorted.len() as f64).ceil() as usize;
                sorted.get(rank.saturating_sub(1)).map_or(0.0, |took| took.0 as f64 / 1e3)
            };
            let beside = if gate == "pace" { None } else { Some(of(&paced)) };
            findings.cases.push(Case { reference: beside, ..Case::alone(case(name), of(&ttft), "ms") });
        }
    }
    Ok(())
}

/// A standing batch queue, then Poisson arrivals of both classes.
fn plan(traffic: &Traffic) -> Vec<Planned> {
    let mut rng = Rng::new(20);
    let mut plan = Vec::new();
    let size = |rng: &mut Rng| traffic.sizes.get(rng.below(traffic.sizes.len() as u64) as usize).copied();
    for _ in 0..STANDING {
        let (prompt, output) = size(&mut rng).unwrap_or((1, 1));
        plan.push(Planned { at: Micros::ZERO, prompt, output, class: 1, flow: rng.below(8) as u32 });
    }
    let mut at = 0.0;
    while at < HORIZON.0 as f64 {
        at += rng.exponential(1e6 / traffic.rate);
        let class = usize::from(rng.unit() >= INTERACTIVE.2);
        let (prompt, output) = size(&mut rng).unwrap_or((1, 1));
        plan.push(Planned { at: Micros(at as u64), prompt, output, class, flow: rng.below(8) as u32 });
    }
    plan
}

/// Tokens computed per second; those computed again after a preemption are not counted.
fn throughput(seen: &Outcome) -> f64 {
    let totals = &seen.totals;
    (totals.prefilled + totals.generated).saturating_sub(totals.dropped) as f64 * 1e6 / HORIZON.0 as f64
}

/// Sorted; a request that got no token counts as if it came at the end.
fn interactive_ttft(plan: &[Planned], seen: &Outcome) -> Vec<Micros> {
    let last = HORIZON - Micros::from_secs(2);
    let mut all: Vec<Micros> = plan
        .iter()
        .zip(&seen.courses)
        .filter(|(planned, _)| planned.class == 0 && planned.at < last)
        .map(|(planned, course)| course.first_token.unwrap_or(HORIZON).since(planned.at))
        .collect();
    all.sort_unstable();
    all
}

/// Dispatches by priority until the last sampled gauge reads 1.0, and charges nothing for what it has sent.
struct RawGauge {
    queues: [VecDeque<(usize, u32)>; 2],
    saturation: f64,
    pool: PushAll,
}

impl RawGauge {
    fn new(requests: usize) -> Self {
        RawGauge {
            queues: [VecDeque::new(), VecDeque::new()],
            saturation: 1.0,
            pool: PushAll::new(ENDPOINTS, requests),
        }
    }

    fn until_blocked(&mut self) {
        while self.saturation < 1.0 {
            let Some((n, prompt)) = self.queues.iter_mut().find_map(VecDeque::pop_front) else { return };
            self.pool.place(n, prompt);
        }
    }
}

impl Gate for RawGauge {
    fn arrive(&mut self, _at: Micros, n: usize, request: &Planned) {
        self.queues[request.class.min(1)].push_back((n, request.prompt));
        self.until_blocked();
    }

    fn observe(&mut self, _at: Micros, _requested_at: Micros, samples: &[Gauges]) {
        let sum: f64 = samples.iter().map(|g| (f64::from(g.waiting) / 5.0).max(g.kv_share() / 0.8)).sum();
        self.saturation = sum / samples.len().max(1) as f64;
        self.until_blocked();
    }

    fn end(&mut self, at: Micros, n: usize, request: &Planned) {
        self.pool.end(at, n, request);
    }

    fn deadline(&self) -> Option<Micros> {
        None
    }

    fn pass(&mut self, _at: Micros) {}

    fn admitted(&mut self, into: &mut Vec<(usize, usize)>) {
        self.pool.admitted(into);
    }
}
