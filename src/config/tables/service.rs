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
            "Where the gateway listens. Beyond loopback only with `auth.tokensFile` or `gateway.tls.clientCa`, or with \
             `weir serve --insecure`.",
        ),
        Setting::open("auth", Kind::Section(&AUTH), "no tokens", "Who may do what."),
        Setting::open("log", Kind::Section(&LOG), "defaults", "The decision log."),
        Setting::open("gateway", Kind::Section(&GATEWAY), "defaults", "Bounds of the HTTP gateway."),
        Setting::open("graphql", Kind::Section(&GRAPHQL), "on", "Questions to the decision log: `/graphql`."),
        Setting::open("envoy", Kind::Section(&ENVOY), "no gRPC", "Envoy's ext_proc and ext_authz over gRPC."),
        Setting::open(
            "objectives",
            Kind::Numbers { min: i32::MIN as i64, max: i32::MAX as i64 },
            "none",
            "Priorities by objective name. A name that is not here has priority 0.",
        ),
        Setting::open(
            "objectivesDir",
            Kind::Path,
            "none",
            "A folder with more of them: `InferenceObjective` objects in `.yaml`, `.yml` or `.json` files, of either API group, looked at \
             each second. An object concerns the pool that its `poolRef` names (`pools.<name>.inferencePool`). Where \
             `objectives` has the same name, that one counts. A file with a mistake keeps what it said before.",
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

static AUTH: Table = Table {
    doc: "Who may do what. Without tokens, and without client certificates (`gateway.tls`), whoever reaches an address may do \
          everything, so that only loopback is listened on unless `weir serve --insecure` says otherwise.",
    settings: &[Setting::open(
        "tokensFile",
        Kind::Path,
        "no tokens",
        "The file of tokens and certificates with their scopes (`admit`, `pool`, `read`, `admin`), highest priorities and \
         pools; `weir token new` makes its entries. Read again when it changes and on SIGHUP.",
    )],
};

static TLS: Table = Table {
    doc: "TLS on both listeners. The files are read again when they change and on SIGHUP; whether there is TLS takes a restart.",
    settings: &[
        Setting::open("cert", Kind::Path, "no TLS", "The certificate and its chain (PEM)."),
        Setting::open("key", Kind::Path, "no TLS", "Its key (PEM)."),
        Setting::open(
            "clientCa",
            Kind::Path,
            "no client certificates",
            "The authorities of client certificates (PEM). Without `auth.tokensFile` whoever has a certificate of theirs may do \
             everything; with it, what the entry of a name in the certificate says.",
        ),
        Setting::new(
            "clientCertificate",
            Kind::Choice(&["required", "optional"]),
            "required",
            "`optional`: a client without a certificate may show a token instead, and probes need neither.",
        ),
        Setting::new(
            "handshakeTimeout",
            Kind::Duration { min: Micros(1) },
            "10s",
            "The longest that a handshake may take.",
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
            "64Mi",
            "The size of a database of the hot window at which the next one is begun, and it is sealed into segments; at most \
             an eighth of `retention.size`.",
        ),
        Setting::open("retention", Kind::Section(&RETENTION), "defaults", "How much of the log is kept."),
        Setting::new(
            "snapshotEvery",
            Kind::Count { min: 1_000, max: u64::MAX },
            "200k",
            "Steps of a pool between snapshots, which bound the time of recovery.",
        ),
        Setting::new(
            "upkeepInterval",
            Kind::Duration { min: Micros::from_millis(100) },
            "5s",
            "How often sealing, snapshots and retention are looked after.",
        ),
        Setting::open(
            "pseudonymise",
            Kind::Path,
            "names as they are",
            "The file of a key (32 bytes or more): callers' own ids and fairness ids enter the log, and all that is made of it, as keyed \
             hashes. Keep it outside the data directory; once it is destroyed, nothing in the log leads back to anybody. \
             `weir log pseudonym` tells under which name somebody is there.",
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
            "The most bytes that the whole log may take; 0 = no bound, else at least 16Mi.",
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
            "bodyTimeout",
            Kind::Duration { min: Micros(1) },
            "30s",
            "The longest that a body may take to come.",
        ),
        Setting::new(
            "maxHeadBytes",
            Kind::Bytes { min: 8_192, max: 1 << 24 },
            "64Ki",
            "The largest head of a call: its request line and headers.",
        ),
        Setting::new("maxHeaders", Kind::Count { min: 16, max: 1_024 }, "100", "The most headers of a call."),
        Setting::new(
            "headTimeout",
            Kind::Duration { min: Micros(1) },
            "10s",
            "The longest that a head may take to come.",
        ),
        Setting::new(
            "maxInFlight",
            Kind::Count { min: 1, max: 1 << 20 },
            "16384",
            "Connections that may be open at once, each of which may hold one request.",
        ),
        Setting::new(
            "writeStallTimeout",
            Kind::Duration { min: Micros(1) },
            "30s",
            "A caller that takes nothing of its answer for so long loses its connection.",
        ),
        Setting::new(
            "maxLogReaders",
            Kind::Count { min: 1, max: 1_024 },
            "16",
            "Readers of a log at once, followers included; each may take a thread.",
        ),
        Setting::open("tls", Kind::Section(&TLS), "no TLS", "TLS on both listeners."),
        Setting::new(
            "heartbeatInterval",
            Kind::Duration { min: Micros::from_millis(10) },
            "15s",
            "How long an event stream may be silent before a heartbeat shows that it lives.",
        ),
        Setting::new(
            "closeTimeout",
            Kind::Duration { min: Micros(1) },
            "5s",
            "How long answers may take to leave once all is decided at a stop.",
        ),
        Setting::new(
            "pinWorkers",
            Kind::Bool,
            "false",
            "Hold each thread that serves to a processor of its own. For machines of Weir's own whose kernel would gather its \
             threads on few of them; beside other busy processes leave it off. It has no effect under a quota of processor time.",
        ),
        Setting::open("proxy", Kind::Section(&PROXY), "off", "A reverse proxy for OpenAI-compatible pools."),
    ],
};

static PROXY: Table = Table {
    doc: "A reverse proxy on the gateway's own address: OpenAI-compatible calls are admitted, then sent to the endpoint that \
          Weir chooses.",
    settings: &[
        Setting::new("enabled", Kind::Bool, "false", "Serve it. `weir serve --upstream` does so as well."),
        Setting::new(
            "enginePriority",
            Kind::Choice(&["none", "vllm"]),
            "none",
            "`vllm`: the field `priority` of each admitted request is set from its band, so that the engine orders by it as well \
             (vLLM: lower goes first, hence the negated priority). It must run with `--scheduling-policy priority`; without, \
             vLLM 0.32 ignores the field, and by its own description may refuse it.",
        ),
        Setting::new(
            "maxBodyBytes",
            Kind::Bytes { min: 1_024, max: 1 << 30 },
            "32Mi",
            "The largest body of a proxied request; a larger one gets 413. `bodyTimeout` holds as well.",
        ),
        Setting::new(
            "maxHeldBytes",
            Kind::Bytes { min: 1 << 20, max: 1 << 40 },
            "1Gi",
            "The most bytes of bodies that are held while their requests wait; beyond it 429.",
        ),
        Setting::new(
            "connectTimeout",
            Kind::Duration { min: Micros(1) },
            "5s",
            "The longest that a connection to an endpoint may take; then another endpoint is tried, once.",
        ),
        Setting::new(
            "idleTimeout",
            Kind::Duration { min: Micros(1) },
            "4s",
            "How long an idle connection to an endpoint is kept; keep it below that of the engine (uvicorn's is 5s), or a request \
             may meet a connection that is being closed.",
        ),
        Setting::open(
            "admitPaths",
            Kind::Texts,
            "none",
            "More paths whose POST is admitted, such as `/v1/my/engine`; `/*` at the end stands for whatever follows.",
        ),
        Setting::open(
            "passPaths",
            Kind::Texts,
            "none",
            "More paths that pass to an endpoint without admission, whatever the method; `/*` at the end stands for whatever \
             follows.",
        ),
    ],
};

static ENVOY: Table = Table {
    doc: "Envoy's ext_proc and ext_authz over gRPC; `deploy/envoy/` has the other side of it.",
    settings: &[
        Setting::open(
            "listen",
            Kind::Socket,
            "no gRPC",
            "Where gRPC is served, such as 127.0.0.1:9002. Tokens, certificates and TLS are those of HTTP; beyond loopback as \
             `weir.listen`.",
        ),
        Setting::new(
            "failureModeAllow",
            Kind::Bool,
            "false",
            "As `failure_mode_allow` of Envoy's ext_proc filter: `true` says that running requests outlive a restart of \
             Weir, and are then counted until the endpoints show that they have ended.",
        ),
        Setting::new(
            "maxStreams",
            Kind::Count { min: 1, max: 1 << 20 },
            "65536",
            "The most requests, queued or running, of one of Envoy's connections (it opens one per worker, or more).",
        ),
        Setting::new(
            "maxHeldBytes",
            Kind::Bytes { min: 1 << 20, max: 1 << 40 },
            "1Gi",
            "The most bytes of bodies that are held in full duplex while their requests wait; beyond it 429.",
        ),
    ],
};

static GRAPHQL: Table = Table {
    doc: "Questions to the decision log: `/graphql`, answered from read models that follow the log (`projections` in the data \
          directory). Changes take a restart.",
    settings: &[
        Setting::new(
            "enabled",
            Kind::Bool,
            "true",
            "Off: no read models are kept, and `/graphql` is no path.",
        ),
        Setting::new("introspection", Kind::Bool, "true", "May the schema be asked for?"),
        Setting::new(
            "timeout",
            Kind::Duration { min: Micros(1) },
            "10s",
            "How long one question may take; then its work ends, wherever it is.",
        ),
    ],
};

static METRICS: Table = Table {
    doc: "What `/metrics` shows.",
    settings: &[
        Setting::new(
            "compat",
            Kind::Choice(&["none", "llm-d"]),
            "none",
            "`llm-d`: every metric also under its llm-d name.",
        ),
        Setting::open(
            "models",
            Kind::Texts,
            "none",
            "Models that keep a metric label of their own whatever else comes.",
        ),
    ],
};
