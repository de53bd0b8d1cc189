//! Who asks for what, and when: two classes of four tenants over the arrivals of the trace.
//!
//! Everything follows from the rows and a seed; every gate is given the same plan.

use crate::load::{Planned, Row};
use crate::sim::rng::Rng;
use weir_kernel::Micros;

/// The class whose first token must come soon.
pub const INTERACTIVE: usize = 0;
/// The class that takes what is left.
pub const BATCH: usize = 1;
/// Names of the objectives and their priorities, by class.
pub const PRIORITIES: [(&str, i32); 2] = [("interactive", 100), ("batch", -10)];
/// The share of the arrivals that is interactive.
pub const INTERACTIVE_SHARE: f64 = 0.3;
/// How a class's arrivals fall to its tenants, in tenths: the first asks for more than its fair part.
pub const TENANTS: [u64; 4] = [5, 2, 2, 1];

/// Tokens of prompt and output.
pub fn tokens(request: &Planned) -> u64 {
    u64::from(request.prompt) + u64::from(request.output)
}

/// Tokens per second that the plan asks for.
pub fn offered(plan: &[Planned]) -> f64 {
    let last = plan.last().map_or(Micros::ZERO, |request| request.at);
    plan.iter().map(|request| tokens(request) as f64).sum::<f64>() * 1e6 / (last.0 as f64).max(1.0)
}

/// Each tenant sends its part of the rows, turned round so that tenants do not burst together, `times` over; so fast
/// that all of them ask for `load` tokens per second. `standing` requests of the batch class are there at once.
pub fn from_rows(rows: &[Row], times: u32, load: f64, standing: usize) -> Vec<Planned> {
    let mut rng = Rng::new(20);
    let span = rows.last().map_or(1.0, |row| row.at.0 as f64) * 1.001;
    let all: f64 = rows.iter().map(|row| f64::from(row.input) + f64::from(row.output)).sum();
    let speed = load / (all * 1e6 / span);
    let mut plan = Vec::with_capacity(rows.len() * times as usize + standing);
    let shares = [(INTERACTIVE, INTERACTIVE_SHARE), (BATCH, 1.0 - INTERACTIVE_SHARE)];
    let tenants =
        shares.iter().flat_map(|(class, share)| TENANTS.iter().map(move |part| (*class, share, *part)));
    for (i, (class, share, part)) in tenants.enumerate() {
        let turned = span * i as f64 / (2 * TENANTS.len()) as f64;
        let keep = share * part as f64 / TENANTS.iter().sum::<u64>() as f64;
        for pass in 0..times {
            for row in rows.iter().filter(|_| rng.unit() < keep) {
                let at = (row.at.0 as f64 + turned) % span + f64::from(pass) * span;
                let flow = (i % TENANTS.len()) as u32;
                let at = Micros((at / speed) as u64);
                plan.push(Planned { at, prompt: row.input, output: row.output, class, flow });
            }
        }
    }
    plan.sort_by_key(|request| request.at);
    let mut plan = paced(plan, load);
    let backlog: Vec<Planned> = (0..standing)
        .filter_map(|_| {
            let row = rows.get(rng.below(rows.len() as u64) as usize)?;
            let flow = tenant(&mut rng);
            Some(Planned { at: Micros::ZERO, prompt: row.input, output: row.output, class: BATCH, flow })
        })
        .collect();
    plan.splice(..0, backlog);
    plan
}

/// Requests of one class and of the rows' sizes, which come as a Poisson process for `lasting`.
pub fn steady(rows: &[Row], load: f64, lasting: Micros) -> Vec<Planned> {
    let mut rng = Rng::new(21);
    let (mut plan, mut at) = (Vec::new(), 0.0);
    let mean = rows.iter().map(|row| f64::from(row.input) + f64::from(row.output)).sum::<f64>()
        / rows.len().max(1) as f64;
    while at < lasting.0 as f64 {
        at += rng.exponential(mean * 1e6 / load);
        let Some(row) = rows.get(rng.below(rows.len() as u64) as usize) else { break };
        let (prompt, output, flow) = (row.input, row.output, tenant(&mut rng));
        plan.push(Planned { at: Micros(at as u64), prompt, output, class: INTERACTIVE, flow });
    }
    paced(plan, load)
}

/// What is asked for was drawn: the pace makes it what it should be.
fn paced(mut plan: Vec<Planned>, load: f64) -> Vec<Planned> {
    let pace = offered(&plan) / load;
    plan.iter_mut().for_each(|request| request.at = Micros((request.at.0 as f64 * pace) as u64));
    plan
}

/// The tenants' own arrivals without a backlog and all of one class.
pub fn one_class(rows: &[Row], times: u32, load: f64) -> Vec<Planned> {
    let all = from_rows(rows, times, load, 0).into_iter();
    all.map(|request| Planned { class: INTERACTIVE, ..request }).collect()
}

fn tenant(rng: &mut Rng) -> u32 {
    let mut drawn = rng.below(TENANTS.iter().sum());
    for (tenant, tenths) in TENANTS.iter().enumerate() {
        if drawn < *tenths {
            return tenant as u32;
        }
        drawn -= tenths;
    }
    0
}
