//! Every setting, declared once. This file: the top of a document.

mod discovery;
mod flow;
mod plugin;
mod pool;
mod service;

pub use discovery::ENDPOINTS_FILE;
pub use flow::FLOW;
pub use plugin::{Family, PLUGIN, PLUGIN_TYPES, PluginType};
pub use pool::POOL;
pub use service::WEIR;

use crate::table::{Kind, Setting, Table};

/// The top of a document. llm-d's keys stand here as they are; ours are `weir` and `pools`.
pub static ROOT: Table = Table {
    doc: "A whole llm-d `EndpointPickerConfig` loads unchanged; its sections apply to the pool `default`. \
          What is Weir's own lies under `weir` and `pools`.",
    settings: &[
        Setting::open(
            "apiVersion",
            Kind::Text,
            "not checked",
            "The version of llm-d's form, such as `llm-d.ai/v1alpha1`.",
        ),
        Setting::open(
            "kind",
            Kind::Text,
            "Weir's own file: flow control is on",
            "`EndpointPickerConfig` for a file of llm-d: then the gate `flowControl` decides whether flow control is on.",
        ),
        Setting::open(
            "featureGates",
            Kind::Texts,
            "every gate at its default",
            "Gates by `name`, `name=true` or `name=false`. `flowControl` is that of the pool `default`; the others of llm-d are taken without effect.",
        ),
        Setting::open(
            "plugins",
            Kind::List(&PLUGIN),
            "none",
            "Policies and detectors with their parameters, by name.",
        ),
        Setting::open("flowControl", Kind::Section(&FLOW), "defaults", "Queueing, of the pool `default`."),
        Setting::open(
            "saturationDetector",
            Kind::Section(&flow::DETECTOR_REF),
            "as in `flowControl`",
            "The older place of `flowControl.saturationDetector`; used where that is absent.",
        ),
        Setting::open("weir", Kind::Section(&WEIR), "defaults", "The service itself."),
        Setting::open(
            "pools",
            Kind::Map(&POOL),
            "one pool, `default`",
            "The pools, by name; each has its own engine and its own log stream.",
        ),
        Setting::open("schedulingProfiles", Kind::Foreign, "", "llm-d's scheduling: not read."),
        Setting::open("dataLayer", Kind::Foreign, "", "llm-d's data layer: not read."),
        Setting::open("data", Kind::Foreign, "", "llm-d's data layer, older name: not read."),
        Setting::open("requestHandler", Kind::Foreign, "", "llm-d's request handling: not read."),
        Setting::open("parser", Kind::Foreign, "", "llm-d's request parsing: not read."),
        Setting::open("metadata", Kind::Foreign, "", "Kubernetes metadata: not read."),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Node, Origin, Value};
    use crate::scalar::read;
    use std::collections::BTreeSet;

    fn walk(table: &'static Table, path: &str, seen: &mut usize) {
        let keys: BTreeSet<_> = table.settings.iter().map(|setting| setting.key).collect();
        assert_eq!(keys.len(), table.settings.len(), "{path}: a key is declared twice");
        for setting in table.settings {
            let at = format!("{path}.{}", setting.key);
            *seen += 1;
            assert!(!setting.doc.is_empty(), "{at} has no manual line");
            if let Some(default) = setting.default {
                let node = Node { value: Value::Text(default.to_owned()), origin: Origin::Default };
                assert!(read(&setting.kind, &node).is_ok(), "{at}: the default {default} is not allowed");
            }
            if let Kind::Section(table) | Kind::List(table) | Kind::Map(table) = &setting.kind {
                walk(table, &at, seen);
            }
        }
    }

    #[test]
    fn every_setting_has_a_manual_line_and_an_allowed_default() {
        let mut seen = 0;
        walk(&ROOT, "", &mut seen);
        for plugin in PLUGIN_TYPES {
            walk(plugin.parameters, plugin.name, &mut seen);
        }
        assert!(seen > 80, "{seen}");
    }
}
