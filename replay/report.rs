//! What was found, for people and as JSON.

use crate::verify::{Difference, PoolReport, Verdict};
use serde_json::{Value, json};
use std::process::ExitCode;
use weir_log::SegmentError;

/// The log cannot be opened.
pub fn refused(error: &SegmentError, as_json: bool) -> ExitCode {
    if as_json {
        println!("{}", json!({ "verdict": "unreadable", "error": error.to_string(), "batch": batch(error) }));
    }
    eprintln!("weir-replay: {error}");
    if let SegmentError::Log(_) = error {
        eprintln!(
            "What is sealed can be verified without the database: weir-replay verify --data DIR --sealed"
        );
    }
    ExitCode::FAILURE
}

/// There is nothing to verify.
pub fn nothing(what: &str, as_json: bool) -> ExitCode {
    if as_json {
        println!("{}", json!({ "verdict": "unreadable", "error": format!("{what} in this log") }));
    }
    eprintln!("weir-replay: {what} in this log");
    ExitCode::FAILURE
}

/// Prints a pool's report.
pub fn print(report: &PoolReport) {
    let from = report.from_snapshot.map_or_else(
        || "from its beginning".to_owned(),
        |seq| format!("from the snapshot of sequence {seq}"),
    );
    println!("pool {}: {from}", report.pool);
    let (first, last) = report.compared;
    if report.steps > 0 {
        println!(
            "  {} steps derived again (sequences {first} to {last}), every decision as logged",
            report.steps
        );
    }
    if report.before > 0 {
        println!("  {} steps before the range folded only", report.before);
    }
    for (behaviour, steps) in &report.foreign {
        println!("  {steps} steps decided by kernel behaviour {behaviour}: folded only");
    }
    let (all, told) = &report.across;
    if *all > 0 {
        println!("  {all} steps that this version decides otherwise, of these the first {}:", told.len());
        told.iter().for_each(|difference| print_difference(difference, "decided now"));
    }
    if report.snapshots > 0 {
        println!("  {} snapshots have the digest of the state at their sequence", report.snapshots);
    }
    match &report.verdict {
        Verdict::Verified => {
            let rate = per_second(report);
            println!("  state digest {}", hex(&report.digest));
            println!("  verified in {:.2} s, {rate} steps/s", report.took.as_secs_f64());
        }
        Verdict::Differs(difference) => {
            println!("  DIFFERENCE:");
            print_difference(difference, "derived");
        }
        Verdict::Digest { seq, with } => {
            println!("  DIFFERENCE: after sequence {seq} the state has another digest than {with}");
        }
        Verdict::Violation { seq, what } => println!("  VIOLATION after sequence {seq}: {what}"),
        Verdict::Unreadable(error) => println!("  DAMAGED: {error}"),
    }
}

fn print_difference(difference: &Difference, by: &str) {
    let nothing = || "(nothing)".to_owned();
    println!("    sequence {} at {}: {}", difference.seq, difference.time, difference.input);
    println!("      event {}", difference.event + 1);
    println!("      logged:  {}", difference.logged.clone().unwrap_or_else(nothing));
    println!("      {by}: {}", difference.derived.clone().unwrap_or_else(nothing));
}

/// Prints all reports as one object.
pub fn print_json(reports: &[PoolReport]) {
    let verified = reports.iter().all(|report| matches!(report.verdict, Verdict::Verified));
    let pools: Vec<Value> = reports.iter().map(to_json).collect();
    println!("{}", json!({ "verdict": if verified { "verified" } else { "failed" }, "pools": pools }));
}

fn to_json(report: &PoolReport) -> Value {
    let mut value = json!({
        "pool": report.pool,
        "verdict": word(&report.verdict),
        "fromSnapshot": report.from_snapshot,
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
    })
}

const fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Verified => "verified",
        Verdict::Differs(_) => "differs",
        Verdict::Digest { .. } => "digest-differs",
        Verdict::Violation { .. } => "violation",
        Verdict::Unreadable(_) => "unreadable",
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
