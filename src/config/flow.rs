//! `flowControl`: limits, budgets, bands and the policies they refer to.

use crate::bounds;
use crate::node::Origin;
use crate::plugins::{Plugin, Plugins};
use crate::scalar::Scalar;
use crate::section::{Reading, Section};
use crate::tables::Family;
use std::collections::BTreeMap;
use weir_kernel::{BandBounds, BandSettings, Detector, Fairness, Micros, Ordering, Policy};

/// A flow control section, resolved.
#[derive(Clone, Debug)]
pub struct Flow {
    /// `enableEviction`.
    pub enable_eviction: bool,
    /// The name of the detector in force.
    pub detector_name: String,
    /// The name of the usage limit in force.
    pub usage_limit_name: String,
}

/// Reads a flow control section into `policy`. `older_detector` is the section `saturationDetector` at the top.
pub fn read(
    reading: &mut Reading,
    section: &Section<'_>,
    older_detector: Option<&Section<'_>>,
    plugins: &mut Plugins,
    policy: &mut Policy,
) -> Flow {
    let mut section = section.clone();
    section.subject = "global".to_owned();
    let section = &section;
    policy.max_bytes = section.amount(reading, "maxBytes");
    policy.max_requests = section.amount(reading, "maxRequests");
    budgets(reading, section, policy);

    let mut template = section.section(reading, "defaultPriorityBand");
    template.subject = "default priority band".to_owned();
    let global = policy.saturation_budget;
    (policy.template, policy.bounds.template) = band(reading, &template, plugins, global);
    ignored_priority(reading, &template);
    let mut negative = section.section(reading, "defaultNegativePriorityBand");
    negative.subject = "default negative priority band".to_owned();
    if negative.is_present() {
        let (settings, bounds) = band(reading, &negative, plugins, global);
        (policy.negative_template, policy.bounds.negative_template) = (Some(settings), bounds);
    }
    ignored_priority(reading, &negative);
    bands(reading, section, plugins, policy);

    let usage_limit_origin = section.origin_of("usageLimitPolicyPluginRef");
    let usage = plugins.refer(reading, section, "usageLimitPolicyPluginRef", Family::UsageLimit);
    let (usage_limit_name, usage_limit) = match usage {
        Some((name, Plugin::UsageLimit(limit))) => (name, limit),
        _ => (String::new(), Policy::default().usage_limit),
    };
    policy.usage_limit = usage_limit;
    let detector_name = detector(reading, section, older_detector, plugins, policy);
    check_ceilings(reading, section, policy, &usage_limit_origin);
    Flow { enable_eviction: section.flag(reading, "enableEviction"), detector_name, usage_limit_name }
}

fn check_ceilings(reading: &mut Reading, section: &Section<'_>, policy: &Policy, origin: &Origin) {
    let priorities: Vec<i32> = policy.bands.keys().copied().collect();
    let path = section.at("usageLimitPolicyPluginRef");
    crate::ceilings::check(reading, &path, &policy.usage_limit, &priorities, origin);
}

/// The two budgets. The second follows the first where it is not set.
fn budgets(reading: &mut Reading, section: &Section<'_>, policy: &mut Policy) {
    policy.saturation_budget = section.span(reading, "defaultRequestTTL");
    match section.span_set(reading, "noEndpointRequestTTL") {
        Some(span) => policy.no_endpoint_budget = span,
        None => {
            policy.no_endpoint_budget = policy.saturation_budget;
            let (from, value) = (section.at("defaultRequestTTL"), Scalar::Span(policy.saturation_budget));
            let note = format!("follows {from}");
            reading.row(&section.at("noEndpointRequestTTL"), value, "us", &Origin::Default, &note);
        }
    }
}

fn ignored_priority(reading: &mut Reading, template: &Section<'_>) {
    if template.node("priority").is_some() {
        template_notice(reading, template);
    }
}

fn template_notice(reading: &mut Reading, template: &Section<'_>) {
    let path = template.at("priority");
    reading.report.warn(&path, "has no effect in a template: it stands for every band that is not listed");
}

/// The listed bands, and priority 0, which is always there.
fn bands(reading: &mut Reading, section: &Section<'_>, plugins: &mut Plugins, policy: &mut Policy) {
    policy.bands = BTreeMap::new();
    let mut places: BTreeMap<i64, Origin> = BTreeMap::new();
    for mut entry in section.list(reading, "priorityBands") {
        let written = entry.node("priority").is_some();
        let before = reading.report.mistakes.len();
        let priority = entry.whole(reading, "priority");
        let known = reading.report.mistakes.len() == before;
        entry.subject = format!("priority band {priority}");
        let (settings, bounds) = band(reading, &entry, plugins, policy.saturation_budget);
        if !known {
            continue;
        }
        let place = if written { entry.origin_of("priority") } else { entry.origin.clone() };
        if let Some(first) = places.get(&priority) {
            let what = format!("the band of priority {priority}");
            let (path, first) = (entry.at("priority"), first.clone());
            reading.report.duplicate(&path, &what, &first, &place);
            continue;
        }
        places.insert(priority, place);
        if let Ok(priority) = i32::try_from(priority) {
            policy.bands.insert(priority, settings);
            bounded(policy, priority, bounds);
        }
    }
    if !policy.bands.contains_key(&0) {
        policy.bands.insert(0, policy.template.clone());
        bounded(policy, 0, policy.bounds.template);
    }
}

/// A band without bounds is not listed, so that settings without any are what they were before there were bounds.
fn bounded(policy: &mut Policy, priority: i32, bounds: BandBounds) {
    if bounds != BandBounds::default() {
        policy.bounds.bands.insert(priority, bounds);
    }
}

/// One band or template; `global` is the pool's own queue-wait budget.
fn band(
    reading: &mut Reading,
    section: &Section<'_>,
    plugins: &mut Plugins,
    global: Micros,
) -> (BandSettings, BandBounds) {
    let system = BandSettings::default();
    let max_bytes = limit(reading, section, "maxBytes", system.max_bytes);
    let max_requests = limit(reading, section, "maxRequests", system.max_requests);
    let fairness = match plugins.refer(reading, section, "fairnessPolicyRef", Family::Fairness) {
        Some((_, Plugin::Fairness(fairness))) => fairness,
        _ => Fairness::GlobalStrict,
    };
    let ordering = match plugins.refer(reading, section, "orderingPolicyRef", Family::Ordering) {
        Some((_, Plugin::Ordering(ordering))) => ordering,
        _ => Ordering::Fcfs,
    };
    let saturation_budget = section.span_set(reading, "defaultRequestTTL");
    let no_endpoint_budget = section.span_set(reading, "noEndpointRequestTTL");
    let settings =
        BandSettings { max_requests, max_bytes, ordering, fairness, saturation_budget, no_endpoint_budget };
    let bounds = bounds::read(reading, section, &settings, global);
    (settings, bounds)
}

/// A band's limit: zero means the default here, while it means unlimited for all bands together.
fn limit(reading: &mut Reading, section: &Section<'_>, key: &str, default: u64) -> u64 {
    let path = section.at(key);
    let mistakes = reading.report.mistakes.len();
    let amount = section.amount(reading, key);
    if amount > 0 || reading.report.mistakes.len() > mistakes {
        return amount.max(1);
    }
    reading.report.warn(&path, format!("0 means the default of a band, {default}; no value closes a band"));
    reading.change_row(&path, Scalar::Amount(default), "written as 0, which means the default of a band");
    default
}

/// The detector in force, with what it counts. Gives its name.
fn detector(
    reading: &mut Reading,
    section: &Section<'_>,
    older: Option<&Section<'_>>,
    plugins: &mut Plugins,
    policy: &mut Policy,
) -> String {
    let own = section.section(reading, "saturationDetector");
    let chosen = match older {
        Some(older) if older.is_present() && own.is_present() => {
            let text = format!("has no effect: {} is set as well", own.path);
            reading.report.warn(&older.path, text);
            &own
        }
        Some(older) if older.is_present() => {
            let text = format!("is the older place of {}", own.path);
            reading.report.notice(&older.path, text);
            older
        }
        _ => &own,
    };
    let Some((name, Plugin::Detector(mut detector, producer))) =
        plugins.refer(reading, chosen, "pluginRef", Family::Detector)
    else {
        return String::new();
    };
    if let Detector::Concurrency { output_estimate, .. } = &mut detector {
        *output_estimate = plugins.output_estimate(reading, &name, producer.as_deref());
    }
    policy.detector = detector;
    name
}

/// Every finite saturation budget of a policy, with its place in words.
pub fn saturation_budgets(policy: &Policy) -> Vec<(String, Micros)> {
    let mut budgets = vec![("defaultRequestTTL".to_owned(), policy.saturation_budget)];
    let mut add = |name: String, settings: &BandSettings| {
        if let Some(span) = settings.saturation_budget {
            budgets.push((name, span));
        }
    };
    add("defaultPriorityBand.defaultRequestTTL".to_owned(), &policy.template);
    if let Some(negative) = &policy.negative_template {
        add("defaultNegativePriorityBand.defaultRequestTTL".to_owned(), negative);
    }
    for (priority, settings) in &policy.bands {
        add(format!("defaultRequestTTL of the band of priority {priority}"), settings);
    }
    budgets.retain(|(_, span)| !span.is_zero());
    budgets
}
