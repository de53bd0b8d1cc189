//! The truth model behind real HTTP: model servers as a gateway meets them, each on a port of its own.
//!
//! OpenAI-style completions (streaming and not), vLLM's metric names, health, and `PUT /sim` for faults by hand,
//! `GET /sim` for when requests that were given up had freed what they held.
//! Not here: tokens that mean anything; every token is the same word.

mod api;
mod engine;
mod freed;
mod metrics;
mod routes;

pub use engine::{Engine, Scrape};
pub use freed::Freed;
pub use routes::router;

use crate::sim::truth::Spec;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// What all servers of a simulated pool have in common.
#[derive(Clone, Debug)]
pub struct PoolSpec {
    /// Speed of the servers.
    pub spec: Spec,
    /// Where they listen.
    pub host: IpAddr,
    /// The model's name.
    pub model: String,
    /// How many simulated seconds pass in one second, > 0.
    pub speed: f64,
    /// Share of scrapes that fail, 0 to 1.
    pub scrape_fail: f64,
    /// Decides stalls and failing scrapes.
    pub seed: u64,
}

/// A simulated pool that runs until it is dropped.
#[derive(Debug)]
pub struct Pool {
    servers: Vec<(SocketAddr, Arc<Engine>)>,
    tasks: JoinSet<()>,
}

impl Pool {
    /// Starts one server per port (0 = any free one).
    ///
    /// # Errors
    /// A port that cannot be had, named.
    pub async fn start(pool: &PoolSpec, ports: &[u16]) -> io::Result<Pool> {
        let mut started = Pool { servers: Vec::new(), tasks: JoinSet::new() };
        for port in ports {
            started.add(pool, *port).await?;
        }
        Ok(started)
    }

    /// Starts one server more.
    ///
    /// # Errors
    /// A port that cannot be had, named.
    pub async fn add(&mut self, pool: &PoolSpec, port: u16) -> io::Result<SocketAddr> {
        let want = SocketAddr::new(pool.host, port);
        let named = |e: io::Error| io::Error::new(e.kind(), format!("listen on {want}: {e}"));
        let listener = TcpListener::bind(want).await.map_err(named)?;
        let address = listener.local_addr().map_err(named)?;
        let seed = pool.seed.wrapping_add(self.servers.len() as u64);
        let engine = Arc::new(Engine::new(pool.spec.clone(), pool.speed, pool.scrape_fail, seed));
        let app = router(Arc::clone(&engine), &pool.model);
        self.tasks.spawn(Arc::clone(&engine).run());
        self.tasks.spawn(async move {
            if let Err(error) = axum::serve(listener, app).await {
                tracing::error!(%address, %error, "a simulated server stopped");
            }
        });
        self.servers.push((address, engine));
        Ok(address)
    }

    /// The servers, in the order they were started.
    pub fn servers(&self) -> impl Iterator<Item = (SocketAddr, &Arc<Engine>)> {
        self.servers.iter().map(|(address, engine)| (*address, engine))
    }
}
