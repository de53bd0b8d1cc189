//! What a run was worth to each class: waits, goodput, shares, and how evenly tenants fared.

use super::plan::{BATCH, INTERACTIVE, TENANTS, tokens};
use crate::load::Planned;
use crate::sim::world::{Course, Outcome};
use weir_kernel::Micros;

/// A first token that comes later than this is of no use to an interactive caller.
pub const SOON: Micros = Micros::from_secs(2);
/// Arrivals before this and in the last stretch of the same length are not judged: the pool fills, or it is cut off.
pub const EDGE: Micros = Micros::from_secs(10);

/// One class in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassFigures {
    /// Time to the first token in seconds: p50, p95, p99. A request without one counts with the time it had.
    pub ttft: [f64; 3],
    /// The part of it before the dispatch, in seconds: p95.
    pub queued: f64,
    /// Requests per second that were of use: interactive ones by [`SOON`], others at all.
    pub goodput: f64,
    /// Requests per second that came.
    pub offered: f64,
    /// Tokens per second of requests that were served to their end.
    pub tokens: f64,
    /// Jain's index of what tenants got by what max-min fairness would have given them: 1/n to 1.
    pub jain: f64,
}

/// One run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// By class.
    pub classes: [ClassFigures; 2],
    /// Tokens per second that the pool computed for requests that were not given up.
    pub tokens: f64,
    /// Tokens per second whose work was thrown away by a revocation.
    pub wasted: f64,
    /// Requests taken back.
    pub cut: u64,
    /// Requests waiting in the engines, mean.
    pub engine_queue: f64,
}

impl Figures {
    /// The figures of a run that ended at `until`.
    pub fn of(plan: &[Planned], seen: &Outcome, until: Micros) -> Figures {
        let per_second = |amount: f64| amount * 1e6 / until.0.max(1) as f64;
        let totals = &seen.totals;
        let computed = (totals.prefilled + totals.generated).saturating_sub(totals.dropped);
        Figures {
            classes: [INTERACTIVE, BATCH].map(|class| class_figures(plan, &seen.courses, until, class)),
            tokens: per_second(computed.saturating_sub(totals.abandoned) as f64),
            wasted: per_second(totals.abandoned as f64),
            cut: seen.courses.iter().filter(|course| course.cut.is_some()).count() as u64,
            engine_queue: seen.engine_queue_mean,
        }
    }
}

/// Time to the first token of one request; one without counts with the time it had until the end.
pub fn ttft(request: &Planned, course: &Course, until: Micros) -> Micros {
    course.first_token.unwrap_or(until).since(request.at)
}

fn class_figures(plan: &[Planned], courses: &[Course], until: Micros, class: usize) -> ClassFigures {
    let judged =
        |request: &Planned| request.class == class && request.at >= EDGE && request.at < until.since(EDGE);
    let mine = || plan.iter().zip(courses).filter(|(request, _)| judged(request));
    let mut waits: Vec<Micros> = mine().map(|(request, course)| ttft(request, course, until)).collect();
    waits.sort_unstable();
    let mut queued: Vec<Micros> =
        mine().map(|(request, course)| course.admitted.unwrap_or(until).since(request.at)).collect();
    queued.sort_unstable();
    let useful = mine().filter(|(request, course)| match class {
        INTERACTIVE => course.first_token.is_some() && ttft(request, course, until) <= SOON,
        _ => course.ended.is_some(),
    });
    let span = until.since(EDGE + EDGE).0.max(1) as f64 / 1e6;
    // Tenants are compared by what was asked and served over the whole run.
    let (mut asked, mut served) = ([0.0; TENANTS.len()], [0.0; TENANTS.len()]);
    for (request, course) in plan.iter().zip(courses).filter(|(request, _)| request.class == class) {
        let tenant = request.flow as usize % TENANTS.len();
        asked[tenant] += tokens(request) as f64;
        if course.ended.is_some() {
            served[tenant] += tokens(request) as f64;
        }
    }
    ClassFigures {
        ttft: [0.5, 0.95, 0.99].map(|q| quantile(&waits, q).0 as f64 / 1e6),
        queued: quantile(&queued, 0.95).0 as f64 / 1e6,
        goodput: useful.count() as f64 / span,
        offered: waits.len() as f64 / span,
        tokens: served.iter().sum::<f64>() * 1e6 / until.0.max(1) as f64,
        jain: jain(&served, &max_min(&asked, served.iter().sum())),
    }
}

/// Nearest rank; zero of nothing.
pub fn quantile(sorted: &[Micros], q: f64) -> Micros {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(Micros::ZERO)
}

/// What each would get if `all` were divided so that nobody gets more than asked and nobody can get more without
/// somebody else who has less getting less still (Bertsekas and Gallager, *Data Networks*, 6.5.2).
fn max_min(asked: &[f64], all: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..asked.len()).collect();
    order.sort_by(|a, b| asked[*a].total_cmp(&asked[*b]));
    let (mut fair, mut left) = (vec![0.0; asked.len()], all);
    for (done, tenant) in order.into_iter().enumerate() {
        let part = left / (asked.len() - done) as f64;
        fair[tenant] = asked[tenant].min(part);
        left -= fair[tenant];
    }
    fair
}

/// (sum x)^2 / (n sum x^2) with x = got / fair (Jain, Chiu, Hawe: DEC-TR-301, 1984); 1 where nobody got anything.
fn jain(got: &[f64], fair: &[f64]) -> f64 {
    let x: Vec<f64> = got.iter().zip(fair).filter(|(_, fair)| **fair > 0.0).map(|(g, f)| g / f).collect();
    let (sum, squares) = (x.iter().sum::<f64>(), x.iter().map(|x| x * x).sum::<f64>());
    if squares > 0.0 { sum * sum / (x.len() as f64 * squares) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_min_gives_the_small_what_they_ask() {
        for (asked, all, want) in [
            (&[50.0, 20.0, 20.0, 10.0][..], 60.0, &[16.666, 16.666, 16.666, 10.0][..]),
            (&[50.0, 20.0, 20.0, 10.0], 100.0, &[50.0, 20.0, 20.0, 10.0]),
            (&[50.0, 20.0, 20.0, 10.0], 20.0, &[5.0, 5.0, 5.0, 5.0]),
            (&[1.0, 0.0], 4.0, &[1.0, 0.0]),
        ] {
            let got = max_min(asked, all);
            let close = got.iter().zip(want).all(|(got, want)| (got - want).abs() < 0.01);
            assert!(close, "{asked:?} of {all}: {got:?}");
        }
    }

    #[test]
    fn jains_index_by_hand() {
        for (got, fair, want) in [
            (&[1.0, 1.0, 1.0, 1.0][..], &[1.0, 1.0, 1.0, 1.0][..], 1.0),
            (&[4.0, 0.0, 0.0, 0.0], &[1.0, 1.0, 1.0, 1.0], 0.25),
            (&[3.0, 1.0], &[2.0, 2.0], 0.8),
            (&[2.0, 8.0], &[1.0, 4.0], 1.0),
            (&[0.0, 0.0], &[0.0, 0.0], 1.0),
        ] {
            assert!((jain(got, fair) - want).abs() < 1e-9, "{got:?} by {fair:?}");
        }
    }

    #[test]
    fn quantiles_are_of_nearest_rank() {
        let sorted: Vec<Micros> = (1..=20).map(Micros).collect();
        assert_eq!([0.5, 0.95, 0.99].map(|q| quantile(&sorted, q).0), [10, 19, 20]);
        assert_eq!(quantile(&[], 0.5), Micros::ZERO);
    }
}
