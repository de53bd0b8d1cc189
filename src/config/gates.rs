//! `featureGates`, `kind` and `apiVersion`: whose file this is, and whether flow control is on.

use crate::nearest::nearest;
use crate::node::Origin;
use crate::scalar::Scalar;
use crate::section::{Reading, Section};
use std::collections::BTreeMap;

/// The kind of a file of llm-d.
pub const LLM_D_KIND: &str = "EndpointPickerConfig";

/// llm-d's gates that mean nothing to Weir.
const FOREIGN: [&str; 4] =
    ["dataLayer", "prepareDataPlugins", "enableLegacyMetrics", "haPopulateNonLeaderDatastore"];
const FLOW_CONTROL: &str = "flowControl";

/// Whose file it is, and whether flow control is on in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// A file of kind `EndpointPickerConfig`.
    pub llm_d: bool,
    /// Flow control of the pool `default` is on.
    pub flow_control: bool,
}

/// Reads the three keys.
pub fn read(reading: &mut Reading, root: &Section<'_>) -> Gates {
    let llm_d = match root.text(reading, "kind").as_deref() {
        None => false,
        Some(LLM_D_KIND) => true,
        Some(_) => {
            root.refuse(reading, "kind", format!("{LLM_D_KIND}, or no kind at all for Weir's own file"));
            false
        }
    };
    if let Some(version) = root.text(reading, "apiVersion") {
        match version.split_once('/').map(|(group, _)| group) {
            Some("llm-d.ai") => {}
            Some("inference.networking.x-k8s.io") => {
                reading.report.notice("apiVersion", "is an older name of llm-d.ai/v1alpha1");
            }
            _ => root.refuse(
                reading,
                "apiVersion",
                "llm-d.ai/v1alpha1 or inference.networking.x-k8s.io/v1alpha1",
            ),
        }
    }
    let given = gates(reading, root);
    let (flow_control, origin) = match given.get(FLOW_CONTROL) {
        Some((on, origin)) => (*on, origin.clone()),
        None => (!llm_d, Origin::Default),
    };
    let note =
        if llm_d { "off unless given in a file of llm-d" } else { "on unless given in Weir's own file" };
    reading.row("featureGates.flowControl", Scalar::Bool(flow_control), "", &origin, note);
    Gates { llm_d, flow_control }
}

fn gates(reading: &mut Reading, root: &Section<'_>) -> BTreeMap<String, (bool, Origin)> {
    let mut given: BTreeMap<String, (bool, Origin)> = BTreeMap::new();
    for (at, (text, node)) in root.texts(reading, "featureGates").into_iter().enumerate() {
        let path = format!("featureGates[{at}]");
        let (name, value) = text.split_once('=').unwrap_or((text, "true"));
        let on = match value {
            "true" => true,
            "false" => false,
            _ => {
                let allowed = format!("{name}, {name}=true or {name}=false");
                reading.report.value(&path, &node.origin, node.shown(), allowed);
                continue;
            }
        };
        if name != FLOW_CONTROL && !FOREIGN.contains(&name) {
            let known = [FLOW_CONTROL].into_iter().chain(FOREIGN);
            let near = nearest(name, known.clone())
                .map(|near| format!("; did you mean {near}?"))
                .unwrap_or_default();
            let allowed = format!("one of {}{near}", known.collect::<Vec<_>>().join(", "));
            reading.report.value(&path, &node.origin, node.shown(), allowed);
            continue;
        }
        if let Some((_, first)) = given.get(name) {
            let first = first.clone();
            reading.report.duplicate(&path, &format!("the gate {name}"), &first, &node.origin);
            continue;
        }
        if name != FLOW_CONTROL {
            reading.report.notice(&path, "is llm-d's own and is not read");
        }
        given.insert(name.to_owned(), (on, node.origin.clone()));
    }
    given
}
