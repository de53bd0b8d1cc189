//! The runs of the closed loop, and their figures as cases and as a table.
//!
//! Not here: the loop (`plant.rs`), and what the vectors say (`vectors.rs`).

use super::params::Params;
use super::plant::{self, Metrics};
use super::vectors::Vectors;
use crate::bench::{BenchError, Case, Findings};
use std::fmt::Write;
use weir_kernel::Sizing;

/// Until the sensor shows that a unit is free, ms: a detector that counts leases itself, and one that is scraped.
const SENSORS: [(&str, i64); 2] = [("leading", 0), ("lagging", 200)];
/// Graces, ms; that of a lagging sensor is right from its lag on.
const GRACES: [i64; 4] = [5, 50, 200, 500];
const CAPS: [u32; 3] = [1, 2, 5];
/// That of demand-aware sizing.
const DEMAND_CAP: u32 = 16;
/// Without revocations the vectors look for so long where nothing ends by itself, ms.
const STILL: i64 = 2_000;
/// Where leases end by themselves: their mean life, ms.
const CHURN: f64 = 500.0;

/// What arrives.
#[derive(Clone, Copy)]
enum Shape {
    /// So many at once, for good.
    Burst(i64),
    /// One each 10 ms for 3 s, 250 ms each.
    Sustained,
}

const SHAPES: [Shape; 4] = [Shape::Burst(1), Shape::Burst(10), Shape::Burst(32), Shape::Sustained];

impl Shape {
    fn name(self) -> String {
        match self {
            Shape::Burst(1) => "single".to_owned(),
            Shape::Burst(count) => format!("batch{count}"),
            Shape::Sustained => "sustained".to_owned(),
        }
    }

    fn params(self, lag: i64) -> Params {
        let params = Params { lag, ..Params::default() };
        match self {
            Shape::Burst(count) => params.arriving(0, 0, count),
            Shape::Sustained => Params { window: Some(3_000), service: 250, ..params }.arriving(10, 10, 300),
        }
    }
}

/// The figures of a run that are shown: the vectors' name, ours, the unit, what is expected.
const FIGURES: [(&str, &str, &str, &str); 8] = [
    ("ttfr_ms", "first-relief", "ms", ""),
    ("p50_ms", "wait/p50", "ms", ""),
    ("p95_ms", "wait/p95", "ms", ""),
    ("goodput_per_s", "goodput", "requests/s", ""),
    ("admitted", "admitted", "requests", ""),
    ("evicted_confirmed", "evicted", "leases", ""),
    ("over_evicted", "over-evicted", "leases", "0 where the grace covers the lag"),
    ("overshoot", "overshoot", "units", "0"),
];

/// A run with its name.
struct Run {
    sensor: &'static str,
    shape: Shape,
    how: String,
    params: Params,
}

/// All runs: by sensor, by what arrives, by how relief is sought.
fn runs() -> Vec<Run> {
    let mut runs = Vec::new();
    for (sensor, lag) in SENSORS {
        for shape in SHAPES {
            let params = shape.params(lag);
            let mut add = |how: String, params: Params| runs.push(Run { sensor, shape, how, params });
            for grace in GRACES {
                for cap in CAPS {
                    add(format!("grace-{grace}/cap-{cap}"), Params { grace, cap, ..params.clone() });
                }
                let sizing = Sizing::Demand;
                add(
                    format!("grace-{grace}/demand"),
                    Params { grace, cap: DEMAND_CAP, sizing, ..params.clone() },
                );
            }
            let off = Params { evicts: false, ..params };
            add("off".to_owned(), Params { limit: STILL, ..off.clone() });
            add("off/churn".to_owned(), Params { churn: Some(CHURN), ..off });
        }
    }
    runs
}

/// Runs them all.
pub fn run() -> Result<Findings, BenchError> {
    let vectors = Vectors::read()?;
    let mut findings = Findings::new("eviction");
    let mut table = String::new();
    let mut last = None;
    let mut beside = 0;
    for run in runs() {
        let metrics = plant::run(&run.params, &mut |_, _| Ok(()))?;
        let references = FIGURES.map(|(known, ..)| vectors.figure(&run.params, known));
        beside += references.iter().flatten().count();
        let shape = run.shape.name();
        for ((known, name, unit, target), reference) in FIGURES.into_iter().zip(references) {
            let name = format!("eviction/{}/{shape}/{}/{name}", run.sensor, run.how);
            let value = figure(&metrics, known);
            findings.cases.push(Case { reference, ..Case::alone(name, value, unit).target(target) });
        }
        let group = (run.sensor, shape);
        if last.as_ref() != Some(&group) {
            heading(&mut table, &group, &metrics);
            last = Some(group);
        }
        row(&mut table, &run, &metrics, &references);
    }
    findings.own_table = Some(table);
    findings.notes.push(format!(
        "in virtual time: 20 units full of sheddable leases, ceiling 0.9, 3 ms to end a stream; the lagging sensor shows a \
         free unit 200 ms late; [..] are the {beside} figures that the conformance vectors have of these runs"
    ));
    findings.notes.push(
        "demand: `sizing: demand`, at most 16 a decision; it looks at who waits when it decides, and again after a round \
         trip; what the sensor does not show gone counts as pending, so it takes no lease twice where the grace is too short"
            .to_owned(),
    );
    findings.notes.push(
        "evicted/least: taken back, and the analytic minimum; over: beyond it; a * after admitted: time ran out before all \
         that there is room for were"
            .to_owned(),
    );
    Ok(findings)
}

fn figure(metrics: &Metrics, name: &str) -> f64 {
    metrics.get(name).copied().unwrap_or(f64::NAN)
}

fn heading(table: &mut String, (sensor, shape): &(&str, String), metrics: &Metrics) {
    // Writing to a string cannot fail.
    let _infallible = writeln!(
        table,
        "{sensor} sensor, {shape} ({} can be admitted)\n  {:20} {:>14} {:>12} {:>12} {:>14} {:>10} {:>14} {:>10} {:>9}",
        figure(metrics, "admittable"),
        "",
        "1st relief ms",
        "p50 ms",
        "p95 ms",
        "goodput /s",
        "admitted",
        "evicted/least",
        "over",
        "overshoot"
    );
}

fn row(table: &mut String, run: &Run, metrics: &Metrics, references: &[Option<f64>; 8]) {
    let cell = |index: usize, shown: String| match references.get(index).copied().flatten() {
        Some(reference) if reference.fract() != 0.0 => format!("{shown} [{reference:.1}]"),
        Some(reference) => format!("{shown} [{reference}]"),
        None => shown,
    };
    let none = figure(metrics, "admitted") == 0.0;
    let whole = |index: usize, name: &str| cell(index, figure(metrics, name).to_string());
    let time = |index: usize, name: &str| if none { "-".to_owned() } else { whole(index, name) };
    let out = if figure(metrics, "timed_out") != 0.0 { "*" } else { "" };
    let evicted = format!("{}/{}", figure(metrics, "evicted_confirmed"), figure(metrics, "min_evictions"));
    let _infallible = writeln!(
        table,
        "  {:20} {:>14} {:>12} {:>12} {:>14} {:>10} {:>14} {:>10} {:>9}",
        run.how,
        time(0, "ttfr_ms"),
        time(1, "p50_ms"),
        time(2, "p95_ms"),
        cell(3, format!("{:.1}", figure(metrics, "goodput_per_s"))),
        whole(4, "admitted") + out,
        cell(5, evicted),
        whole(6, "over_evicted"),
        whole(7, "overshoot"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runs_of_the_vectors_are_among_them_and_agree() {
        let vectors = Vectors::read().unwrap();
        let (mut compared, mut runs_compared) = (0, 0);
        for run in runs() {
            let figures = FIGURES.map(|(known, ..)| (known, vectors.figure(&run.params, known)));
            if figures.iter().all(|(_, known)| known.is_none()) {
                continue;
            }
            runs_compared += 1;
            let metrics = plant::run(&run.params, &mut |_, _| Ok(())).unwrap();
            for (name, known) in figures {
                let Some(known) = known else { continue };
                compared += 1;
                // The vectors' own tolerance: a millisecond and one per decision, and what follows from that.
                let near = (figure(&metrics, name) - known).abs() <= 21.0;
                assert!(near, "{} {name}: {} and {known}", run.how, figure(&metrics, name));
            }
        }
        assert!(runs_compared >= 12 && compared >= 50, "{compared} figures of {runs_compared} runs");
    }

    #[test]
    fn demand_aware_sizing_takes_no_more_than_the_least_and_is_never_later() {
        let mut sooner = 0;
        for run in runs().into_iter().filter(|run| run.params.sizing == Sizing::Demand) {
            for tracks in [false, true] {
                let params = Params { tracks, ..run.params.clone() };
                let deficit = Params { sizing: Sizing::Deficit, cap: 2, ..params.clone() };
                let of = |params: &Params| plant::run(params, &mut |_, _| Ok(())).unwrap();
                let (demand, deficit) = (of(&params), of(&deficit));
                let name = format!("{} {} {} tracks={tracks}", run.sensor, run.shape.name(), run.how);
                assert_eq!(figure(&demand, "over_evicted"), 0.0, "{name}");
                assert_eq!(figure(&demand, "overshoot"), 0.0, "{name}");
                let later = |what: &str| figure(&demand, what) > figure(&deficit, what);
                let fewer = figure(&demand, "admitted") < 0.95 * figure(&deficit, "admitted");
                assert!(!fewer && !later("ttfr_ms"), "{name}: {demand:?} {deficit:?}");
                // Under sustained arrivals a pool that is handed over at once serves its first requests in step.
                let burst = params.window.is_none();
                assert!(!burst || !later("p95_ms"), "{name}: {demand:?} {deficit:?}");
                sooner += usize::from(figure(&demand, "p95_ms") < figure(&deficit, "p95_ms"));
            }
        }
        assert!(sooner >= 20, "only {sooner}");
    }

    #[test]
    fn nothing_is_taken_back_in_vain_where_the_grace_covers_the_lag() {
        for run in runs().into_iter().filter(|run| run.params.evicts && run.params.grace >= run.params.lag) {
            let metrics = plant::run(&run.params, &mut |_, _| Ok(())).unwrap();
            let over = (figure(&metrics, "over_evicted"), figure(&metrics, "overshoot"));
            assert_eq!(over, (0.0, 0.0), "{} {} {}", run.sensor, run.shape.name(), run.how);
        }
    }
}
