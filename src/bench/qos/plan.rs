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
    for _ in 0..standing {
        let Some(row) = rows.get(rng.below(rows.len() as u64) as usize) else { break };
        let flow = tenant(&mut rng);
        plan.push(Planned { at: Micros::ZERO, prompt: row.input, output: row.output, class: BATCH, flow });
    }
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
    plan
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
