//! `weir log check`.

use super::Done;
use super::source::{Source, pools};
use indicatif::{ProgressBar, ProgressDrawTarget};
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::process::ExitCode;
use weir_log::check::{Checked, Finding, check};
use weir_log::describe::show_time;
use weir_log::say;

/// Arguments of `weir log check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Reads every byte: checksums of blocks and batches, the hash chain, sequences and times across segments and the hot
window, the snapshots. Each damaged place is named by file, block and first sequence of the batch, with the next sequence
that is good again. Nothing is changed. Exit code 1 if anything is damaged,
or if a data directory lacks its beginning and no snapshot makes up for it.

That the decisions follow from the inputs is checked by: weir-replay verify

Examples:
  weir log check --data ./data
  weir log check backup.wlog")]
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

/// Runs `weir log check`.
pub fn run(args: &Args) -> Done {
    let opened = args.source.open()?;
    let (mut all, mut served) = (Vec::new(), true);
    for pool in pools(&opened.logs, args.pool.as_deref())? {
        let shown = std::io::stderr().is_terminal();
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        let checked = check(&opened.logs, &pool, |steps| bar.set_position(steps));
        bar.finish_and_clear();
        let checked = checked?;
        let whole = args.source.data.is_none() || checked.begins;
        if !args.json {
            print(&checked, whole)?;
        }
        served &= whole;
        all.push(checked);
    }
    if args.json {
        let good = served && all.iter().all(Checked::is_good);
        say!("{}", json!({ "good": good, "pools": all.iter().map(to_json).collect::<Vec<_>>() }))?;
    }
    if all.is_empty() && !args.json {
        say!("no pools in this log")?;
    }
    Ok(if served && all.iter().all(Checked::is_good) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `whole`: nothing that a server needs is missing at its beginning (a part of a log needs nothing).
fn print(checked: &Checked, whole: bool) -> std::io::Result<()> {
    say!("pool {}", checked.pool)?;
    if let (Some((first, at)), Some(head)) = (checked.first, checked.head) {
        say!(
            "  {} batches, {} steps, sequences {first} to {}, {} to {}",
            checked.batches,
            checked.steps,
            head.seq,
            show_time(at),
            show_time(head.at)
        )?;
    }
    say!("  {} snapshots", checked.snapshots)?;
    let first = checked.from;
    if first > 1 {
        match whole {
            true => say!("  what came before sequence {first} is not here: trimmed, or never part of it")?,
            false => say!(
                "  DAMAGED: it begins at sequence {first}, and no good snapshot reaches there: nobody can go on from it"
            )?,
        }
    }
    for finding in &checked.findings {
        say!("  DAMAGED: {}", finding.error)?;
        match finding.next_good {
            Some(next) => say!("           good again from sequence {next} on")?,
            None => say!("           nothing good after it")?,
        }
    }
    if whole && checked.is_good() {
        say!("  good: every checksum, the chain, sequences and times")?;
    }
    Ok(())
}

fn to_json(checked: &Checked) -> Value {
    json!({
        "pool": checked.pool,
        "good": checked.is_good(),
        "batches": checked.batches,
        "steps": checked.steps,
        "bytes": checked.bytes,
        "firstSequence": checked.first.map(|(seq, _)| seq),
        "lastSequence": checked.head.map(|head| head.seq),
        "begins": checked.begins,
        "snapshots": checked.snapshots,
        "findings": checked.findings.iter().map(finding).collect::<Vec<_>>(),
    })
}

fn finding(finding: &Finding) -> Value {
    let damage = finding.error.damage();
    json!({
        "error": finding.error.to_string(),
        "file": damage.map(|damage| damage.file.clone()),
        "offset": damage.and_then(|damage| damage.offset),
        "block": damage.and_then(|damage| damage.block),
        "batch": damage.and_then(|damage| damage.batch),
        "nextGood": finding.next_good,
    })
}
