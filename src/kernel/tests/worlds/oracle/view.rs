//! The pool as row 4 of contract.md speaks of it: what was seen, and the regime that this calls for.

use std::collections::BTreeMap;
use weir_kernel::*;

#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// Per endpoint: was it sampled, and since when is it stale?
    endpoints: BTreeMap<Slot, (bool, Option<Micros>)>,
    seen: bool,
    fresh_rounds: u32,
}

impl Pool {
    /// A run begins.
    pub fn forget(&mut self) {
        self.seen = false;
        self.fresh_rounds = 0;
        self.endpoints.values_mut().for_each(|endpoint| *endpoint = (false, None));
    }

    /// A regime begins.
    pub fn enter(&mut self) {
        self.fresh_rounds = 0;
    }

    /// A round of observation.
    pub fn view(&mut self, input: &Input, at: Micros, regime: Regime) {
        let Input::Observed(round) = input else { return };
        let mut sampled = false;
        for change in &round.changes {
            match change {
                EndpointChange::Joined { slot, .. } => {
                    self.endpoints.entry(*slot).or_insert((false, None));
                }
                EndpointChange::Left { slot } => {
                    self.endpoints.remove(slot);
                }
                EndpointChange::Sampled { slot, .. } => {
                    sampled = true;
                    if let Some(endpoint) = self.endpoints.get_mut(slot) {
                        *endpoint = (true, None);
                    }
                }
                EndpointChange::Stale { slot } => {
                    if let Some((true, since)) = self.endpoints.get_mut(slot) {
                        since.get_or_insert(at);
                    }
                }
            }
        }
        self.seen = true;
        if regime == Regime::NoFreshMetrics {
            self.fresh_rounds = if sampled && self.fresh() > 0 { self.fresh_rounds + 1 } else { 0 };
        }
    }

    pub fn fresh(&self) -> usize {
        self.endpoints.values().filter(|(sampled, stale)| *sampled && stale.is_none()).count()
    }

    pub fn calls_for(&self, at: Micros, current: Regime, policy: &Policy) -> Regime {
        if !self.seen {
            return Regime::Unknown;
        }
        if self.endpoints.is_empty() {
            return Regime::NoEndpoints;
        }
        if !matches!(policy.detector, Detector::Utilization { .. }) {
            return Regime::HasEndpoints;
        }
        if self.fresh() > 0 {
            let stays = current == Regime::NoFreshMetrics && self.fresh_rounds < 2;
            return if stays { Regime::NoFreshMetrics } else { Regime::HasEndpoints };
        }
        let last_fresh = self.endpoints.values().filter_map(|(_, stale)| *stale).max();
        match last_fresh {
            Some(since) if current == Regime::HasEndpoints && at < since + policy.blind_after => {
                Regime::HasEndpoints
            }
            _ => Regime::NoFreshMetrics,
        }
    }
}
