//! `docs/openapi.json` and the router say the same: every route of the sources is in it, every operation of it is served.

use crate::read;
use crate::rig::Weir;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Routes that speak GraphQL, which describes itself.
const OTHERS: [&str; 1] = ["/graphql"];

/// Paths and their methods, as the document has them.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let document: Value = serde_json::from_str(&read("docs/openapi.json")).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    let methods = |item: &Value| item.as_object().unwrap().keys().map(|name| name.to_uppercase()).collect();
    paths.iter().map(|(path, item)| (path.clone(), methods(item))).collect()
}

/// The same, as the sources of the router have them; HEAD goes with GET.
fn routed() -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::new();
    for source in ["src/gateway/router.rs", "src/gateway/admin/mod.rs"] {
        let text: String = read(source).split_whitespace().collect::<Vec<_>>().join(" ");
        for part in text.split(".route(").skip(1) {
            let strings: Vec<&str> = part.split('"').collect();
            let (path, methods) = (strings[1], strings[3]);
            if OTHERS.iter().any(|other| path.starts_with(other)) {
                continue;
            }
            let methods = methods.split(", ").filter(|method| *method != "HEAD").map(str::to_owned);
            found.insert(path.to_owned(), methods.collect());
        }
    }
    found
}

#[test]
fn the_document_has_every_route_and_no_other() {
    let (documented, routed) = (documented(), routed());
    assert!(routed.len() >= 15, "{routed:#?}");
    assert_eq!(documented, routed);
}

#[test]
fn every_operation_is_served_and_no_other_method_is() {
    let dir = crate::kept::tempdir().unwrap();
    let weir = Weir::start(dir.path(), "", &[], &[]);
    for (path, methods) in documented() {
        let at = path.replace("{pool}", "default").replace("{id}", "default-999999");
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
            if at == "/admin/drain" && method == "POST" {
                // It would end the service.
                continue;
            }
            let (status, text) = weir.call(method, &at, &[], if method == "GET" { "" } else { "[" });
            if methods.contains(method) {
                assert_ne!(status, 405, "{method} {path} is documented");
                let unknown = path.contains("{id}");
                assert!(status != 404 || unknown, "{method} {path}: {text}");
            } else {
                assert_eq!(status, 405, "{method} {path} is not documented: {text}");
            }
        }
    }
}

#[test]
fn every_reference_of_the_document_leads_somewhere() {
    let document: Value = serde_json::from_str(&read("docs/openapi.json")).unwrap();
    let mut references = 0;
    let mut left = vec![&document];
    while let Some(value) = left.pop() {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(to)) = members.get("$ref") {
                    let pointer = to.strip_prefix('#').unwrap();
                    assert!(document.pointer(pointer).is_some(), "{to}");
                    references += 1;
                }
                left.extend(members.values());
            }
            Value::Array(values) => left.extend(values),
            _ => {}
        }
    }
    assert!(references > 20);
    // Words of the wire, as the kernel has them.
    let text = document["components"]["schemas"]["Problem"].to_string();
    for reason in weir_kernel::Reason::ALL {
        assert!(reason == weir_kernel::Reason::Evicted || text.contains(reason.word()), "{}", reason.word());
    }
}

#[test]
fn the_page_in_words_names_every_operation() {
    let document: Value = serde_json::from_str(&read("docs/openapi.json")).unwrap();
    let page = read("docs/api.md");
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(page.contains(&format!("`{id}`")), "docs/api.md has no {id}: {method} {path}");
        }
    }
}
