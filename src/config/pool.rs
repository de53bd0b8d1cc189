//! One pool: its sections, and the checks between them.

use crate::effective::{ControllerSettings, PoolSettings, Preset, SCRAPE_FLOOR, ScrapeSettings};
use crate::gates::Gates;
use crate::node::{Node, Origin};
use crate::plugins::{Plugins, mark, staleness};
use crate::report::MistakeKind;
use crate::scalar::Scalar;
use crate::section::{Reading, Section};
use crate::tables::POOL;
use crate::{discovery, eviction, flow, format_duration};
use std::collections::BTreeMap;
use weir_kernel::{Detector, Micros, Policy};

/// Where a pool's parts stand: its own section, and for `default` llm-d's keys at the top.
#[derive(Clone, Debug)]
pub struct Source<'a, 'n> {
    /// Its name.
    pub name: &'a str,
    /// Its section under `pools`, if any.
    pub node: Option<&'n Node>,
    /// The document, where its llm-d keys are this pool's.
    pub top: Option<&'a Section<'n>>,
    /// Whose file it is, and whether flow control of `default` is on.
    pub gates: Gates,
}

/// Resolves one pool. `base` holds what the service sets for every pool.
pub fn read(reading: &mut Reading, source: &Source<'_, '_>, base: &Policy) -> PoolSettings {
    let own = Section::open(reading, source.node, &format!("pools.{}", source.name), &POOL);
    let (flow_at, plugins_at) = places(reading, source, &own);
    let foreign = source.gates.llm_d && plugins_at.path.is_empty();
    let gate_on = if source.top.is_some() { source.gates.flow_control } else { true };
    let mut policy = Policy { flow_control: gate_on, ..base.clone() };

    let mut plugins = Plugins::load(reading, plugins_at, foreign);
    let section = flow_at.section(reading, "flowControl");
    let older = source.top.map(|top| top.section(reading, "saturationDetector"));
    let (mistakes, rows) = (reading.report.mistakes.len(), reading.rows.len());
    let flow = flow::read(reading, &section, older.as_ref(), &mut plugins, &mut policy);
    let section_ignored = !gate_on && gate_off(reading, &section, mistakes, rows);
    plugins.finish(reading);

    let endpoints = discovery::endpoints(reading, &own, true);
    let discovery = discovery::read(reading, &own);
    let scrape = scrape(reading, &own);
    policy.observe = own.text(reading, "mode").as_deref() == Some("observe");
    let trust_request_priority = own.flag(reading, "trustRequestPriority");
    policy.in_flight_credit = own.section(reading, "saturation").flag(reading, "inFlightCredit");
    blind_after(reading, &own, &section, &mut policy);
    registry(reading, &own, &mut policy);
    let controller = controller(reading, &own, flow.enable_eviction);
    policy.eviction = eviction::read(
        reading,
        &own,
        &controller,
        &policy.detector,
        scrape.interval,
        policy.saturation_budget,
    );
    staleness_against_scrape(reading, &own, &flow.detector_name, &policy, &scrape);
    unseen_ends(reading, &section, &policy);
    PoolSettings {
        policy,
        endpoints,
        discovery,
        scrape,
        inference_pool: own.text(reading, "inferencePool").unwrap_or_else(|| source.name.to_owned()),
        objectives: BTreeMap::new(),
        trust_request_priority,
        controller,
        detector_name: flow.detector_name,
        usage_limit_name: flow.usage_limit_name,
        section_ignored,
    }
}

/// Which section holds `flowControl`, and which `plugins`; both places at once is a mistake.
fn places<'s, 'n>(
    reading: &mut Reading,
    source: &'s Source<'s, 'n>,
    own: &'s Section<'n>,
) -> (&'s Section<'n>, &'s Section<'n>) {
    let Some(top) = source.top else { return (own, own) };
    let mut of = |key: &str| match (top.node(key), own.node(key)) {
        (Some(above), Some(below)) => {
            let what = format!("{key} of the pool default");
            reading.report.duplicate(&own.at(key), &what, &above.origin, &below.origin);
            top
        }
        (None, Some(_)) => own,
        _ => top,
    };
    (of("flowControl"), of("plugins"))
}

/// With the gate off the section is not in force: its values are not checked, and it is said that it is there.
/// The detector still is in force: it serves the admission by saturation alone.
fn gate_off(reading: &mut Reading, section: &Section<'_>, mistakes: usize, rows: usize) -> bool {
    const GATE_OFF: &str = "the gate flowControl is off";
    let below = format!("{}.", section.path);
    let detector = format!("{}.saturationDetector", section.path);
    let later = reading.report.mistakes.split_off(mistakes);
    let (idle, real): (Vec<_>, Vec<_>) = later.into_iter().partition(|mistake| {
        mistake.kind == MistakeKind::Value
            && mistake.path.starts_with(&below)
            && !mistake.path.starts_with(&detector)
    });
    reading.report.mistakes.extend(real);
    for mistake in idle {
        reading
            .report
            .warn(&section.path, format!("{GATE_OFF}, so this is not in force, but it is wrong: {mistake}"));
    }
    for row in &mut reading.rows[rows..] {
        if row.path.starts_with(&below) && !row.path.starts_with(&detector) {
            mark(row, GATE_OFF);
        }
    }
    let keys =
        ["maxBytes", "maxRequests", "defaultRequestTTL", "noEndpointRequestTTL", "defaultPriorityBand"];
    let more = ["defaultNegativePriorityBand", "priorityBands", "usageLimitPolicyPluginRef"];
    let set: Vec<&str> = keys.into_iter().chain(more).filter(|key| section.node(key).is_some()).collect();
    if !set.is_empty() {
        let text = format!("ignored, because {GATE_OFF}: {}", set.join(", "));
        reading.report.warn(&section.path, text);
    }
    !set.is_empty()
}

fn scrape(reading: &mut Reading, own: &Section<'_>) -> ScrapeSettings {
    let section = own.section(reading, "scrape");
    let mut interval = section.span(reading, "interval");
    if interval < SCRAPE_FLOOR {
        let (path, floor) = (section.at("interval"), format_duration(SCRAPE_FLOOR));
        let text = format!("{} is below the floor and is raised to {floor}", format_duration(interval));
        reading.report.warn(&path, text);
        interval = SCRAPE_FLOOR;
        reading.change_row(&path, Scalar::Span(interval), "raised to the floor");
    }
    let timeout = section.span(reading, "timeout");
    let max_bytes = section.amount(reading, "maxBytes");
    let preset = match section.text(reading, "preset").as_deref() {
        Some("vllm-old") => Preset::VllmOld,
        Some("sglang") => Preset::Sglang,
        Some("tgi") => Preset::Tgi,
        _ => Preset::Vllm,
    };
    let names = section.section(reading, "names");
    ScrapeSettings {
        interval,
        timeout,
        max_bytes,
        preset,
        waiting: names.text(reading, "waiting"),
        running: names.text(reading, "running"),
        kv_usage: names.text(reading, "kvUsage"),
    }
}

/// `regime.blindAfter` must be shorter than every saturation budget: otherwise a blind sensor would show as requests
/// shed for load before it shows as itself.
fn blind_after(reading: &mut Reading, own: &Section<'_>, flow: &Section<'_>, policy: &mut Policy) {
    let regime = own.section(reading, "regime");
    policy.blind_after = regime.span(reading, "blindAfter");
    if !policy.detector.reads_metrics() {
        if let Some(row) = reading.rows.iter_mut().rev().find(|row| row.path == regime.at("blindAfter")) {
            mark(row, "the detector does not read metrics");
        }
        if regime.node("blindAfter").is_some() {
            reading
                .report
                .warn(&regime.at("blindAfter"), "has no effect: the detector does not read metrics");
        }
        return;
    }
    if !policy.flow_control {
        return;
    }
    let hidden = flow::saturation_budgets(policy).into_iter().filter(|(_, span)| *span <= policy.blind_after);
    let Some((name, span)) = hidden.min_by_key(|(_, span)| *span) else { return };
    let budget = format!("{}, which is {}", flow.at(&name), format_duration(span));
    if regime.node("blindAfter").is_some() {
        regime.refuse(reading, "blindAfter", format!("less than {budget}: it would hide that budget"));
        return;
    }
    policy.blind_after = Micros((span.0 / 2).max(1));
    let path = regime.at("blindAfter");
    let note = format!("half of {budget}");
    reading.report.notice(&path, format!("is {}, {note}", format_duration(policy.blind_after)));
    reading.change_row(&path, Scalar::Span(policy.blind_after), &note);
}

fn registry(reading: &mut Reading, own: &Section<'_>, policy: &mut Policy) {
    let section = own.section(reading, "registry");
    policy.flow_idle = section.span(reading, "flowGCTimeout");
    policy.band_idle = section.span(reading, "priorityBandGCTimeout");
    if policy.band_idle < policy.flow_idle {
        let key = if section.node("priorityBandGCTimeout").is_some() {
            "priorityBandGCTimeout"
        } else {
            "flowGCTimeout"
        };
        let (flow, band) = (format_duration(policy.flow_idle), format_duration(policy.band_idle));
        let allowed = format!("priorityBandGCTimeout ({band}) not below flowGCTimeout ({flow})");
        section.refuse(reading, key, allowed);
    }
}

fn controller(reading: &mut Reading, own: &Section<'_>, enable_eviction: bool) -> ControllerSettings {
    let section = own.section(reading, "controller");
    let rows = reading.rows.len();
    let settings = ControllerSettings {
        enable_eviction,
        expiry_cleanup_interval: section.span(reading, "expiryCleanupInterval"),
        enqueue_channel_buffer_size: section.amount(reading, "enqueueChannelBufferSize"),
        max_revocations_per_decision: section.amount(reading, "maxRevocationsPerDecision"),
        eviction_confirmation_grace: section.span(reading, "evictionConfirmationGrace"),
        eviction_confirmation_timeout: section.span(reading, "evictionConfirmationTimeout"),
    };
    let evicts = |path: &str| path.contains("eviction") || path.contains("Revocations");
    for row in reading.rows[rows..].iter_mut().filter(|row| !evicts(&row.path)) {
        if row.origin != Origin::Default {
            reading.report.warn(&row.path, "has no effect: there is no sweep and no hand-off channel");
        }
        mark(row, "without effect");
    }
    for row in reading.rows[rows..].iter_mut().filter(|row| evicts(&row.path)) {
        row.inactive = !enable_eviction;
        row.note = if enable_eviction { "unless `eviction` says otherwise" } else { "enableEviction is off" }
            .to_owned();
    }
    settings
}

/// Metrics that are read less often than they are allowed to age are stale most of the time.
fn staleness_against_scrape(
    reading: &mut Reading,
    own: &Section<'_>,
    detector: &str,
    policy: &Policy,
    scrape: &ScrapeSettings,
) {
    let Some(staleness) = staleness(&policy.detector) else { return };
    if scrape.interval < staleness {
        return;
    }
    let ratio = scrape.interval.0 / staleness.0.max(1);
    let text = format!(
        "{} is {ratio} times the metricsStalenessThreshold of {detector}, {}: endpoints are stale most of the time",
        format_duration(scrape.interval),
        format_duration(staleness)
    );
    reading.report.warn(&own.at("scrape.interval"), text);
}

/// A face that cannot see the end of a request ends its lease at once, and the concurrency detector counts leases.
fn unseen_ends(reading: &mut Reading, flow: &Section<'_>, policy: &Policy) {
    if let Detector::Concurrency { .. } = policy.detector {
        let text = "the concurrency detector does not see what comes by POST /ext-proc: that face cannot see the end of a \
                    request, so its lease ends in the step that dispatches it";
        reading.report.warn(&flow.at("saturationDetector"), text);
    }
}
