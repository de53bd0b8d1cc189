//! `pools.<name>.discovery`: where endpoints are found while the service runs.

use super::pool::{ENDPOINT, ROLES};
use crate::table::{Kind, Setting, Table};
use weir_kernel::Micros;

/// `pools.<name>.discovery`.
pub static DISCOVERY: Table = Table {
    doc: "Where the model servers of the pool are found while the service runs: exactly one of these. What was found last stays \
          while nothing can be found out (`weir_discovery_up` is 0 then, and a line of the process's log says why); before the \
          first finding nothing is known of the pool, and nothing found is known to be nothing.",
    settings: &[
        Setting::open(
            "dns",
            Kind::Section(&DNS),
            "no",
            "The addresses (A and AAAA) of a name, such as that of a headless Service.",
        ),
        Setting::open("file", Kind::Section(&FILE), "no", "A file that somebody else writes."),
        Setting::open(
            "kubernetes",
            Kind::Section(&KUBERNETES),
            "no",
            "Objects of a Kubernetes API server, followed as they change.",
        ),
    ],
};

static DNS: Table = Table {
    doc: "Every address of a name is an endpoint, called `address:port`; its metrics are at `http://address:port/metrics`. A name \
          that is there without an address is an empty pool; one that is not there, or a failing resolver, changes nothing.",
    settings: &[
        Setting::open("name", Kind::Text, "refused", "The name, such as `vllm.inference.svc.cluster.local`."),
        Setting::open(
            "port",
            Kind::Whole { min: 1, max: 65_535 },
            "refused",
            "The port that model servers serve on.",
        ),
        Setting::new(
            "interval",
            Kind::Duration { min: Micros::from_millis(100) },
            "5s",
            "How often the name is resolved. Its records' own time to live is not looked at.",
        ),
        Setting::new(
            "timeout",
            Kind::Duration { min: Micros(1) },
            "5s",
            "After this long without an answer it is said that there is none. The question stays open, and is not asked twice at once.",
        ),
        ROLE,
    ],
};

static FILE: Table = Table {
    doc: "A YAML or JSON document with `endpoints`, a list as in the settings. It is read when it has changed and rests; links \
          are followed, so that a mounted ConfigMap is seen to change. A file that is gone, empty or wrong changes nothing; \
          `endpoints: []` is an empty pool. Of two with one URL the first by name counts, with a line in the process's log.",
    settings: &[
        Setting::open("path", Kind::Path, "refused", "The file."),
        Setting::new(
            "interval",
            Kind::Duration { min: Micros::from_millis(10) },
            "1s",
            "How often it is looked at. A change is taken at the second look that finds it.",
        ),
    ],
};

static KUBERNETES: Table = Table {
    doc: "Endpoints are called `address:port`; those that are ready are in the pool. With `service` they are those of its \
          EndpointSlices; without, the pods that the pool's InferencePool (`pools.<name>.inferencePool`) selects, at each of its \
          target ports. Objects are listed once and then watched. Known by the token of the service account; client \
          certificates are not used.",
    settings: &[
        Setting::open(
            "service",
            Kind::Text,
            "the pods of the InferencePool",
            "The Service whose EndpointSlices are followed.",
        ),
        Setting::open(
            "port",
            Kind::Text,
            "the only port of the slices; the target ports of the InferencePool",
            "The port of the EndpointSlices, by name or number; without `service`, a number in place of the target ports.",
        ),
        Setting::open(
            "namespace",
            Kind::Text,
            "that of the service account, else `default`",
            "Where the objects are.",
        ),
        Setting::new(
            "objectives",
            Kind::Bool,
            "true",
            "Take priorities from the `InferenceObjective` objects of the InferencePool too. What `weir.objectives` and \
             `weir.objectivesDir` say goes first.",
        ),
        ROLE,
        Setting::open(
            "apiServer",
            Kind::Text,
            "that of the cluster, by `KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT`",
            "The base URL of the API server. With `http://` no token is sent: for `kubectl proxy` on the same machine.",
        ),
        Setting::new(
            "tokenFile",
            Kind::Path,
            "/var/run/secrets/kubernetes.io/serviceaccount/token",
            "The token, read again for every call.",
        ),
        Setting::new(
            "caFile",
            Kind::Path,
            "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
            "The authorities of the API server's certificate (PEM), read again for every connection.",
        ),
    ],
};

const ROLE: Setting = Setting::new(
    "role",
    Kind::Choice(&ROLES),
    "decode",
    "The stages of endpoints that say nothing of their own (pods do, by the label `llm-d.ai/role`).",
);

/// The document of `discovery.file`.
pub static ENDPOINTS_FILE: Table = Table {
    doc: "What a file of discovery says.",
    settings: &[Setting::open("endpoints", Kind::List(&ENDPOINT), "refused", "The model servers.")],
};
