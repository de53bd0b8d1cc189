//! The observer on a real pool and real connections: what the kernel knows after scrapes, failures and pushes.

use super::*;
use crate::engine::{Engine, EngineOptions, INBOX_ARRIVALS_MAX, LogOptions, Place, PoolOptions};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::net::TcpListener;
use weir_kernel::{Detector, Input, Policy, Ratio, Regime, Step};
use weir_log::memory::MemoryDisk;

/// What a metrics server answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    Load(u32),
    Nothing,
    Error,
    Hangs,
}

/// A server with a metrics page that tests change.
struct Server {
    url: String,
    says: Arc<Mutex<Says>>,
    /// The most scrapes at once, and all of them.
    most: Arc<AtomicUsize>,
}

impl Server {
    async fn start(first: Says) -> Server {
        let says = Arc::new(Mutex::new(first));
        let (most, now) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (answer, peak) = (Arc::clone(&says), Arc::clone(&most));
        let page = move || {
            let says = *answer.lock().unwrap();
            peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let guard = Leave(Arc::clone(&now));
            async move {
                let _guard = guard;
                let families = |waiting| {
                    format!(
                        "vllm:num_requests_waiting {waiting}\nvllm:num_requests_running 1\nvllm:kv_cache_usage_perc 0.5\n"
                    )
                };
                match says {
                    Says::Load(waiting) => (http::StatusCode::OK, families(waiting)),
                    Says::Nothing => (http::StatusCode::OK, String::new()),
                    Says::Error => (http::StatusCode::INTERNAL_SERVER_ERROR, families(0)),
                    Says::Hangs => std::future::pending().await,
                }
            }
        };
        let router = axum::Router::new().route("/metrics", axum::routing::get(page));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/metrics", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Server { url, says, most }
    }

    fn say(&self, says: Says) {
        *self.says.lock().unwrap() = says;
    }

    fn spec(&self, name: &str) -> Spec {
        Spec { name: name.to_owned(), role: Role::Decode, metrics_url: Some(self.url.clone()) }
    }
}

struct Leave(Arc<AtomicUsize>);

impl Drop for Leave {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn engine(disk: &MemoryDisk) -> Engine {
    // Wide margins: these tests share the machine with others.
    let policy = Policy { blind_after: Micros::from_millis(300), ..Policy::default() };
    engine_with(disk, policy)
}

fn engine_with(disk: &MemoryDisk, policy: Policy) -> Engine {
    Engine::open(EngineOptions {
        pools: [("p".to_owned(), PoolOptions { policy, ..PoolOptions::default() })].into(),
        place: Place::Memory(disk.clone()),
        log: LogOptions::default(),
        clock: None,
        inbox_arrivals_max: INBOX_ARRIVALS_MAX,
    })
    .unwrap()
}

async fn observe(engine: &Engine, feed: Feed) -> Observer {
    let scrape = ScrapeOptions { timeout: Duration::from_secs(60), ..ScrapeOptions::default() };
    let options = ObserverOptions { feed, scrape, staleness: Micros::from_millis(1_000) };
    Observer::start(engine.pool("p").unwrap().clone(), options).await
}

async fn wait(engine: &Engine, what: &str, holds: impl Fn(&State) -> bool + Clone + Send + 'static) {
    let until = Instant::now() + Duration::from_secs(60);
    while !engine.pool("p").unwrap().query(holds.clone()).await.unwrap() {
        assert!(Instant::now() < until, "waited too long for {what}");
        tokio::task::yield_now().await;
    }
}

fn steps(engine: &Engine) -> Vec<Step> {
    let frames = engine.log_frames().read("p", 1, usize::MAX).unwrap();
    frames.iter().flat_map(|frame| frame.steps().unwrap()).collect()
}

fn regime(wanted: Regime) -> impl Fn(&State) -> bool + Clone + Send {
    move |state| state.regime() == wanted
}

fn waiting(slot: usize, wanted: u32) -> impl Fn(&State) -> bool + Clone + Send {
    move |state| {
        state.endpoints().nth(slot).and_then(|e| e.sample).is_some_and(|(waiting, ..)| waiting == wanted)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c046_scrapes_that_give_nothing_make_the_pool_blind_and_never_idle() {
    let server = Server::start(Says::Load(3)).await;
    let engine = engine(&MemoryDisk::new());
    let observer = observe(&engine, Feed::Configured(vec![server.spec("e1")])).await;
    wait(&engine, "a sample", waiting(0, 3)).await;
    wait(&engine, "the regime", regime(Regime::HasEndpoints)).await;
    for (says, word) in [(Says::Nothing, "metrics"), (Says::Error, "status")] {
        server.say(says);
        wait(&engine, "blindness", regime(Regime::NoFreshMetrics)).await;
        let view = observer.view();
        let index = ScrapeFault::WORDS.iter().position(|w| *w == word).unwrap();
        assert!(view.endpoints[0].faults[index] > 0, "{view:?}");
        assert!(!view.endpoints[0].fresh);
        assert_eq!(view.endpoints[0].load.map(|load| load.waiting), Some(3), "what was last seen, not zero");
        server.say(Says::Load(3));
        wait(&engine, "sight", regime(Regime::HasEndpoints)).await;
    }
    let missing = "metric family vllm:num_requests_waiting is missing";
    server.say(Says::Nothing);
    let until = Instant::now() + Duration::from_secs(60);
    while observer.view().endpoints[0].last_fault.as_deref() != Some(missing) {
        assert!(Instant::now() < until, "{:?}", observer.view());
        tokio::task::yield_now().await;
    }
}

/// A pool that the feed has not spoken of is unknown, an empty one is empty; and a push is in force when it returns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c148_unknown_until_the_feed_speaks() {
    let engine = engine_with(&MemoryDisk::new(), Policy { detector: Detector::Pushed, ..Policy::default() });
    let observer = observe(&engine, Feed::Pushed).await;
    let pool = engine.pool("p").unwrap().clone();
    let is = |wanted| pool.query(regime(wanted));
    observer.push(Push { endpoints: None, saturation: Pushed::Pool(Ratio(500_000)) }).unwrap();
    assert_eq!(is(Regime::Unknown).await, Ok(true), "a figure alone is no view of the pool");
    assert!(!observer.view().known);
    observer.push(Push { endpoints: Some(Vec::new()), saturation: Pushed::Keep }).unwrap();
    assert_eq!(is(Regime::NoEndpoints).await, Ok(true));
    let spec = Spec { name: "e1".to_owned(), role: Role::Decode, metrics_url: None };
    observer.push(Push { endpoints: Some(vec![(spec, None)]), saturation: Pushed::Keep }).unwrap();
    assert_eq!(is(Regime::HasEndpoints).await, Ok(true));
    let raw = pool.query(|state| state.saturation().0).await.unwrap();
    assert_eq!(raw, Ratio(500_000), "the figure was kept until then");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_list_in_the_settings_is_an_empty_pool() {
    let engine = engine(&MemoryDisk::new());
    let _observer = observe(&engine, Feed::Configured(Vec::new())).await;
    wait(&engine, "the first view", regime(Regime::NoEndpoints)).await;
}

/// One endpoint that hangs is scraped once at a time and holds up nobody else's samples.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_hangs_holds_up_no_other() {
    let (good, bad) = (Server::start(Says::Load(0)).await, Server::start(Says::Hangs).await);
    let engine = engine(&MemoryDisk::new());
    let _observer = observe(&engine, Feed::Configured(vec![good.spec("a"), bad.spec("b")])).await;
    for load in 1..=10 {
        good.say(Says::Load(load));
        wait(&engine, "its sample", waiting(0, load)).await;
    }
    assert_eq!(bad.most.load(Ordering::SeqCst), 1);
    assert_eq!(
        engine.pool("p").unwrap().query(|state| state.endpoints().nth(1).unwrap().sample).await,
        Ok(None)
    );
}

/// After a restart what is no longer there leaves, and what stays keeps its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_goes_on_with_the_endpoints_of_the_log() {
    let (server, disk) = (Server::start(Says::Load(1)).await, MemoryDisk::new());
    let first = engine(&disk);
    let observer = observe(&first, Feed::Configured(vec![server.spec("a"), server.spec("b")])).await;
    wait(&first, "both", waiting(1, 1)).await;
    observer.stop();
    drop(first);
    let second = engine(&disk);
    server.say(Says::Load(2));
    let _observer = observe(&second, Feed::Configured(vec![server.spec("b"), server.spec("c")])).await;
    wait(&second, "b and c", |state| {
        let names: Vec<_> = state.endpoints().map(|e| (e.slot.0, e.name.to_owned())).collect();
        names == [(1, "b".to_owned()), (2, "c".to_owned())]
    })
    .await;
    wait(&second, "fresh samples", waiting(0, 2)).await;
}

/// An idle pool writes next to nothing: after the first rounds one observation a second, not one per scrape.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c138_an_unchanged_pool_is_not_written_down_at_each_scrape() {
    let server = Server::start(Says::Load(1)).await;
    let engine = engine(&MemoryDisk::new());
    let began = Instant::now();
    let observer = observe(&engine, Feed::Configured(vec![server.spec("a")])).await;
    let until = Instant::now() + Duration::from_secs(60);
    while observer.view().endpoints.first().is_none_or(|a| a.scraped < 30) {
        assert!(Instant::now() < until, "{:?}", observer.view());
        tokio::task::yield_now().await;
    }
    let observed = steps(&engine).iter().filter(|step| matches!(step.input, Input::Observed(_))).count();
    // On a machine that is busy scrapes take longer, and more seconds pass.
    let seconds = began.elapsed().as_secs() as usize;
    assert!(observed < 10 + seconds, "{observed} observations of 30 scrapes in {seconds} s");
}

/// A minute of failing scrapes, 20 a second: three lines, and they account for every failure but the last ones.
#[test]
fn c038_a_scrape_outage_is_told_in_a_few_lines() {
    let mut trouble = Trouble::default();
    let lines: Vec<u64> = (0..1_200_u64).filter_map(|i| trouble.note(Micros::from_millis(i * 50))).collect();
    assert_eq!(lines, [1, 600]);
    assert_eq!(trouble.note(Micros::from_secs(60)), Some(600));
}
