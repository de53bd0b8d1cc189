//! `plugins`: the types that Weir knows, with their parameters.

use crate::table::{Kind, Range, Setting, Table};
use weir_kernel::Micros;

/// What a plugin is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Orders the requests of a flow.
    Ordering,
    /// Chooses between the flows of a band.
    Fairness,
    /// Gives each band its ceiling.
    UsageLimit,
    /// Reads the saturation of the pool.
    Detector,
    /// Says what the concurrency detector counts of a request.
    LoadProducer,
}

impl Family {
    /// In words, for messages.
    pub const fn words(self) -> &'static str {
        match self {
            Family::Ordering => "an ordering policy",
            Family::Fairness => "a fairness policy",
            Family::UsageLimit => "a usage limit policy",
            Family::Detector => "a saturation detector",
            Family::LoadProducer => "an in-flight load producer",
        }
    }
}

/// A type of plugin.
#[derive(Debug)]
pub struct PluginType {
    /// The word that stands under `type`.
    pub name: &'static str,
    /// What it is for.
    pub family: Family,
    /// Its parameters.
    pub parameters: &'static Table,
}

/// An entry of `plugins`.
pub static PLUGIN: Table = Table {
    doc: "A policy or detector with its parameters, to be referred to by name.",
    settings: &[
        Setting::open("name", Kind::Text, "the type", "The name by which it is referred to; unique."),
        Setting::open(
            "type",
            Kind::Text,
            "refused",
            "The type. Types that Weir does not know are taken, and not read, in a file of kind `EndpointPickerConfig` only.",
        ),
        Setting::open("parameters", Kind::Parameters, "defaults", "The parameters of that type."),
    ],
};

/// Every type that Weir knows.
pub static PLUGIN_TYPES: &[PluginType] = &[
    PluginType { name: "fcfs-ordering-policy", family: Family::Ordering, parameters: &FCFS },
    PluginType { name: "edf-ordering-policy", family: Family::Ordering, parameters: &EDF },
    PluginType { name: "slo-deadline-ordering-policy", family: Family::Ordering, parameters: &SLO_DEADLINE },
    PluginType { name: "newest-first-when-standing", family: Family::Ordering, parameters: &NEWEST_FIRST },
    PluginType {
        name: "global-strict-fairness-policy",
        family: Family::Fairness,
        parameters: &GLOBAL_STRICT,
    },
    PluginType { name: "round-robin-fairness-policy", family: Family::Fairness, parameters: &ROUND_ROBIN },
    PluginType { name: "program-aware-fairness", family: Family::Fairness, parameters: &PROGRAM_AWARE },
    PluginType { name: "static-usage-limit-policy", family: Family::UsageLimit, parameters: &STATIC_LIMIT },
    PluginType { name: "priority-holdback-policy", family: Family::UsageLimit, parameters: &HOLDBACK },
    PluginType {
        name: "soft-reflective-ceiling-policy",
        family: Family::UsageLimit,
        parameters: &SOFT_REFLECTIVE,
    },
    PluginType { name: "fixed-usage-limit-policy", family: Family::UsageLimit, parameters: &FIXED_LIMIT },
    PluginType { name: "utilization-detector", family: Family::Detector, parameters: &UTILIZATION },
    PluginType { name: "concurrency-detector", family: Family::Detector, parameters: &CONCURRENCY },
    PluginType { name: "pushed-saturation-detector", family: Family::Detector, parameters: &PUSHED },
    PluginType { name: "inflight-load-producer", family: Family::LoadProducer, parameters: &LOAD_PRODUCER },
];

static FCFS: Table = Table { doc: "By arrival.", settings: &[] };
static EDF: Table = Table {
    doc: "By enqueue plus the request's own budget; a request without one comes last.",
    settings: &[],
};
static SLO_DEADLINE: Table = Table {
    doc: "By receive time plus the header `x-llm-d-slo-ttft-ms`; a request without one comes last.",
    settings: &[],
};
static NEWEST_FIRST: Table = Table {
    doc: "By arrival, until the band's oldest request has waited past `target` for `window` without a break: then the queue \
          only makes everybody late, and the newest goes first until the oldest is within `target` again.",
    settings: &[
        Setting::new(
            "target",
            Kind::Duration { min: Micros(1) },
            "1s",
            "What a request may wait in a queue that does not stand; below the band's `defaultRequestTTL`.",
        ),
        Setting::new(
            "window",
            Kind::Duration { min: Micros::ZERO },
            "5s",
            "For so long the oldest request, whoever it is, must have waited past `target`.",
        ),
    ],
};
static GLOBAL_STRICT: Table =
    Table { doc: "The best head of all flows, under the band's ordering.", settings: &[] };
static ROUND_ROBIN: Table = Table { doc: "The flows in turn, by name.", settings: &[] };
static SOFT_REFLECTIVE: Table =
    Table { doc: "Closes lower bands part of the time as saturation rises.", settings: &[] };
static PUSHED: Table = Table {
    doc: "The saturation figure that the pusher of endpoints gives; without one the pool reads 1.0.",
    settings: &[],
};

static PROGRAM_AWARE: Table = Table {
    doc: "The flow with the least attained service, which decays with time.",
    settings: &[
        Setting::new("strategy", Kind::Choice(&["las"]), "las", "Least attained service."),
        Setting::new(
            "lasWeightService",
            Kind::Fraction(Range::NOT_NEGATIVE),
            "0.8",
            "Weight of the attained service.",
        ),
        Setting::new(
            "lasWeightHeadWait",
            Kind::Fraction(Range::NOT_NEGATIVE),
            "0.2",
            "Weight of how long the flow's head has waited.",
        ),
        Setting::new(
            "lasHalfLifeSeconds",
            Kind::Seconds { min: Micros::ZERO },
            "60",
            "Half-life of attained service; 0 = it never decays.",
        ),
        Setting::new(
            "evictionTtlSeconds",
            Kind::Seconds { min: Micros::ZERO },
            "3600",
            "Idle service state is dropped after this; 0 = never.",
        ),
        Setting::new(
            "evictionSweepSeconds",
            Kind::Seconds { min: Micros(1) },
            "300",
            "Accepted, without effect: state goes at its deadline, not at a sweep.",
        ),
    ],
};

static STATIC_LIMIT: Table = Table {
    doc: "One ceiling for every band.",
    settings: &[Setting::new("threshold", Kind::Fraction(Range::ABOVE_ZERO_TO_ONE), "1.0", "The ceiling.")],
};

static HOLDBACK: Table = Table {
    doc: "Ceilings on a line from the highest band (`maxCeiling`) to the lowest (`minCeiling`).",
    settings: &[
        Setting::open(
            "minCeiling",
            Kind::Fraction(Range::ZERO_TO_BELOW_ONE),
            "refused",
            "The ceiling of the lowest band; below `maxCeiling`.",
        ),
        Setting::new(
            "maxCeiling",
            Kind::Fraction(Range::ABOVE_ZERO_TO_ONE),
            "1.0",
            "The ceiling of the highest band, and of the only one.",
        ),
        Setting::new("shape", Kind::Choice(&["linear"]), "linear", "The shape of the line."),
        Setting::new(
            "domain",
            Kind::Choice(&["rank", "value"]),
            "rank",
            "Interpolate over the position of the band, or over the priority itself.",
        ),
    ],
};

static FIXED_LIMIT: Table = Table {
    doc: "Ceilings given one by one. A lower band's may not be above a higher band's.",
    settings: &[
        Setting::open("ceilings", Kind::Fractions(Range::ZERO_TO_ONE), "none", "Ceilings by priority."),
        Setting::new(
            "default",
            Kind::Fraction(Range::ZERO_TO_ONE),
            "1.0",
            "The ceiling of a band that is not named.",
        ),
    ],
};

static UTILIZATION: Table = Table {
    doc: "Per endpoint the larger of waiting / `queueDepthThreshold` and KV share / `kvCacheUtilThreshold`; the mean over the pool.",
    settings: &[
        Setting::new(
            "queueDepthThreshold",
            Kind::Count { min: 1, max: u32::MAX as u64 },
            "5",
            "Waiting requests on an endpoint that count as full.",
        ),
        Setting::new(
            "kvCacheUtilThreshold",
            Kind::Fraction(Range::ABOVE_ZERO_TO_ONE),
            "0.8",
            "Share of the KV cache that counts as full.",
        ),
        Setting::new(
            "metricsStalenessThreshold",
            Kind::Duration { min: Micros(1) },
            "200ms",
            "A sample older than this is stale, and its endpoint counts as full.",
        ),
        Setting::new(
            "headroom",
            Kind::Fraction(Range::NOT_NEGATIVE),
            "0.0",
            "Widens the choice of endpoints, not the gauge.",
        ),
    ],
};

static CONCURRENCY: Table = Table {
    doc: "Weir's own leases against a limit per endpoint.",
    settings: &[
        Setting::new(
            "concurrencyMode",
            Kind::Choice(&["requests", "tokens", "hybrid"]),
            "requests",
            "What is counted.",
        ),
        Setting::new(
            "maxConcurrency",
            Kind::Count { min: 1, max: u64::MAX },
            "100",
            "Requests in flight per endpoint that count as full.",
        ),
        Setting::new(
            "maxTokenConcurrency",
            Kind::Count { min: 1, max: u64::MAX },
            "1000000",
            "Tokens in flight per endpoint that count as full.",
        ),
        Setting::new(
            "headroom",
            Kind::Fraction(Range::NOT_NEGATIVE),
            "0.0",
            "Widens the choice of endpoints, not the gauge.",
        ),
        Setting::open(
            "inFlightLoadProducerName",
            Kind::Text,
            "the only `inflight-load-producer`, if any",
            "The plugin that says what is counted of a request.",
        ),
    ],
};

static LOAD_PRODUCER: Table = Table {
    doc: "What the concurrency detector counts of a request in tokens.",
    settings: &[
        Setting::new(
            "addEstimatedOutputTokens",
            Kind::Bool,
            "false",
            "Count an estimate of the output until the end, on top of the prompt.",
        ),
        Setting::new(
            "outputRatio",
            Kind::Fraction(Range::NOT_NEGATIVE),
            "1.5",
            "Estimated output tokens per prompt token.",
        ),
        Setting::new(
            "maxEstimatedOutputTokens",
            Kind::Count { min: 0, max: u64::MAX },
            "0",
            "The most output tokens that are estimated; 0 = no cap.",
        ),
        Setting::open(
            "prefixMatchInfoProducerName",
            Kind::Text,
            "none",
            "llm-d's prefix cache producer. Accepted, without effect.",
        ),
    ],
};
