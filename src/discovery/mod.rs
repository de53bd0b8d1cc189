//! Where the endpoints of a pool are found while the service runs: by the addresses of a name, in a file, or through the API
//! server of a Kubernetes cluster.
//!
//! What was found last stays while nothing can be found out: a resolver, a file or an API server that fails says nothing of
//! model servers. Not here: scraping them (`observer`), choosing among them (the kernel).

mod dns;
mod file;
mod kubernetes;
mod said;
mod teller;
#[cfg(test)]
mod tests;

use crate::observer::Spec;
use std::collections::BTreeMap;
use std::time::Duration;
use teller::Teller;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use weir_config::DiscoverySettings;

/// What is found so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The whole of the pool's endpoints; nothing before they were found for the first time.
    pub endpoints: Option<Vec<Spec>>,
    /// Priorities by objective; nothing before they were found, or where none are looked for.
    pub objectives: Option<BTreeMap<String, i32>>,
    /// What cannot be found out now, by where it was looked for. Empty: all is well.
    pub faults: BTreeMap<String, String>,
    /// How often something could not be found out.
    pub failures: u64,
}

/// A search that goes on until it is dropped.
#[derive(Debug)]
pub struct Discovery {
    kind: &'static str,
    found: watch::Receiver<Found>,
    task: JoinHandle<()>,
}

impl Discovery {
    /// Begins to look for the endpoints of a pool. Runs on the present Tokio runtime.
    pub fn start(pool: &str, settings: &DiscoverySettings, inference_pool: &str) -> Discovery {
        let (to, found) = watch::channel(Found::default());
        let teller = Teller::new(pool, to);
        let (kind, task) = match settings.clone() {
            DiscoverySettings::Dns(dns) => ("dns", tokio::spawn(dns::run(dns, dns::system(), teller))),
            DiscoverySettings::File(file) => ("file", tokio::spawn(file::run(file, teller))),
            DiscoverySettings::Kubernetes(cluster) => {
                let wanted = inference_pool.to_owned();
                let times = kubernetes::Times::default();
                ("kubernetes", tokio::spawn(kubernetes::run(cluster, wanted, times, teller)))
            }
        };
        Discovery { kind, found, task }
    }

    /// Where it looks: `dns`, `file` or `kubernetes`.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// What is found so far, and what comes.
    pub fn found(&self) -> watch::Receiver<Found> {
        self.found.clone()
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A task that ends with whoever holds it.
#[derive(Debug)]
struct Guarded(JoinHandle<()>);

impl Guarded {
    fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Guarded {
        Guarded(tokio::spawn(task))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Whoever asked and has no answer after this long says so, though it goes on waiting.
const SLOW: Duration = Duration::from_secs(5);

/// Waits for an answer; where none has come for `slow`, that is said, again and again as is due.
async fn heard<T>(tell: &Teller, place: &str, slow: Duration, answer: impl Future<Output = T>) -> T {
    let mut answer = std::pin::pin!(answer);
    loop {
        match tokio::time::timeout(slow, &mut answer).await {
            Ok(answer) => return answer,
            Err(_) => {
                // The same words each time, so that they are not another reason each time.
                tell.still(place, &format!("no answer for more than {} s", slow.as_secs_f64()));
            }
        }
    }
}

/// An endpoint by its address: called so, and scraped there.
fn at(address: std::net::SocketAddr, role: weir_kernel::Role) -> Spec {
    Spec { name: address.to_string(), role, metrics_url: Some(format!("http://{address}/metrics")) }
}
