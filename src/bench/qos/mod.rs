//! `weir bench qos`: interactive and batch tenants on one pool, in virtual time.
//!
//! The same arrivals, with the sizes and instants of the trace, go through every way to run the pool: interactive
//! requests alone, no control, the rules of the seed system, Weir, Weir with what it can do more. Then the ceiling of
//! the batch band is moved, which gives for each way a curve of interactive TTFT against throughput.

mod figures;
mod goals;
mod plan;
mod runs;
mod sheet;
mod standing;

use super::{BenchError, Budget, Case, Findings};
use crate::load::{self, Planned};
use figures::Figures;
use goals::{Curve, Goal, Point};
use plan::INTERACTIVE;
use runs::{Rules, Way};
use weir_kernel::{Micros, Sizing};

/// What the tenants ask for, as a multiple of what the pool can give; a backlog of batch work stands before it as well.
const LOAD: f64 = 1.2;
/// Batch requests that are there when the pool opens.
const STANDING: usize = 600;
/// Passes over the trace.
const PASSES: u32 = 3;
/// Where the ceiling of the batch band stands in the rows that have one; the curves move it.
const CEILING: f64 = 0.4;
/// The starvation bound of the batch band in the row that has one.
const BOUND: Micros = Micros::from_secs(60);
const CEILINGS: [f64; 9] = [0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.8, 1.0];

/// One line of the comparison.
pub struct Line {
    /// Its name in the table, and in a case's name.
    pub name: &'static str,
    pub figures: Figures,
}

/// Runs every way on the same plan.
pub fn run(_budget: Budget) -> Result<Findings, BenchError> {
    let failed = |e: &dyn std::fmt::Display| BenchError(format!("qos: {e}"));
    let rows = load::parse(crate::demo::TRACE_NAME, crate::demo::TRACE).map_err(|e| failed(&e))?;
    let capacity = runs::capacity(&rows);
    let plan = plan::from_rows(&rows, PASSES, capacity * LOAD, STANDING);
    let until = plan.last().map_or(Micros::ZERO, |request| request.at);
    let lines = lines(&plan, until).map_err(|e| failed(&e))?;
    let curves = curves(&plan, until, capacity).map_err(|e| failed(&e))?;
    let unloaded = lines.first().map_or(0.0, |line| line.figures.classes[INTERACTIVE].ttft[1]);
    let bursts = plan::one_class(&rows, PASSES, capacity * standing::OVERLOAD);
    let ends = bursts.last().map_or(Micros::ZERO, |request| request.at);
    let steady = plan::steady(&rows, capacity * standing::OVERLOAD, ends);
    let rows = standing::rows(&steady, &bursts).map_err(|e| failed(&e))?;
    let mut goals = goals::judge(&curves, unloaded).to_vec();
    goals.extend(goals::standing(&rows));
    let mut findings = Findings::new("qos");
    cases(&mut findings, &lines, &curves, capacity);
    standing_cases(&mut findings, &rows, &goals, capacity);
    findings.notes = notes(&plan, until, capacity);
    findings.notes.push(format!(
        "standing queue: one class, {:.2} x what the pool can give for {} s, as a Poisson process or (bursts) at the trace's \
         instants; judged are arrivals from {} s on until 25 s before the end; newest-first-when-standing with its defaults",
        plan::offered(&steady) / capacity,
        ends.as_millis() / 1_000,
        standing::STANDS_BY.as_millis() / 1_000,
    ));
    findings.own_table = Some(sheet::text(&lines, &curves, &rows, &goals, capacity));
    Ok(findings)
}

/// The rows: who decides, with which ceiling of the batch band, and what else.
fn lines(plan: &[Planned], until: Micros) -> Result<Vec<Line>, crate::observer::TooMany> {
    let weir = |ceiling, reclaim, engine| Way { reclaim, engine, ..Way::new(Rules::Weir, ceiling) };
    let (deficit, demand) = (Some(Sizing::Deficit), Some(Sizing::Demand));
    let ways = [
        ("seed", Way::new(Rules::Seed, 1.0)),
        ("seed ceiling", Way::new(Rules::Seed, CEILING)),
        ("weir", weir(1.0, None, false)),
        ("weir reclaim", weir(1.0, deficit, false)),
        ("weir reclaim demand", weir(1.0, demand, false)),
        ("weir engine", weir(1.0, None, true)),
        ("weir reclaim engine", weir(1.0, deficit, true)),
        ("weir reclaim demand engine", weir(1.0, demand, true)),
        ("weir ceiling", weir(CEILING, None, false)),
        ("weir ceiling reclaim", weir(CEILING, deficit, false)),
        ("weir ceiling engine", weir(CEILING, None, true)),
        ("weir ceiling reclaim engine", weir(CEILING, deficit, true)),
        ("weir ceiling bound", Way { bound: BOUND, ..weir(CEILING, None, false) }),
    ];
    let mut lines = vec![
        Line { name: "unloaded", figures: runs::unloaded(plan, until) },
        Line { name: "no control", figures: runs::uncontrolled(plan, until) },
    ];
    for (name, way) in ways {
        lines.push(Line { name, figures: runs::measure(&way, plan, until)? });
    }
    Ok(lines)
}

/// Interactive TTFT against throughput, for each way that can be steered by the batch band's ceiling.
fn curves(plan: &[Planned], until: Micros, capacity: f64) -> Result<[Curve; 3], crate::observer::TooMany> {
    let curve = |name, rules, engine| -> Result<Curve, crate::observer::TooMany> {
        let mut points = Vec::new();
        for ceiling in CEILINGS {
            let figures = runs::measure(&Way { engine, ..Way::new(rules, ceiling) }, plan, until)?;
            let interactive = &figures.classes[INTERACTIVE];
            let (p95, queued) = (interactive.ttft[1], interactive.queued);
            points.push(Point { ceiling, share: figures.tokens / capacity, p95, queued });
        }
        Ok(Curve { name, points })
    };
    Ok([
        curve("seed", Rules::Seed, false)?,
        curve("weir", Rules::Weir, false)?,
        curve("weir engine", Rules::Weir, true)?,
    ])
}

fn cases(findings: &mut Findings, lines: &[Line], curves: &[Curve], capacity: f64) {
    let unloaded = lines.first().map_or([0.0; 3], |line| line.figures.classes[INTERACTIVE].ttft);
    for Line { name, figures } in lines {
        let case = |what: &str| format!("qos/{}/{what}", name.replace(' ', "-"));
        let cases = &mut findings.cases;
        cases.push(Case::beside(case("throughput"), figures.tokens, "tokens/s", capacity));
        cases.push(Case::beside(case("wasted"), figures.wasted, "tokens/s", capacity));
        for ((class, (word, _)), own) in figures.classes.iter().zip(plan::PRIORITIES).zip([true, false]) {
            let case = |what: &str| case(&format!("{word}/{what}"));
            for ((quantile, ttft), alone) in ["p50", "p95", "p99"].iter().zip(class.ttft).zip(unloaded) {
                let name = case(&format!("ttft/{quantile}"));
                let reference = own.then_some(alone * 1e3);
                cases.push(Case { reference, ..Case::alone(name, ttft * 1e3, "ms") });
            }
            cases.push(Case::beside(case("goodput"), class.goodput, "requests/s", class.offered));
            cases.push(Case::beside(case("tokens"), class.tokens, "tokens/s", capacity));
            cases.push(Case::alone(case("jain"), class.jain, ""));
        }
    }
    for curve in curves {
        for point in &curve.points {
            let name = format!("qos/curve/{}/{}", curve.name.replace(' ', "-"), point.ceiling);
            findings.cases.push(Case::alone(format!("{name}/share"), point.share, ""));
            findings.cases.push(Case::beside(
                format!("{name}/ttft/p95"),
                point.p95 * 1e3,
                "ms",
                unloaded[1] * 1e3,
            ));
        }
    }
}

fn standing_cases(findings: &mut Findings, rows: &[standing::Row], goals: &[Goal], capacity: f64) {
    for row in rows {
        let case = |what: &str| format!("qos/standing/{}/{what}", row.name.replace(' ', "-"));
        let cases = &mut findings.cases;
        cases.push(Case::beside(case("throughput"), row.tokens, "tokens/s", capacity));
        cases.push(Case::alone(case("sent-in-2s"), row.sent_soon, ""));
        cases.push(Case::alone(case("served-in-2s"), row.soon, ""));
        cases.push(Case::alone(case("served"), row.served, ""));
        cases.push(Case::alone(case("refused-in-2s"), row.refused_soon, ""));
        for (at, quantile) in ["p50", "p95"].iter().enumerate() {
            cases.push(Case::alone(case(&format!("ttft/{quantile}")), row.ttft[at] * 1e3, "ms"));
            cases.push(Case::alone(case(&format!("told-no/{quantile}")), row.in_vain[at] * 1e3, "ms"));
        }
    }
    let goal = |goal: &Goal| Case::beside(format!("qos/goal/{}", goal.key), goal.value, "", goal.limit);
    findings.cases.extend(goals.iter().map(goal));
}

fn notes(plan: &[Planned], until: Micros, capacity: f64) -> Vec<String> {
    let tenants = plan::TENANTS.len();
    vec![
        format!(
            "virtual time: {} servers, {} s, {} requests of the trace's sizes at its instants, {STANDING} of batch at once; \
             samples each 50 ms and 10 ms late",
            runs::ENDPOINTS,
            until.as_millis() / 1_000,
            plan.len(),
        ),
        format!(
            "asked for: {:.2} x what the pool can give ({capacity:.0} tokens/s, everything given to it at once), {:.0} % of it \
             interactive; {tenants} tenants a class, of 5, 2, 2 and 1 tenths",
            plan::offered(plan) / capacity,
            plan::INTERACTIVE_SHARE * 100.0,
        ),
        format!(
            "judged: arrivals from {0} s on until {0} s before the end; a request without a token counts with the time it had; \
             interactive goodput: first token within {1} s",
            figures::EDGE.as_millis() / 1_000,
            figures::SOON.as_millis() / 1_000,
        ),
        format!(
            "ceiling: {CEILING} for the batch band; bound: a starvation bound of {} s for it; reclaim: eviction.sizing deficit, or demand",
            BOUND.as_millis() / 1_000
        ),
        "Jain's index: what each tenant of a class got by what max-min fairness would give it of the same sum".to_owned(),
        "an aborted request is out of its engine 10 ms after the order, and its work is lost; nobody sends it again".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn the_ways_differ_as_they_should_and_the_bench_ends_in_time() {
        let began = Instant::now();
        let findings = run(Budget { whole: Duration::from_secs(300), only: None }).unwrap();
        let took = began.elapsed();
        assert!(took < Duration::from_secs(300), "{took:?}");
        let value = |name: &str| findings.cases.iter().find(|case| case.name == name).unwrap().value;
        let p95 = |way: &str| value(&format!("qos/{way}/interactive/ttft/p95"));
        assert!(p95("no-control") > 4.0 * p95("seed"), "{} {}", p95("no-control"), p95("seed"));
        assert!(p95("seed") > 1.3 * p95("weir"), "{} {}", p95("seed"), p95("weir"));
        assert!(p95("weir") > p95("weir-ceiling") && p95("weir-ceiling") > p95("weir-ceiling-engine"));
        assert!(p95("weir-ceiling-engine") > p95("unloaded"));
        assert!(value("qos/standing/fcfs/served-in-2s") < 0.01);
        assert!(value("qos/standing/newest-first-ceiling/served-in-2s") > 0.7);
        let told_no = |way: &str| value(&format!("qos/standing/{way}/told-no/p50"));
        assert!(told_no("fcfs") > 14_000.0, "in vain, as long as they may");
        assert!(told_no("fcfs-rejectHopeless") < 1_000.0, "most of them at once");
        assert!(value("qos/weir/wasted") == 0.0 && value("qos/weir-reclaim/wasted") > 0.0);
        assert!(findings.own_table.as_ref().is_some_and(|sheet| sheet.contains("unloaded")));
    }
}
