//! `flowControl`: limits, budgets, bands. Keys, units and defaults are llm-d's.

use crate::table::{Kind, Setting, Table};
use weir_kernel::Micros;

const ANY_SPAN: Kind = Kind::Duration { min: Micros::ZERO };
const BYTES: Kind = Kind::Bytes { min: 0, max: u64::MAX };
const COUNT: Kind = Kind::Count { min: 0, max: u64::MAX };

/// `flowControl`.
pub static FLOW: Table = Table {
    doc: "Queueing: limits over all bands, queue-wait budgets, bands and policies.",
    settings: &[
        Setting::new("maxBytes", BYTES, "0", "Queued bytes over all bands; 0 = unlimited."),
        Setting::new("maxRequests", COUNT, "0", "Queued requests over all bands; 0 = unlimited."),
        Setting::new(
            "defaultRequestTTL",
            ANY_SPAN,
            "60s",
            "How long a request may wait while the pool can serve; `0s` = unbounded, and unbounded without endpoints too \
             unless `noEndpointRequestTTL` is set.",
        ),
        Setting::open(
            "noEndpointRequestTTL",
            ANY_SPAN,
            "follows `defaultRequestTTL`",
            "How long a request may wait while nothing can serve (no endpoint, or none with fresh metrics); `0s` = unbounded.",
        ),
        Setting::open(
            "defaultPriorityBand",
            Kind::Section(&BAND),
            "system defaults",
            "What a band that is not listed is made from.",
        ),
        Setting::open(
            "defaultNegativePriorityBand",
            Kind::Section(&BAND),
            "as `defaultPriorityBand`",
            "The same for priorities below zero. It takes nothing from `defaultPriorityBand`.",
        ),
        Setting::open(
            "priorityBands",
            Kind::List(&BAND),
            "priority 0 alone",
            "The bands. What a listed band leaves out takes the system default, not the template's value.",
        ),
        Setting::new(
            "usageLimitPolicyPluginRef",
            Kind::Text,
            "static-usage-limit-policy",
            "The plugin that gives each band its ceiling.",
        ),
        Setting::open(
            "saturationDetector",
            Kind::Section(&DETECTOR_REF),
            "`utilization-detector`",
            "The plugin that reads the saturation of the pool.",
        ),
        Setting::new(
            "enableEviction",
            Kind::Bool,
            "false",
            "Take back running sheddable requests (priority below 0) for blocked ones of a higher priority; see `eviction`.",
        ),
    ],
};

/// A band, or a template of one.
pub static BAND: Table = Table {
    doc: "One priority: its limits, order, fairness and budgets.",
    settings: &[
        Setting::new(
            "priority",
            Kind::Whole { min: i32::MIN as i64, max: i32::MAX as i64 },
            "0",
            "Higher is served first; below zero is sheddable. Of no meaning in a template.",
        ),
        Setting::new("maxBytes", BYTES, "1G", "Queued bytes of the band; 0 = the default."),
        Setting::new("maxRequests", COUNT, "5000", "Queued requests of the band; 0 = the default."),
        Setting::new(
            "fairnessPolicyRef",
            Kind::Text,
            "global-strict-fairness-policy",
            "The plugin that chooses between the flows of the band.",
        ),
        Setting::new(
            "orderingPolicyRef",
            Kind::Text,
            "fcfs-ordering-policy",
            "The plugin that orders the requests of a flow.",
        ),
        Setting::open(
            "defaultRequestTTL",
            ANY_SPAN,
            "the pool's",
            "Replaces the pool's `defaultRequestTTL` for this band; `0s` = unbounded.",
        ),
        Setting::open(
            "noEndpointRequestTTL",
            ANY_SPAN,
            "the pool's",
            "Replaces the pool's `noEndpointRequestTTL` for this band; `0s` = unbounded.",
        ),
        Setting::new(
            "starvationBound",
            ANY_SPAN,
            "0s",
            "A request that has waited so long while the pool could serve is served next, whatever its priority, once the \
             ceiling of its own band allows it; below the band's `defaultRequestTTL`; `0s` = none.",
        ),
        Setting::new(
            "rejectHopeless",
            Kind::Bool,
            "false",
            "Refuse an arrival (429 `rejected-saturated`) whose predicted wait exceeds what it may wait: the requests that \
             would be served before it, over the rate at which the band is drained. Only where its place is known when it \
             comes: by arrival or newest first, not program-aware.",
        ),
    ],
};

/// `saturationDetector`.
pub static DETECTOR_REF: Table = Table {
    doc: "Which plugin reads the saturation of the pool.",
    settings: &[Setting::new(
        "pluginRef",
        Kind::Text,
        "utilization-detector",
        "The name of a plugin; empty means the default.",
    )],
};
