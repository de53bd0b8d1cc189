//! What was found, for people and as JSON.

use crate::usage;
use crate::verify::{Difference, PoolReport, Verdict};
use serde_json::{Value, json};
use std::io;
use std::process::ExitCode;
use weir_log::{SegmentError, say};

/// The log cannot be opened.
pub fn refused(error: &SegmentError, as_json: bool) -> io::Result<ExitCode> {
    if as_json {
        say!("{}", json!({ "verdict": "unreadable", "error": error.to_string(), "batch": batch(error) }))?;
    }
    eprintln!("weir-replay: {error}");
    if let SegmentError::Log(_) = error {
        eprintln!(
            "What is sealed can be verified without the database: weir-replay verify --data DIR --sealed"
        );
    }
    Ok(ExitCode::FAILURE)
}

/// There is nothing to verify.
pub fn nothing(what: &str, as_json: bool) -> io::Result<ExitCode> {
    if as_json {
        say!("{}", json!({ "verdict": "unreadable", "error": format!("{what} in this log") }))?;
    }
    eprintln!("weir-replay: {what} in this log");
    Ok(ExitCode::FAILURE)
}

/// Prints a pool's report.
pub fn print(report: &PoolReport) -> io::Result<()> {
    let from = report.from_snapshot.map_or_else(
        || "from its beginning".to_owned(),
        |seq| format!("from the snapshot of sequence {seq}"),
    );
    say!("pool {}: {from}", report.pool)?;
    if let Some((first, last)) = report.without_state {
        say!("  sequences {first} to {last} are kept and not verified: no state before them is")?;
    }
    let (first, last) = report.compared;
    if report.steps > 0 {
        say!(
            "  {} steps derived again (sequences {first} to {last}), every decision as logged",
            report.steps
        )?;
    }
    if report.before > 0 {
        say!("  {} steps before the range folded only", report.before)?;
    }
    for (behaviour, steps) in &report.foreign {
        say!("  {steps} steps decided by kernel behaviour {behaviour}: folded only")?;
    }
    let (all, told) = &report.across;
    if *all > 0 {
        say!("  {all} steps that this version decides otherwise, of these the first {}:", told.len())?;
        told.iter().try_for_each(|difference| print_difference(difference, "decided now"))?;
    }
    if report.snapshots > 0 {
        say!("  {} snapshots have the digest of the state at their sequence", report.snapshots)?;
    }
    match &report.verdict {
        Verdict::Verified => {
            let rate = per_second(report);
            say!("  state digest {}", hex(&report.digest))?;
            say!("  verified in {:.2} s, {rate} steps/s", report.took.as_secs_f64())?;
        }
        Verdict::Differs(difference) => {
            say!("  DIFFERENCE:")?;
            print_difference(difference, "derived")?;
        }
        Verdict::Digest { seq, with } => {
            say!("  DIFFERENCE: after sequence {seq} the state has another digest than {with}")?;
        }
        Verdict::Violation { seq, what } => say!("  VIOLATION after sequence {seq}: {what}")?,
        Verdict::Unreadable(error) => say!("  DAMAGED: {error}")?,
        Verdict::Empty => say!("  NOTHING VERIFIED: the log has no steps in this range")?,
    }
    Ok(())
}

fn print_difference(difference: &Difference, by: &str) -> io::Result<()> {
    let nothing = || "(nothing)".to_owned();
    say!("    sequence {} at {}: {}", difference.seq, difference.time, difference.input)?;
    say!("      event {}", difference.event + 1)?;
    say!("      logged:  {}", difference.logged.clone().unwrap_or_else(nothing))?;
    say!("      {by}: {}", difference.derived.clone().unwrap_or_else(nothing))?;
    for (path, logged, derived) in &difference.fields {
        say!("        {path}: {logged} -> {derived}")?;
    }
    say!("      the state before it:")?;
    difference.state.iter().try_for_each(|(name, value)| say!("        {name}: {value}"))
}

/// Prints all reports as one object.
pub fn print_json(reports: &[PoolReport]) -> io::Result<()> {
    let verified = reports.iter().all(|report| matches!(report.verdict, Verdict::Verified));
    let pools: Vec<Value> = reports.iter().map(to_json).collect();
    say!(
        "{}",
        json!({ "verdict": if verified { "verified" } else { "failed" }, "pools": pools, "usage": usage::to_json() })
    )
}

fn to_json(report: &PoolReport) -> Value {
    let mut value = json!({
        "pool": report.pool,
        "verdict": word(&report.verdict),
        "fromSnapshot": report.from_snapshot,
        "notVerified": report.without_state.map(|(first, last)| json!({ "first": first, "last": last })),
        "firstSequence": report.compared.0,
        "lastSequence": report.compared.1,
        "steps": report.steps,
        "stepsBeforeRange": report.before,
        "stepsFoldedOnly": report.foreign.iter().map(|(k, v)| (k.to_string(), json!(v))).collect::<serde_json::Map<_, _>>(),
        "decidedOtherwise": report.across.0,
        "decidedOtherwiseFirst": report.across.1.iter().map(difference_json).collect::<Vec<_>>(),
        "snapshots": report.snapshots,
        "digest": hex(&report.digest),
        "seconds": report.took.as_secs_f64(),
        "stepsPerSecond": per_second(report),
    });
    let more = match &report.verdict {
        Verdict::Verified => json!({}),
        Verdict::Differs(difference) => json!({ "difference": difference_json(difference) }),
        Verdict::Digest { seq, with } => json!({ "sequence": seq, "comparedWith": with }),
        Verdict::Violation { seq, what } => json!({ "sequence": seq, "violation": what }),
        Verdict::Unreadable(error) => json!({ "error": error.to_string(), "batch": batch(error) }),
        Verdict::Empty => json!({ "error": "the log has no steps in this range" }),
    };
    if let (Value::Object(fields), Value::Object(more)) = (&mut value, more) {
        fields.extend(more);
    }
    value
}

fn difference_json(difference: &Difference) -> Value {
    json!({
        "sequence": difference.seq,
        "time": difference.time,
        "input": difference.input,
        "event": difference.event,
        "logged": difference.logged,
        "derived": difference.derived,
        "fields": difference.fields,
        "stateBefore": difference.state,
    })
}

const fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Verified => "verified",
        Verdict::Differs(_) => "differs",
        Verdict::Digest { .. } => "digest-differs",
        Verdict::Violation { .. } => "violation",
        Verdict::Unreadable(_) => "unreadable",
        Verdict::Empty => "no-steps",
    }
}

fn batch(error: &SegmentError) -> Option<u64> {
    error.damage().and_then(|damage| damage.batch)
}

/// All steps that were looked at, by the time it took.
fn per_second(report: &PoolReport) -> u64 {
    let steps = report.steps + report.before + report.foreign.values().sum::<u64>();
    let seconds = report.took.as_secs_f64();
    if seconds > 0.0 { (steps as f64 / seconds) as u64 } else { steps }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
