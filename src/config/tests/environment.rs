//! Goal: every setting can be set from the environment, by its path alone, and a variable that names none is refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use weir_config::{Effective, Mistakes, from_text};

fn load(text: &str, vars: &[(&str, &str)]) -> Result<Effective, Mistakes> {
    from_text(text, vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
}

#[test]
fn a_variable_beats_the_file_and_is_named_as_the_source() {
    let effective = load(
        "flowControl: {maxRequests: 5, priorityBands: [{priority: 3, maxRequests: 9}]}\n",
        &[
            ("WEIR__FLOWCONTROL__MAXREQUESTS", "1k"),
            ("weir__flowcontrol__priorityBands__0__max_requests", "8"),
            ("WEIR__FLOWCONTROL__PRIORITYBANDS__1", "{priority: -1}"),
            ("WEIR__WEIR__LISTEN", "127.0.0.1:9"),
            ("WEIR__WEIR__OBJECTIVES__CHAT", "7"),
            ("WEIR__POOLS__DEFAULT__SCRAPE__INTERVAL", "75ms"),
            ("WEIR__PLUGINS__0__TYPE", "utilization-detector"),
            ("WEIR__PLUGINS__0__PARAMETERS__QUEUEDEPTHTHRESHOLD", "11"),
            ("WEIR_CONFORMANCE_DIR", "of no concern"),
            ("HOME", "/"),
        ],
    )
    .unwrap();
    let policy = &effective.pools["default"].policy;
    assert_eq!(policy.max_requests, 1_000);
    assert_eq!(policy.bands[&3].max_requests, 8);
    assert!(policy.bands.contains_key(&-1));
    assert_eq!(effective.settings.listen.port(), 9);
    assert_eq!(effective.settings.objectives["chat"], 7);
    assert!(matches!(policy.detector, weir_kernel::Detector::Utilization { queue_depth: 11, .. }));
    let row = effective.row("flowControl.maxRequests").unwrap();
    assert_eq!(effective.source(&row.origin), "env WEIR__FLOWCONTROL__MAXREQUESTS");
}

#[test]
fn an_empty_variable_takes_away_what_the_file_says() {
    let effective =
        load("flowControl: {defaultRequestTTL: 5s}\n", &[("WEIR__FLOWCONTROL__DEFAULTREQUESTTTL", "")]);
    assert_eq!(effective.unwrap().pools["default"].policy.saturation_budget.as_millis(), 60_000);
}

#[test]
fn mistakes_in_variables_name_the_variable() {
    for (name, value, want) in [
        (
            "WEIR__FLOWCONTROL__MAXREQUEST",
            "1",
            "flowControl.MAXREQUEST: unknown key; did you mean flowControl.maxRequests?",
        ),
        ("WEIR__WEIR__LISTEN__PORT", "1", "weir.listen.PORT: unknown key; weir.listen has nothing below it"),
        (
            "WEIR__FLOWCONTROL__PRIORITYBANDS__7__PRIORITY",
            "1",
            "flowControl.priorityBands[7]: unknown key; allowed: an index from 0 to 0",
        ),
        ("WEIR__FLOWCONTROL__MAXREQUESTS", "-1", "flowControl.maxRequests (global maxRequests): found -1"),
        (
            "WEIR__FLOWCONTROL__MAXREQUESTS",
            "a: b: c",
            "flowControl.maxRequests (global maxRequests): found \"a: b: c\"",
        ),
        ("WEIR__", "1", ": unknown key; known here: apiVersion"),
    ] {
        let mistakes = load("", &[(name, value)]).unwrap_err().to_string();
        assert!(mistakes.contains(&format!("env {name}: ")) && mistakes.contains(want), "{name}: {mistakes}");
    }
}

#[test]
fn every_setting_of_the_view_has_its_variable() {
    let text = "pools: {default: {endpoints: [{name: a, url: 'http://a'}]}}\n\
                flowControl: {priorityBands: [{priority: 1}]}\n\
                plugins: [{type: utilization-detector}]\n";
    let before = load(text, &[]).unwrap();
    let mut tried = 0;
    for row in &before.rows {
        let named = row.path.contains("featureGates.")
            || row.path.contains("[static-")
            || row.path.contains("[global-");
        if named || row.path.contains("[fcfs-") {
            continue;
        }
        let parts = row.path.replace('[', "__").replace(']', "").replace('.', "__");
        let variable = format!("WEIR__{}", parts.to_uppercase());
        let value = match row.value.to_json() {
            _ if row.unit == "us" => row.value.to_string(),
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        };
        let after = load(text, &[(&variable, &value)])
            .unwrap_or_else(|mistakes| panic!("{variable}={value}: {mistakes}"));
        let source = after.row(&row.path).map(|row| after.source(&row.origin));
        assert_eq!(source, Some(format!("env {variable}")), "{}", row.path);
        tried += 1;
    }
    assert!(tried > 45, "{tried}");
}
