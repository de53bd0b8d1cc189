//! The settings that change decisions, resolved to numbers. They reach the kernel only as a logged input.
//!
//! Not here: YAML, defaults of files, environment (the package `weir-config`), listeners, tokens, paths.

use crate::{DECISIONS_PER_STEP, Micros, Ratio};
use alloc::collections::BTreeMap;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// Everything that decides. Canonical form: JSON with fields in this order, maps sorted, all values integers.
///
/// A field added later must carry `#[serde(default)]`, so that an old log still loads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Flow control on (`featureGates: [flowControl]`). Off: saturation-only admission, no queue.
    pub flow_control: bool,
    /// Decide and log, but hold nobody.
    pub observe: bool,
    /// All bands together: queued requests, 0 = unlimited.
    pub max_requests: u64,
    /// All bands together: queued bytes, 0 = unlimited.
    pub max_bytes: u64,
    /// Queue-wait budget in `HasEndpoints`; zero = no expiry there. A band may replace it.
    pub saturation_budget: Micros,
    /// Queue-wait budget in `NoEndpoints` and `NoFreshMetrics`; zero = no expiry there. A band may replace it.
    pub no_endpoint_budget: Micros,
    /// The configured bands, by priority. Priority 0 is always among them.
    pub bands: BTreeMap<i32, BandSettings>,
    /// What a band that appears later is made from.
    pub template: BandSettings,
    /// The same for priorities below zero, where set.
    pub negative_template: Option<BandSettings>,
    /// How many bands may be provisioned by traffic (default 64).
    pub max_dynamic_bands: u32,
    /// The ceilings of the bands.
    pub usage_limit: UsageLimit,
    /// How saturation is read.
    pub detector: Detector,
    /// Charge dispatches that the sensor cannot have seen yet (contract.md, *In-flight credit*).
    pub in_flight_credit: bool,
    /// How long all endpoints must be stale before the regime is `NoFreshMetrics` (default 5 s).
    pub blind_after: Micros,
    /// A flow is collected when nothing of it has been queued for this long (default 5 min).
    pub flow_idle: Micros,
    /// A band that is neither configured nor desired is collected when it has had no flow for this long (10 min).
    pub band_idle: Micros,
    /// A held lease that is not renewed ends as `Lost` after this (default 10 min).
    pub lease_timeout: Micros,
    /// A ticket whose holder does not poll for this long is cancelled (default 60 s).
    pub ticket_timeout: Micros,
    /// After a restart, callers with an idempotency key may come back within this (default 5 s).
    pub resume_window: Micros,
    /// How many idempotency keys are remembered (default 131,072).
    pub idempotency_keys: u32,
    /// Taking leases back. Left out of the canonical form where it is the default.
    #[serde(default, skip_serializing_if = "Eviction::is_default")]
    pub eviction: Eviction,
    /// Bounds of the bands beyond their limits. Left out of the canonical form where no band has any.
    #[serde(default, skip_serializing_if = "Bounds::is_default")]
    pub bounds: Bounds,
}

/// Bounds of bands: of the configured ones, and of those that come later. ([`BandSettings`] stands in events that were
/// written before there were any.)
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bounds {
    /// By priority; a configured band that is not there has none.
    pub bands: BTreeMap<i32, BandBounds>,
    /// Those of a band that is made from [`Policy::template`].
    pub template: BandBounds,
    /// Those of a band that is made from [`Policy::negative_template`].
    pub negative_template: BandBounds,
}

/// The bounds of one band.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BandBounds {
    /// `starvationBound`: a request that has waited so long while the pool could serve is served next, whatever its
    /// priority, once its band is not blocked; zero = none.
    pub starvation: Micros,
    /// `rejectHopeless`: an arrival whose predicted wait exceeds what it may wait is refused.
    pub reject_hopeless: bool,
}

/// How leases are taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Eviction {
    /// `enableEviction`: revoke sheddable leases for blocked demand of a higher priority. Operators always may.
    pub enabled: bool,
    /// Victims of one decision, at least 1 (default 2); never more than one step may decide about.
    pub max_revocations: u32,
    /// A revocation whose lease has not ended by then has timed out; above zero (default 10 s).
    pub confirmation_timeout: Micros,
    /// How long after a revocation's end the gauge may still show its lease (default 500 ms: a staleness threshold of
    /// 200 ms, a scrape interval of 50 ms and 250 ms for the engine).
    pub confirmation_grace: Micros,
    /// How many victims a decision takes. Left out of the canonical form where it is the default.
    #[serde(skip_serializing_if = "Sizing::is_deficit")]
    pub sizing: Sizing,
    /// Victims of one decision under [`Sizing::Demand`], at least 1 (default 16). Left out likewise.
    #[serde(skip_serializing_if = "is_default_demand_cap")]
    pub max_revocations_on_demand: u32,
}

/// How many victims a decision takes. Numbers are on disk: append, never renumber.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Sizing {
    /// What brings the gauge just below the ceiling: room for one.
    #[default]
    Deficit,
    /// What makes room for all that wait and will still wait when there is room.
    Demand,
}

impl Sizing {
    const fn is_deficit(&self) -> bool {
        matches!(self, Sizing::Deficit)
    }
}

const DEMAND_CAP: u32 = 16;

const fn is_default_demand_cap(cap: &u32) -> bool {
    *cap == DEMAND_CAP
}

/// The settings of one band, resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BandSettings {
    /// Queued requests, at least 1 (default 5000).
    pub max_requests: u64,
    /// Queued bytes, at least 1 (default 10^9).
    pub max_bytes: u64,
    /// The order inside a flow.
    pub ordering: Ordering,
    /// The choice between flows.
    pub fairness: Fairness,
    /// Replaces [`Policy::saturation_budget`] where set; zero = unbounded.
    pub saturation_budget: Option<Micros>,
    /// Replaces [`Policy::no_endpoint_budget`] where set; zero = unbounded.
    pub no_endpoint_budget: Option<Micros>,
}

/// Order inside a flow. Numbers are on disk: append, never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Ordering {
    /// `fcfs-ordering-policy`: by arrival.
    Fcfs,
    /// `edf-ordering-policy`: by enqueue + the item's own budget; none = last.
    Edf,
    /// `slo-deadline-ordering-policy`: by receive time + the SLO header; none = last.
    SloDeadline,
    /// `newest-first-when-standing`: by arrival, until the band's oldest request has waited past `target` for `window`
    /// without a break; then the newest first, until the oldest is within the target again.
    NewestFirstWhenStanding {
        /// Above zero.
        target: Micros,
        /// Zero = at once.
        window: Micros,
    },
}

/// Choice between the flows of a band. Numbers are on disk: append, never renumber.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fairness {
    /// `global-strict-fairness-policy`: the best head under the band's ordering.
    GlobalStrict,
    /// `round-robin-fairness-policy`: flows in turn, by name.
    RoundRobin,
    /// `program-aware-fairness`: least attained service.
    ProgramAware(ProgramAware),
}

/// Parameters of least-attained-service fairness (seed-system.md 10.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramAware {
    /// `lasWeightService`, default 0.8; not negative.
    pub weight_service: Ratio,
    /// `lasWeightHeadWait`, default 0.2; not negative.
    pub weight_head_wait: Ratio,
    /// `lasHalfLifeSeconds`, default 60 s; zero = service never decays.
    pub half_life: Micros,
    /// `evictionTtlSeconds`, default 3600 s: idle state is dropped after this; zero = never.
    pub state_ttl: Micros,
    /// `evictionSweepSeconds`, default 300 s; accepted, without effect (state goes at its deadline).
    pub state_sweep: Micros,
}

/// How ceilings are computed. Numbers are on disk: append, never renumber.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UsageLimit {
    /// `static-usage-limit-policy`: one ceiling in (0, 1] for all.
    Static { threshold: Ratio },
    /// `priority-holdback-policy`: linear from `max` (highest band) to `min` (lowest).
    Holdback { min: Ratio, max: Ratio, domain: HoldbackDomain },
    /// `soft-reflective-ceiling-policy`.
    SoftReflective,
    /// Ceilings given one by one (tests and what-if); bands that are not named take `default`.
    Fixed { ceilings: BTreeMap<i32, Ratio>, default: Ratio },
}

/// What a holdback ceiling interpolates over. Numbers are on disk: append, never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HoldbackDomain {
    /// The position of the band.
    Rank,
    /// The priority itself.
    Value,
}

/// How saturation is read. Numbers are on disk: append, never renumber.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Detector {
    /// `utilization-detector`: engine queue and KV share from metrics.
    Utilization {
        /// `queueDepthThreshold`, > 0, default 5.
        queue_depth: u32,
        /// `kvCacheUtilThreshold`, in (0, 1], default 0.8.
        kv: Ratio,
        /// `metricsStalenessThreshold`, > 0, default 200 ms. Used by the observer, which turns age into an edge.
        staleness: Micros,
        /// `headroom`, not negative, default 0: widens the endpoint filter, not the gauge.
        headroom: Ratio,
    },
    /// `concurrency-detector`: our own leases against a limit.
    Concurrency {
        /// What is counted.
        mode: ConcurrencyMode,
        /// `maxConcurrency` per endpoint, > 0, default 100.
        max_requests: u64,
        /// `maxTokenConcurrency` per endpoint, > 0, default 1,000,000.
        max_tokens: u64,
        /// `headroom`, not negative, default 0: widens the endpoint filter.
        headroom: Ratio,
        /// Where set, tokens include an output estimate: input + ratio x input, at most the cap, until the end.
        output_estimate: Option<OutputEstimate>,
    },
    /// The pusher's own figure; without one the pool reads 1.0.
    Pushed,
}

/// `addEstimatedOutputTokens` and its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputEstimate {
    /// `outputRatio`, default 1.5.
    pub ratio: Ratio,
    /// An optional cap on the estimated output, in tokens; 0 = none.
    pub cap: u64,
}

/// What the concurrency detector counts. Numbers are on disk: append, never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConcurrencyMode {
    /// Requests in flight / (endpoints x max).
    Requests,
    /// Tokens in flight / (endpoints x max).
    Tokens,
    /// Mean over endpoints of the larger of both ratios.
    Hybrid,
}

impl Default for BandSettings {
    /// The system defaults of a band: 5000 requests, 10^9 bytes, FCFS, global strict, no budgets of its own.
    fn default() -> Self {
        BandSettings {
            max_requests: 5_000,
            max_bytes: 1_000_000_000,
            ordering: Ordering::Fcfs,
            fairness: Fairness::GlobalStrict,
            saturation_budget: None,
            no_endpoint_budget: None,
        }
    }
}

impl Default for ProgramAware {
    fn default() -> Self {
        ProgramAware {
            weight_service: Ratio(800_000),
            weight_head_wait: Ratio(200_000),
            half_life: Micros::from_secs(60),
            state_ttl: Micros::from_secs(3_600),
            state_sweep: Micros::from_secs(300),
        }
    }
}

impl Detector {
    /// The default detector with its default parameters.
    pub const fn utilization() -> Self {
        Detector::Utilization {
            queue_depth: 5,
            kv: Ratio(800_000),
            staleness: Micros::from_millis(200),
            headroom: Ratio::ZERO,
        }
    }

    /// The concurrency detector with its default parameters.
    pub const fn concurrency() -> Self {
        Detector::Concurrency {
            mode: ConcurrencyMode::Requests,
            max_requests: 100,
            max_tokens: 1_000_000,
            headroom: Ratio::ZERO,
            output_estimate: None,
        }
    }

    /// Does it need fresh endpoint metrics, so that a pool without them is blind?
    pub const fn reads_metrics(&self) -> bool {
        match self {
            Detector::Utilization { .. } => true,
            Detector::Concurrency { .. } | Detector::Pushed => false,
        }
    }
}

impl Default for Policy {
    /// The documented defaults, flow control on, with the one band that always exists.
    fn default() -> Self {
        Policy {
            flow_control: true,
            observe: false,
            max_requests: 0,
            max_bytes: 0,
            saturation_budget: Micros::from_secs(60),
            no_endpoint_budget: Micros::from_secs(60),
            bands: BTreeMap::from([(0, BandSettings::default())]),
            template: BandSettings::default(),
            negative_template: None,
            max_dynamic_bands: 64,
            usage_limit: UsageLimit::Static { threshold: Ratio::ONE },
            detector: Detector::utilization(),
            in_flight_credit: true,
            blind_after: Micros::from_secs(5),
            flow_idle: Micros::from_secs(300),
            band_idle: Micros::from_secs(600),
            lease_timeout: Micros::from_secs(600),
            ticket_timeout: Micros::from_secs(60),
            resume_window: Micros::from_secs(5),
            idempotency_keys: 131_072,
            eviction: Eviction::default(),
            bounds: Bounds::default(),
        }
    }
}

impl Default for Eviction {
    fn default() -> Self {
        Eviction {
            enabled: false,
            max_revocations: 2,
            confirmation_timeout: Micros::from_secs(10),
            confirmation_grace: Micros::from_millis(500),
            sizing: Sizing::Deficit,
            max_revocations_on_demand: DEMAND_CAP,
        }
    }
}

impl Eviction {
    /// The most victims of one decision.
    pub(crate) fn cap(&self) -> u32 {
        let cap = match self.sizing {
            Sizing::Deficit => self.max_revocations,
            Sizing::Demand => self.max_revocations_on_demand,
        };
        cap.clamp(1, DECISIONS_PER_STEP as u32)
    }

    fn is_default(&self) -> bool {
        *self == Eviction::default()
    }
}

impl Bounds {
    fn is_default(&self) -> bool {
        *self == Bounds::default()
    }
}

impl Policy {
    /// The bounds of the band of this priority, configured or not.
    pub fn bounds_for(&self, priority: i32) -> BandBounds {
        if self.bands.contains_key(&priority) {
            return self.bounds.bands.get(&priority).copied().unwrap_or_default();
        }
        let negative = priority < 0 && self.negative_template.is_some();
        if negative { self.bounds.negative_template } else { self.bounds.template }
    }

    /// The settings for a band of this priority that is not configured: the negative template below zero, if any.
    pub fn template_for(&self, priority: i32) -> &BandSettings {
        match &self.negative_template {
            Some(negative) if priority < 0 => negative,
            _ => &self.template,
        }
    }

    /// The canonical JSON form, as it stands in the log.
    pub fn to_canonical_json(&self) -> String {
        // A struct of integers, strings and sorted maps with string or integer keys always serializes.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads the canonical form.
    ///
    /// # Errors
    /// Text that is not JSON of this shape, with the place.
    pub fn from_canonical_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

/// Serializes a [`Policy`] as one canonical JSON string, whatever the outer format is.
pub(crate) mod as_json {
    use super::Policy;
    use alloc::boxed::Box;
    use alloc::string::String;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(policy: &Policy, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&policy.to_canonical_json())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Box<Policy>, D::Error> {
        let text = String::deserialize(from)?;
        Policy::from_canonical_json(&text).map(Box::new).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_canonical_form_reads_back() {
        let mut policy = Policy::default();
        policy.bands.insert(
            -10,
            BandSettings {
                fairness: Fairness::ProgramAware(ProgramAware::default()),
                ..BandSettings::default()
            },
        );
        policy.usage_limit =
            UsageLimit::Fixed { ceilings: BTreeMap::from([(-10, Ratio(500_000))]), default: Ratio::ONE };
        let text = policy.to_canonical_json();
        assert_eq!(Policy::from_canonical_json(&text).unwrap(), policy);
        assert!(!text.contains('.'), "only integers: {text}");
        assert!(!text.contains("bounds") && !text.contains("eviction"), "left out at their defaults: {text}");
        policy.bounds.bands.insert(-10, BandBounds { starvation: Micros(5), reject_hopeless: true });
        policy.template.ordering =
            Ordering::NewestFirstWhenStanding { target: Micros(1), window: Micros::ZERO };
        let text = policy.to_canonical_json();
        assert_eq!(Policy::from_canonical_json(&text).unwrap(), policy);
    }

    #[test]
    fn a_setting_that_came_later_is_left_out_at_its_default() {
        let evicting = |eviction| Policy { eviction, ..Policy::default() }.to_canonical_json();
        let plain = evicting(Eviction { enabled: true, ..Eviction::default() });
        assert!(!plain.contains("sizing") && !plain.contains("on_demand"), "{plain}");
        let changed =
            Eviction { sizing: Sizing::Demand, max_revocations_on_demand: 4, ..Eviction::default() };
        let text = evicting(changed.clone());
        assert!(text.contains(r#""sizing":"Demand","max_revocations_on_demand":4"#), "{text}");
        assert_eq!(Policy::from_canonical_json(&text).unwrap().eviction, changed);
    }
}
