//! The model of a pool that is fitted to its log, and what the log tells besides: sensor, token counts, patience.
//!
//! It is a model of servers in general (batches of token steps) with numbers from this log alone. Not here: re-deciding.

mod collect;
mod engine;
mod fit;
mod patience;
mod pool;
mod simplex;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use weir_kernel::Micros;

pub use collect::{Collector, prompt_of};
pub use engine::{Happened, Work};
pub use fit::fit;
pub use patience::Patience;
pub use pool::Pool;

/// How fast the servers are; times in µs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Speeds {
    /// Of each step.
    pub base: f64,
    /// Per prompt token that a step fills.
    pub prompt_token: f64,
    /// Per request that makes a token.
    pub request: f64,
    /// Per token of context of those.
    pub context_token: f64,
    /// Tokens that one step works on at most.
    pub budget: u32,
    /// Requests that one server works on at most.
    pub max_requests: u32,
    /// Tokens that its KV cache holds.
    pub kv_tokens: u64,
}

/// All servers slower (above 1) or faster than fitted: what the fit leaves open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift(pub f64);

impl Speeds {
    /// How long a step takes, in µs.
    pub fn step(&self, filled: f64, making: f64, context: f64) -> f64 {
        self.base + self.prompt_token * filled + self.request * making + self.context_token * context
    }

    /// The same, slower or faster.
    pub fn drifted(&self, Drift(by): Drift) -> Speeds {
        Speeds {
            base: self.base * by,
            prompt_token: self.prompt_token * by,
            request: self.request * by,
            context_token: self.context_token * by,
            ..*self
        }
    }
}

/// How the pool was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sensor {
    /// From one round to the next, in µs.
    pub interval: Micros,
    /// From asking to the step, in µs.
    pub lag: Micros,
}

/// How well the model explains the log that it was fitted to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Quality {
    /// Ended requests that were looked at.
    pub requests: u64,
    /// Of their whole service times: median of |predicted / logged − 1|.
    pub median_error: f64,
    /// The same of the times to first token; absent where the log has none.
    pub first_token_error: Option<f64>,
    /// Mean of ln(predicted / logged).
    pub bias: f64,
    /// Its spread between stretches of the log: how far the speed drifts.
    pub drift: f64,
    /// ln(predicted / logged): the 5th and the 95th percentile.
    pub residuals: (f64, f64),
    /// Share of the services, in stretches that the interval was not taken from, that lie in that interval.
    pub coverage: f64,
}

/// The fitted model, as it is saved and used again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PoolModel {
    /// Of this form.
    pub form: u32,
    /// The servers.
    pub speeds: Speeds,
    /// The sensor.
    pub sensor: Sensor,
    /// From the order to end a lease to its end, in µs: the median; absent where the log has none.
    pub confirm: Option<Micros>,
    /// Do first tokens stand in the log?
    pub first_bytes: bool,
    /// Do token counts stand in the log?
    pub usage: bool,
    /// Logged token counts by priority and size of the prompt (`priority/log2`).
    pub tokens: BTreeMap<String, Vec<u32>>,
    /// How long callers waited before they gave up.
    pub patience: Patience,
    /// Where the log has been: requests running on a server (log2) x 100 + KV share (tenths).
    pub visited: BTreeSet<u32>,
    /// How well it explains the log.
    pub quality: Quality,
}

/// The form that this version writes.
pub const FORM: u32 = 1;

/// The place of a server's load among those that the log may have visited.
pub fn place(running: u32, kv: u32) -> u32 {
    let steps = if running == 0 { 0 } else { running.ilog2() + 1 };
    steps * 100 + (kv / 1_000).min(10)
}

/// The class of a prompt's size.
pub fn prompt_class(prompt: u32) -> u32 {
    prompt.max(1).ilog2()
}

impl PoolModel {
    /// Has the log shown a server under this load (or a neighbouring one)?
    pub fn has_seen(&self, running: u32, kv: u32) -> bool {
        let at = place(running, kv);
        let kv = at % 100;
        let near = [Some(at), (kv > 0).then(|| at - 1), (kv < 10).then_some(at + 1)];
        near.into_iter().flatten().any(|at| self.visited.contains(&at))
    }

    /// A token count for a request that never ran, drawn from those of its like that did.
    pub fn draw_tokens(&self, priority: i32, prompt: u32, draw: &mut Draw) -> u32 {
        let class = prompt_class(prompt);
        let like = |key: String| self.tokens.get(&key).filter(|known| known.len() >= 8);
        let near = (0..4).find_map(|off| {
            like(format!("{priority}/{}", class + off))
                .or_else(|| like(format!("{priority}/{}", class.saturating_sub(off))))
        });
        let any = || self.tokens.values().max_by_key(|known| known.len());
        match near.or_else(any) {
            Some(known) if !known.is_empty() => known[draw.below(known.len() as u64) as usize],
            _ => 1,
        }
    }

    /// Of a log without a service: nothing is known, and nothing can be asked of it but what the log says.
    pub fn of_nothing() -> PoolModel {
        PoolModel {
            form: FORM,
            speeds: Speeds {
                base: 1.0,
                prompt_token: 0.0,
                request: 0.0,
                context_token: 0.0,
                budget: 1 << 20,
                max_requests: 1 << 20,
                kv_tokens: 1 << 40,
            },
            sensor: Sensor { interval: Micros::from_millis(50), lag: Micros::ZERO },
            confirm: None,
            first_bytes: false,
            usage: false,
            tokens: BTreeMap::new(),
            patience: Patience::default(),
            visited: BTreeSet::new(),
            quality: Quality::default(),
        }
    }

    /// Reads a saved one.
    ///
    /// # Errors
    /// In words: a file that cannot be read, or is of another form.
    pub fn read(file: &std::path::Path) -> Result<PoolModel, String> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let model: PoolModel =
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        if model.form != FORM {
            return Err(format!("{}: form {}; allowed: {FORM}", file.display(), model.form));
        }
        Ok(model)
    }
}

/// A small seeded generator (xorshift64*, Vigna 2016): the same seed, the same draws.
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// From a seed and a number within it.
    pub fn new(seed: u64, number: u64) -> Draw {
        let mixed = (seed ^ number.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number;
        let mut draw = Draw(mixed | 1);
        for _ in 0..4 {
            draw.bits();
        }
        draw
    }

    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// In [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Standard normal (sum of twelve).
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}
