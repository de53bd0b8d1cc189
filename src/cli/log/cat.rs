//! `weir log cat` and `weir log tail`.

use super::filter::{Filter, Sieve};
use super::live::{self, Server};
use super::source::{Source, pools};
use super::table::{Printer, Style};
use super::{Done, error::Failed};
use std::collections::VecDeque;
use std::io::{BufWriter, Write, stdout};
use std::iter::Peekable;
use std::process::ExitCode;
use weir_kernel::Step;
use weir_log::reader::{Bound, Logs, Steps};

/// Arguments of `weir log cat`.
#[derive(Debug, clap::Args)]
pub struct CatArgs {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    filter: Filter,
    /// Read from a running server: its address, as http://HOST:PORT (what it still has in memory).
    #[arg(long, value_name = "URL", conflicts_with_all = ["data", "files"])]
    server: Option<String>,
    /// A token with the scope `read`, where the server asks for one.
    #[arg(long, env = "WEIR_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// One JSON object per step.
    #[arg(long)]
    json: bool,
}

/// Arguments of `weir log tail`.
#[derive(Debug, clap::Args)]
pub struct TailArgs {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    filter: Filter,
    /// How many steps of the end.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    lines: usize,
    /// Read from a running server: its address, as http://HOST:PORT.
    #[arg(long, value_name = "URL", conflicts_with_all = ["data", "files"])]
    server: Option<String>,
    /// A token with the scope `read`, where the server asks for one.
    #[arg(long, env = "WEIR_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Go on with the steps to come (needs --server).
    #[arg(short, long, requires = "server")]
    follow: bool,
    /// One JSON object per step.
    #[arg(long)]
    json: bool,
}

/// Runs `weir log cat`.
pub fn run_cat(args: &CatArgs) -> Done {
    if let Some(url) = &args.server {
        let server = Server { url: url.clone(), token: args.token.clone(), follow: false, lines: None };
        return live::run(&server, &args.filter, args.json);
    }
    let (from, to) = args.filter.range()?;
    let opened = args.source.open()?;
    let pools = pools(&opened.logs, args.filter.pool.as_deref())?;
    let mut printer = printer(args.json, &pools);
    let mut merged = Merged::new(&opened.logs, &pools, &args.filter, from, to);
    let mut left = args.filter.limit.unwrap_or(usize::MAX);
    while left > 0
        && let Some((pool, step)) = merged.next()?
    {
        printer.step(&pool, &step)?;
        left -= 1;
    }
    printer.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `weir log tail`.
pub fn run_tail(args: &TailArgs) -> Done {
    let lines = args.filter.limit.unwrap_or(args.lines);
    if let Some(url) = &args.server {
        let server =
            Server { url: url.clone(), token: args.token.clone(), follow: args.follow, lines: Some(lines) };
        return live::run(&server, &args.filter, args.json);
    }
    let (mut from, to) = args.filter.range()?;
    let opened = args.source.open()?;
    let pools = pools(&opened.logs, args.filter.pool.as_deref())?;
    if let ([pool], Bound::Open, Bound::Open, true) = (&pools[..], from, to, args.filter.is_open()) {
        // One pool and no filter: no need to read what will not be shown.
        let end = opened.logs.head(pool)?.map_or(0, |head| head.seq);
        from = Bound::Seq((end + 1).saturating_sub(lines as u64).max(first(&opened.logs, pool)?));
    }
    let mut merged = Merged::new(&opened.logs, &pools, &args.filter, from, to);
    let mut last = VecDeque::new();
    while let Some(found) = merged.next()? {
        if last.len() == lines {
            last.pop_front();
        }
        last.push_back(found);
    }
    let mut printer = printer(args.json, &pools);
    for (pool, step) in last.iter().take(lines) {
        printer.step(pool, step)?;
    }
    printer.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn first(logs: &Logs, pool: &str) -> Result<u64, Failed> {
    match logs.reader(pool, Bound::Open, Bound::Open).next() {
        Some(frame) => Ok(frame?.header.first_seq),
        None => Ok(1),
    }
}

fn printer(json: bool, pools: &[String]) -> Printer<impl Write> {
    Printer::new(BufWriter::new(stdout().lock()), Style { json, pools: pools.len() > 1 })
}

/// The steps of several pools in the order of their times.
struct Merged<'a> {
    lanes: Vec<Lane<'a>>,
}

struct Lane<'a> {
    pool: String,
    steps: Peekable<Steps>,
    sieve: Sieve<'a>,
}

impl<'a> Merged<'a> {
    fn new(logs: &Logs, pools: &[String], filter: &'a Filter, from: Bound, to: Bound) -> Self {
        let lanes = pools.iter().map(|pool| Lane {
            pool: pool.clone(),
            steps: logs.reader(pool, from, to).steps().peekable(),
            sieve: Sieve::new(filter),
        });
        Merged { lanes: lanes.collect() }
    }

    fn next(&mut self) -> Result<Option<(String, Step)>, Failed> {
        loop {
            let mut earliest = None;
            for (number, lane) in self.lanes.iter_mut().enumerate() {
                // An error is next in its lane, so that it is told before anything later.
                let at = match lane.steps.peek() {
                    None => continue,
                    Some(Err(_)) => 0,
                    Some(Ok(step)) => step.at.0,
                };
                if earliest.is_none_or(|(before, _)| at < before) {
                    earliest = Some((at, number));
                }
            }
            let Some((_, number)) = earliest else { return Ok(None) };
            let lane = &mut self.lanes[number];
            let Some(step) = lane.steps.next().transpose()? else { continue };
            if lane.sieve.lets_through(&step) {
                return Ok(Some((lane.pool.clone(), step)));
            }
        }
    }
}
