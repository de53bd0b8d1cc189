//! The addresses of a name, asked for again and again.
//!
//! By the system's resolver, so that search domains and the hosts file count. It gives no time to live: the interval is the
//! setting's. A name without any address is an empty pool; a name that is not there is a mistake, or a resolver that fails.

use super::{at, teller::Teller};
use dns_lookup::{AddrInfoHints, LookupErrorKind, SockType, getaddrinfo};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use weir_config::DnsSettings;

/// Asks for the addresses of a name, on a thread that may block.
pub type Lookup = Arc<dyn Fn(&str) -> Result<Vec<IpAddr>, String> + Send + Sync>;

/// The system's resolver.
pub fn system() -> Lookup {
    Arc::new(|name| {
        let hints = AddrInfoHints { socktype: SockType::Stream.into(), ..AddrInfoHints::default() };
        match getaddrinfo(Some(name), None, Some(hints)) {
            Ok(found) => {
                let addresses = found.map(|one| one.map(|one| one.sockaddr.ip()).map_err(|e| e.to_string()));
                addresses.collect()
            }
            Err(error) if matches!(error.kind(), LookupErrorKind::NoData) => Ok(Vec::new()),
            Err(error) => Err(std::io::Error::from(error).to_string()),
        }
    })
}

/// Looks until it is dropped.
pub async fn run(settings: DnsSettings, lookup: Lookup, tell: Teller) {
    let span = |micros: weir_kernel::Micros| Duration::from_micros(micros.0);
    let (interval, patience) = (span(settings.interval), span(settings.timeout));
    let mut open: Option<JoinHandle<Result<Vec<IpAddr>, String>>> = None;
    loop {
        let again = Instant::now() + interval;
        // A resolver that hangs is not asked a second time meanwhile: its threads would pile up.
        let mut question = open.take().unwrap_or_else(|| {
            let (lookup, name) = (Arc::clone(&lookup), settings.name.clone());
            tokio::task::spawn_blocking(move || lookup(&name))
        });
        match timeout(patience, &mut question).await {
            Ok(Ok(Ok(addresses))) => {
                tell.well(&settings.name);
                let specs =
                    addresses.into_iter().map(|ip| at(SocketAddr::new(ip, settings.port), settings.role));
                tell.endpoints(specs.collect());
            }
            Ok(Ok(Err(error))) => tell.fault(&settings.name, error),
            Ok(Err(error)) => tell.fault(&settings.name, format!("the question was lost: {error}")),
            Err(_) => {
                tell.fault(&settings.name, format!("no answer within {} ms", patience.as_millis()));
                open = Some(question);
            }
        }
        sleep_until(again).await;
    }
}
