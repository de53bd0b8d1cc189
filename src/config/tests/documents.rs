//! Goal: what a document leaves out takes the documented value, and what is hardly meant is said.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use weir_config::{Effective, Origin, from_text, load};
use weir_kernel::{
    Bounds, ConcurrencyMode, Detector, Eviction, Fairness, Micros, Ordering, OutputEstimate, Policy, Ratio,
    Role, Sizing, UsageLimit,
};

fn good(text: &str) -> Effective {
    from_text(text, []).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn policy(text: &str) -> Policy {
    good(text).pools["default"].policy.clone()
}

#[track_caller]
fn warns(effective: &Effective, path: &str, words: &str) {
    let found = effective.warnings.iter().any(|warning| warning.path == path && warning.text.contains(words));
    assert!(found, "no warning about {path} with {words}: {:#?}", effective.warnings);
}

#[test]
fn an_empty_document_is_the_default_policy() {
    for text in ["", "{}", "# nothing\n", "---\n", "flowControl:\nweir:\npools:\n"] {
        let effective = good(text);
        assert_eq!(effective.pools["default"].policy, Policy::default(), "{text:?}");
        assert!(effective.warnings.is_empty() && effective.notices.is_empty(), "{text:?}");
        assert!(effective.settings.listen.ip().is_loopback());
    }
}

#[test]
fn c001_an_unset_budget_is_sixty_seconds_and_an_explicit_zero_is_none() {
    let s = Micros::from_secs;
    for (flow, saturated, empty) in [
        ("{}", 60, 60),
        ("{defaultRequestTTL: 15s}", 15, 15),
        ("{defaultRequestTTL: 0s}", 0, 0),
        ("{noEndpointRequestTTL: 300s}", 60, 300),
        ("{defaultRequestTTL: 15s, noEndpointRequestTTL: 300s}", 15, 300),
        ("{defaultRequestTTL: 0s, noEndpointRequestTTL: 300s}", 0, 300),
        ("{defaultRequestTTL: 15s, noEndpointRequestTTL: 0s}", 15, 0),
    ] {
        let effective = good(&format!("flowControl: {flow}\n"));
        let policy = &effective.pools["default"].policy;
        assert_eq!((policy.saturation_budget, policy.no_endpoint_budget), (s(saturated), s(empty)), "{flow}");
        let shown = &effective.row("flowControl.noEndpointRequestTTL").unwrap().value;
        assert_eq!(shown, &weir_config::Scalar::Span(s(empty)), "the view shows what is in force: {flow}");
    }
}

#[test]
fn c006_a_bands_budget_replaces_the_global_one() {
    let policy = policy(
        "flowControl:\n  priorityBands:\n  - {priority: 10, defaultRequestTTL: 5s}\n  - {priority: 0}\n  \
         - {priority: -10, defaultRequestTTL: 0s, noEndpointRequestTTL: 1m}\n",
    );
    assert_eq!(policy.bands[&10].saturation_budget, Some(Micros::from_secs(5)));
    assert_eq!(policy.bands[&0].saturation_budget, None);
    assert_eq!(policy.bands[&-10].saturation_budget, Some(Micros::ZERO));
    assert_eq!(policy.bands[&-10].no_endpoint_budget, Some(Micros::from_secs(60)));
    assert_eq!(policy.blind_after, Micros::from_millis(2_500));
}

#[test]
fn c091_zero_for_the_whole_and_zero_for_a_band() {
    for (flow, want) in [("{}", 0), ("{maxRequests: 0}", 0), ("{maxRequests: 7}", 7)] {
        assert_eq!(policy(&format!("flowControl: {flow}\n")).max_requests, want, "{flow}");
    }
    for (band, requests, bytes) in [
        ("", 5_000, 1_000_000_000),
        (", maxRequests: 0, maxBytes: 0", 5_000, 1_000_000_000),
        (", maxRequests: 1", 1, 1_000_000_000),
    ] {
        let effective = good(&format!("flowControl: {{priorityBands: [{{priority: 3{band}}}]}}\n"));
        let settings = &effective.pools["default"].policy.bands[&3];
        assert_eq!((settings.max_requests, settings.max_bytes), (requests, bytes), "{band}");
        let row = effective.row("flowControl.priorityBands[0].maxRequests").unwrap();
        assert_eq!(row.value.to_string(), requests.to_string(), "the view shows what is in force");
        if band.contains('0') {
            warns(
                &effective,
                "flowControl.priorityBands[0].maxRequests",
                "0 means the default of a band, 5000",
            );
        }
    }
}

#[test]
fn c054_a_ceiling_of_zero_is_said_to_close_its_band() {
    let effective = good(
        "plugins: [{name: c, type: fixed-usage-limit-policy, parameters: {ceilings: {'-10': 0}}}]
flowControl: {usageLimitPolicyPluginRef: c, priorityBands: [{priority: -10}]}\n",
    );
    warns(
        &effective,
        "flowControl.usageLimitPolicyPluginRef",
        "priority -10 has the ceiling 0: it can never dispatch",
    );
    let effective = good(
        "plugins: [{name: c, type: priority-holdback-policy, parameters: {minCeiling: 0}}]
flowControl: {usageLimitPolicyPluginRef: c, priorityBands: [{priority: 5}, {priority: -5}]}\n",
    );
    warns(
        &effective,
        "flowControl.usageLimitPolicyPluginRef",
        "priority -5, the lowest band, has the ceiling 0",
    );
}

#[test]
fn c095_a_headroom_above_one_is_taken_with_a_warning() {
    let effective = good(
        "plugins: [{type: utilization-detector, parameters: {headroom: 20, kvCacheUtilThreshold: 1.0}}]\n\
         flowControl: {saturationDetector: {pluginRef: utilization-detector}}\n",
    );
    warns(&effective, "plugins[0].parameters.headroom", "20 is read as 2000%");
    let Detector::Utilization { kv, headroom, .. } = effective.pools["default"].policy.detector else {
        panic!()
    };
    assert_eq!((kv, headroom), (Ratio::ONE, Ratio(20_000_000)));
}

#[test]
fn c097_a_scrape_interval_beyond_the_staleness_threshold_is_said() {
    let with = |interval: &str| good(&format!("pools: {{p: {{scrape: {{interval: {interval}}}}}}}\n"));
    let slow = with("1s");
    warns(
        &slow,
        "pools.p.scrape.interval",
        "1s is 5 times the metricsStalenessThreshold of utilization-detector, 200ms",
    );
    assert!(with("50ms").warnings.is_empty());
    let fast = with("1ms");
    warns(&fast, "pools.p.scrape.interval", "below the floor and is raised to 50ms");
    assert_eq!(fast.pools["p"].scrape.interval, Micros::from_millis(50));
    let row = fast.row("pools.p.scrape.interval").unwrap();
    assert_eq!(
        (row.value.to_string().as_str(), &row.origin),
        ("50ms", &Origin::Line(1)),
        "the view shows the floor"
    );
}

#[test]
fn c099_a_section_behind_a_closed_gate_is_named_and_marked() {
    let text = "kind: EndpointPickerConfig
flowControl:
  defaultRequestTTL: 5s
  maxRequests: -1
  priorityBands: [{priority: 3}]
";
    let effective = good(text);
    let pool = &effective.pools["default"];
    assert!(!pool.policy.flow_control && pool.section_ignored);
    warns(
        &effective,
        "flowControl",
        "ignored, because the gate flowControl is off: maxRequests, defaultRequestTTL, priorityBands",
    );
    warns(
        &effective,
        "flowControl",
        "this is not in force, but it is wrong: line 4: flowControl.maxRequests",
    );
    assert!(effective.row("flowControl.defaultRequestTTL").unwrap().inactive);
    assert!(!effective.row("flowControl.saturationDetector.pluginRef").unwrap().inactive);
    // Switched on, the same file is refused for its value; an unknown key is refused either way.
    let on = text.replace("flowControl:\n", "featureGates: [flowControl]\nflowControl:\n");
    assert!(from_text(&on, []).unwrap_err().to_string().contains("maxRequests"));
    let typo = text.replace("priorityBands", "priorityBand");
    assert!(
        from_text(&typo, []).unwrap_err().to_string().contains("did you mean flowControl.priorityBands?")
    );
    // Weir's own file: on, unless it says otherwise.
    assert!(policy("flowControl: {maxRequests: 5}\n").flow_control);
    assert!(!policy("featureGates: [flowControl=false]\n").flow_control);
}

#[test]
fn a_whole_file_of_llm_d_loads_unchanged() {
    let effective = good(
        "apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates:
- dataLayer
- flowControl=true
plugins:
- type: prefix-cache-scorer
  parameters:
    hashBlockSize: 64
- type: queue-scorer
- type: max-score-picker
- type: single-profile-handler
- name: busy
  type: concurrency-detector
  parameters:
    concurrencyMode: hybrid
    maxConcurrency: 32
    inFlightLoadProducerName: load
- name: load
  type: inflight-load-producer
  parameters: {addEstimatedOutputTokens: true}
- name: hold
  type: priority-holdback-policy
  parameters: {minCeiling: 0.5, domain: value}
- type: program-aware-fairness
  parameters: {lasHalfLifeSeconds: 1.5}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
dataLayer:
  sources: []
saturationDetector:
  pluginRef: busy
flowControl:
  maxBytes: 10Gi
  usageLimitPolicyPluginRef: hold
  defaultPriorityBand: {maxRequests: 200}
  defaultNegativePriorityBand: {orderingPolicyRef: slo-deadline-ordering-policy}
  priorityBands:
  - priority: 10
    fairnessPolicyRef: program-aware-fairness
    orderingPolicyRef: edf-ordering-policy
",
    );
    let policy = &effective.pools["default"].policy;
    assert!(policy.flow_control);
    assert_eq!(policy.max_bytes, 10 << 30);
    assert_eq!(policy.template.max_requests, 200);
    assert_eq!(policy.bands[&0], policy.template, "priority 0 copies the template");
    assert_eq!(policy.bands[&10].max_requests, 5_000, "a listed band does not");
    assert_eq!(policy.bands[&10].ordering, Ordering::Edf);
    let Fairness::ProgramAware(las) = &policy.bands[&10].fairness else { panic!() };
    assert_eq!(las.half_life, Micros::from_millis(1_500));
    assert_eq!(policy.negative_template.as_ref().unwrap().ordering, Ordering::SloDeadline);
    assert_eq!(policy.bounds, Bounds::default());
    assert!(matches!(policy.usage_limit, UsageLimit::Holdback { min: Ratio(500_000), max: Ratio::ONE, .. }));
    let estimate = Some(OutputEstimate { ratio: Ratio(1_500_000), cap: 0 });
    let Detector::Concurrency { mode, max_requests, output_estimate, .. } = &policy.detector else {
        panic!()
    };
    assert_eq!((mode, *max_requests, output_estimate), (&ConcurrencyMode::Hybrid, 32, &estimate));
    warns(&effective, "flowControl.saturationDetector", "does not see what comes by POST /ext-proc");
    assert_eq!(effective.warnings.len(), 1, "{:?}", effective.warnings);
    for path in [
        "featureGates[0]",
        "plugins[0]",
        "plugins[3]",
        "schedulingProfiles",
        "dataLayer",
        "saturationDetector",
    ] {
        assert!(
            effective.notices.iter().any(|notice| notice.path == path),
            "{path}: {:?}",
            effective.notices
        );
    }
}

#[test]
fn pools_stand_apart_and_share_what_is_weirs() {
    let effective = good(
        "weir: {leaseTimeout: 1m, idempotencyKeys: 1k, objectives: {chat: 10, batch: -10}}
flowControl: {maxRequests: 5}
pools:
  big:
    mode: observe
    trustRequestPriority: true
    saturation: {inFlightCredit: false}
    scrape: {preset: sglang, names: {waiting: my_waiting}}
    endpoints: [{name: a, url: 'http://10.0.0.1:8000/', role: prefill}, {name: b, url: 'http://b'}]
    plugins: [{name: utilization-detector, type: utilization-detector, parameters: {queueDepthThreshold: 9}}]
",
    );
    assert_eq!(effective.settings.objectives["batch"], -10);
    let names: Vec<&str> = effective.pools.keys().map(String::as_str).collect();
    assert_eq!(names, ["big", "default"]);
    warns(&effective, "flowControl", "which is not under pools: it is added");
    let (big, default) = (&effective.pools["big"], &effective.pools["default"]);
    assert_eq!((big.policy.max_requests, default.policy.max_requests), (0, 5));
    assert!(big.policy.observe && big.trust_request_priority && !big.policy.in_flight_credit);
    assert!(matches!(big.policy.detector, Detector::Utilization { queue_depth: 9, .. }));
    assert!(matches!(default.policy.detector, Detector::Utilization { queue_depth: 5, .. }));
    assert_eq!(big.policy.lease_timeout, Micros::from_secs(60));
    assert_eq!(default.policy.idempotency_keys, 1_000);
    let endpoints = big.endpoints.as_ref().unwrap();
    assert_eq!(endpoints[0].url, "http://10.0.0.1:8000");
    assert_eq!((endpoints[0].role, endpoints[1].role), (Role::Prefill, Role::Decode));
    assert!(default.endpoints.is_none(), "those of default are pushed");
    assert_eq!(
        good("pools: {p: {endpoints: []}}").pools["p"].endpoints,
        Some(Vec::new()),
        "none, and known to be none"
    );
    assert_eq!(big.scrape.waiting.as_deref(), Some("my_waiting"));
}

#[test]
fn grpc_is_off_until_an_address_is_given() {
    let off = good("weir: {}").settings.envoy;
    assert_eq!((off.listen, off.failure_mode_allow, off.max_streams), (None, false, 65_536));
    let text =
        "weir: {envoy: {listen: '0.0.0.0:9002', failureModeAllow: true, maxStreams: 5k, maxHeldBytes: 2Mi}}";
    let on = good(text);
    let envoy = on.settings.envoy;
    assert_eq!(envoy.listen, Some("0.0.0.0:9002".parse().unwrap()));
    assert_eq!((envoy.failure_mode_allow, envoy.max_streams), (true, 5_000));
    assert_eq!((off.max_held_bytes, envoy.max_held_bytes), (1 << 30, 2 << 20));
    warns(&on, "weir.envoy.listen", "beyond loopback");
}

#[test]
fn whoever_is_asked_who_it_is_may_come_from_afar() {
    for text in [
        "weir: {listen: '0.0.0.0:80', auth: {tokensFile: tokens.yaml}}",
        "weir: {listen: '0.0.0.0:80', gateway: {tls: {cert: c, key: k, clientCa: a}}}",
    ] {
        let effective = good(text);
        assert!(
            effective.settings.asks_who() && effective.warnings.is_empty(),
            "{text}: {:?}",
            effective.warnings
        );
        assert_eq!(effective.settings.beyond_loopback(), ["0.0.0.0:80".parse().unwrap()]);
    }
    let alone = good("weir: {listen: '0.0.0.0:80', gateway: {tls: {cert: c, key: k}}}");
    let tls = alone.settings.gateway.tls.as_ref().unwrap();
    assert_eq!(
        (&tls.client_ca, tls.client_required, tls.handshake_timeout),
        (&None, true, Micros::from_secs(10))
    );
    warns(&alone, "weir.listen", "beyond loopback");
}

#[test]
fn settings_without_effect_are_said() {
    let effective = good(
        "weir: {listen: '0.0.0.0:80', log: {interval: 1s, rotateBytes: 64Mi, retention: {size: 80Mi}}}
plugins: [{name: spare, type: edf-ordering-policy}, {type: program-aware-fairness, parameters: {evictionSweepSeconds: 9}}]
flowControl: {defaultPriorityBand: {priority: 4}, saturationDetector: {pluginRef: concurrency-detector}}
pools: {default: {controller: {expiryCleanupInterval: 2s, maxRevocationsPerDecision: 3}, regime: {blindAfter: 1s}}}
",
    );
    for (path, words) in [
        ("weir.listen", "beyond loopback"),
        ("weir.log.interval", "no effect under durability: group"),
        ("weir.log.rotateBytes", "is lowered to 10485760, an eighth of weir.log.retention.size"),
        ("plugins[0]", "nothing refers to the plugin \"spare\""),
        ("plugins[1].parameters.evictionSweepSeconds", "no effect"),
        ("flowControl.defaultPriorityBand.priority", "no effect in a template"),
        ("pools.default.controller.expiryCleanupInterval", "no sweep"),
        ("pools.default.regime.blindAfter", "does not read metrics"),
    ] {
        warns(&effective, path, words);
    }
}

#[test]
fn a_file_is_named_in_what_is_said_about_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("weir.yaml");
    fs::write(&file, "flowControl:\n  maxRequests: 7\n").unwrap();
    let effective = load(Some(&file), []).unwrap();
    let row = effective.row("flowControl.maxRequests").unwrap();
    assert_eq!(effective.source(&row.origin), format!("{}:2", file.display()));
    assert!(effective.explain().contains(&format!("{}:2", file.display())));
    let json = effective.explain_json();
    let rows = json["settings"].as_array().unwrap();
    let ttl = rows.iter().find(|row| row["path"] == "flowControl.defaultRequestTTL").unwrap();
    assert_eq!(
        (&ttl["value"], &ttl["unit"], &ttl["source"]),
        (&60_000_000.into(), &"us".into(), &"default".into())
    );

    fs::write(&file, "flowControl: {maxRequest: 7}\n").unwrap();
    let mistakes = load(Some(&file), []).unwrap_err();
    assert!(mistakes.to_string().starts_with(&format!("1 mistake in {}", file.display())), "{mistakes}");
    for (bytes, words) in
        [(vec![0xff, 0xfe, 0], "not UTF-8 at byte 0"), (vec![b'#'; 2 << 20], "2097152 bytes")]
    {
        fs::write(&file, bytes).unwrap();
        assert!(load(Some(&file), []).unwrap_err().to_string().contains(words));
    }
    assert!(load(Some(&dir.path().join("none.yaml")), []).is_err(), "a file that is named must be there");
}

#[test]
fn eviction_is_off_unless_asked_for_and_its_grace_is_derived() {
    let evicting = |text: &str| policy(text).eviction;
    assert_eq!(evicting("flowControl: {maxRequests: 5}\n"), Eviction::default(), "off, and as it always was");
    let on = good("flowControl: {enableEviction: true}\npools: {default: {scrape: {interval: 100ms}}}\n");
    let pool = &on.pools["default"].policy.eviction;
    assert!(pool.enabled);
    assert_eq!((pool.max_revocations, pool.confirmation_grace), (2, Micros::from_millis(550)));
    let row = on.row("pools.default.eviction.confirmationGrace").unwrap();
    assert_eq!((row.value.to_string().as_str(), row.inactive), ("550ms", false));
    assert!(row.note.contains("derived"), "{}", row.note);
    assert!(on.explain().contains("pools.default.eviction.confirmationGrace"), "{}", on.explain());
    // Its own word first, then llm-d's constant, then what is derived.
    let set = evicting(
        "flowControl: {enableEviction: true}
pools:
  default:
    eviction: {maxRevocationsPerDecision: 5, confirmationTimeout: 3s}
    controller: {maxRevocationsPerDecision: 7, evictionConfirmationGrace: 1s, evictionConfirmationTimeout: 9s}
",
    );
    let want = Eviction {
        enabled: true,
        max_revocations: 5,
        confirmation_timeout: Micros::from_secs(3),
        confirmation_grace: Micros::from_secs(1),
        ..Eviction::default()
    };
    assert_eq!(set, want);
    // Off, the time-out still holds, for an operator's orders.
    let off = good("pools: {default: {eviction: {confirmationTimeout: 3s, confirmationGrace: 4s}}}\n");
    let want = Eviction { confirmation_timeout: Micros::from_secs(3), ..Eviction::default() };
    assert_eq!(off.pools["default"].policy.eviction, want);
    assert!(off.row("pools.default.eviction.confirmationGrace").unwrap().inactive);
    let wrong = from_text("pools: {default: {eviction: {maxRevocationsPerDecision: 0}}}\n", []);
    assert!(wrong.unwrap_err().to_string().contains("maxRevocationsPerDecision"));
}

#[test]
fn sizing_by_demand_has_a_cap_of_its_own() {
    let demand = |more: &str| {
        let text = "flowControl: {enableEviction: true}\n";
        good(&format!("{text}pools: {{default: {{eviction: {{sizing: demand{more}}}}}}}\n"))
    };
    let sized = demand("").pools["default"].policy.eviction.clone();
    assert_eq!((sized.sizing, sized.max_revocations_on_demand), (Sizing::Demand, 16));
    let sized = demand(", maxRevocationsOnDemand: 5");
    assert_eq!(sized.pools["default"].policy.eviction.max_revocations_on_demand, 5);
    for row in ["sizing", "maxRevocationsOnDemand", "maxRevocationsPerDecision"] {
        let unused = row == "maxRevocationsPerDecision";
        let path = format!("pools.default.eviction.{row}");
        assert_eq!(sized.row(&path).unwrap().inactive, unused, "{path}");
        assert!(sized.explain().contains(&path), "{}", sized.explain());
    }
}

#[test]
fn a_file_with_nothing_in_it_is_told_and_is_nothing_to_load_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("weir.yaml");
    for text in ["", "\n", "# a comment\n", "---\n", "~\n"] {
        fs::write(&file, text).unwrap();
        let first = load(Some(&file), []).unwrap();
        assert!(first.warnings[0].to_string().contains("nothing stands in the file"), "{text:?}");
        let again = weir_config::load_again(&file, [("WEIR__FLOWCONTROL__MAXREQUESTS".into(), "5".into())]);
        let again = again.map(|_| ()).unwrap_err().to_string();
        assert!(again.contains("weir.yaml") && again.contains("nothing stands in the file"), "{again}");
    }
    for text in ["{}", "flowControl:\n"] {
        fs::write(&file, text).unwrap();
        assert!(load(Some(&file), []).unwrap().warnings.is_empty(), "{text}");
        assert_eq!(weir_config::load_again(&file, []).unwrap().file, Some(file.clone()), "{text}");
    }
}
