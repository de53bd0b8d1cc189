//! Goal: where endpoints are found is said once and fully, and every mistake about it is named. Method: documents, and files of
//! endpoints.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use weir_config::{
    DiscoverySettings, DnsSettings, FileSettings, KubernetesSettings, format_duration, from_text,
    read_endpoints,
};
use weir_kernel::{Micros, Role};

fn discovery(text: &str) -> Option<DiscoverySettings> {
    let effective = from_text(&format!("pools: {{p: {{{text}}}}}"), []).unwrap_or_else(|m| panic!("{m}"));
    effective.pools["p"].discovery.clone()
}

fn refused(text: &str) -> String {
    from_text(&format!("pools: {{p: {{{text}}}}}"), []).unwrap_err().to_string()
}

#[test]
fn each_way_has_its_defaults() {
    assert_eq!(discovery(""), None);
    let dns = DnsSettings {
        name: "vllm.inference.svc".to_owned(),
        port: 8000,
        interval: Micros::from_secs(5),
        timeout: Micros::from_secs(5),
        role: Role::Decode,
    };
    let text = "discovery: {dns: {name: vllm.inference.svc, port: 8000}}";
    assert_eq!(discovery(text), Some(DiscoverySettings::Dns(dns)));
    let file = FileSettings { path: "/e.yaml".into(), interval: Micros::from_secs(1) };
    assert_eq!(discovery("discovery: {file: {path: /e.yaml}}"), Some(DiscoverySettings::File(file)));
    let account = "/var/run/secrets/kubernetes.io/serviceaccount";
    let kubernetes = KubernetesSettings {
        service: None,
        port: None,
        namespace: None,
        objectives: true,
        role: Role::Decode,
        api_server: None,
        token_file: format!("{account}/token").into(),
        ca_file: format!("{account}/ca.crt").into(),
    };
    let found = discovery("discovery: {kubernetes: {}}");
    assert_eq!(found, Some(DiscoverySettings::Kubernetes(kubernetes.clone())));
    let found = discovery(
        "discovery: {kubernetes: {service: vllm, port: http, namespace: inference, objectives: false, role: prefill, \
         apiServer: 'https://10.96.0.1:443/'}}",
    );
    let wanted = KubernetesSettings {
        service: Some("vllm".to_owned()),
        port: Some("http".to_owned()),
        namespace: Some("inference".to_owned()),
        objectives: false,
        role: Role::Prefill,
        api_server: Some("https://10.96.0.1:443".to_owned()),
        ..kubernetes
    };
    assert_eq!(found, Some(DiscoverySettings::Kubernetes(wanted)));
}

#[test]
fn what_holds_is_explained_and_may_come_from_the_environment() {
    let text = "pools: {p: {discovery: {dns: {name: a.b, port: 1}}}}";
    let env = [("WEIR__POOLS__P__DISCOVERY__DNS__INTERVAL".to_owned(), "7s".to_owned())];
    let effective = from_text(text, env).unwrap();
    let row = effective.row("pools.p.discovery.dns.interval").unwrap();
    assert_eq!(row.value, weir_config::Scalar::Span(Micros::from_secs(7)));
    assert_eq!(format_duration(Micros::from_secs(7)), "7s");
    assert_eq!(effective.source(&row.origin), "env WEIR__POOLS__P__DISCOVERY__DNS__INTERVAL");
}

#[test]
fn every_mistake_is_named() {
    for (text, words) in [
        ("discovery: {}", "exactly one of dns, file, kubernetes"),
        ("discovery: {dns: {name: a, port: 1}, file: {path: x}}", "exactly one of dns, file, kubernetes"),
        ("endpoints: [], discovery: {file: {path: x}}", "endpoints or discovery, not both"),
        ("discovery: {dsn: {name: a, port: 1}}", "did you mean pools.p.discovery.dns?"),
        ("discovery: {dns: {nam: a, port: 1}}", "did you mean pools.p.discovery.dns.name?"),
        ("discovery: {dns: {name: a}}", "pools.p.discovery.dns.port"),
        ("discovery: {dns: {name: a, port: 0}}", "a whole number from 1 to 65535"),
        ("discovery: {dns: {name: a, port: 70000}}", "a whole number from 1 to 65535"),
        ("discovery: {dns: {name: 'http://a', port: 1}}", "without scheme and port"),
        ("discovery: {dns: {name: a, port: 1, interval: 0s}}", "100ms or more"),
        ("discovery: {dns: {name: a, port: 1, role: both-ways}}", "one of decode, prefill"),
        ("discovery: {file: {}}", "pools.p.discovery.file.path"),
        ("discovery: {file: /e.yaml}", "a section"),
        ("discovery: {kubernetes: {service: Vllm}}", "a name of Kubernetes"),
        ("discovery: {kubernetes: {port: http}}", "without service there are no names"),
        ("discovery: {kubernetes: {service: a, port: '99999999'}}", "pools.p.discovery.kubernetes.port"),
        ("discovery: {kubernetes: {apiServer: 10.0.0.1}}", "a base URL such as https://10.96.0.1:443"),
        ("discovery: {kubernetes: {apiServer: 'https://a/b'}}", "a base URL such as https://10.96.0.1:443"),
    ] {
        let said = refused(text);
        assert!(said.contains(words), "{text}: {said}");
    }
}

#[test]
fn a_file_of_endpoints_is_read_like_the_list_of_the_settings() {
    let found =
        read_endpoints("endpoints:\n- {name: a, url: 'http://10.0.0.1:8000', role: prefill}\n").unwrap();
    assert_eq!((found[0].name.as_str(), found[0].role), ("a", Role::Prefill));
    let json = r#"{"endpoints": [{"name": "a", "url": "http://a:1"}, {"name": "b", "url": "http://b:1"}]}"#;
    assert_eq!(read_endpoints(json).unwrap().len(), 2);
    assert_eq!(read_endpoints("endpoints: []").unwrap(), []);
    let shared = "endpoints: [{name: a, url: 'http://a:1'}, {name: b, url: 'http://a:1'}]";
    assert_eq!(read_endpoints(shared).unwrap().len(), 2, "whoever follows the file counts it once");
}

/// A file that is being written says nothing, least of all that the pool is empty.
#[test]
fn a_file_that_is_wrong_is_no_list() {
    for (text, words) in [
        ("", "nothing stands in the file"),
        ("# nothing\n", "nothing stands in the file"),
        ("{}", "endpoints"),
        ("endpoints:\n", "endpoints"),
        ("endpoint: []", "did you mean endpoints?"),
        ("- a\n", "a section"),
        ("endpoints: [{name: a}]", "url"),
        ("endpoints: [{name: a, url: 'http://a:1'}, {name: a, url: 'http://b:1'}]", "the endpoint \"a\""),
        ("endpoints: [", "line"),
    ] {
        let said = read_endpoints(text).unwrap_err().to_string();
        assert!(said.contains(words), "{text:?}: {said}");
    }
}
