//! `weir log info`.

use super::Done;
use super::error::Failed;
use super::source::{Source, pools};
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;
use weir_log::describe::show_time;
use weir_log::reader::{Bound, Logs};
use weir_log::{Head, dir, mark};

/// Arguments of `weir log info`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    source: Source,
    /// Only this pool.
    #[arg(long)]
    pool: Option<String>,
    /// As one JSON object.
    #[arg(long)]
    json: bool,
}

/// What is held of a pool.
struct Held {
    pool: String,
    first: Option<(u64, weir_kernel::Micros)>,
    head: Option<Head>,
    hot_from: Option<u64>,
    segments: usize,
    sealed_bytes: u64,
    snapshots: Vec<u64>,
    durable: Option<u64>,
}

/// Runs `weir log info`.
pub fn run(args: &Args) -> Done {
    let mut opened = args.source.open()?;
    let data = args.source.data.as_deref();
    let description = data.map(dir::read_description).transpose()?.flatten();
    // The mark says how far the log is durable, also where the hot window cannot be opened.
    let mark = data.and_then(|data| mark::read(&dir::mark_path(data)).ok());
    let mut held = Vec::new();
    for pool in pools(&opened.logs, args.pool.as_deref())? {
        let durable = mark.as_ref().and_then(|mark| mark.pools.get(&*pool)).map(|(durable, _)| durable.seq);
        held.push(look(&opened.logs, pool, durable)?);
    }
    let hot_bytes = opened.logs.store().map(|store| store.window().disk_bytes());
    let mut out = std::io::stdout().lock();
    if args.json {
        let log = description.as_ref().map(|d| {
            json!({ "logId": d.log_id, "format": d.format, "created": show_time(weir_kernel::Micros(d.created)) })
        });
        let pools: Vec<Value> = held.iter().map(to_json).collect();
        writeln!(out, "{}", json!({ "log": log, "hotBytes": hot_bytes, "pools": pools }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(description) = &description {
        let created = show_time(weir_kernel::Micros(description.created));
        writeln!(out, "log {}, format {}, created {created}", description.log_id, description.format)?;
    }
    match hot_bytes {
        Some(bytes) => writeln!(out, "hot window of all pools: {} on disk", size(bytes))?,
        None if data.is_some() => writeln!(out, "hot window: not opened")?,
        None => {}
    }
    for held in &held {
        print(&mut out, held)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn look(logs: &Logs, pool: String, durable: Option<u64>) -> Result<Held, Failed> {
    let first = logs.reader(&pool, Bound::Open, Bound::Open).next().transpose()?;
    let shelf = logs.library().shelf(&pool);
    let mut sealed_bytes = 0;
    for piece in shelf.map_or(&[][..], |shelf| &shelf.pieces) {
        let file = weir_log::segment::SectionFile::open(&piece.path)?;
        sealed_bytes += file.sections.get(piece.section).map_or(0, |section| section.length);
    }
    Ok(Held {
        first: first.map(|frame| (frame.header.first_seq, frame.header.at_first)),
        head: logs.head(&pool)?,
        hot_from: logs.hot().and_then(|hot| hot.oldest(&pool)),
        segments: shelf.map_or(0, |shelf| shelf.pieces.len()),
        sealed_bytes,
        snapshots: logs.snapshots(&pool).iter().map(|at| at.seq).collect(),
        durable,
        pool,
    })
}

fn print(out: &mut impl Write, held: &Held) -> Result<(), Failed> {
    writeln!(out, "pool {}", held.pool)?;
    let (Some((first, at)), Some(head)) = (held.first, held.head) else {
        writeln!(out, "  no steps")?;
        return Ok(());
    };
    writeln!(out, "  sequences  {first} to {} ({} steps)", head.seq, head.seq + 1 - first)?;
    writeln!(out, "  times      {} to {}", show_time(at), show_time(head.at))?;
    writeln!(out, "  sealed     {} in {} segments", size(held.sealed_bytes), held.segments)?;
    if let Some(from) = held.hot_from {
        writeln!(out, "  hot        from sequence {from} on")?;
    }
    let snapshots: Vec<String> = held.snapshots.iter().map(ToString::to_string).collect();
    let snapshots = if snapshots.is_empty() { "none".to_owned() } else { snapshots.join(", ") };
    writeln!(out, "  snapshots  {snapshots}")?;
    if let Some(durable) = held.durable.filter(|durable| *durable > head.seq) {
        writeln!(out, "  newer      up to sequence {durable}, in the hot window, which is not opened here")?;
    }
    Ok(())
}

fn to_json(held: &Held) -> Value {
    json!({
        "pool": held.pool,
        "firstSequence": held.first.map(|(seq, _)| seq),
        "firstTime": held.first.map(|(_, at)| show_time(at)),
        "lastSequence": held.head.map(|head| head.seq),
        "lastTime": held.head.map(|head| show_time(head.at)),
        "steps": held.first.zip(held.head).map(|((first, _), head)| head.seq + 1 - first),
        "segments": held.segments,
        "sealedBytes": held.sealed_bytes,
        "hotFrom": held.hot_from,
        "snapshots": held.snapshots,
        "durableSequence": held.durable,
    })
}

/// Bytes as people read them.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}
