//! Logged settings as the configuration document that they could have come from.
//!
//! The log holds what settings resolved to; a change is made in a document. Bands come highest priority first.

use serde_json::{Map, Value as Json, json};
use weir_config::{Node, Value, fairness_name, format_duration, ordering_name};
use weir_kernel::{
    BandBounds, BandSettings, ConcurrencyMode, Detector, Fairness, HoldbackDomain, Micros, Ordering, Policy,
    ProgramAware, Ratio, Sizing, UsageLimit,
};

/// The document of these settings, of the pool `default`. What follows from the rest is left out, so that it follows from a
/// candidate's: `noEndpointRequestTTL` where it is the default TTL, `blindAfter`.
pub fn document(policy: &Policy) -> Json {
    let short = written(policy, false);
    let resolved = weir_config::resolve(Node::from_json(&short), []).ok();
    let same = resolved.is_some_and(|effective| {
        effective.pools.get(weir_config::DEFAULT_POOL).is_some_and(|pool| pool.policy == *policy)
    });
    if same { short } else { written(policy, true) }
}

/// `whole`: with what follows from the rest.
fn written(policy: &Policy, whole: bool) -> Json {
    let mut plugins = Plugins::default();
    let bands: Vec<Json> = policy
        .bands
        .iter()
        .rev()
        .map(|(priority, settings)| {
            let bounds = policy.bounds.bands.get(priority).copied().unwrap_or_default();
            let mut band = plugins.band(settings, bounds);
            band.insert("priority".to_owned(), json!(priority));
            Json::Object(band)
        })
        .collect();
    let mut flow = json!({
        "maxBytes": policy.max_bytes,
        "maxRequests": policy.max_requests,
        "defaultRequestTTL": span(policy.saturation_budget),
        "noEndpointRequestTTL": span(policy.no_endpoint_budget),
        "defaultPriorityBand": plugins.band(&policy.template, policy.bounds.template),
        "priorityBands": bands,
        "usageLimitPolicyPluginRef": plugins.usage_limit(&policy.usage_limit),
        "saturationDetector": { "pluginRef": plugins.detector(&policy.detector) },
        "enableEviction": policy.eviction.enabled,
    });
    if let (Some(negative), Json::Object(flow)) = (&policy.negative_template, &mut flow) {
        flow.insert(
            "defaultNegativePriorityBand".to_owned(),
            Json::Object(plugins.band(negative, policy.bounds.negative_template)),
        );
    }
    let mut pool = json!({
        "mode": if policy.observe { "observe" } else { "enforce" },
        "saturation": { "inFlightCredit": policy.in_flight_credit },
        "eviction": {
            "maxRevocationsPerDecision": policy.eviction.max_revocations,
            "confirmationTimeout": span(policy.eviction.confirmation_timeout),
            "confirmationGrace": span(policy.eviction.confirmation_grace),
        },
        "registry": {
            "flowGCTimeout": span(policy.flow_idle),
            "priorityBandGCTimeout": span(policy.band_idle),
        },
        "regime": { "blindAfter": span(policy.blind_after) },
    });
    if let (Sizing::Demand, Json::Object(eviction)) = (policy.eviction.sizing, &mut pool["eviction"]) {
        eviction.insert("sizing".to_owned(), json!("demand"));
        eviction
            .insert("maxRevocationsOnDemand".to_owned(), json!(policy.eviction.max_revocations_on_demand));
    }
    if !whole {
        if let Json::Object(pool) = &mut pool {
            pool.remove("regime");
        }
        if let (Json::Object(flow), true) = (&mut flow, policy.no_endpoint_budget == policy.saturation_budget)
        {
            flow.remove("noEndpointRequestTTL");
        }
    }
    json!({
        "featureGates": [format!("flowControl={}", policy.flow_control)],
        "plugins": plugins.list,
        "flowControl": flow,
        "weir": {
            "leaseTimeout": span(policy.lease_timeout),
            "ticketTimeout": span(policy.ticket_timeout),
            "resumeWindow": span(policy.resume_window),
            "idempotencyKeys": policy.idempotency_keys,
            "maxDynamicBands": policy.max_dynamic_bands,
        },
        "pools": { weir_config::DEFAULT_POOL: pool },
    })
}

fn span(span: Micros) -> String {
    format_duration(span)
}

fn ratio(ratio: Ratio) -> String {
    ratio.to_string()
}

/// The plugins that the settings refer to; equal ones once.
#[derive(Default)]
struct Plugins {
    list: Vec<Json>,
}

impl Plugins {
    fn define(&mut self, kind: &str, parameters: Json) -> String {
        let same = |known: &&Json| known["type"] == *kind && known["parameters"] == parameters;
        if let Some(name) = self.list.iter().find(same).and_then(|known| known["name"].as_str()) {
            return name.to_owned();
        }
        let taken = self.list.iter().any(|known| known["type"] == *kind);
        let name = if taken { format!("{kind}-{}", self.list.len()) } else { kind.to_owned() };
        self.list.push(json!({ "name": name, "type": kind, "parameters": parameters }));
        name
    }

    fn band(&mut self, band: &BandSettings, bounds: BandBounds) -> Map<String, Json> {
        let fairness = match &band.fairness {
            Fairness::ProgramAware(params) => {
                self.define(fairness_name(&band.fairness), program_aware(params))
            }
            plain => fairness_name(plain).to_owned(),
        };
        let mut map = Map::new();
        map.insert("maxBytes".to_owned(), json!(band.max_bytes));
        map.insert("maxRequests".to_owned(), json!(band.max_requests));
        map.insert("fairnessPolicyRef".to_owned(), json!(fairness));
        map.insert("orderingPolicyRef".to_owned(), json!(self.ordering(band.ordering)));
        if !bounds.starvation.is_zero() {
            map.insert("starvationBound".to_owned(), json!(span(bounds.starvation)));
        }
        if bounds.reject_hopeless {
            map.insert("rejectHopeless".to_owned(), json!(true));
        }
        for (key, budget) in
            [("defaultRequestTTL", band.saturation_budget), ("noEndpointRequestTTL", band.no_endpoint_budget)]
        {
            if let Some(budget) = budget {
                map.insert(key.to_owned(), json!(span(budget)));
            }
        }
        map
    }

    fn ordering(&mut self, ordering: Ordering) -> String {
        match ordering {
            Ordering::NewestFirstWhenStanding { target, window } => self
                .define(ordering_name(ordering), json!({ "target": span(target), "window": span(window) })),
            Ordering::Fcfs | Ordering::Edf | Ordering::SloDeadline => ordering_name(ordering).to_owned(),
        }
    }

    fn usage_limit(&mut self, limit: &UsageLimit) -> String {
        match limit {
            UsageLimit::Static { threshold } => {
                self.define("static-usage-limit-policy", json!({ "threshold": ratio(*threshold) }))
            }
            UsageLimit::Holdback { min, max, domain } => {
                let domain = match domain {
                    HoldbackDomain::Rank => "rank",
                    HoldbackDomain::Value => "value",
                };
                let parameters =
                    json!({ "minCeiling": ratio(*min), "maxCeiling": ratio(*max), "domain": domain });
                self.define("priority-holdback-policy", parameters)
            }
            UsageLimit::SoftReflective => "soft-reflective-ceiling-policy".to_owned(),
            UsageLimit::Fixed { ceilings, default } => {
                let ceilings: Map<String, Json> =
                    ceilings.iter().map(|(p, c)| (p.to_string(), json!(ratio(*c)))).collect();
                let parameters = json!({ "ceilings": ceilings, "default": ratio(*default) });
                self.define("fixed-usage-limit-policy", parameters)
            }
        }
    }

    fn detector(&mut self, detector: &Detector) -> String {
        match detector {
            Detector::Utilization { queue_depth, kv, staleness, headroom } => {
                let parameters = json!({
                    "queueDepthThreshold": queue_depth,
                    "kvCacheUtilThreshold": ratio(*kv),
                    "metricsStalenessThreshold": span(*staleness),
                    "headroom": ratio(*headroom),
                });
                self.define("utilization-detector", parameters)
            }
            Detector::Concurrency { mode, max_requests, max_tokens, headroom, output_estimate } => {
                if let Some(estimate) = output_estimate {
                    let parameters = json!({
                        "addEstimatedOutputTokens": true,
                        "outputRatio": ratio(estimate.ratio),
                        "maxEstimatedOutputTokens": estimate.cap,
                    });
                    self.define("inflight-load-producer", parameters);
                }
                let mode = match mode {
                    ConcurrencyMode::Requests => "requests",
                    ConcurrencyMode::Tokens => "tokens",
                    ConcurrencyMode::Hybrid => "hybrid",
                };
                let parameters = json!({
                    "concurrencyMode": mode,
                    "maxConcurrency": max_requests,
                    "maxTokenConcurrency": max_tokens,
                    "headroom": ratio(*headroom),
                });
                self.define("concurrency-detector", parameters)
            }
            Detector::Pushed => "pushed-saturation-detector".to_owned(),
        }
    }
}

fn program_aware(params: &ProgramAware) -> Json {
    let seconds = |span: Micros| ratio(Ratio(i64::try_from(span.0).unwrap_or(i64::MAX)));
    json!({
        "lasWeightService": ratio(params.weight_service),
        "lasWeightHeadWait": ratio(params.weight_head_wait),
        "lasHalfLifeSeconds": seconds(params.half_life),
        "evictionTtlSeconds": seconds(params.state_ttl),
        "evictionSweepSeconds": seconds(params.state_sweep),
    })
}

/// A parsed document as JSON; numbers keep the digits as written where JSON has them.
///
/// # Errors
/// A key that stands twice in one section.
pub fn json_of(node: &Node) -> Result<Json, String> {
    Ok(match &node.value {
        Value::Null => Json::Null,
        Value::Bool(b) => json!(b),
        Value::Number(text) => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
        Value::Text(text) => json!(text),
        Value::List(items) => Json::Array(items.iter().map(json_of).collect::<Result<_, _>>()?),
        Value::Map(entries) => {
            let mut map = Map::new();
            for entry in entries {
                if map.insert(entry.key.clone(), json_of(&entry.node)?).is_some() {
                    return Err(entry.key.clone());
                }
            }
            Json::Object(map)
        }
    })
}
