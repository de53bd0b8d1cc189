//! Ceilings that are given one by one, and those that can never open.
//!
//! Not here: how a ceiling is computed from rank, value or saturation; that is the kernel's.

use crate::node::{Origin, Value};
use crate::plugins::Plugin;
use crate::scalar::{Scalar, fraction};
use crate::section::{Reading, Section};
use crate::table::Range;
use std::collections::BTreeMap;
use weir_kernel::{Ratio, UsageLimit};

/// Reads `fixed-usage-limit-policy`.
pub fn fixed(reading: &mut Reading, section: &Section<'_>) -> Option<Plugin> {
    let default = section.fraction(reading, "default")?;
    let mut ceilings: BTreeMap<i32, (Ratio, Origin)> = BTreeMap::new();
    for (name, path, node) in section.names(reading, "ceilings") {
        let Ok(priority) = name.parse::<i32>() else {
            reading.report.value(
                &path,
                &node.origin,
                format!("the name \"{name}\""),
                "a priority such as \"10\"",
            );
            continue;
        };
        let ceiling = match &node.value {
            Value::Number(text) | Value::Text(text) => fraction(text, &Range::ZERO_TO_ONE),
            _ => None,
        };
        let Some(ceiling) = ceiling else {
            reading.report.value(&path, &node.origin, node.shown(), Range::ZERO_TO_ONE.words());
            continue;
        };
        if let Some((_, first)) = ceilings.get(&priority) {
            let first = first.clone();
            reading.report.duplicate(&path, &format!("priority {priority}"), &first, &node.origin);
            continue;
        }
        reading.row(&path, Scalar::Fraction(ceiling), "", &node.origin, "");
        ceilings.insert(priority, (ceiling, node.origin.clone()));
    }
    let named: Vec<(i32, Ratio)> = ceilings.iter().rev().map(|(p, (c, _))| (*p, *c)).collect();
    for pair in named.windows(2) {
        if let [(higher, above), (lower, below)] = pair
            && below > above
        {
            let origin = ceilings.get(lower).map_or(Origin::Given, |(_, origin)| origin.clone());
            let path = section.at(&format!("ceilings.{lower}"));
            reading.report.value(&path, &origin, below.to_string(), not_above(*higher, *above));
        }
    }
    let ceilings = ceilings.into_iter().map(|(priority, (ceiling, _))| (priority, ceiling)).collect();
    Some(Plugin::UsageLimit(UsageLimit::Fixed { ceilings, default }))
}

fn not_above(priority: i32, ceiling: Ratio) -> String {
    format!("at most {ceiling}, the ceiling of the higher priority {priority}")
}

/// Checks the ceilings of the bands there are: none above that of a higher one, and a word about those that never open.
pub fn check(reading: &mut Reading, path: &str, limit: &UsageLimit, priorities: &[i32], listed: &Origin) {
    match limit {
        UsageLimit::Fixed { ceilings, default } => {
            let of = |priority: &i32| ceilings.get(priority).copied().unwrap_or(*default);
            for pair in priorities.windows(2) {
                if let [lower, higher] = pair
                    && of(lower) > of(higher)
                    && !(ceilings.contains_key(lower) && ceilings.contains_key(higher))
                {
                    let found = format!("ceiling {} for priority {lower}", of(lower));
                    reading.report.value(path, listed, found, not_above(*higher, of(higher)));
                }
            }
            for priority in priorities.iter().filter(|priority| of(priority) <= Ratio::ZERO) {
                never(reading, path, &format!("priority {priority}"));
            }
        }
        UsageLimit::Holdback { min, .. } if *min <= Ratio::ZERO => match priorities {
            [lowest, _, ..] => never(reading, path, &format!("priority {lowest}, the lowest band,")),
            _ => never(reading, path, "the lowest band, once there is a second one,"),
        },
        UsageLimit::Holdback { .. } | UsageLimit::Static { .. } | UsageLimit::SoftReflective => {}
    }
}

fn never(reading: &mut Reading, path: &str, who: &str) {
    let text = format!("{who} has the ceiling 0: it can never dispatch, even in an idle pool");
    reading.report.warn(path, text);
}
