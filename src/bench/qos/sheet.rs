//! The comparison as tables for people.

use super::Line;
use super::goals::{Curve, Goal};
use super::plan::{BATCH, INTERACTIVE};
use super::standing::Row;
use std::fmt::Write;

/// All tables.
pub fn text(lines: &[Line], curves: &[Curve], rows: &[Row], goals: &[Goal], capacity: f64) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _infallible = comparison(&mut out, lines, capacity);
    let _infallible = moved(&mut out, curves);
    let _infallible = queues(&mut out, rows, capacity);
    let _infallible = judged(&mut out, goals);
    out
}

fn comparison(out: &mut String, lines: &[Line], capacity: f64) -> std::fmt::Result {
    writeln!(
        out,
        "{:28} {:^13}  {:^49}  {:^37}  {:^13}",
        "", "of the pool", "interactive", "batch", "taken back"
    )?;
    writeln!(
        out,
        "{:28} {:>6} {:>6}  {:>6} {:>6} {:>6} {:>6} {:>6} {:>7} {:>6}  {:>6} {:>6} {:>6} {:>8} {:>6}  {:>6} {:>6}",
        "",
        "all",
        "batch",
        "p50 s",
        "p95 s",
        "p99 s",
        "x",
        "queue",
        "in time",
        "Jain",
        "p50 s",
        "p95 s",
        "p99 s",
        "served/s",
        "Jain",
        "count",
        "wasted"
    )?;
    let unloaded = lines.first().map_or(0.0, |line| line.figures.classes[INTERACTIVE].ttft[1]);
    for Line { name, figures } in lines {
        let percent = |tokens: f64| format!("{:.1}%", tokens * 100.0 / capacity);
        let (own, batch) = (&figures.classes[INTERACTIVE], &figures.classes[BATCH]);
        let [p50, p95, p99] = own.ttft;
        let in_time = format!("{:.1}%", own.goodput * 100.0 / own.offered.max(1e-9));
        write!(
            out,
            "{name:28} {:>6} {:>6}  {p50:>6.2} {p95:>6.2} {p99:>6.2} {:>6.2} {:>6.2} {in_time:>7} {:>6.3}  ",
            percent(figures.tokens),
            percent(batch.tokens),
            p95 / unloaded.max(1e-9),
            own.queued,
            own.jain,
        )?;
        if batch.offered > 0.0 {
            let [p50, p95, p99] = batch.ttft;
            write!(out, "{p50:>6.1} {p95:>6.1} {p99:>6.1} {:>8.2} {:>6.3}  ", batch.goodput, batch.jain)?;
        } else {
            write!(out, "{:>6} {:>6} {:>6} {:>8} {:>6}  ", "-", "-", "-", "-", "-")?;
        }
        writeln!(out, "{:>6} {:>6}", figures.cut, percent(figures.wasted))?;
    }
    writeln!(out)
}

fn moved(out: &mut String, curves: &[Curve]) -> std::fmt::Result {
    write!(out, "{:28}", "ceiling of the batch band")?;
    for curve in curves {
        write!(out, " {:>20}", curve.name)?;
    }
    writeln!(out, "   (of the pool, interactive p95)")?;
    let count = curves.first().map_or(0, |curve| curve.points.len());
    for i in 0..count {
        for (at, curve) in curves.iter().enumerate() {
            let Some(point) = curve.points.get(i) else { continue };
            if at == 0 {
                write!(out, "{:<28}", point.ceiling)?;
            }
            write!(out, " {:>20}", format!("{:.1}%  {:.2} s", point.share * 100.0, point.p95))?;
        }
        writeln!(out)?;
    }
    writeln!(out)
}

fn queues(out: &mut String, rows: &[Row], capacity: f64) -> std::fmt::Result {
    writeln!(
        out,
        "{:28} {:>8} {:>8} {:>8} {:>8}  {:^13}  {:>8}  {:^13}",
        "1.3 x asked for, TTL 15s", "of the", "sent", "served", "served", "TTFT", "refused", "told no after"
    )?;
    writeln!(
        out,
        "{:28} {:>8} {:>8} {:>8} {:>8}  {:>6} {:>6}  {:>8}  {:>6} {:>6}",
        "", "pool", "in 2 s", "in 2 s", "at all", "p50 s", "p95 s", "in 2 s", "p50 s", "p95 s"
    )?;
    for row in rows {
        let percent = |share: f64| format!("{:.1}%", share * 100.0);
        let ([p50, p95], [no50, no95]) = (row.ttft, row.in_vain);
        writeln!(
            out,
            "{:28} {:>8} {:>8} {:>8} {:>8}  {p50:>6.2} {p95:>6.2}  {:>8}  {no50:>6.2} {no95:>6.2}",
            row.name,
            percent(row.tokens / capacity),
            percent(row.sent_soon),
            percent(row.soon),
            percent(row.served),
            percent(row.refused_soon),
        )?;
    }
    writeln!(out)
}

fn judged(out: &mut String, goals: &[Goal]) -> std::fmt::Result {
    for goal in goals {
        let word = if goal.held() { "held  " } else { "missed" };
        let bound = if goal.least { "at least" } else { "at most" };
        let Goal { value, limit, what, because, .. } = goal;
        writeln!(out, "{word} {value:.2} ({bound} {limit:.2}): {what}; {because}")?;
    }
    writeln!(out)
}
