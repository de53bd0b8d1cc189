//! Goal: what must not load does not, and the message names field, place, what was found and what is allowed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use weir_config::{Effective, Mistakes, from_text};

fn load(text: &str) -> Result<Effective, Mistakes> {
    from_text(text, [])
}

/// Each text is refused with exactly these lines, in this order.
#[track_caller]
fn refused(text: &str, want: &[&str]) {
    let mistakes = load(text).expect_err("must be refused");
    let got: Vec<String> = mistakes.list.iter().map(ToString::to_string).collect();
    assert_eq!(got.len(), want.len(), "{text}\n{}", got.join("\n"));
    for (got, want) in got.iter().zip(want) {
        assert!(got.starts_with(want), "{text}\n got: {got}\nwant: {want}");
    }
}

#[test]
fn c089_a_misspelled_field_is_refused_with_its_path_and_the_nearest_key() {
    refused(
        "flowControl:\n  defaultRequestTtl: 5s\n",
        &["line 2: flowControl.defaultRequestTtl: unknown key; did you mean flowControl.defaultRequestTTL?"],
    );
    refused(
        "flowControl:\n  priorityBands:\n  - priority: 1\n  - priority: 2\n    maxRequest: 10\n",
        &[
            "line 5: flowControl.priorityBands[1].maxRequest: unknown key; did you mean flowControl.priorityBands[1].maxRequests?",
        ],
    );
    refused(
        "plugins:\n- type: utilization-detector\n  parameters:\n    headrom: 0.1\n",
        &["line 4: plugins[0].parameters.headrom: unknown key; did you mean plugins[0].parameters.headroom?"],
    );
    refused(
        "weir: {log: {retention: {aeg: 1h}}}\n",
        &["line 1: weir.log.retention.aeg: unknown key; did you mean weir.log.retention.age?"],
    );
    refused(
        "pools: {p: {scrape: {intervall: 1s}}}\n",
        &["line 1: pools.p.scrape.intervall: unknown key; did you mean pools.p.scrape.interval?"],
    );
    refused(
        "plugins: [{type: fcfs-ordering-policy, parameters: {x: 1}}]\n",
        &["line 1: plugins[0].parameters.x: unknown key; it takes no parameters"],
    );
    refused("flowcontrol: {}\n", &["line 1: flowcontrol: unknown key; did you mean flowControl?"]);
    refused(
        "featureGates: [flowcontrol]\n",
        &["line 1: featureGates[0]: found \"flowcontrol\", allowed: one of"],
    );
}

#[test]
fn c093_what_stands_twice_is_refused_naming_both_places() {
    refused(
        "flowControl:\n  priorityBands:\n  - {priority: 10, maxRequests: 5}\n  - {priority: 10, maxRequests: 50}\n",
        &[
            "line 4: flowControl.priorityBands[1].priority: the band of priority 10 stands twice, at line 3 and at line 4",
        ],
    );
    refused(
        "flowControl:\n  maxRequests: 1\n  maxRequests: 1\n",
        &["line 3: flowControl.maxRequests: the key stands twice, at line 2 and at line 3"],
    );
    refused(
        "flowControl: {priorityBands: [{priority: 1}, {priority: 1.0}]}\n",
        &["line 1: flowControl.priorityBands[1].priority: found 1.0, allowed: a whole number"],
    );
    refused(
        "flowControl: {priorityBands: [{}, {priority: 0}]}\n",
        &["line 1: flowControl.priorityBands[1].priority: the band of priority 0 stands twice"],
    );
    refused(
        "pools:\n  a: {}\n  a: {}\n",
        &["line 3: pools.a: the name stands twice, at line 2 and at line 3"],
    );
    refused(
        "plugins:\n- {name: a, type: edf-ordering-policy}\n- {name: a, type: fcfs-ordering-policy}\n",
        &["line 3: plugins[1].name: the plugin \"a\" stands twice, at line 2 and at line 3"],
    );
    refused(
        "pools: {p: {endpoints: [{name: e, url: 'http://a'}, {name: e, url: 'http://b'}]}}\n",
        &["line 1: pools.p.endpoints[1].name: the endpoint \"e\" stands twice"],
    );
    refused(
        "pools: {p: {endpoints: [{name: e, url: 'http://a'}, {name: f, url: 'http://b'}, {name: g, url: 'http://A:80/'}]}}\n",
        &[
            "line 1: pools.p.endpoints[2].url: found \"http://A:80/\", allowed: each URL once: the endpoint \"e\" has it as \
             well, and one server would count as two",
        ],
    );
    refused(
        "flowControl: {maxRequests: 1}\npools:\n  default:\n    flowControl: {maxRequests: 2}\n",
        &[
            "line 4: pools.default.flowControl: flowControl of the pool default stands twice, at line 1 and at line 4",
        ],
    );
    refused(
        "featureGates: [flowControl, flowControl=false]\n",
        &["line 1: featureGates[1]: the gate flowControl stands twice"],
    );
}

#[test]
fn c011_a_budget_that_overflows_names_its_field() {
    refused(
        "flowControl: {defaultRequestTTL: 9000000000h}\n",
        &[
            "line 1: flowControl.defaultRequestTTL (global defaultRequestTTL): found \"9000000000h\", allowed: a Go duration",
        ],
    );
    let policy = &load("flowControl: {defaultRequestTTL: 2562047h}\n").unwrap().pools["default"].policy;
    assert_eq!(policy.saturation_budget.0, 2_562_047 * 3_600_000_000);
}

#[test]
fn c094_sizes_and_counts_in_a_file() {
    for (text, want) in [
        ("1Gi", Some(1_073_741_824)),
        ("1G", Some(1_000_000_000)),
        ("500M", Some(500_000_000)),
        ("1k", Some(1_000)),
        ("1e3", Some(1_000)),
        ("2048", Some(2_048)),
        ("1GB", None),
        ("-1", None),
        ("0.5", None),
        ("16Ei", None),
        ("100000000000000000000", None),
        ("true", None),
        ("[1]", None),
    ] {
        let plain = load(&format!("flowControl: {{maxBytes: {text}}}\n"));
        let quoted = load(&format!("flowControl: {{maxBytes: '{text}'}}\n"));
        for loaded in [plain, quoted] {
            match (loaded, want) {
                (Ok(effective), Some(want)) => {
                    assert_eq!(effective.pools["default"].policy.max_bytes, want, "{text}");
                    let shown = effective.row("flowControl.maxBytes").unwrap().value.to_string();
                    assert_eq!(shown, want.to_string(), "the view prints plain numbers");
                }
                (Err(mistakes), None) => {
                    assert!(
                        mistakes.to_string().contains("flowControl.maxBytes (global maxBytes)"),
                        "{mistakes}"
                    );
                }
                (loaded, _) => panic!("{text}: {loaded:?}"),
            }
        }
    }
    refused(
        "flowControl: {maxRequests: 1.5}\n",
        &["line 1: flowControl.maxRequests (global maxRequests): found 1.5"],
    );
}

#[test]
fn c095_thresholds_that_make_no_sense_are_refused_all_at_once() {
    refused(
        "plugins:
- type: utilization-detector
  parameters:
    queueDepthThreshold: 0
    kvCacheUtilThreshold: 80
    metricsStalenessThreshold: 0s
    headroom: -0.1
- type: concurrency-detector
  parameters:
    maxConcurrency: 0
    maxTokenConcurrency: -1
- type: priority-holdback-policy
  parameters: {minCeiling: 0.9, maxCeiling: 0.5}
- {name: s, type: static-usage-limit-policy, parameters: {threshold: 0}}
- {name: t, type: static-usage-limit-policy, parameters: {threshold: 1.01}}
- {name: u, type: static-usage-limit-policy, parameters: {threshold: .inf}}
- {name: h, type: priority-holdback-policy}
- type: program-aware-fairness
  parameters: {lasWeightService: -1, lasHalfLifeSeconds: .nan, evictionSweepSeconds: 0}
",
        &[
            "line 4: plugins[0].parameters.queueDepthThreshold: found 0, allowed: a quantity such as 500 or 1k, from 1",
            "line 5: plugins[0].parameters.kvCacheUtilThreshold: found 80, allowed: a number in (0, 1]",
            "line 6: plugins[0].parameters.metricsStalenessThreshold: found \"0s\", allowed: a Go duration such as 300ms or 1m30s, above 0s",
            "line 7: plugins[0].parameters.headroom: found -0.1, allowed: a number, 0 or more",
            "line 10: plugins[1].parameters.maxConcurrency: found 0",
            "line 11: plugins[1].parameters.maxTokenConcurrency: found -1",
            "line 13: plugins[2].parameters.minCeiling: found 0.9, allowed: less than maxCeiling, which is 0.5",
            "line 14: plugins[3].parameters.threshold: found 0, allowed: a number in (0, 1]",
            "line 15: plugins[4].parameters.threshold: found 1.01, allowed: a number in (0, 1]",
            "line 16: plugins[5].parameters.threshold: found \".inf\", allowed: a number in (0, 1]",
            "line 17: plugins[6].parameters.minCeiling: found nothing, allowed: a number in [0, 1), which must be given",
            "line 19: plugins[7].parameters.lasWeightService: found -1, allowed: a number, 0 or more",
            "line 19: plugins[7].parameters.lasHalfLifeSeconds: found \".nan\", allowed: a number of seconds, 0 or more",
            "line 19: plugins[7].parameters.evictionSweepSeconds: found 0, allowed: a number of seconds above 0",
        ],
    );
}

#[test]
fn c050_explicit_ceilings_may_not_rise_downwards() {
    let with = |ceilings: &str| {
        format!(
            "plugins:\n- name: ceil\n  type: fixed-usage-limit-policy\n  parameters: {{{ceilings}}}\nflowControl:\n  \
             usageLimitPolicyPluginRef: ceil\n  priorityBands: [{{priority: 10}}, {{priority: -10}}]\n"
        )
    };
    refused(
        &with("ceilings: {'10': 0.5, '0': 1.0, '-10': 1.0}"),
        &[
            "line 4: plugins[0].parameters.ceilings.0: found 1, allowed: at most 0.5, the ceiling of the higher priority 10",
        ],
    );
    // The same by way of the default, for the bands that are not named.
    refused(
        &with("ceilings: {'10': 0.5}"),
        &[
            "line 6: flowControl.usageLimitPolicyPluginRef: found ceiling 1 for priority 0, allowed: at most 0.5, the ceiling of the higher priority 10",
        ],
    );
    refused(
        &with("ceilings: {'10': 0.5, ten: 0.5, '0': 7}"),
        &[
            "line 4: plugins[0].parameters.ceilings.ten: found the name \"ten\"",
            "line 4: plugins[0].parameters.ceilings.0: found 7, allowed: a number in [0, 1]",
            "line 6: flowControl.usageLimitPolicyPluginRef: found ceiling 1 for priority 0",
        ],
    );
    assert!(load(&with("ceilings: {'10': 1.0, '0': 0.8, '-10': 0.5}")).is_ok());
}

#[test]
fn a_blind_sensor_must_show_before_a_budget_ends() {
    refused(
        "flowControl: {defaultRequestTTL: 4s}\npools: {default: {regime: {blindAfter: 4s}}}\n",
        &[
            "line 2: pools.default.regime.blindAfter: found \"4s\", allowed: less than flowControl.defaultRequestTTL, which is 4s",
        ],
    );
    refused(
        "pools: {p: {regime: {blindAfter: 2s}, flowControl: {priorityBands: [{priority: 3, defaultRequestTTL: 1s}]}}}\n",
        &[
            "line 1: pools.p.regime.blindAfter: found \"2s\", allowed: less than pools.p.flowControl.defaultRequestTTL of the band of priority 3, which is 1s",
        ],
    );
    // Zero is no budget, and a detector that does not read metrics is never blind.
    assert!(
        load("flowControl: {defaultRequestTTL: 0s}\npools: {default: {regime: {blindAfter: 4s}}}\n").is_ok()
    );
    let conc =
        "flowControl: {defaultRequestTTL: 1s, saturationDetector: {pluginRef: concurrency-detector}}\n";
    assert!(load(conc).is_ok());
    // Where it is not set, it makes room.
    let effective = load("flowControl: {defaultRequestTTL: 4s}\n").unwrap();
    assert_eq!(effective.pools["default"].policy.blind_after.as_millis(), 2_000);
    assert!(
        effective.notices.iter().any(|n| n.path == "pools.default.regime.blindAfter"),
        "{:?}",
        effective.notices
    );
}

#[test]
fn references_must_be_to_a_plugin_of_their_family() {
    refused(
        "flowControl: {saturationDetector: {pluginRef: edf-ordering-policy}}\n",
        &[
            "line 1: flowControl.saturationDetector.pluginRef: found \"edf-ordering-policy\", allowed: the name of a saturation detector: utilization-detector, concurrency-detector",
        ],
    );
    refused(
        "flowControl: {usageLimitPolicyPluginRef: mine}\n",
        &["line 1: flowControl.usageLimitPolicyPluginRef (global usageLimitPolicyPluginRef): found \"mine\""],
    );
    refused(
        "plugins: [{name: c, type: concurrency-detector, parameters: {inFlightLoadProducerName: p}}]\nflowControl: {saturationDetector: {pluginRef: c}}\n",
        &[
            "line 1: plugins[0].parameters.inFlightLoadProducerName: found \"p\", allowed: the name of an inflight-load-producer",
        ],
    );
    refused("plugins: [{name: x}]\n", &["line 1: plugins[0].type: found nothing"]);
}

#[test]
fn shapes_and_names_are_checked() {
    for (text, want) in [
        ("- 1\n", "line 1: found a list, allowed: a section"),
        ("flowControl: 5\n", "line 1: flowControl: found 5, allowed: a section"),
        (
            "flowControl: {priorityBands: {}}\n",
            "line 1: flowControl.priorityBands (global priorityBands): found a section, allowed: a list",
        ),
        (
            "flowControl: {priorityBands: [~]}\n",
            "line 1: flowControl.priorityBands[0]: found nothing, allowed: a section",
        ),
        (
            "flowControl: {defaultRequestTTL: 30}\n",
            "line 1: flowControl.defaultRequestTTL (global defaultRequestTTL): found 30",
        ),
        (
            "flowControl: {enableEviction: 1}\n",
            "line 1: flowControl.enableEviction (global enableEviction): found 1, allowed: true or false",
        ),
        ("kind: Pod\n", "line 1: kind: found \"Pod\", allowed: EndpointPickerConfig"),
        ("apiVersion: v1\n", "line 1: apiVersion: found \"v1\""),
        (
            "weir: {listen: '8080'}\n",
            "line 1: weir.listen: found \"8080\", allowed: an IP address and a port",
        ),
        (
            "weir: {objectives: {chat: 1e3}}\n",
            "line 1: weir.objectives.chat: found 1e3, allowed: a whole number",
        ),
        ("weir: {objectives: {chat: }}\n", "line 1: weir.objectives.chat: found nothing"),
        (
            "weir: {objectives: {\"a\\u0007\": 1}}\n",
            "line 1: weir.objectives.a\\u{7}: found the name \"a\\u{7}\"",
        ),
        (
            "weir: {log: {retention: {size: 1Mi}}}\n",
            "line 1: weir.log.retention.size: found \"1Mi\", allowed: 0 for no bound, or at least 16Mi",
        ),
        ("weir: {wheels: {}}\n", "line 1: weir.wheels: unknown key; known here: listen"),
        ("weir: {auth: {tokenFile: t}}\n", "line 1: weir.auth.tokenFile: unknown key; did you mean"),
        (
            "weir: {gateway: {tls: {cert: c}}}\n",
            "line 1: weir.gateway.tls.key: found nothing, allowed: a file of PEM: cert and key go together",
        ),
        ("weir: {gateway: {tls: {clientCa: c}}}\n", "line 1: weir.gateway.tls.cert: found nothing"),
        ("pools: {'../x': {}}\n", "line 1: pools.../x: found the name \"../x\""),
        (
            "pools: {p: {mode: dry-run}}\n",
            "line 1: pools.p.mode: found \"dry-run\", allowed: one of enforce, observe",
        ),
        (
            "pools: {p: {endpoints: [{url: 'http://a'}]}}\n",
            "line 1: pools.p.endpoints[0].name: found nothing",
        ),
        (
            "pools: {p: {endpoints: [{name: a, url: 'https://a'}]}}\n",
            "line 1: pools.p.endpoints[0].url: found \"https://a\"",
        ),
        (
            "pools: {p: {registry: {flowGCTimeout: 1h}}}\n",
            "line 1: pools.p.registry.flowGCTimeout: found \"1h\"",
        ),
        ("a: b: c\n", "line 1: mapping values"),
    ] {
        refused(text, &[want]);
    }
}

#[test]
fn bounds_that_could_have_no_effect_are_refused() {
    refused(
        "flowControl: {defaultRequestTTL: 15s, priorityBands: [{priority: 1, starvationBound: 15s}]}\n",
        &[
            "line 1: flowControl.priorityBands[0].starvationBound (priority band 1 starvationBound): found \"15s\", allowed: below 15s, the defaultRequestTTL of the band",
        ],
    );
    refused(
        "flowControl: {defaultPriorityBand: {defaultRequestTTL: 1s, orderingPolicyRef: newest-first-when-standing}}\n",
        &[
            "line 1: flowControl.defaultPriorityBand.orderingPolicyRef (default priority band orderingPolicyRef): found \"newest-first-when-standing\", allowed: an ordering that can have an effect; this one has a target of 1s",
        ],
    );
    for (policy, name) in [
        ("orderingPolicyRef: edf-ordering-policy", "edf-ordering-policy"),
        ("fairnessPolicyRef: program-aware-fairness", "program-aware-fairness"),
    ] {
        let text =
            format!("flowControl: {{priorityBands: [{{priority: 1, rejectHopeless: true, {policy}}}]}}\n");
        let want = format!(
            "line 1: flowControl.priorityBands[0].rejectHopeless (priority band 1 rejectHopeless): found true, allowed: false with {name}: where a request will stand is not known when it comes"
        );
        refused(&text, &[&want]);
    }
    refused(
        "flowControl: {priorityBands: [{priority: 1, starvationBound: -1s}]}\n",
        &[
            "line 1: flowControl.priorityBands[0].starvationBound (priority band 1 starvationBound): found \"-1s\"",
        ],
    );
    refused(
        "plugins: [{type: newest-first-when-standing, parameters: {target: 0s}}]\n",
        &["line 1: plugins[0].parameters.target: found \"0s\""],
    );
}
