//! Goal: whoever calls may do what its token says and nothing else; every route has its scope; what is not allowed is told
//! what would be.

use crate::harness::{Reply, Setup, World, pushed};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use weir::gateway::Options;
use weir::gateway::auth::{Access, Digest, read};
use weir_kernel::Policy;

/// A tokens file of these entries: token, then the rest of its lines in flow style.
fn file(entries: &[(&str, &str)]) -> Access {
    let mut text = "tokens:\n".to_owned();
    for (token, rest) in entries {
        let name = token.trim_start_matches("weir_");
        let digest = Digest::of(token.as_bytes());
        text.push_str(&format!("- {{name: {name}, sha256: \"{digest}\", {rest}}}\n"));
    }
    read(&text).unwrap()
}

fn one_each() -> Access {
    file(&[
        ("weir_admit", "scopes: [admit]"),
        ("weir_pool", "scopes: [pool]"),
        ("weir_read", "scopes: [read]"),
        ("weir_admin", "scopes: [admin]"),
        ("weir_all", "scopes: [admit, pool, read, admin]"),
    ])
}

fn bearer(token: &str) -> [(&'static str, String); 1] {
    [("authorization", format!("Bearer {token}"))]
}

async fn call(world: &World, token: &str, method: &str, path: &str, body: &str) -> Reply {
    let [(name, value)] = bearer(token);
    world.call(method, path, &[(name, &value)], body).await
}

/// Every path that any file of the gateway routes.
fn routed() -> BTreeSet<String> {
    fn walk(dir: &Path, paths: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, paths);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for call in text.split(".route(").skip(1) {
                let quoted = call.trim_start().strip_prefix('"');
                let path =
                    quoted.unwrap_or_else(|| panic!("{}: a route whose path is no literal", path.display()));
                paths.insert(path.split('"').next().unwrap().to_owned());
            }
        }
    }
    let mut paths = BTreeSet::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/gateway"), &mut paths);
    assert!(paths.len() >= 12, "{paths:?}");
    paths
}

/// The scope of each route and method; a route that is not here fails. `None`: open to everybody.
fn scope_of(method: &str, path: &str) -> Option<Option<&'static str>> {
    Some(match (method, path) {
        (_, "/healthz" | "/readyz") => None,
        (_, "/metrics") => Some("read"),
        // Without `Accept: text/html`: the page for a browser is open.
        ("GET" | "POST", "/graphql") => Some("read"),
        (_, path) if path.starts_with("/v1/admissions") => Some("admit"),
        ("POST", "/ext-proc") => Some("admit"),
        ("GET" | "HEAD", path) if path.starts_with("/v1/pools") => Some("read"),
        ("PUT", "/v1/pools/{pool}/endpoints") => Some("pool"),
        (_, path) if path.starts_with("/admin/") => Some("admin"),
        _ => return None,
    })
}

#[tokio::test]
async fn every_route_has_its_scope() {
    let world = World::one(pushed(|_| {})).await;
    world.gateway.guard.set(Some(one_each()));
    let mut seen = BTreeSet::new();
    for route in routed() {
        let path = route.replace("{pool}", "default").replace("{id}", "default-1");
        assert!(!path.contains('{'), "{route}: say here what stands for its segments");
        let allowed = call(&world, "weir_all", "PATCH", &path, "").await;
        assert_eq!(allowed.status, 405, "{route} takes PATCH, or is no route: {}", allowed.text());
        for method in allowed.header("allow").unwrap().split(", ").filter(|method| *method != "HEAD") {
            let Some(scope) = scope_of(method, &route) else {
                panic!("{method} {route} has no scope in this test")
            };
            let stranger = world.call(method, &path, &[], "").await;
            let Some(scope) = scope else {
                assert!([200, 503].contains(&stranger.status), "{method} {route}: {}", stranger.status);
                continue;
            };
            seen.insert(scope);
            stranger.refused(401, "rejected-invalid");
            assert_eq!(stranger.header("www-authenticate"), Some(r#"Bearer realm="weir""#));
            for token in ["admit", "pool", "read", "admin"].into_iter().filter(|token| *token != scope) {
                let reply = call(&world, &format!("weir_{token}"), method, &path, "").await;
                let problem = reply.refused(403, "rejected-invalid");
                assert_eq!(problem["scope"], scope, "{method} {route} with {token}");
                let challenge = reply.header("www-authenticate").unwrap();
                assert!(challenge.ends_with(&format!(r#"error="insufficient_scope", scope="{scope}""#)));
            }
            // An admission would be held; that its scope lets it pass is for the other tests.
            if (method, &*route) != ("POST", "/v1/admissions") && !route.starts_with("/admin/") {
                let reply = call(&world, &format!("weir_{scope}"), method, &path, "").await;
                assert!(![401, 403].contains(&reply.status), "{method} {route}: {}", reply.text());
            }
        }
    }
    assert!(seen.is_superset(&BTreeSet::from(["admit", "pool", "read"])), "{seen:?}");
    // What is no route at all says nothing to strangers either.
    world.get("/nothing/here").await.refused(401, "rejected-invalid");
    call(&world, "weir_admit", "GET", "/nothing/here", "").await.refused(404, "rejected-invalid");
    let text = call(&world, "weir_read", "GET", "/metrics", "").await.text();
    for name in ["unauthenticated", "forbidden"] {
        let line = text.lines().find(|line| line.starts_with(&format!("weir_gateway_{name}_total ")));
        assert!(line.is_some_and(|line| !line.ends_with(" 0")), "{name}: {line:?}");
    }
    assert!(!text.contains("weir_read") && !text.contains(&Digest::of(b"weir_read").to_string()));
}

#[tokio::test]
async fn a_token_admits_and_is_never_in_the_log() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 0.0).await;
    world.gateway.guard.set(Some(one_each()));
    call(&world, "weir_admit", "POST", "/v1/admissions", "{}").await.admitted();
    let own = [("x-weir-authorization", "Bearer weir_admit"), ("authorization", "Bearer sk-upstream")];
    world.call("POST", "/v1/admissions", &own, "{}").await.admitted();
    let wrong = call(&world, "weir_other", "POST", "/v1/admissions", "{}").await;
    wrong.refused(401, "rejected-invalid");
    assert_eq!(wrong.header("www-authenticate"), Some(r#"Bearer realm="weir", error="invalid_token""#));
    let [(name, value)] = bearer("weir_read");
    let log = world.call("GET", "/v1/pools/default/log", &[(name, &value)], "").await.text();
    assert!(log.contains("Dispatched"), "{log}");
    assert!(!log.contains("weir_admit") && !log.contains("sk-upstream"), "{log}");
    assert!(!format!("{:?}", world.gateway).contains("weir_admit"));
}

/// What holds changes at once for the requests to come.
#[tokio::test]
async fn tokens_come_and_go_while_it_runs() {
    let world = World::one(pushed(|_| {})).await;
    assert_eq!(world.get("/v1/pools").await.status, 200);
    world.gateway.guard.set(Some(file(&[("weir_old", "scopes: [read]")])));
    world.get("/v1/pools").await.refused(401, "rejected-invalid");
    assert_eq!(call(&world, "weir_old", "GET", "/v1/pools", "").await.status, 200);
    world.gateway.guard.set(Some(file(&[("weir_new", "scopes: [read]")])));
    call(&world, "weir_old", "GET", "/v1/pools", "").await.refused(401, "rejected-invalid");
    assert_eq!(call(&world, "weir_new", "GET", "/v1/pools", "").await.status, 200);
}

async fn two_pools() -> World {
    let setup =
        || Setup { objectives: vec![("gold", 10), ("bronze", -5)], trust_priority: true, ..pushed(|_| {}) };
    let pools = BTreeMap::from([("a", setup()), ("b", setup())]);
    let world = World::start(pools, Options::default()).await;
    world.pool_is("a", 1, 0.0).await;
    world.pool_is("b", 1, 0.0).await;
    world
}

/// However it asks: by a named objective, by a raw priority, over a face of Envoy's.
#[tokio::test]
async fn c083_a_client_cannot_promote_itself_beyond_its_token() {
    let world = two_pools().await;
    world
        .until("the objectives to be known", async || {
            world.gateway.pool(Some("a")).unwrap().objectives.get("gold") == Some(10)
        })
        .await;
    world.gateway.guard.set(Some(file(&[
        ("weir_low", "scopes: [admit], maxPriority: 3"),
        ("weir_free", "scopes: [admit]"),
        ("weir_read", "scopes: [read]"),
    ])));
    let ask = async |token: &str, body: Value| {
        let reply = call(&world, token, "POST", "/v1/admissions", &body.to_string()).await;
        reply.admitted()["priority"].as_i64().unwrap()
    };
    for (body, low, free) in [
        (json!({"pool": "a", "objective": "gold"}), 3, 10),
        (json!({"pool": "a", "objective": "bronze"}), -5, -5),
        (json!({"pool": "a", "objective": "unknown"}), 0, 0),
        (json!({"pool": "a", "priority": 7}), 3, 7),
        (json!({"pool": "a", "priority": 2, "objective": "gold"}), 2, 2),
        (json!({"pool": "a"}), 0, 0),
    ] {
        assert_eq!(ask("weir_low", body.clone()).await, low, "{body}");
        assert_eq!(ask("weir_free", body.clone()).await, free, "{body}");
    }
    let headers = json!({"requestHeaders": {"headers": {"headers": [
        {"key": "x-llm-d-inference-objective", "rawValue": base64("gold")}]}}});
    let reply = call(&world, "weir_low", "POST", "/ext-proc?pool=b", &headers.to_string()).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let [(name, value)] = bearer("weir_read");
    let text = world.call("GET", "/metrics", &[(name, &value)], "").await.text();
    assert!(text.contains("weir_gateway_priority_capped_total 3\n"), "{text}");
    let log = world.call("GET", "/v1/pools/b/log", &[(name, &value)], "").await.text();
    let arrived = log.lines().find(|line| line.contains("Arrived")).unwrap();
    let step: Value = serde_json::from_str(arrived).unwrap();
    let arrival = &step["input"]["Arrived"];
    assert_eq!((&arrival["priority"], &arrival["objective"]), (&json!(3), &json!("gold")), "{arrived}");
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

#[tokio::test]
async fn a_token_of_one_pool_reaches_no_other() {
    let world = two_pools().await;
    world.gateway.guard.set(Some(file(&[("weir_a", "scopes: [admit, pool, read], pools: [a]")])));
    for (method, path, body, ok) in [
        ("POST", "/v1/admissions", r#"{"pool": "a"}"#, true),
        ("POST", "/v1/admissions", r#"{"pool": "b"}"#, false),
        ("POST", "/ext-proc?pool=a", r#"{"requestHeaders": {}}"#, true),
        ("GET", "/v1/pools/a", "", true),
        ("GET", "/v1/pools/b", "", false),
        ("GET", "/v1/pools/%62/log", "", false),
        ("PUT", "/v1/pools/b/endpoints", r#"{"saturation": 0}"#, false),
        ("GET", "/v1/pools", "", false),
        ("GET", "/metrics", "", false),
        ("DELETE", "/v1/admissions/b-1", "", false),
        ("POST", "/v1/admissions/%62-1/complete", "", false),
    ] {
        let reply = call(&world, "weir_a", method, path, body).await;
        if ok {
            assert_eq!(reply.status, 200, "{method} {path}: {}", reply.text());
        } else {
            let problem = reply.refused(403, "rejected-invalid");
            assert_eq!((&problem["field"], &problem["allowed"]), (&json!("pool"), &json!("a")));
        }
    }
    // To Envoy a refusal is a message of its own.
    let reply = call(&world, "weir_a", "POST", "/ext-proc?pool=b", r#"{"requestHeaders": {}}"#).await;
    assert_eq!(reply.json()["immediateResponse"]["status"]["code"], 403, "{}", reply.text());
}

/// The same key of two callers is two keys; of one caller with another token it is one.
#[tokio::test]
async fn idempotency_keys_are_those_of_their_caller() {
    let world = World::one(pushed(|_: &mut Policy| {})).await;
    world.pool_is("default", 1, 0.0).await;
    let (first, second) = (Digest::of(b"weir_one"), Digest::of(b"weir_two"));
    let other = Digest::of(b"weir_other");
    let text = format!(
        "tokens:\n- {{name: a, sha256: [\"{first}\", \"{second}\"], scopes: [admit]}}\n\
         - {{name: b, sha256: \"{other}\", scopes: [admit]}}\n"
    );
    world.gateway.guard.set(Some(read(&text).unwrap()));
    let ask = async |token: &str| {
        let [(name, value)] = bearer(token);
        let headers = [(name, &*value), ("idempotency-key", "k")];
        let reply = world.call("POST", "/v1/admissions", &headers, "{}").await;
        reply.admitted()["id"].as_str().unwrap().to_owned()
    };
    let id = ask("weir_one").await;
    assert_eq!(ask("weir_one").await, id);
    assert_eq!(ask("weir_two").await, id, "a token that took the place of another");
    assert_ne!(ask("weir_other").await, id);
}
