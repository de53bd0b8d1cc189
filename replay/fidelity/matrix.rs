//! The rows of the matrix: a truth pool, base settings, candidate settings.

use super::driver::Truth;
use weir_kernel::Micros;
use weir_truth::Spec;

/// One comparison.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// Which base.
    pub base: usize,
    /// Words of `--set` that lead from the base to the candidate; none: the base itself (A/A).
    pub candidate: Vec<String>,
}

/// Settings that a log is made with.
#[derive(Clone, Debug)]
pub struct Base {
    /// Its name.
    pub name: &'static str,
    /// The pool.
    pub truth: Truth,
    /// Words of `--set` over the defaults.
    pub settings: Vec<String>,
}

/// A server that a few requests a second of long prompts fill, with a stall now and then that only the seed tells.
fn server() -> Spec {
    Spec {
        prefill_token_ns: 300_000,
        step_base_ns: 18_000_000,
        stall_every: Micros::from_secs(45),
        stall_for: Micros::from_millis(400),
        ..Spec::default()
    }
}

fn truth() -> Truth {
    Truth {
        server: server(),
        endpoints: 2,
        join_at: Micros::ZERO,
        scrape_every: Micros::from_millis(50),
        scrape_lag: Micros::from_millis(8),
        grain: Micros(150),
        confirm: Micros::from_millis(25),
        seed: 1,
    }
}

fn words(of: &[&str]) -> Vec<String> {
    of.iter().map(|word| (*word).to_owned()).collect()
}

/// Every base has these bands; the rest is the default.
const BANDS: &str = "priorityBands=[{priority: 100}, {priority: 0}, {priority: -10}]";

/// Bases and rows.
pub fn matrix() -> (Vec<Base>, Vec<Row>) {
    let base = |name, truth: Truth, more: &[&str]| {
        let mut settings = words(&[BANDS]);
        settings.extend(words(more));
        Base { name, truth, settings }
    };
    let bases = vec![
        base("defaults", truth(), &["defaultRequestTTL=60s", "noEndpointRequestTTL=60s"]),
        base("ttl-15s", truth(), &["defaultRequestTTL=15s", "noEndpointRequestTTL=60s"]),
        base(
            "cold-start",
            Truth { join_at: Micros::from_secs(150), ..truth() },
            &["noEndpointRequestTTL=60s"],
        ),
        base(
            "concurrency",
            truth(),
            &["detector={type: concurrency-detector, parameters: {maxConcurrency: 6}}"],
        ),
    ];
    let all_bands = |key: &str, value: &str| -> Vec<String> {
        (0..3).map(|n| format!("priorityBands[{n}].{key}={value}")).collect()
    };
    let row = |name, base, candidate| Row { name, base, candidate };
    let rows = vec![
        row("ttl-60s-to-15s", 0, words(&["defaultRequestTTL=15s"])),
        row("ttl-15s-to-60s", 1, words(&["defaultRequestTTL=60s"])),
        row("no-endpoint-60s-to-300s-cold", 2, words(&["noEndpointRequestTTL=300s"])),
        row("max-requests-5000-to-200", 0, all_bands("maxRequests", "200")),
        row(
            "static-to-holdback",
            0,
            words(&["usageLimitPolicy={type: priority-holdback-policy, parameters: {minCeiling: 0.5}}"]),
        ),
        row("strict-to-round-robin", 0, all_bands("fairnessPolicy", "round-robin-fairness-policy")),
        row("eviction-off-to-on", 0, words(&["enableEviction=true"])),
        row("concurrency-to-utilization", 3, words(&["detector=utilization-detector"])),
        row("a-a-defaults", 0, Vec::new()),
        row("a-a-ttl-15s", 1, Vec::new()),
        row("a-a-cold-start", 2, Vec::new()),
        row("a-a-concurrency", 3, Vec::new()),
    ];
    (bases, rows)
}
