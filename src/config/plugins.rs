//! The plugins of a document: defined by name, referred to by name, built-in types under their own name.
//!
//! Not here: what a parameter means to the engine; that is in the kernel's `Policy`.

use crate::nearest::nearest;
use crate::node::{Node, Origin, Value};
use crate::report::Mistakes;
use crate::scalar::Scalar;
use crate::section::{Reading, Row, Section};
use crate::tables::{Family, PLUGIN_TYPES, PluginType};
use weir_kernel::{
    ConcurrencyMode, Detector, Fairness, HoldbackDomain, Micros, Ordering, OutputEstimate, ProgramAware,
    Ratio, UsageLimit,
};

/// A plugin, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plugin {
    /// The order inside a flow.
    Ordering(Ordering),
    /// The choice between flows.
    Fairness(Fairness),
    /// The ceilings.
    UsageLimit(UsageLimit),
    /// The saturation gauge, and the load producer that it names.
    Detector(Detector, Option<String>),
    /// What the concurrency detector counts; `None` = the prompt alone.
    LoadProducer(Option<OutputEstimate>),
}

/// A plugin of the document.
#[derive(Clone, Debug)]
struct Defined {
    name: String,
    origin: Origin,
    path: String,
    family: Option<Family>,
    plugin: Option<Plugin>,
    used: bool,
}

/// All plugins that a pool may refer to.
#[derive(Clone, Debug, Default)]
pub struct Plugins {
    defined: Vec<Defined>,
    base: String,
}

/// Parses the parameters of one plugin type by itself.
///
/// # Errors
/// A type that Weir does not know, and every mistake in the parameters.
pub fn parse_plugin(type_name: &str, parameters: &serde_json::Value) -> Result<Plugin, Mistakes> {
    let mut reading = Reading::default();
    let node = Node::from_json(parameters);
    let plugin = match PLUGIN_TYPES.iter().find(|known| known.name == type_name) {
        Some(known) => parameters_of(&mut reading, known, Some(&node), "parameters", &Origin::Given),
        None => {
            let types = PLUGIN_TYPES.iter().map(|known| known.name).collect::<Vec<_>>().join(", ");
            reading.report.value(
                "type",
                &Origin::Given,
                format!("\"{type_name}\""),
                format!("one of {types}"),
            );
            None
        }
    };
    match plugin {
        Some(plugin) if reading.report.mistakes.is_empty() => Ok(plugin),
        _ => Err(Mistakes { file: None, list: reading.report.mistakes }),
    }
}

/// The word that names an ordering in a document.
pub const fn ordering_name(ordering: Ordering) -> &'static str {
    match ordering {
        Ordering::Fcfs => "fcfs-ordering-policy",
        Ordering::Edf => "edf-ordering-policy",
        Ordering::SloDeadline => "slo-deadline-ordering-policy",
        Ordering::NewestFirstWhenStanding { .. } => "newest-first-when-standing",
    }
}

/// The word that names a fairness policy in a document.
pub const fn fairness_name(fairness: &Fairness) -> &'static str {
    match fairness {
        Fairness::GlobalStrict => "global-strict-fairness-policy",
        Fairness::RoundRobin => "round-robin-fairness-policy",
        Fairness::ProgramAware(_) => "program-aware-fairness",
    }
}

impl Plugins {
    /// Reads the list `plugins` of `section`. Unknown types are taken without being read where `foreign` says so.
    pub fn load(reading: &mut Reading, section: &Section<'_>, foreign: bool) -> Plugins {
        let mut plugins = Plugins { defined: Vec::new(), base: section.at("plugins") };
        for entry in section.list(reading, "plugins") {
            plugins.define(reading, &entry, foreign);
        }
        plugins
    }

    fn define(&mut self, reading: &mut Reading, entry: &Section<'_>, foreign: bool) {
        let Some(type_name) = entry.text(reading, "type") else {
            if entry.node("type").is_none() {
                entry.refuse(reading, "type", "the type of the plugin");
            }
            return;
        };
        let name = entry.text(reading, "name").unwrap_or_else(|| type_name.clone());
        if let Some(first) = self.defined.iter().find(|known| known.name == name) {
            let (path, first) = (entry.at("name"), first.origin.clone());
            reading.report.duplicate(&path, &format!("the plugin \"{name}\""), &first, &entry.origin);
            return;
        }
        let known = PLUGIN_TYPES.iter().find(|known| known.name == type_name);
        let plugin = known.and_then(|known| {
            parameters_of(reading, known, entry.node("parameters"), &entry.at("parameters"), &entry.origin)
        });
        if known.is_none() {
            let near = nearest(&type_name, PLUGIN_TYPES.iter().map(|known| known.name));
            let hint = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            if foreign {
                let text = format!("the type {type_name} is llm-d's own and is not read{hint}");
                reading.report.notice(&entry.path, text);
            } else {
                let types = PLUGIN_TYPES.iter().map(|known| known.name).collect::<Vec<_>>().join(", ");
                entry.refuse(reading, "type", format!("one of {types}{hint}"));
            }
        }
        self.defined.push(Defined {
            name,
            origin: entry.origin.clone(),
            path: entry.path.clone(),
            family: known.map(|known| known.family),
            plugin,
            used: false,
        });
    }

    /// The plugin that `key` of `section` refers to: a defined one, or a built-in type under its own name.
    /// An empty reference means the default. A mistake is recorded, and gives `None`.
    pub fn refer(
        &mut self,
        reading: &mut Reading,
        section: &Section<'_>,
        key: &str,
        family: Family,
    ) -> Option<(String, Plugin)> {
        let name = match section.node(key).map(|node| &node.value) {
            Some(Value::Text(text)) if text.is_empty() => {
                let name = default_of(family);
                let value = Scalar::Text(name.to_owned());
                reading.row(
                    &section.at(key),
                    value,
                    "",
                    &section.origin_of(key),
                    "written empty: the default",
                );
                name.to_owned()
            }
            _ => section.value(reading, key)?.to_string(),
        };
        self.find(reading, section, key, &name, family).map(|plugin| (name, plugin))
    }

    fn find(
        &mut self,
        reading: &mut Reading,
        section: &Section<'_>,
        key: &str,
        name: &str,
        family: Family,
    ) -> Option<Plugin> {
        let allowed = |this: &Plugins| {
            let own = this.defined.iter().filter(|defined| defined.family == Some(family));
            let built_in = PLUGIN_TYPES.iter().filter(|known| known.family == family).map(|known| known.name);
            let mut names: Vec<&str> = own.map(|defined| defined.name.as_str()).collect();
            names.extend(built_in.filter(|name| !this.defined.iter().any(|defined| defined.name == *name)));
            let near = nearest(name, names.iter().copied());
            let hint = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            format!("the name of {}: {}{hint}", family.words(), names.join(", "))
        };
        if let Some(at) = self.defined.iter().position(|defined| defined.name == name) {
            if self.defined[at].family == Some(family) {
                self.defined[at].used = true;
                // One without a plugin had a mistake in its parameters, which is told already.
                return self.defined[at].plugin.clone();
            }
            let allowed = allowed(self);
            section.refuse(reading, key, allowed);
            return None;
        }
        let Some(known) = PLUGIN_TYPES.iter().find(|known| known.name == name && known.family == family)
        else {
            let allowed = allowed(self);
            section.refuse(reading, key, allowed);
            return None;
        };
        let path = format!("{}[{name}]", self.base);
        let origin = section.origin_of(key);
        let plugin = parameters_of(reading, known, None, &format!("{path}.parameters"), &origin);
        self.defined.push(Defined {
            name: name.to_owned(),
            origin,
            path,
            family: Some(family),
            plugin: plugin.clone(),
            used: true,
        });
        plugin
    }

    /// The output estimate of the load producer that a detector names, or of the only one there is.
    pub fn output_estimate(
        &mut self,
        reading: &mut Reading,
        detector: &str,
        producer: Option<&str>,
    ) -> Option<OutputEstimate> {
        let named = |defined: &&mut Defined| {
            defined.family == Some(Family::LoadProducer) && producer.is_none_or(|name| defined.name == name)
        };
        let found = self.defined.iter_mut().find(named);
        match (found, producer) {
            (Some(defined), _) => {
                defined.used = true;
                match defined.plugin {
                    Some(Plugin::LoadProducer(estimate)) => estimate,
                    _ => None,
                }
            }
            (None, Some(name)) => {
                let at = self.defined.iter().find(|defined| defined.name == detector);
                let (path, origin) = match at {
                    Some(at) => (at.path.clone(), at.origin.clone()),
                    None => (detector.to_owned(), Origin::Given),
                };
                let path = format!("{path}.parameters.inFlightLoadProducerName");
                reading.report.value(
                    &path,
                    &origin,
                    format!("\"{name}\""),
                    "the name of an inflight-load-producer",
                );
                None
            }
            (None, None) => None,
        }
    }

    /// Says of each plugin that nothing refers to it, and marks its values.
    pub fn finish(&self, reading: &mut Reading) {
        for unused in self.defined.iter().filter(|defined| !defined.used && defined.family.is_some()) {
            reading.report.warn(
                &unused.path,
                format!("nothing refers to the plugin \"{}\": it has no effect", unused.name),
            );
            let below = format!("{}.", unused.path);
            for row in reading.rows.iter_mut().filter(|row| row.path.starts_with(&below)) {
                mark(row, "nothing refers to it");
            }
        }
    }
}

/// Marks a row as without effect.
pub fn mark(row: &mut Row, why: &str) {
    row.inactive = true;
    row.note = why.to_owned();
}

/// The type that an empty reference means.
const fn default_of(family: Family) -> &'static str {
    match family {
        Family::Ordering => "fcfs-ordering-policy",
        Family::Fairness => "global-strict-fairness-policy",
        Family::UsageLimit => "static-usage-limit-policy",
        Family::Detector => "utilization-detector",
        Family::LoadProducer => "inflight-load-producer",
    }
}

/// Reads the parameters of a known type, which is named at `origin`. `None` if a value without a default is missing or wrong.
pub fn parameters_of(
    reading: &mut Reading,
    known: &PluginType,
    node: Option<&Node>,
    path: &str,
    origin: &Origin,
) -> Option<Plugin> {
    let mut section = Section::open(reading, node, path, known.parameters);
    if node.is_none() {
        section.origin = origin.clone();
    }
    match known.name {
        "fcfs-ordering-policy" => Some(Plugin::Ordering(Ordering::Fcfs)),
        "edf-ordering-policy" => Some(Plugin::Ordering(Ordering::Edf)),
        "slo-deadline-ordering-policy" => Some(Plugin::Ordering(Ordering::SloDeadline)),
        "newest-first-when-standing" => {
            let target = section.span(reading, "target");
            let window = section.span(reading, "window");
            Some(Plugin::Ordering(Ordering::NewestFirstWhenStanding { target, window }))
        }
        "global-strict-fairness-policy" => Some(Plugin::Fairness(Fairness::GlobalStrict)),
        "round-robin-fairness-policy" => Some(Plugin::Fairness(Fairness::RoundRobin)),
        "program-aware-fairness" => Some(program_aware(reading, &section)),
        "static-usage-limit-policy" => {
            let threshold = section.fraction(reading, "threshold")?;
            Some(Plugin::UsageLimit(UsageLimit::Static { threshold }))
        }
        "priority-holdback-policy" => holdback(reading, &section),
        "soft-reflective-ceiling-policy" => Some(Plugin::UsageLimit(UsageLimit::SoftReflective)),
        "fixed-usage-limit-policy" => crate::ceilings::fixed(reading, &section),
        "utilization-detector" => utilization(reading, &section),
        "concurrency-detector" => concurrency(reading, &section),
        "pushed-saturation-detector" => Some(Plugin::Detector(Detector::Pushed, None)),
        "inflight-load-producer" => Some(load_producer(reading, &section)),
        _ => None,
    }
}

fn program_aware(reading: &mut Reading, section: &Section<'_>) -> Plugin {
    section.text(reading, "strategy");
    let weight_service = section.fraction(reading, "lasWeightService").unwrap_or(Ratio::ZERO);
    let weight_head_wait = section.fraction(reading, "lasWeightHeadWait").unwrap_or(Ratio::ZERO);
    let half_life = section.span(reading, "lasHalfLifeSeconds");
    let state_ttl = section.span(reading, "evictionTtlSeconds");
    let state_sweep = section.span(reading, "evictionSweepSeconds");
    if section.node("evictionSweepSeconds").is_some() {
        let text = "has no effect: state goes at its deadline, not at a sweep";
        reading.report.warn(&section.at("evictionSweepSeconds"), text);
    }
    Plugin::Fairness(Fairness::ProgramAware(ProgramAware {
        weight_service,
        weight_head_wait,
        half_life,
        state_ttl,
        state_sweep,
    }))
}

fn holdback(reading: &mut Reading, section: &Section<'_>) -> Option<Plugin> {
    section.text(reading, "shape");
    let domain = match section.text(reading, "domain").as_deref() {
        Some("value") => HoldbackDomain::Value,
        _ => HoldbackDomain::Rank,
    };
    let max = section.fraction(reading, "maxCeiling");
    if section.node("minCeiling").is_none() {
        section.refuse(reading, "minCeiling", "a number in [0, 1), which must be given");
        return None;
    }
    let (min, max) = (section.fraction(reading, "minCeiling")?, max?);
    if min >= max {
        section.refuse(reading, "minCeiling", format!("less than maxCeiling, which is {max}"));
        return None;
    }
    Some(Plugin::UsageLimit(UsageLimit::Holdback { min, max, domain }))
}

/// A headroom above 1 is allowed, but is hardly meant.
fn headroom(reading: &mut Reading, section: &Section<'_>) -> Ratio {
    let headroom = section.fraction(reading, "headroom").unwrap_or(Ratio::ZERO);
    if headroom > Ratio::ONE {
        let percent = Ratio(headroom.micros().saturating_mul(100));
        let text = format!("{headroom} is read as {percent}%: it is a share, where 0.2 is 20%");
        reading.report.warn(&section.at("headroom"), text);
    }
    headroom
}

fn utilization(reading: &mut Reading, section: &Section<'_>) -> Option<Plugin> {
    let queue_depth = u32::try_from(section.amount(reading, "queueDepthThreshold")).ok();
    let kv = section.fraction(reading, "kvCacheUtilThreshold");
    let staleness = section.span(reading, "metricsStalenessThreshold");
    let headroom = headroom(reading, section);
    Some(Plugin::Detector(
        Detector::Utilization { queue_depth: queue_depth?, kv: kv?, staleness, headroom },
        None,
    ))
}

fn concurrency(reading: &mut Reading, section: &Section<'_>) -> Option<Plugin> {
    let mode = match section.text(reading, "concurrencyMode").as_deref() {
        Some("tokens") => ConcurrencyMode::Tokens,
        Some("hybrid") => ConcurrencyMode::Hybrid,
        _ => ConcurrencyMode::Requests,
    };
    let max_requests = section.amount(reading, "maxConcurrency");
    let max_tokens = section.amount(reading, "maxTokenConcurrency");
    let headroom = headroom(reading, section);
    let producer = section.text(reading, "inFlightLoadProducerName");
    let detector = Detector::Concurrency { mode, max_requests, max_tokens, headroom, output_estimate: None };
    Some(Plugin::Detector(detector, producer))
}

fn load_producer(reading: &mut Reading, section: &Section<'_>) -> Plugin {
    let on = section.flag(reading, "addEstimatedOutputTokens");
    let ratio = section.fraction(reading, "outputRatio").unwrap_or(Ratio::ZERO);
    let cap = section.amount(reading, "maxEstimatedOutputTokens");
    if section.text(reading, "prefixMatchInfoProducerName").is_some() {
        reading.report.notice(&section.at("prefixMatchInfoProducerName"), "is llm-d's own and is not read");
    }
    Plugin::LoadProducer(on.then_some(OutputEstimate { ratio, cap }))
}

/// The staleness threshold of a detector, where it has one.
pub const fn staleness(detector: &Detector) -> Option<Micros> {
    match detector {
        Detector::Utilization { staleness, .. } => Some(*staleness),
        Detector::Concurrency { .. } | Detector::Pushed => None,
    }
}
