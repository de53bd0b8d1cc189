//! `pools.<name>`: endpoints, how they are observed, and the pool's own flow control.

use super::discovery::DISCOVERY;
use super::{FLOW, PLUGIN};
use crate::table::{Kind, Setting, Table};
use weir_kernel::Micros;

/// `pools.<name>`.
pub static POOL: Table = Table {
    doc: "One pool of model servers.",
    settings: &[
        Setting::open(
            "endpoints",
            Kind::List(&ENDPOINT),
            "none: they are discovered or pushed",
            "The model servers. Where this and `discovery` are absent they come by `PUT /v1/pools/{pool}/endpoints`, and nothing \
             is known of the pool until then; an empty list is known to be empty.",
        ),
        Setting::open(
            "discovery",
            Kind::Section(&DISCOVERY),
            "none",
            "Where the model servers are found while the service runs, in place of `endpoints`.",
        ),
        Setting::open(
            "scrape",
            Kind::Section(&SCRAPE),
            "defaults",
            "How the metrics of the endpoints are read.",
        ),
        Setting::open(
            "inferencePool",
            Kind::Text,
            "the name of the pool",
            "The InferencePool that this is, as the `poolRef` of `InferenceObjective` objects names it.",
        ),
        Setting::open("regime", Kind::Section(&REGIME), "defaults", "When the pool counts as blind."),
        Setting::new(
            "mode",
            Kind::Choice(&["enforce", "observe"]),
            "enforce",
            "`observe`: decide and log, but hold, refuse and revoke nobody.",
        ),
        Setting::new(
            "trustRequestPriority",
            Kind::Bool,
            "false",
            "Honour a raw numeric priority of the caller, not only a named objective.",
        ),
        Setting::open("saturation", Kind::Section(&SATURATION), "defaults", "How the gauge is used."),
        Setting::open(
            "flowControl",
            Kind::Section(&FLOW),
            "defaults",
            "As `flowControl` at the top, which is that of the pool `default`; one of the two for that pool.",
        ),
        Setting::open(
            "plugins",
            Kind::List(&PLUGIN),
            "none",
            "As `plugins` at the top, for this pool alone.",
        ),
        Setting::open(
            "eviction",
            Kind::Section(&EVICTION),
            "defaults",
            "How running requests are taken back.",
        ),
        Setting::open(
            "controller",
            Kind::Section(&CONTROLLER),
            "defaults",
            "Constants of llm-d's controller.",
        ),
        Setting::open(
            "registry",
            Kind::Section(&REGISTRY),
            "defaults",
            "When idle flows and bands are collected.",
        ),
    ],
};

/// The words of `llm-d.ai/role`.
pub static ROLES: [&str; 7] =
    ["decode", "prefill", "prefill-decode", "both", "encode", "encode-prefill", "encode-prefill-decode"];

/// One model server, in the settings and in a file of discovery.
pub static ENDPOINT: Table = Table {
    doc: "One model server.",
    settings: &[
        Setting::open("name", Kind::Text, "refused", "Its name; unique in the pool."),
        Setting::open(
            "url",
            Kind::Url,
            "refused",
            "Its base URL; metrics are read from `/metrics` below it. Each once in a pool: a \
             server under two names would count twice.",
        ),
        Setting::new(
            "role",
            Kind::Choice(&ROLES),
            "decode",
            "Its stages, as the label `llm-d.ai/role` names them.",
        ),
    ],
};

static SCRAPE: Table = Table {
    doc: "How the metrics of the endpoints are read; every endpoint on its own, at the same time.",
    settings: &[
        Setting::new(
            "interval",
            Kind::Duration { min: Micros(1) },
            "50ms",
            "How often an endpoint is read. 50ms is the floor: a lower value is raised to it, with a warning.",
        ),
        Setting::new(
            "timeout",
            Kind::Duration { min: Micros(1) },
            "1s",
            "The longest that one read may take.",
        ),
        Setting::new(
            "maxBytes",
            Kind::Bytes { min: 1_024, max: 1 << 30 },
            "4Mi",
            "The largest body of metrics that is read; more than that is a failed read.",
        ),
        Setting::new(
            "preset",
            Kind::Choice(&["vllm", "vllm-old", "sglang", "tgi"]),
            "vllm",
            "Whose metric names are used.",
        ),
        Setting::open(
            "names",
            Kind::Section(&NAMES),
            "the preset's",
            "Metric names of your own, one by one.",
        ),
    ],
};

static NAMES: Table = Table {
    doc: "Metric names, each in place of the preset's.",
    settings: &[
        Setting::open("waiting", Kind::Text, "the preset's", "The gauge of waiting requests."),
        Setting::open("running", Kind::Text, "the preset's", "The gauge of running requests."),
        Setting::open("kvUsage", Kind::Text, "the preset's", "The gauge of the KV cache share, from 0 to 1."),
    ],
};

static REGIME: Table = Table {
    doc: "When the pool counts as blind.",
    settings: &[Setting::new(
        "blindAfter",
        Kind::Duration { min: Micros(1) },
        "5s",
        "How long every endpoint must be stale before the regime is `NoFreshMetrics`. Must be below every finite \
         `defaultRequestTTL`, which it would hide; where it is not set it is at most half of the shortest of them.",
    )],
};

static SATURATION: Table = Table {
    doc: "How the gauge is used.",
    settings: &[Setting::new(
        "inFlightCredit",
        Kind::Bool,
        "true",
        "Charge dispatches that the last sample cannot have seen. `false`: the raw gauge, and one dispatch per millisecond.",
    )],
};

/// `eviction`: how running requests are taken back.
pub static EVICTION: Table = Table {
    doc: "How running sheddable requests are taken back where `flowControl.enableEviction` is on. The time-out holds for \
          an operator's orders as well.",
    settings: &[
        Setting::open(
            "maxRevocationsPerDecision",
            Kind::Count { min: 1, max: 64 },
            "`controller.maxRevocationsPerDecision`",
            "The most running requests that one decision takes back.",
        ),
        Setting::new(
            "sizing",
            Kind::Choice(&["deficit", "demand"]),
            "deficit",
            "How many a decision takes back. `deficit`: what brings the gauge just below the ceiling, room for one request, so \
             that a burst is relieved one by one. `demand`: what makes room for all that wait in the band and whose budget \
             outlasts the round trip; never more than they can use, but more work is thrown away at once, and in vain where \
             the waiting give up or running requests end by themselves sooner than before.",
        ),
        Setting::new(
            "maxRevocationsOnDemand",
            Kind::Count { min: 1, max: 64 },
            "16",
            "The most running requests that one decision takes back with `sizing: demand`, in place of \
             `maxRevocationsPerDecision`.",
        ),
        Setting::open(
            "confirmationTimeout",
            Kind::Duration { min: Micros(1) },
            "`controller.evictionConfirmationTimeout`",
            "A revocation whose request has not ended by then has timed out.",
        ),
        Setting::open(
            "confirmationGrace",
            Kind::Duration { min: Micros::ZERO },
            "derived",
            "How long after the end of a revoked request the gauge may still show it, so that no decision is made. Derived: \
             the detector's staleness threshold, the scrape interval and 250ms for the engine; 10ms where the detector \
             counts running requests itself.",
        ),
    ],
};

/// `controller`: constants of llm-d's controller.
pub static CONTROLLER: Table = Table {
    doc: "Constants of llm-d's controller. There is no sweep and no hand-off channel; those of eviction hold where \
          `eviction` does not say otherwise.",
    settings: &[
        Setting::new(
            "expiryCleanupInterval",
            Kind::Duration { min: Micros(1) },
            "1s",
            "llm-d's sweep. Without effect: a budget ends at its deadline.",
        ),
        Setting::new(
            "enqueueChannelBufferSize",
            Kind::Count { min: 0, max: u64::MAX },
            "100",
            "llm-d's hand-off channel. Without effect: there is none.",
        ),
        Setting::new(
            "maxRevocationsPerDecision",
            Kind::Count { min: 1, max: u64::MAX },
            "2",
            "The most running requests that one decision takes back; more than 64 count as 64.",
        ),
        Setting::new(
            "evictionConfirmationGrace",
            Kind::Duration { min: Micros::ZERO },
            "500ms",
            "How long after a confirmation the gauge is not trusted. Unset: see `eviction.confirmationGrace`.",
        ),
        Setting::new(
            "evictionConfirmationTimeout",
            Kind::Duration { min: Micros(1) },
            "10s",
            "How long a revocation may stay unconfirmed.",
        ),
    ],
};

/// `registry`: collection of idle flows and bands.
pub static REGISTRY: Table = Table {
    doc: "When idle flows and bands are collected.",
    settings: &[
        Setting::new(
            "flowGCTimeout",
            Kind::Duration { min: Micros(1) },
            "5m",
            "A flow is collected when nothing of it has been queued for this long.",
        ),
        Setting::new(
            "priorityBandGCTimeout",
            Kind::Duration { min: Micros(1) },
            "10m",
            "A provisioned band is collected when it has had no flow for this long; not below `flowGCTimeout`.",
        ),
    ],
};
