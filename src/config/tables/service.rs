//! `weir`: the service itself.

use crate::table::{Kind, Setting, Table};
use weir_kernel::Micros;

/// `weir`.
pub static WEIR: Table = Table {
    doc: "The service itself.",
    settings: &[
        Setting::new(
            "listen",
            Kind::Socket,
            "127.0.0.1:8080",
            "Where the gateway listens. Loopback by default: whoever reaches it may admit and complete requests.",
        ),
        Setting::open("log", Kind::Section(&LOG), "defaults", "The decision log."),
        Setting::open("gateway", Kind::Section(&GATEWAY), "defaults", "Bounds of the HTTP gateway."),
        Setting::open(
            "objectives",
            Kind::Numbers { min: i32::MIN as i64, max: i32::MAX as i64 },
            "none",
            "Priorities by objective name. A name that is not here has priority 0.",
        ),
        Setting::open("metrics", Kind::Section(&METRICS), "defaults", "What `/metrics` shows."),
        Setting::new(
            "drainTimeout",
            Kind::Duration { min: Micros::ZERO },
            "30s",
            "On a stop, queued requests are served for this long; `0s` ends them at once.",
        ),
        Setting::new(
            "leaseTimeout",
            Kind::Duration { min: Micros(1) },
            "10m",
            "A held lease that is neither renewed nor completed ends as `Lost` after this.",
        ),
        Setting::new(
            "ticketTimeout",
            Kind::Duration { min: Micros(1) },
            "1m",
            "A ticket whose holder does not poll for this long is cancelled.",
        ),
        Setting::new(
            "resumeWindow",
            Kind::Duration { min: Micros::ZERO },
            "5s",
            "After a restart, callers with an idempotency key keep their place if they come back within this.",
        ),
        Setting::new(
            "idempotencyKeys",
            Kind::Count { min: 1, max: 16_777_216 },
            "131072",
            "How many idempotency keys a pool remembers; the oldest are dropped and counted.",
        ),
        Setting::new(
            "maxDynamicBands",
            Kind::Count { min: 0, max: 4_096 },
            "64",
            "How many bands traffic may provision in a pool; beyond it 429 `rejected-band-limit`.",
        ),
    ],
};

static LOG: Table = Table {
    doc: "The decision log.",
    settings: &[
        Setting::new("dir", Kind::Path, "weir-data", "The data directory."),
        Setting::new(
            "durability",
            Kind::Choice(&["group", "interval"]),
            "group",
            "`group`: nobody hears a decision before it is durable. `interval`: durable every `interval`; a loss of power \
             may lose what was decided within it.",
        ),
        Setting::new(
            "interval",
            Kind::Duration { min: Micros::from_millis(1) },
            "10ms",
            "How often the log is made durable under `durability: interval`.",
        ),
        Setting::new(
            "cacheBytes",
            Kind::Bytes { min: 1 << 20, max: 1 << 40 },
            "64Mi",
            "The cache of the hot window.",
        ),
        Setting::new(
            "rotateBytes",
            Kind::Bytes { min: 1 << 20, max: 1 << 40 },
            "256Mi",
            "The size of the hot window at which older batches are sealed into a segment.",
        ),
        Setting::open("retention", Kind::Section(&RETENTION), "defaults", "How much of the log is kept."),
        Setting::new(
            "snapshotEvery",
            Kind::Count { min: 1_000, max: u64::MAX },
            "200k",
            "Steps between snapshots, which bound the time of recovery.",
        ),
    ],
};

static RETENTION: Table = Table {
    doc: "How much of the log is kept; whole batches go, the oldest first, once a snapshot covers them.",
    settings: &[
        Setting::new(
            "age",
            Kind::Duration { min: Micros::ZERO },
            "168h",
            "The oldest that is kept; `0s` = no bound.",
        ),
        Setting::new(
            "size",
            Kind::Bytes { min: 0, max: u64::MAX },
            "10Gi",
            "The most bytes that are kept per pool; 0 = no bound.",
        ),
    ],
};

static GATEWAY: Table = Table {
    doc: "Bounds of the HTTP gateway.",
    settings: &[
        Setting::new(
            "maxBodyBytes",
            Kind::Bytes { min: 1_024, max: 1 << 30 },
            "1Mi",
            "The largest body of a call; a larger one gets 413.",
        ),
        Setting::new(
            "maxInFlight",
            Kind::Count { min: 1, max: 1 << 20 },
            "16384",
            "Calls that may be open at once; one more gets 503.",
        ),
    ],
};

static METRICS: Table = Table {
    doc: "What `/metrics` shows.",
    settings: &[Setting::new(
        "compat",
        Kind::Choice(&["none", "llm-d"]),
        "none",
        "`llm-d`: every metric also under its llm-d name.",
    )],
};
