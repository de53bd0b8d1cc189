//! `weir simpool`: simulated model servers, each a listener of its own.

use super::units;
use crate::sim::http::{Pool, PoolSpec};
use crate::sim::truth::Spec;
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::time::Duration;
use weir_kernel::Micros;
use weir_log::say;

/// Arguments of `weir simpool`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many servers (ignored where --ports is given).
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    endpoints: u16,
    /// Their ports, one by one.
    #[arg(long, value_delimiter = ',', conflicts_with = "base_port")]
    ports: Vec<u16>,
    /// The first port; the others follow. 0 = any free ones.
    #[arg(long, default_value_t = 0)]
    base_port: u16,
    /// The address to listen on.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// The model's name.
    #[arg(long, default_value = "sim")]
    model: String,
    /// Simulated seconds per second.
    #[arg(long, default_value_t = 1.0, value_parser = units::positive)]
    speed: f64,
    /// Prefilled tokens per second.
    #[arg(long, default_value_t = 10_000.0, value_parser = units::positive)]
    prefill_tokens_per_second: f64,
    /// Fixed time of one step.
    #[arg(long, default_value = "10ms", value_parser = units::duration)]
    step: Duration,
    /// Time per decoded sequence and step.
    #[arg(long, default_value = "20us", value_parser = units::duration)]
    decode_sequence: Duration,
    /// Tokens that one step computes at most.
    #[arg(long, default_value_t = 2_048, value_parser = clap::value_parser!(u32).range(1..))]
    token_budget: u32,
    /// Sequences that run at once.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    max_num_seqs: u32,
    /// KV capacity in tokens.
    #[arg(long, default_value_t = 400_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    kv_tokens: u64,
    /// Prompt and output together, in tokens.
    #[arg(long, default_value_t = 32_768, value_parser = clap::value_parser!(u32).range(2..))]
    max_model_len: u32,
    /// From the start until the servers are ready (simulated time).
    #[arg(long, default_value = "0s", value_parser = units::duration)]
    cold_start: Duration,
    /// Mean time between stalls of a server (simulated time); 0s = none.
    #[arg(long, default_value = "0s", value_parser = units::duration)]
    stall_every: Duration,
    /// How long a stall lasts (simulated time).
    #[arg(long, default_value = "500ms", value_parser = units::duration)]
    stall_for: Duration,
    /// Share of scrapes that fail, 0 to 1.
    #[arg(long, default_value_t = 0.0, value_parser = units::share)]
    scrape_fail: f64,
    /// Decides stalls and failing scrapes.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// End by itself after this long.
    #[arg(long, value_parser = units::duration)]
    run_for: Option<Duration>,
    /// Print the addresses as one JSON object.
    #[arg(long)]
    json: bool,
}

impl Args {
    fn pool(&self) -> PoolSpec {
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let micros = |d: Duration| Micros(u64::try_from(d.as_micros()).unwrap_or(u64::MAX));
        let mut spec = Spec {
            step_base_ns: nanos(self.step),
            prefill_token_ns: (1e9 / self.prefill_tokens_per_second) as u64,
            decode_seq_ns: nanos(self.decode_sequence),
            token_budget: self.token_budget,
            max_num_seqs: self.max_num_seqs,
            max_model_len: self.max_model_len,
            cold_start: micros(self.cold_start),
            stall_every: micros(self.stall_every),
            stall_for: micros(self.stall_for),
            ..Spec::default()
        };
        spec.set_kv_tokens(self.kv_tokens);
        PoolSpec {
            spec,
            host: self.host,
            model: self.model.clone(),
            speed: self.speed,
            scrape_fail: self.scrape_fail,
            seed: self.seed,
        }
    }

    fn ports(&self) -> Result<Vec<u16>, String> {
        if !self.ports.is_empty() {
            return Ok(self.ports.clone());
        }
        if self.base_port == 0 {
            return Ok(vec![0; usize::from(self.endpoints)]);
        }
        let last = u32::from(self.base_port) + u32::from(self.endpoints) - 1;
        match u16::try_from(last) {
            Ok(last) => Ok((self.base_port..=last).collect()),
            Err(_) => {
                Err(format!("--base-port: {} gives ports up to {last}; allowed: 65535", self.base_port))
            }
        }
    }
}

/// Runs `weir simpool`.
pub fn run(args: Args) -> ExitCode {
    let ports = match args.ports() {
        Ok(ports) => ports,
        Err(e) => return failed(&e),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return failed(&format!("no runtime: {e}")),
    };
    let done = runtime.block_on(serve(&args, &ports));
    // Open streams are cut, not waited for.
    runtime.shutdown_timeout(Duration::from_millis(100));
    done.map_or_else(|e| failed(&e.to_string()), |()| ExitCode::SUCCESS)
}

async fn serve(args: &Args, ports: &[u16]) -> std::io::Result<()> {
    let pool = Pool::start(&args.pool(), ports).await?;
    let urls: Vec<String> = pool.servers().map(|(address, _)| format!("http://{address}")).collect();
    if args.json {
        say!("{}", json!({ "model": args.model, "endpoints": urls }))?;
    } else {
        for url in &urls {
            say!("{url}")?;
        }
        eprintln!(
            "{} servers of model {:?}; faults by hand: PUT /sim, aborted requests: GET /sim; Ctrl-C ends",
            urls.len(),
            args.model
        );
    }
    let ends = async {
        match args.run_for {
            Some(lasting) => tokio::time::sleep(lasting).await,
            None => std::future::pending().await,
        }
    };
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        () = ends => Ok(()),
        stop = tokio::signal::ctrl_c() => stop,
        _ = terminate.recv() => Ok(()),
    }
}

fn failed(message: &str) -> ExitCode {
    eprintln!("weir simpool: {message}");
    ExitCode::FAILURE
}
