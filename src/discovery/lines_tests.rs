//! Goal: what the process's log says of a search that fails names the reason that holds. Method: the lines of this thread, kept.

use super::*;
use crate::discovery::dns::Lookup;
use api_server::{ApiServer, Mood, SLICES, slice};
use std::cell::RefCell;
use std::io::Write;
use std::sync::{Arc, Mutex, Once};

thread_local! {
    static KEPT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The log of this thread. One subscriber serves all threads: with several, which lines are made at all depends on the thread
/// that comes to a line first.
struct Lines;

struct To;

impl Write for To {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        KEPT.with_borrow_mut(|kept| kept.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn keep() -> Lines {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let _ = tracing_subscriber::fmt().with_ansi(false).with_writer(|| To).try_init();
            tracing::callsite::rebuild_interest_cache();
        });
        KEPT.with_borrow_mut(Vec::clear);
        Lines
    }

    /// Lines with these words.
    fn with(&self, words: &str) -> usize {
        let text = KEPT.with_borrow(|kept| String::from_utf8(kept.clone()).unwrap());
        text.lines().filter(|line| line.contains(words)).count()
    }

    async fn until(&self, words: &str) {
        let said = async {
            while self.with(words) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(60), said).await.is_err() {
            panic!(
                "{words} was not said: {}",
                KEPT.with_borrow(|kept| String::from_utf8_lossy(kept).into_owned())
            );
        }
    }
}

#[tokio::test]
async fn a_reason_that_changes_within_an_outage_is_said_again() {
    let lines = Lines::keep();
    let says: Says = Arc::new(Mutex::new(Err("no such name".to_owned())));
    let lookup: Lookup = resolver(&says);
    let mut sought = by_name(lookup);
    lines.until("error=\"no such name\"").await;
    *says.lock().unwrap() = Err("the resolver refuses".to_owned());
    lines.until("error=\"the resolver refuses\"").await;
    let failures = sought.found.borrow().failures;
    sought.until("more rounds", |found| found.failures >= failures + 5).await;
    assert_eq!((lines.with("no such name"), lines.with("the resolver refuses")), (1, 1));
    *says.lock().unwrap() = Ok(Vec::new());
    lines.until("discovery works again").await;
    assert_eq!(lines.with("discovery works again"), 1);
}

#[tokio::test]
async fn an_api_server_that_hangs_is_said_before_it_is_given_up() {
    let lines = Lines::keep();
    let dir = tempfile::tempdir().unwrap();
    let server = ApiServer::start(dir.path(), &[SLICES]);
    server.put(SLICES, slice("a", 8000, &[("10.0.0.1", true)]));
    server.mood(Mood::Mute);
    // It is given up after half a minute only.
    let sought = in_cluster(settings(&server, Some("vllm")));
    lines.until("no answer for more than 0.1 s").await;
    assert_eq!(sought.found.borrow().failures, 0, "it is not given up");
}

#[tokio::test]
async fn whatever_is_slow_is_said_and_waited_for() {
    let lines = Lines::keep();
    let (to, _found) = watch::channel(Found::default());
    let tell = Teller::new("p", to);
    let (answer, late) = tokio::sync::oneshot::channel::<u8>();
    let waiting = tokio::spawn({
        let tell = tell.clone();
        async move { heard(&tell, "/mnt/endpoints.yaml", Duration::from_millis(5), late).await }
    });
    lines.until("place=\"/mnt/endpoints.yaml\" error=\"no answer for more than 0.005 s\"").await;
    answer.send(7).unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), 7);
    tell.well("/mnt/endpoints.yaml");
    assert_eq!(lines.with("discovery works again"), 1);
}

#[tokio::test]
async fn one_server_under_two_names_counts_once_and_is_said() {
    let lines = Lines::keep();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("endpoints.yaml");
    fs::write(
        &path,
        "endpoints: [{name: b, url: 'http://h:1'}, {name: c, url: 'http://h:2'}, {name: a, url: 'http://H:1/'}]",
    )
    .unwrap();
    let mut sought = in_file(&path);
    let found = sought.names(&["a", "c"]).await;
    assert!(found.faults.is_empty());
    assert_eq!(lines.with("a and b are one server, which counts once: b is left out"), 1);
}
