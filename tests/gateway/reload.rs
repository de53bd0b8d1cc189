//! Goal: other settings are put in force under load, by a change of the file and by SIGHUP, and nobody notices but by the
//! new settings; what is not valid changes nothing, and the reason is told.

use crate::binary::{Served, replace, settings};
use crate::harness::call;
use serde_json::{Value, json};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Callers that ask again and again until they are told to stop; each answer is 200, 429 or it counts as lost.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    lost: Arc<AtomicU64>,
    callers: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    fn start(served: &Served, callers: usize) -> Load {
        let (stop, answered, lost) = (Arc::default(), Arc::default(), Arc::default());
        let mut load = Load { stop, answered, lost, callers: Vec::new() };
        for _ in 0..callers {
            let (addr, stop) = (served.addr, Arc::clone(&load.stop));
            let (answered, lost) = (Arc::clone(&load.answered), Arc::clone(&load.lost));
            load.callers.push(tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let reply = call(addr, "POST", "/v1/admissions", &[], b"{\"priority\": 1}").await;
                    let counter = if matches!(reply.status, 200 | 429) { &answered } else { &lost };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        load
    }

    async fn goes_on(&self, served: &Served) {
        let before = self.answered.load(Ordering::Relaxed);
        served.until("the load to go on", async || self.answered.load(Ordering::Relaxed) > before + 20).await;
    }

    async fn end(self) -> (u64, u64) {
        self.stop.store(true, Ordering::Relaxed);
        for caller in self.callers {
            caller.await.unwrap();
        }
        (self.answered.load(Ordering::Relaxed), self.lost.load(Ordering::Relaxed))
    }
}

async fn cap(served: &Served) -> Value {
    served.get("/v1/pools/default").await.json()["queue"]["maxRequests"].clone()
}

async fn digest(served: &Served) -> String {
    served.get("/admin/config").await.json()["pools"][0]["policyDigest"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_under_load_loses_nobody_and_the_new_cap_holds() {
    let with =
        |cap: u32| settings("{drainTimeout: 0s}", &format!("maxRequests: {cap}, defaultRequestTTL: 10m"));
    let mut served = Served::start(&with(40));
    served.pool_is(1.5).await;
    // The queue is full, so that the load is refused, again and again.
    let held = served.admitting(40);
    served.queued(40).await;
    let load = Load::start(&served, 4);
    load.goes_on(&served).await;
    let mut digests = vec![digest(&served).await];

    // By the change of the file alone.
    served.write(&with(10));
    served.until("the cap of 10", async || cap(&served).await == 10).await;
    load.goes_on(&served).await;
    assert_eq!(served.get("/v1/pools/default").await.json()["queue"]["requests"], 40, "what is queued stays");
    digests.push(digest(&served).await);

    // By SIGHUP.
    served.write(&with(7));
    served.signal("HUP");
    served.until("the cap of 7", async || cap(&served).await == 7).await;
    load.goes_on(&served).await;
    assert_eq!(served.get("/v1/pools/default").await.json()["queue"]["requests"], 40);
    digests.push(digest(&served).await);
    let problem = served.admit().await.refused(429, "rejected-saturated");
    assert_eq!((&problem["limit"], &problem["limitValue"]), (&json!("maxRequests"), &json!(7)));

    served.pool_is(0.0).await;
    for reply in held {
        reply.await.unwrap().admitted();
    }
    let (answered, lost) = load.end().await;
    assert!(answered > 60 && lost == 0, "{answered} answered, {lost} lost");
    served.signal("TERM");
    assert_eq!(served.ended(), Some(0));

    // The events are in the log, each with the digest that was shown.
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["log", "cat", "--kind", "PolicyChanged", "--data"])
        .arg(served.dir.path().join("data"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for digest in &digests {
        assert!(text.contains(&format!("policy={}", &digest[..12])), "{digest} in\n{text}");
    }
    let log = served.log();
    let changed: Vec<&Value> = log.iter().filter_map(|step| step["input"].get("PolicyChanged")).collect();
    let caps = changed.iter().map(|change| {
        let policy: Value = serde_json::from_str(change["policy"].as_str().unwrap()).unwrap();
        policy["max_requests"].as_u64().unwrap()
    });
    assert_eq!(caps.collect::<Vec<_>>(), [40, 10, 7], "whole settings, each once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_file_changes_nothing_and_says_why() {
    let good = settings("{drainTimeout: 0s}", "maxRequests: 40");
    let mut served = Served::start(&good);
    served.pool_is(0.0).await;
    served.until("readiness", async || served.get("/readyz").await.status == 200).await;
    let before = digest(&served).await;
    assert!(served.get("/admin/config").await.json().get("lastReload").is_none());
    // Half of it would be valid; none of it is taken.
    served.write(&settings("{drainTimeout: 0s}", "maxRequests: 5, defaultRequestTtl: 1s"));
    served.signal("HUP");
    served.said("the settings are not changed");
    served
        .until("the reason", async || served.get("/readyz").await.json().get("lastReloadError").is_some())
        .await;
    let ready = served.get("/readyz").await;
    assert_eq!(ready.status, 200, "the settings before it hold on");
    assert!(
        ready.json()["lastReloadError"].as_str().unwrap().contains("defaultRequestTTL"),
        "{}",
        ready.text()
    );
    let config = served.get("/admin/config").await.json();
    // Once for the signal, and once more where the change was noticed before it.
    assert_eq!(config["lastReload"]["ok"], false);
    assert!((1..=2).contains(&config["lastReload"]["count"].as_u64().unwrap()), "{config}");
    assert_eq!((digest(&served).await, cap(&served).await), (before.clone(), json!(40)));

    served.write(&settings("{drainTimeout: 0s}", "maxRequests: 5"));
    served.signal("HUP");
    served.until("the cap of 5", async || cap(&served).await == 5).await;
    served
        .until("that all is well", async || {
            served.get("/readyz").await.json().get("lastReloadError").is_none()
        })
        .await;
    assert_ne!(digest(&served).await, before);
    served.signal("TERM");
    assert_eq!(served.ended(), Some(0));
}

/// A budget that was shortened is measured from the same instant as before, not from the reload.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shortened_budget_counts_from_the_same_instant() {
    let with = |ttl: &str| settings("{drainTimeout: 0s}", &format!("defaultRequestTTL: {ttl}"));
    let mut served = Served::start(&with("60s"));
    served.pool_is(1.5).await;
    let held = served.admitting(1);
    served.queued(1).await;
    served.write(&with("300ms"));
    served.signal("HUP");
    for reply in held {
        reply.await.unwrap().refused(429, "rejected-ttl-expired");
    }
    served.signal("TERM");
    assert_eq!(served.ended(), Some(0));
    let log = served.log();
    let at = |kind: &str| {
        let has =
            |step: &&Value| step["events"].as_array().unwrap().iter().any(|event| event.get(kind).is_some());
        log.iter().filter(has).map(|step| step["at"].as_u64().unwrap()).next_back().unwrap()
    };
    let changed = log.iter().rev().find(|step| step["input"].get("PolicyChanged").is_some()).unwrap();
    let changed = changed["at"].as_u64().unwrap();
    let evicted: Vec<&Value> = log
        .iter()
        .flat_map(|step| step["events"].as_array().unwrap())
        .filter_map(|e| e.get("Evicted"))
        .collect();
    let (queued, ended) = (at("Enqueued"), at("Evicted"));
    assert_eq!(evicted[0]["budget"]["budget"], 300_000);
    assert_eq!(evicted[0]["budget"]["charged_from"], queued);
    // Over by then, it ends with the reload; else at its instant, late by the timer's grain alone.
    let due = changed.max(queued + 300_000);
    assert!(ended >= due, "queued {queued}, settings {changed}, ended {ended}");
    assert_eq!(evicted[0]["waited"], ended - queued);
}

/// `: > weir.yaml`, or an editor that empties the file before it writes it, does not put the defaults in force.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_file_is_no_reload() {
    let good = |cap: u32| settings("{drainTimeout: 0s}", &format!("maxRequests: {cap}"));
    let served = Served::start(&good(40));
    let before = digest(&served).await;
    let reason = async || served.get("/readyz").await.json()["lastReloadError"].clone();
    for (text, signal) in [("", false), ("# to be written\n", true), ("---\n", true)] {
        std::fs::write(served.file(), text).unwrap();
        if signal {
            served.signal("HUP");
        }
        served.said("the settings are not changed");
        served.until("the reason", async || reason().await.is_string()).await;
        let said = reason().await;
        for words in ["weir.yaml", "nothing stands in the file"] {
            assert!(said.as_str().unwrap().contains(words), "{text:?}: {said}");
        }
        assert_eq!((digest(&served).await, cap(&served).await), (before.clone(), json!(40)), "{text:?}");
    }
    std::fs::remove_file(served.file()).unwrap();
    served.signal("HUP");
    served.said("the settings are not changed");
    assert_eq!(digest(&served).await, before, "nor does one that is gone");
    std::fs::write(served.file(), good(5)).unwrap();
    served.until("the cap of 5", async || cap(&served).await == 5).await;
    served.until("that all is well", async || reason().await.is_null()).await;
}

#[test]
fn a_file_that_is_empty_at_the_start_is_said_to_be() {
    let mut served =
        Served::start_in(crate::kept::tempdir().unwrap(), "# none\n", &["--listen", "127.0.0.1:0"]);
    served.said("nothing stands in the file: the built-in defaults hold");
    served.signal("TERM");
    assert_eq!(served.ended(), Some(0));
}

/// Callers that are bound to pools that are not there are named; an empty tokens file is refused, whenever it is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tokens_file_has_something_in_it_and_its_pools_are_there() {
    let dir = crate::kept::tempdir().unwrap();
    let file = dir.path().join("tokens.yaml");
    let token = |pool: &str| {
        let digest = weir::gateway::auth::Digest::of(b"weir_reader");
        format!("tokens: [{{name: rita, sha256: \"{digest}\", scopes: [read], pools: [{pool}]}}]\n")
    };
    std::fs::write(&file, token("zzz")).unwrap();
    let auth = format!("{{drainTimeout: 0s, auth: {{tokensFile: \"{}\"}}}}", file.display());
    let with = |cap: u32| settings(&auth, &format!("maxRequests: {cap}"));
    let mut served = Served::start_in(dir, &with(40), &[]);
    served.said("\"rita\" is bound to the pool \"zzz\", which is not there");
    let status = async |served: &Served| {
        let token = [("authorization", "Bearer weir_reader")];
        call(served.addr, "GET", "/v1/pools/default", &token, b"").await.status
    };
    let reason = async |served: &Served| served.get("/readyz").await.json()["lastReloadError"].clone();
    assert_eq!(status(&served).await, 403);
    replace(&file, &token("default"));
    served.until("the pool", async || status(&served).await == 200).await;

    std::fs::write(&file, "").unwrap();
    served.until("the refusal", async || reason(&served).await.is_string()).await;
    let said = reason(&served).await;
    assert!(
        said.as_str().unwrap().contains("tokens.yaml") && said.as_str().unwrap().contains("empty"),
        "{said}"
    );
    assert_eq!(status(&served).await, 200, "who was known is known");
    // With other settings the file is read as well; once it can be, they hold.
    served.write(&with(5));
    served.signal("HUP");
    served.said("not all settings could be changed");
    replace(&file, &token("default, yyy"));
    served.said("\"rita\" is bound to the pool \"yyy\"");
    served.until("that all is well", async || reason(&served).await.is_null()).await;
    let pool =
        call(served.addr, "GET", "/v1/pools/default", &[("authorization", "Bearer weir_reader")], b"").await;
    assert_eq!(pool.json()["queue"]["maxRequests"], 5);

    // Tokens change even while the settings are not valid, whose reason stays.
    std::fs::write(served.file(), "").unwrap();
    served.until("the refusal", async || reason(&served).await.is_string()).await;
    replace(&file, "tokens: []\n");
    served.until("that nobody is let in", async || status(&served).await == 401).await;
    assert!(reason(&served).await.as_str().unwrap().contains("nothing stands in the file"));
    served.signal("TERM");
    assert_eq!(served.ended(), Some(0));

    std::fs::write(&file, "# nobody yet\n").unwrap();
    std::fs::write(served.file(), with(5)).unwrap();
    let start = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["serve", "--listen", "127.0.0.1:0", "--config"])
        .arg(served.file())
        .current_dir(served.dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8(start.stderr).unwrap();
    assert!(
        !start.status.success() && said.contains("tokens.yaml") && said.contains("an empty document"),
        "{said}"
    );
}
