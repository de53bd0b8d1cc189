//! Goal: what is found is what is there, and whatever fails leaves what was found. Method: names, files and an API server in
//! this process that change, hang, refuse and say garbage.

use super::dns::{self, Lookup};
use super::kubernetes::{self, Times};
use super::teller::Teller;
use super::*;
use api_server::{ApiServer, Mood, OBJECTIVES, OLD_POOLS, PODS, POOLS, SLICES, objective, pod, pool, slice};
use serde_json::json;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use weir_config::{DnsSettings, FileSettings, KubernetesSettings};
use weir_kernel::{Micros, Role};

#[path = "../../tests/discovery/api_server.rs"]
#[allow(dead_code)]
mod api_server;

#[path = "lines_tests.rs"]
mod lines;

/// A search whose findings are waited for.
struct Sought {
    found: watch::Receiver<Found>,
    _task: Guarded,
}

impl Sought {
    fn begin<F: Future<Output = ()> + Send + 'static>(search: impl FnOnce(Teller) -> F) -> Sought {
        let (to, found) = watch::channel(Found::default());
        Sought { found, _task: Guarded::spawn(search(Teller::new("p", to))) }
    }

    async fn until(&mut self, what: &str, mut is: impl FnMut(&Found) -> bool) -> Found {
        let mut from = self.found.clone();
        let found = tokio::time::timeout(Duration::from_secs(60), from.wait_for(|found| is(found)));
        match found.await {
            Ok(found) => found.unwrap().clone(),
            Err(_) => panic!("waited in vain for {what}: {:#?}", *self.found.borrow()),
        }
    }

    async fn names(&mut self, names: &[&str]) -> Found {
        self.until(&format!("{names:?}"), |found| known(found).is_some_and(|known| known == names)).await
    }

    /// Something is wrong, with these words, and yet these are still the endpoints.
    async fn wrong(&mut self, words: &str, names: &[&str]) -> Found {
        let said = |found: &Found| found.faults.values().any(|fault| fault.contains(words));
        let found = self.until(words, said).await;
        assert_eq!(known(&found), Some(names.iter().map(|name| (*name).to_owned()).collect()));
        found
    }

    async fn well(&mut self) -> Found {
        self.until("all to be well", |found| found.faults.is_empty()).await
    }
}

fn known(found: &Found) -> Option<Vec<String>> {
    let endpoints = found.endpoints.as_ref()?;
    Some(endpoints.iter().map(|spec| spec.name.clone()).collect())
}

fn by_name(lookup: Lookup) -> Sought {
    let (interval, timeout) = (Micros::from_millis(5), Micros::from_millis(200));
    let settings =
        DnsSettings { name: "vllm.test".to_owned(), port: 8000, interval, timeout, role: Role::Prefill };
    Sought::begin(move |tell| dns::run(settings, lookup, tell))
}

/// What a resolver says next.
type Says = Arc<Mutex<Result<Vec<IpAddr>, String>>>;

fn resolver(says: &Says) -> Lookup {
    let says = Arc::clone(says);
    Arc::new(move |name| {
        assert_eq!(name, "vllm.test");
        says.lock().unwrap().clone()
    })
}

#[tokio::test]
async fn a_name_is_resolved_again_and_a_resolver_that_fails_changes_nothing() {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let says: Says = Arc::new(Mutex::new(Err("no such name".to_owned())));
    let mut sought = by_name(resolver(&says));
    let found = sought.until("a fault", |found| !found.faults.is_empty()).await;
    assert_eq!(found.endpoints, None, "a name that is not there is no empty pool");
    *says.lock().unwrap() = Ok(vec![ip("10.0.0.2"), ip("fd00::1"), ip("10.0.0.1"), ip("10.0.0.2")]);
    let found = sought.names(&["10.0.0.1:8000", "10.0.0.2:8000", "[fd00::1]:8000"]).await;
    assert!(found.faults.is_empty());
    let first = &found.endpoints.unwrap()[0];
    assert_eq!(
        (first.role, first.metrics_url.as_deref()),
        (Role::Prefill, Some("http://10.0.0.1:8000/metrics"))
    );
    *says.lock().unwrap() = Err("the resolver is gone".to_owned());
    sought.wrong("the resolver is gone", &["10.0.0.1:8000", "10.0.0.2:8000", "[fd00::1]:8000"]).await;
    // Scaled to zero: the name is there, without an address.
    *says.lock().unwrap() = Ok(Vec::new());
    sought.names(&[]).await;
    *says.lock().unwrap() = Ok(vec![ip("10.0.0.3")]);
    sought.names(&["10.0.0.3:8000"]).await;
}

#[tokio::test]
async fn a_resolver_that_hangs_is_said_and_not_asked_a_second_time() {
    let (release, held) = mpsc::channel::<()>();
    let (held, asked) = (Mutex::new(held), Arc::new(Mutex::new(0)));
    let counted = Arc::clone(&asked);
    let mut sought = by_name(Arc::new(move |_| {
        *counted.lock().unwrap() += 1;
        let _ = held.lock().unwrap().recv();
        Ok(vec!["10.0.0.1".parse().unwrap()])
    }));
    let found = sought.until("two faults", |found| found.failures >= 2).await;
    assert!(found.faults["vllm.test"].contains("no answer within 200 ms"), "{found:?}");
    assert_eq!(*asked.lock().unwrap(), 1);
    drop(release);
    let found = sought.names(&["10.0.0.1:8000"]).await;
    assert!(found.faults.is_empty());
}

/// The system's own resolver: a name that is there, and one that is not.
#[test]
fn the_resolver_of_the_system_is_asked() {
    let lookup = dns::system();
    assert!(lookup("localhost").unwrap().iter().all(IpAddr::is_loopback));
    assert_eq!(lookup("127.0.0.7").unwrap(), ["127.0.0.7".parse::<IpAddr>().unwrap()]);
    let error = lookup("no-such-name.invalid").unwrap_err();
    assert!(!error.is_empty());
    assert!(lookup("a name with\0a zero").is_err());
}

fn in_file(path: &Path) -> Sought {
    let settings = FileSettings { path: path.to_owned(), interval: Micros::from_millis(10) };
    Sought::begin(move |tell| file::run(settings, tell))
}

#[tokio::test]
async fn a_file_is_followed_and_one_that_is_gone_or_wrong_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("endpoints.yaml");
    let mut sought = in_file(&path);
    let found = sought.until("a fault", |found| !found.faults.is_empty()).await;
    assert_eq!(found.endpoints, None);
    let write = |text: &str| {
        let whole = dir.path().join("new");
        fs::write(&whole, text).unwrap();
        fs::rename(&whole, &path).unwrap();
    };
    write("endpoints: [{name: a, url: 'http://10.0.0.1:8000', role: prefill}]");
    let found = sought.names(&["a"]).await;
    let spec = &found.endpoints.unwrap()[0];
    assert_eq!(
        (spec.role, spec.metrics_url.as_deref()),
        (Role::Prefill, Some("http://10.0.0.1:8000/metrics"))
    );
    for (text, words) in [
        ("", "nothing stands in the file"),
        ("endpoints: [{name: b}]", "url"),
        ("endpoints: [", "line"),
        ("{\"endpoint\": []}", "did you mean endpoints?"),
    ] {
        write(text);
        sought.wrong(words, &["a"]).await;
    }
    write("endpoints: []");
    sought.names(&[]).await;
    write("endpoints: [{name: b, url: 'http://b:1'}]");
    sought.names(&["b"]).await;
    fs::remove_file(&path).unwrap();
    sought.wrong("No such file", &["b"]).await;
    write("endpoints: [{name: b, url: 'http://b:1'}]");
    sought.well().await;
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    sought.wrong("it is no file", &["b"]).await;
}

/// As a ConfigMap is exchanged: the link `..data` leads elsewhere from one moment to the next.
#[tokio::test]
async fn a_link_that_leads_elsewhere_is_a_change() {
    let dir = tempfile::tempdir().unwrap();
    for (version, name) in [("1", "a"), ("2", "b")] {
        fs::create_dir(dir.path().join(version)).unwrap();
        let text = format!("endpoints: [{{name: {name}, url: 'http://{name}:1'}}]");
        fs::write(dir.path().join(version).join("e.yaml"), text).unwrap();
    }
    let data = dir.path().join("..data");
    std::os::unix::fs::symlink("1", &data).unwrap();
    let mut sought = in_file(&data.join("e.yaml"));
    sought.names(&["a"]).await;
    std::os::unix::fs::symlink("2", dir.path().join("new")).unwrap();
    fs::rename(dir.path().join("new"), &data).unwrap();
    sought.names(&["b"]).await;
}

fn settings(server: &ApiServer, service: Option<&str>) -> KubernetesSettings {
    KubernetesSettings {
        service: service.map(str::to_owned),
        port: None,
        namespace: Some("inference".to_owned()),
        objectives: false,
        role: Role::Decode,
        api_server: Some(server.url.clone()),
        token_file: server.token_file.clone(),
        ca_file: server.ca_file.clone(),
    }
}

/// With patience: a machine that is busy is no server that does not answer.
fn in_cluster(settings: KubernetesSettings) -> Sought {
    in_cluster_for(settings, Duration::from_secs(30), Duration::from_secs(30))
}

fn in_cluster_for(settings: KubernetesSettings, answer: Duration, grace: Duration) -> Sought {
    let millis = Duration::from_millis;
    let slow = millis(100);
    let times =
        Times { answer, slow, watch: millis(1_000), grace, retry_min: millis(5), retry_max: millis(50) };
    Sought::begin(move |tell| kubernetes::run(settings, "vllm".to_owned(), times, tell))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_slices_of_a_service_are_listed_in_pages_and_then_watched() {
    let dir = tempfile::tempdir().unwrap();
    let server = ApiServer::start(dir.path(), &[SLICES]);
    for n in 1..=5 {
        server.put(SLICES, slice(&format!("s{n}"), 8000, &[(&format!("10.0.0.{n}"), true)]));
    }
    let mut other = slice("other", 8000, &[("10.9.9.9", true)]);
    other["metadata"]["labels"]["kubernetes.io/service-name"] = json!("another");
    server.put(SLICES, other);
    let mut sought = in_cluster(settings(&server, Some("vllm")));
    let all = ["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000", "10.0.0.4:8000", "10.0.0.5:8000"];
    sought.names(&all).await;
    assert_eq!(server.asked(&["continue=2"]), 1, "several pages");
    server.delete(SLICES, "s5");
    sought.names(&all[..4]).await;
    server.put(SLICES, slice("s4", 8000, &[("10.0.0.4", false), ("10.0.0.6", true)]));
    sought.names(&["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000", "10.0.0.6:8000"]).await;
    assert_eq!(server.asked(&["limit="]), 3, "one list of three pages");
    // Watches end in order, and go on from the version that they saw last.
    let begun = server.asked(&["watch=true"]);
    while server.asked(&["watch=true"]) < begun + 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.put(SLICES, slice("s7", 8000, &[("10.0.0.7", true)]));
    sought
        .names(&["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000", "10.0.0.6:8000", "10.0.0.7:8000"])
        .await;
    assert_eq!(server.asked(&["limit="]), 3, "no list was needed");
    // Scaled to zero.
    for name in ["s1", "s2", "s3", "s4", "s7"] {
        server.delete(SLICES, name);
    }
    let found = sought.names(&[]).await;
    assert!(found.faults.is_empty(), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_is_gone_is_followed_by_a_new_list() {
    let dir = tempfile::tempdir().unwrap();
    let server = ApiServer::start(dir.path(), &[SLICES]);
    server.put(SLICES, slice("a", 8000, &[("10.0.0.1", true)]));
    server.put(SLICES, slice("b", 8000, &[("10.0.0.2", true)]));
    let mut sought = in_cluster(settings(&server, Some("vllm")));
    sought.names(&["10.0.0.1:8000", "10.0.0.2:8000"]).await;
    server.forget(SLICES, "a");
    sought.names(&["10.0.0.2:8000"]).await;
    server.put(SLICES, slice("d", 8000, &[("10.0.0.4", true)]));
    sought.names(&["10.0.0.2:8000", "10.0.0.4:8000"]).await;
    // As a status of the answer, again and again, and then a list.
    server.mood(Mood::Refuses(410));
    let asked = server.asked(&[]);
    while server.asked(&[]) < asked + 4 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.forget(SLICES, "b");
    server.mood(Mood::Well);
    let found = sought.names(&["10.0.0.4:8000"]).await;
    assert_eq!(found.failures, 0, "a version that is gone is no fault: {found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_the_server_does_what_was_found_stays_until_it_is_well_again() {
    let dir = tempfile::tempdir().unwrap();
    let server = ApiServer::start(dir.path(), &[SLICES]);
    server.put(SLICES, slice("a", 8000, &[("10.0.0.1", true)]));
    let (answer, grace) = (Duration::from_millis(500), Duration::from_millis(300));
    let mut sought = in_cluster_for(settings(&server, Some("vllm")), answer, grace);
    sought.names(&["10.0.0.1:8000"]).await;
    for (round, (mood, words)) in [
        (Mood::MuteWatch, "no answer within 1.3 s"),
        (Mood::Mute, "no answer within"),
        (Mood::Garbage, "is no JSON"),
        (Mood::Cut, "error"),
        (Mood::Refuses(401), "status 401: refused with 401"),
        (Mood::Refuses(403), "status 403"),
        (Mood::Refuses(500), "status 500"),
        (Mood::Refuses(404), "status 404"),
    ]
    .into_iter()
    .enumerate()
    {
        server.mood(mood);
        sought.wrong(words, &["10.0.0.1:8000"]).await;
        server.mood(Mood::Well);
        sought.well().await;
        let ip = format!("10.0.1.{round}");
        server.put(SLICES, slice("b", 8000, &[(&ip, true)]));
        sought.names(&["10.0.0.1:8000", &format!("{ip}:8000")]).await;
        server.delete(SLICES, "b");
        sought.names(&["10.0.0.1:8000"]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_was_exchanged_is_read_again_and_a_stranger_is_not_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let server = ApiServer::start(dir.path(), &[SLICES]);
    server.put(SLICES, slice("a", 8000, &[("10.0.0.1", true)]));
    let mut sought = in_cluster(settings(&server, Some("vllm")));
    sought.names(&["10.0.0.1:8000"]).await;
    server.token("another");
    server.put(SLICES, slice("b", 8000, &[]));
    server.forget(SLICES, "b");
    sought.wrong("status 401", &["10.0.0.1:8000"]).await;
    fs::write(&server.token_file, "").unwrap();
    sought.wrong("it is empty", &["10.0.0.1:8000"]).await;
    fs::write(&server.token_file, "another").unwrap();
    sought.well().await;
    // A server with a certificate of another authority gets no token at all.
    let elsewhere = tempfile::tempdir().unwrap();
    let stranger = ApiServer::start(elsewhere.path(), &[SLICES]);
    let misled = KubernetesSettings { ca_file: server.ca_file.clone(), ..settings(&stranger, Some("vllm")) };
    let mut sought = in_cluster(misled);
    let found = sought.until("a fault", |found| !found.faults.is_empty()).await;
    assert!(found.faults.values().any(|fault| fault.contains("certificate")), "{found:?}");
    assert_eq!((found.endpoints, stranger.asked(&[])), (None, 0));
    let missing = KubernetesSettings { ca_file: dir.path().join("none"), ..settings(&server, Some("vllm")) };
    let mut sought = in_cluster(missing);
    sought.until("a fault", |found| found.faults.values().any(|fault| fault.contains("none"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pods_that_an_inference_pool_selects_are_followed_and_its_objectives_with_them() {
    let dir = tempfile::tempdir().unwrap();
    let server = ApiServer::start(dir.path(), &[POOLS, PODS, OBJECTIVES]);
    server.put(POOLS, pool("another", 1));
    server.put(PODS, pod("v-0", "10.0.0.1", true));
    server.put(PODS, pod("v-1", "10.0.0.2", false));
    let mut prefill = pod("v-2", "10.0.0.3", true);
    prefill["metadata"]["labels"]["llm-d.ai/role"] = json!("prefill");
    server.put(PODS, prefill);
    let mut stranger = pod("x", "10.9.9.9", true);
    stranger["metadata"]["labels"]["app"] = json!("another");
    server.put(PODS, stranger);
    server.put(OBJECTIVES, objective("interactive", "vllm", 10));
    server.put(OBJECTIVES, objective("theirs", "another", 99));
    let objectives = KubernetesSettings { objectives: true, ..settings(&server, None) };
    let mut sought = in_cluster(objectives);
    let found = sought.until("a fault", |found| !found.faults.is_empty()).await;
    assert!(found.faults["the InferencePool"].contains("no InferencePool vllm in the namespace inference"));
    assert_eq!(found.endpoints, None);
    server.put(POOLS, pool("vllm", 8000));
    let found = sought.names(&["10.0.0.1:8000", "10.0.0.3:8000"]).await;
    let roles: Vec<Role> = found.endpoints.unwrap().iter().map(|spec| spec.role).collect();
    assert_eq!(roles, [Role::Decode, Role::Prefill]);
    server.put(PODS, pod("v-1", "10.0.0.2", true));
    sought.names(&["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"]).await;
    // One that is being deleted gets nothing any more, though it still says that it is ready.
    let mut going = pod("v-2", "10.0.0.3", true);
    going["metadata"]["deletionTimestamp"] = json!("2026-11-30T10:00:00Z");
    server.put(PODS, going);
    sought.names(&["10.0.0.1:8000", "10.0.0.2:8000"]).await;
    let mut two_ports = pool("vllm", 8000);
    two_ports["spec"]["targetPorts"] = json!([{"number": 8000}, {"number": 8001}]);
    server.put(POOLS, two_ports);
    sought.names(&["10.0.0.1:8000", "10.0.0.1:8001", "10.0.0.2:8000", "10.0.0.2:8001"]).await;
    // An InferencePool that is gone is said; its pods are still there.
    server.delete(POOLS, "vllm");
    sought
        .wrong("no InferencePool vllm", &["10.0.0.1:8000", "10.0.0.1:8001", "10.0.0.2:8000", "10.0.0.2:8001"])
        .await;
    server.put(POOLS, pool("vllm", 8000));
    sought.names(&["10.0.0.1:8000", "10.0.0.2:8000"]).await;
    let priorities = |found: &Found| found.objectives.clone().unwrap_or_default();
    let wanted = BTreeMap::from([("interactive".to_owned(), 10)]);
    sought.until("the objectives", |found| priorities(found) == wanted).await;
    server.put(OBJECTIVES, objective("batch", "vllm", -10));
    server.delete(OBJECTIVES, "interactive");
    let wanted = BTreeMap::from([("batch".to_owned(), -10)]);
    sought.until("other objectives", |found| priorities(found) == wanted).await;
    // One that cannot be read stays as it was.
    server.put(OBJECTIVES, objective("batch", "vllm", i64::MAX));
    let found = sought.until("a fault", |found| !found.faults.is_empty()).await;
    assert!(
        found.faults.iter().any(|(at, fault)| at.starts_with("batch of") && fault.contains("spec.priority"))
    );
    assert_eq!(priorities(&found), wanted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inference_pool_of_the_older_group_does_as_well_and_one_that_comes_later_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let server = ApiServer::start(dir.path(), &[PODS]);
    server.put(PODS, pod("v-0", "10.0.0.1", true));
    let mut sought = in_cluster(settings(&server, None));
    let found = sought.until("a fault", |found| !found.faults.is_empty()).await;
    assert!(found.faults["the InferencePool"].contains("serves no InferencePool at all"), "{found:?}");
    server.serve(OLD_POOLS);
    server.put(
        OLD_POOLS,
        json!({"metadata": {"name": "vllm"}, "spec": {"selector": {"app": "vllm"}, "targetPortNumber": 9000}}),
    );
    sought.names(&["10.0.0.1:9000"]).await;
    sought.well().await;
}
