//! What is expected of the figures, and how far they are from it.

use super::CEILING;
use super::standing::Row;

/// One place of a ceiling, and what it gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The batch band's ceiling.
    pub ceiling: f64,
    /// Throughput by what the pool can give.
    pub share: f64,
    /// Interactive TTFT, p95, in seconds.
    pub p95: f64,
    /// The wait before the dispatch in it, p95, in seconds.
    pub queued: f64,
}

/// Interactive TTFT against throughput as the ceiling moves.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    pub name: &'static str,
    pub points: Vec<Point>,
}

impl Curve {
    /// The shortest TTFT at this throughput or more.
    pub fn best(&self, share: f64) -> Option<Point> {
        let enough = self.points.iter().filter(|point| point.share >= share);
        enough.min_by(|a, b| a.p95.total_cmp(&b.p95)).copied()
    }

    fn most(&self) -> f64 {
        self.points.iter().map(|point| point.share).fold(0.0, f64::max)
    }
}

/// A goal and the figure that is held against it.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// Its part of a case's name.
    pub key: &'static str,
    pub what: &'static str,
    pub value: f64,
    /// At most this is wanted, or at least.
    pub limit: f64,
    pub least: bool,
    /// Where the figure comes from, and if the goal is missed, why.
    pub because: String,
}

impl Goal {
    /// Is it met?
    pub fn held(&self) -> bool {
        if self.least { self.value >= self.limit } else { self.value <= self.limit }
    }
}

/// The throughput at which waits are compared.
const ENOUGH: f64 = 0.95;

/// The three goals, from the curves of the seed's rules, of Weir, and of Weir with `enginePriority`.
pub fn judge(curves: &[Curve; 3], unloaded: f64) -> [Goal; 3] {
    let [seed, weir, engine] = curves;
    [
        below(seed, weir),
        within(
            weir,
            unloaded,
            2.6,
            "ceilings",
            "interactive p95 at >= 95 % of the pool, by unloaded, ceilings alone",
        ),
        within(
            engine,
            unloaded,
            1.7,
            "engine-priority",
            "interactive p95 at >= 95 % of the pool, by unloaded, with enginePriority",
        ),
    ]
}

/// At each throughput that the other reaches: is this curve's TTFT the shorter one? The worst ratio.
fn below(other: &Curve, own: &Curve) -> Goal {
    let (mut worst, mut because) = (0.0_f64, String::new());
    for theirs in &other.points {
        let (ratio, text) = match own.best(theirs.share) {
            Some(ours) => (
                ours.p95 / theirs.p95.max(1e-9),
                format!(
                    "nearest at {:.1} % of the pool: {:.2} s beside {:.2} s",
                    theirs.share * 100.0,
                    ours.p95,
                    theirs.p95
                ),
            ),
            None => (
                f64::INFINITY,
                format!(
                    "{:.1} % of the pool are reached, the other reaches {:.1} %",
                    own.most() * 100.0,
                    theirs.share * 100.0
                ),
            ),
        };
        if ratio > worst {
            (worst, because) = (ratio, text);
        }
    }
    let what = "Weir's p95 by the seed's at the same throughput, at worst";
    Goal { key: "below-the-seed", what, value: worst, limit: 1.0, least: false, because }
}

fn within(curve: &Curve, unloaded: f64, limit: f64, key: &'static str, what: &'static str) -> Goal {
    let Some(best) = curve.best(ENOUGH) else {
        let because =
            format!("no ceiling gives so much throughput: {:.1} % are reached", curve.most() * 100.0);
        return Goal { key, what, value: f64::INFINITY, limit, least: false, because };
    };
    let value = best.p95 / unloaded.max(1e-9);
    let mut because = format!(
        "ceiling {}: {:.2} s at {:.1} % of the pool, unloaded {unloaded:.2} s",
        best.ceiling,
        best.p95,
        best.share * 100.0
    );
    if value > limit {
        because.push_str(&format!(
            "; {:.2} s too long; {:.2} s of it before the dispatch, the rest behind what the engine holds",
            best.p95 - limit * unloaded,
            best.queued.min(best.p95)
        ));
    }
    Goal { key, what, value, limit, least: false, because }
}

/// What turning the order is worth where a queue stands.
pub fn standing(rows: &[Row]) -> Vec<Goal> {
    let row = |name: &str| rows.iter().find(|row| row.name == name);
    let mut goals = Vec::new();
    if let Some(fcfs) = row("fcfs") {
        let because = format!("those who are served wait {:.1} s (p50)", fcfs.ttft[0]);
        let what = "share served within 2 s at 1.3 x, by arrival: nobody";
        goals.push(Goal { key: "standing-fcfs", what, value: fcfs.soon, limit: 0.01, least: false, because });
    }
    if let (Some(turned), Some(low)) = (row("newest-first"), row("newest-first ceiling")) {
        let because = format!(
            "ceiling {CEILING}: {:.1} % are served at all, 1 / 1.3 = 76.9 % is what the pool can serve; ceiling 1: {:.1} % in 2 s, \
             {:.1} % are sent in 2 s, the rest of their wait is in the engines' own queues",
            low.served * 100.0,
            turned.soon * 100.0,
            turned.sent_soon * 100.0
        );
        let what = "share served within 2 s at 1.3 x, newest first: about three quarters";
        let key = "standing-newest-first";
        goals.push(Goal { key, what, value: low.soon, limit: 0.7, least: true, because });
    }
    goals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(name: &'static str, points: &[(f64, f64)]) -> Curve {
        let point = |(share, p95): &(f64, f64)| Point { ceiling: 1.0, share: *share, p95: *p95, queued: 0.1 };
        Curve { name, points: points.iter().map(point).collect() }
    }

    #[test]
    fn goals_are_held_or_missed_with_the_distance() {
        let seed = curve("seed", &[(0.93, 3.0), (0.99, 4.0)]);
        let weir = curve("weir", &[(0.94, 1.0), (0.96, 1.5), (1.0, 2.0)]);
        let slow = curve("weir engine", &[(0.96, 3.5)]);
        let [below, ceilings, engine] = judge(&[seed.clone(), weir.clone(), slow.clone()], 0.6);
        assert!(below.held() && (below.value - 0.5).abs() < 1e-9, "{below:?}");
        assert!(ceilings.held() && (ceilings.value - 2.5).abs() < 1e-9, "{ceilings:?}");
        assert!(!engine.held() && engine.because.contains("2.48 s too long"), "{engine:?}");
        let [below, ..] = judge(&[seed, slow, weir], 0.6);
        assert!(!below.held() && below.because.contains("96.0 % of the pool are reached"), "{below:?}");
    }

    #[test]
    fn too_little_throughput_is_a_goal_missed() {
        let low = curve("weir", &[(0.5, 0.1)]);
        let goal = within(&low, 0.6, 2.6, "ceilings", "");
        assert!(!goal.held() && goal.because.contains("50.0 %"), "{goal:?}");
    }
}
