//! Logged settings come back from their document; changes are resolved, refused and named as the service does it.

use super::*;
use std::collections::BTreeMap;
use weir_kernel::{
    BandSettings, ConcurrencyMode, Detector, Eviction, Fairness, HoldbackDomain, Micros, OutputEstimate,
    ProgramAware, Ratio, UsageLimit,
};

fn many() -> Vec<Policy> {
    let band = BandSettings {
        max_requests: 200,
        fairness: Fairness::ProgramAware(ProgramAware {
            half_life: Micros(1_500_000),
            ..ProgramAware::default()
        }),
        ordering: weir_kernel::Ordering::Edf,
        saturation_budget: Some(Micros::from_secs(7)),
        no_endpoint_budget: Some(Micros::ZERO),
        ..BandSettings::default()
    };
    let bands =
        BTreeMap::from([(0, BandSettings::default()), (100, band.clone()), (-10, BandSettings::default())]);
    vec![
        Policy::default(),
        Policy {
            bands: bands.clone(),
            negative_template: Some(band),
            usage_limit: UsageLimit::Holdback {
                min: Ratio(600_000),
                max: Ratio::ONE,
                domain: HoldbackDomain::Rank,
            },
            eviction: Eviction { enabled: true, ..Eviction::default() },
            ..Policy::default()
        },
        Policy {
            detector: Detector::Concurrency {
                mode: ConcurrencyMode::Hybrid,
                max_requests: 12,
                max_tokens: 70_000,
                headroom: Ratio(200_000),
                output_estimate: Some(OutputEstimate { ratio: Ratio(1_250_000), cap: 900 }),
            },
            usage_limit: UsageLimit::Fixed {
                ceilings: BTreeMap::from([(-10, Ratio(500_000))]),
                default: Ratio::ONE,
            },
            bands,
            in_flight_credit: false,
            observe: true,
            saturation_budget: Micros::ZERO,
            ..Policy::default()
        },
        Policy {
            bands: BTreeMap::from([(
                0,
                BandSettings {
                    ordering: weir_kernel::Ordering::NewestFirstWhenStanding {
                        target: Micros::from_secs(2),
                        window: Micros::from_millis(500),
                    },
                    ..BandSettings::default()
                },
            )]),
            bounds: weir_kernel::Bounds {
                bands: BTreeMap::from([(
                    0,
                    weir_kernel::BandBounds { starvation: Micros::from_secs(20), reject_hopeless: true },
                )]),
                ..weir_kernel::Bounds::default()
            },
            eviction: Eviction {
                enabled: true,
                sizing: weir_kernel::Sizing::Demand,
                max_revocations_on_demand: 9,
                ..Eviction::default()
            },
            ..Policy::default()
        },
        Policy { detector: Detector::Pushed, usage_limit: UsageLimit::SoftReflective, ..Policy::default() },
    ]
}

fn candidate(words: &[&str]) -> Result<Candidate, CandidateError> {
    Candidate::default().with(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
}

#[test]
fn logged_settings_come_back_from_their_document() {
    for policy in many() {
        let same = candidate(&["maxRequests=0"]).unwrap().resolve(&policy, "chat").unwrap();
        assert_eq!(same, policy);
    }
}

#[test]
fn a_change_changes_that_and_nothing_else() {
    let base = many().remove(1);
    let one = |words: &[&str]| candidate(words).unwrap().resolve(&base, "chat").unwrap();
    // A budget that nothing is said of follows the default TTL, as it does in a file of the service.
    let (short, long) = (Micros::from_secs(15), base.no_endpoint_budget);
    let both = Policy { saturation_budget: short, no_endpoint_budget: short, ..base.clone() };
    assert_eq!(one(&["defaultRequestTTL=15s"]), both);
    let one_of_them = Policy { saturation_budget: short, ..base.clone() };
    assert_eq!(
        one(&["defaultRequestTTL=15s", &format!("noEndpointRequestTTL={}s", long.0 / 1_000_000)]),
        one_of_them
    );
    let own = Policy { no_endpoint_budget: Micros::from_secs(300), ..base.clone() };
    let kept = candidate(&["defaultRequestTTL=15s"]).unwrap().resolve(&own, "chat").unwrap();
    assert_eq!((kept.saturation_budget, kept.no_endpoint_budget), (short, own.no_endpoint_budget));
    let got = one(&["flowControl.priorityBands[0].maxRequests=2000"]);
    assert_eq!(got.bands[&100].max_requests, 2_000);
    assert_eq!(got.bands[&0], base.bands[&0]);
    let got = one(&["usageLimitPolicy={type: static-usage-limit-policy, parameters: {threshold: 0.9}}"]);
    assert_eq!(got.usage_limit, UsageLimit::Static { threshold: Ratio(900_000) });
    assert_eq!(
        one(&["usageLimitPolicy=soft-reflective-ceiling-policy"]).usage_limit,
        UsageLimit::SoftReflective
    );
    let got = one(&["priorityBands[2].fairnessPolicy=round-robin-fairness-policy", "enableEviction=false"]);
    assert_eq!((got.bands[&-10].fairness.clone(), got.eviction.enabled), (Fairness::RoundRobin, false));
    let got = one(&["detector={type: concurrency-detector, parameters: {maxConcurrency: 8}}"]);
    assert!(matches!(got.detector, Detector::Concurrency { max_requests: 8, .. }));
    assert_eq!(one(&["blindAfter=2s"]).blind_after, Micros::from_secs(2));
    // Where it is not set it follows from the shortest budget, which the candidate may shorten.
    let short = candidate(&["defaultRequestTTL=3s"]).unwrap().resolve(&Policy::default(), "chat").unwrap();
    assert_eq!(short.blind_after, Micros::from_millis(1_500));
}

#[test]
fn what_the_service_would_refuse_is_refused_with_its_words() {
    let refused = |words: &[&str]| match candidate(words) {
        Ok(candidate) => candidate.resolve(&Policy::default(), "chat").unwrap_err().to_string(),
        Err(error) => error.to_string(),
    };
    for (words, want) in [
        (&["defaultRequestTtl=15s"][..], "did you mean defaultRequestTTL?"),
        (&["priorityBand[0].maxRequests=1"], "did you mean priorityBands[0].maxRequests?"),
        (
            &["flowControl.maxRequest=1"],
            "flowControl.maxRequest: unknown key; did you mean flowControl.maxRequests?",
        ),
        (&["defaultRequestTTL=soon"], "flowControl.defaultRequestTTL"),
        (&["maxRequests=-1"], "flowControl.maxRequests"),
        (&["usageLimitPolicy=static-usage-limit"], "did you mean static-usage-limit-policy?"),
        (&["usageLimitPolicy={type: static-usage-limit-policy, parameters: {threshold: 1.5}}"], "threshold"),
        (&["priorityBands[7].maxRequests=1"], "priorityBands has 1 entries; allowed: an index from 0 to 1"),
        (&["maxRequests"], "PATH=VALUE"),
        (&["defaultRequestTTL="], "no value; allowed: PATH=VALUE"),
        (&["wholly=1"], "known here"),
    ] {
        let got = refused(words);
        assert!(got.contains(want), "{words:?}: {got}");
    }
}

#[test]
fn a_file_is_read_for_the_pool_of_the_log_and_a_patch_is_laid_over() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let config = file("weir.yaml", "pools:\n  chat: {flowControl: {maxRequests: 9}}\n  code: {}\n");
    let patch = file("patch.yaml", "pools: {chat: {flowControl: {defaultRequestTTL: 3s}}}\n");
    let args = SettingsArgs { set: Vec::new(), config: Some(config.clone()), patch: Some(patch) };
    let got = Candidate::read(&args).unwrap().resolve(&Policy::default(), "chat").unwrap();
    assert_eq!((got.max_requests, got.saturation_budget), (9, Micros::from_secs(3)));
    let error = Candidate::read(&args).unwrap().resolve(&Policy::default(), "chess").unwrap_err().to_string();
    assert!(error.contains("no pool \"chess\"; it has chat, code"), "{error}");
    let broken = SettingsArgs { config: Some(file("b.yaml", "a: [1")), ..SettingsArgs::default() };
    assert!(Candidate::read(&broken).unwrap_err().to_string().contains("b.yaml"));
}

#[test]
fn what_decisions_do_not_depend_on_is_refused_beside_a_log() {
    let logged = Policy::default();
    let refused = |words: &[&str]| {
        candidate(words).unwrap().beside(&logged, "chat").expect_err(&words.join(" ")).to_string()
    };
    for (words, want) in [
        (
            &["trustRequestPriority=true"][..],
            "sets pools.default.trustRequestPriority: no part of what is replayed",
        ),
        (&["weir.objectives={batch: 500}", "maxRequests=9"], "sets weir.objectives: no part"),
        (
            &["weir.drainTimeout=3s", "weir.listen=127.0.0.1:1"],
            "sets weir.drainTimeout, weir.listen: no part",
        ),
        (&["mode=observe"], "mode: the candidate has observe, and the log was made under enforce"),
    ] {
        let got = refused(words);
        assert!(got.contains(want), "{words:?}: {got}");
    }
    // What is no part of it in a whole file is that file's affair; the mode is not.
    let file = |document: Json| Candidate::of_document(document).beside(&logged, "default");
    let listens =
        serde_json::json!({ "weir": { "listen": "127.0.0.1:1" }, "flowControl": { "maxRequests": 9 } });
    assert_eq!(file(listens).unwrap().max_requests, 9);
    let observes = serde_json::json!({ "pools": { "default": { "mode": "observe" } } });
    assert!(matches!(file(observes), Err(CandidateError::Mode { .. })));
    for word in [
        "leaseTimeout=9s",
        "inFlightCredit=false",
        "weir.resumeWindow=1s",
        "flowGCTimeout=9s",
        "mode=enforce",
    ] {
        assert!(candidate(&[word]).unwrap().beside(&logged, "chat").is_ok(), "{word}");
    }
}

#[test]
fn a_part_with_nothing_in_it_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let logged = Policy { saturation_budget: Micros::from_secs(15), max_requests: 7, ..many().remove(1) };
    let path = dir.path().join("patch.yaml");
    for text in
        ["", "# nothing\n", "flowControl:\n#  defaultRequestTTL: 20s\n", "flowControl:\nweir:\npools:\n"]
    {
        std::fs::write(&path, text).unwrap();
        let args = SettingsArgs { patch: Some(path.clone()), ..SettingsArgs::default() };
        let got = Candidate::read(&args).unwrap().beside(&logged, "chat").unwrap();
        assert_eq!(got, logged, "{text:?}");
    }
}
