//! Objects as API servers have them, and as they should not be.

use super::*;
use serde_json::json;

#[test]
fn objects_are_read_and_what_is_wrong_is_named() {
    for (object, words) in [
        (json!({"addressType": "FQDN"}), "addressType"),
        (json!({"addressType": "IPv4", "endpoints": 7}), "endpoints: found 7"),
        (json!({"addressType": "IPv4", "endpoints": [{"addresses": ["x"]}]}), "an IP address"),
        (json!({"addressType": "IPv4", "endpoints": [{}]}), "found nothing"),
        (json!({"addressType": "IPv4", "endpoints": [], "ports": [{"port": 0}]}), "a port from 1 to 65535"),
    ] {
        let error = slice(&object).unwrap_err();
        assert!(error.contains(words), "{object}: {error}");
    }
    for (spec, words) in [
        (json!({}), "at least one label"),
        (json!({"selector": {"matchLabels": {}}}), "at least one label"),
        (json!({"selector": {"matchExpressions": [], "matchLabels": {"a": "b"}}}), "matchLabels alone"),
        (json!({"selector": {"matchLabels": {"a": "b"}}}), "spec.targetPorts"),
        (json!({"selector": {"matchLabels": {"a": "b,c"}}, "targetPorts": [{"number": 1}]}), "labels"),
        (json!({"selector": {"matchLabels": {"a": "b"}}, "targetPorts": [{"number": 70000}]}), "a port from"),
    ] {
        let error = inference_pool(&json!({"spec": spec})).unwrap_err();
        assert!(error.contains(words), "{spec}: {error}");
    }
    assert!(objective(&json!({"spec": {}})).unwrap_err().contains("poolRef"));
    assert!(!pod(&json!({})).unwrap().ready);
    assert!(pod(&json!({"status": {"podIP": "x"}})).is_err());
}

#[test]
fn the_port_of_slices_is_the_one_that_is_meant() {
    let text =
        |port| json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": port});
    let slice = |port| slice(&text(port)).unwrap();
    let two = slice(json!([{"name": "http", "port": 8000}, {"name": "metrics", "port": 9000}]));
    let at =
        |wanted| addresses_of_slices([&two].into_iter(), wanted).map(|found| found.first().unwrap().port());
    assert_eq!((at(Some("http")), at(Some("metrics")), at(Some("7"))), (Ok(8000), Ok(9000), Ok(7)));
    assert!(at(None).unwrap_err().contains("the only one is wanted"));
    assert!(at(Some("grpc")).unwrap_err().contains("\"http\" (8000)"));
    let one = slice(json!([{"port": 8000}]));
    assert_eq!(addresses_of_slices([&one].into_iter(), None).unwrap().len(), 1);
}
