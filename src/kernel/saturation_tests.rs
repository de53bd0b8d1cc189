//! Tables for the detectors.

use super::*;
use crate::Micros;
use alloc::vec;

fn utilization(queue_depth: u32, kv: i64, headroom: i64) -> Detector {
    Detector::Utilization {
        queue_depth,
        kv: Ratio(kv),
        staleness: Micros::from_millis(100),
        headroom: Ratio(headroom),
    }
}

fn concurrency(mode: ConcurrencyMode, max_requests: u64, max_tokens: u64, headroom: i64) -> Detector {
    Detector::Concurrency { mode, max_requests, max_tokens, headroom: Ratio(headroom), output_estimate: None }
}

fn fresh(waiting: u32, running: u32, kv: u32) -> EndpointLoad {
    EndpointLoad { sample: Some(Sample { waiting, running, kv }), fresh: true, ..EndpointLoad::default() }
}

fn stale() -> EndpointLoad {
    EndpointLoad { fresh: false, ..fresh(0, 0, 0) }
}

fn held(requests: u64, tokens: u64) -> EndpointLoad {
    EndpointLoad { requests, tokens, ..EndpointLoad::default() }
}

fn with(role: Role, load: EndpointLoad) -> EndpointLoad {
    EndpointLoad { role, ..load }
}

#[test]
fn utilization_is_the_mean_of_the_larger_shares() {
    let nine = utilization(5, 900_000, 0);
    for (detector, loads, want) in [
        (&nine, vec![], 1_000_000),
        (&nine, vec![fresh(1, 0, 9_500)], 1_055_556),
        (&nine, vec![fresh(1, 0, 1_000), fresh(0, 0, 2_000)], 211_111),
        (&nine, vec![fresh(1, 0, 1_000), fresh(15, 0, 2_000)], 1_600_000),
        (&nine, vec![stale(), fresh(20, 0, 2_000), fresh(1, 0, 9_900)], 2_033_333),
        (&nine, vec![fresh(5, 0, 1_000)], 1_000_000),
        (&nine, vec![EndpointLoad::default()], 1_000_000),
        (&Detector::utilization(), vec![fresh(3, 0, 4_000), stale()], 800_000),
        (&utilization(0, 0, 0), vec![fresh(1, 0, 0)], 1_000_000),
        (&utilization(1, 1_000_000, 0), vec![fresh(u32::MAX, 0, 0)], 4_294_967_295_000_000),
    ] {
        assert_eq!(saturation(detector, &loads, false).effective, Ratio(want), "{loads:?}");
    }
}

#[test]
fn concurrency_counts_requests_tokens_or_the_larger() {
    use ConcurrencyMode::{Hybrid, Requests, Tokens};
    for (mode, loads, want) in [
        (Requests, vec![held(5, 0)], 500_000),
        (Requests, vec![held(15, 0), held(5, 0)], 1_000_000),
        (Requests, vec![held(15, 0), held(15, 0)], 1_500_000),
        (Requests, vec![held(0, 0), held(0, 0)], 0),
        (Requests, vec![], 1_000_000),
        (Tokens, vec![held(1, 3)], 30_000),
        (Tokens, vec![held(5, 50), held(0, 0)], 250_000),
        (Hybrid, vec![held(2, 80)], 800_000),
        (Hybrid, vec![held(9, 10)], 900_000),
        (Hybrid, vec![held(10, 0), held(0, 100)], 1_000_000),
        (Hybrid, vec![held(10, 0), held(0, 0)], 500_000),
    ] {
        let got = saturation(&concurrency(mode, 10, 100, 0), &loads, true).effective;
        assert_eq!(got, Ratio(want), "{mode:?} {loads:?}");
    }
    let worked = concurrency(Hybrid, 100, 1_000_000, 0);
    assert_eq!(saturation(&worked, &[held(90, 100_000), held(10, 900_000)], true).effective, Ratio(900_000));
    let most = concurrency(Hybrid, u64::MAX, u64::MAX, 0);
    assert_eq!(saturation(&most, &[held(u64::MAX, u64::MAX); 100], true).effective, Ratio::ONE);
}

#[test]
fn stages_take_the_fuller_one() {
    let detector = concurrency(ConcurrencyMode::Requests, 10, 100, 0);
    let some = |prefill: Option<i64>, decode: Option<i64>, effective| StageSaturation {
        prefill: prefill.map(Ratio),
        decode: decode.map(Ratio),
        effective: Ratio(effective),
    };
    for (loads, want) in [
        (vec![], some(None, None, 1_000_000)),
        (
            vec![with(Role::Prefill, held(9, 0)), with(Role::Decode, held(2, 0))],
            some(Some(900_000), Some(200_000), 900_000),
        ),
        (vec![with(Role::Both, held(4, 0))], some(Some(400_000), Some(400_000), 400_000)),
        (
            vec![with(Role::Decode, held(4, 0)), with(Role::Other, held(10, 0))],
            some(None, Some(400_000), 400_000),
        ),
        (vec![with(Role::Other, held(4, 0)), with(Role::Other, held(10, 0))], some(None, None, 700_000)),
    ] {
        assert_eq!(saturation(&detector, &loads, true), want, "{loads:?}");
    }
}

#[test]
fn credit_charges_what_the_sample_cannot_show() {
    let detector = utilization(5, 800_000, 0);
    let load = |waiting, running, kv, unseen: Fine, ended: Fine, slack| EndpointLoad {
        unseen,
        ended,
        slack,
        ..fresh(waiting, running, kv)
    };
    let n = Fine::from_int;
    for (load, want) in [
        // Nothing unseen: the raw gauge.
        (load(1, 8, 2_000, n(0), n(0), 0), 250_000),
        // (1 + 3) / 5 against (0.2 + 3 * 0.2 / 8) / 0.8.
        (load(1, 8, 2_000, n(3), n(0), 0), 800_000),
        // Ends and slack take from the queue's side alone: 0.2 * (1 + 3/8) / 0.8.
        (load(1, 8, 2_000, n(3), n(2), 1), 343_750),
        (load(1, 8, 2_000, n(3), n(0), 9), 343_750),
        // Never below the sample, however many ended.
        (load(4, 8, 0, n(1), n(9), 0), 800_000),
        // A half each: (0 + 2.5) / 5.
        (load(0, 0, 0, Fine(2_500_000_000_000), n(0), 0), 500_000),
        // Nothing runs: r counts as 1.
        (load(0, 0, 1_000, n(7), n(7), 0), 1_000_000),
        (EndpointLoad { fresh: false, ..load(0, 0, 0, n(3), n(0), 0) }, 1_000_000),
    ] {
        assert_eq!(endpoint_score(&detector, &load, true).to_ratio(), Ratio(want), "{load:?}");
        let raw = EndpointLoad { unseen: Fine::ZERO, ended: Fine::ZERO, ..load };
        assert_eq!(
            endpoint_score(&detector, &load, false),
            endpoint_score(&detector, &raw, true),
            "without credit nothing is charged"
        );
    }
    let huge = load(u32::MAX, 0, u32::MAX, Fine(i128::MAX), Fine(i128::MIN), u64::MAX);
    assert!(endpoint_score(&detector, &huge, true) > Fine::ONE);
}

#[test]
fn a_gauge_kept_up_to_date_equals_one_computed_anew() {
    let detector = Detector::utilization();
    let mut loads =
        vec![fresh(1, 4, 1_234), stale(), with(Role::Prefill, fresh(3, 9, 777)), fresh(0, 7, 3_333)];
    let mut gauge = Gauge::new(&detector);
    for load in &loads {
        gauge.add(load.role, term(&detector, load, true));
    }
    for round in 0..40_u32 {
        let index = (round % 4) as usize;
        let old = loads[index];
        gauge.remove(old.role, term(&detector, &old, true));
        loads[index] =
            EndpointLoad { unseen: Fine::from_fraction(u64::from(round), 3), ..fresh(round, 5, 100 * round) };
        gauge.add(loads[index].role, term(&detector, &loads[index], true));
        assert_eq!(gauge.read(), saturation(&detector, &loads, true));
    }
}

#[test]
fn filters_widen_by_the_headroom() {
    let util = utilization(5, 800_000, 200_000);
    let conc = |mode| concurrency(mode, 50, 100, 200_000);
    use ConcurrencyMode::{Hybrid, Requests, Tokens};
    for (detector, loads, want) in [
        (util.clone(), vec![fresh(1, 0, 1_000), fresh(4, 0, 7_000)], vec![0, 1]),
        (util.clone(), vec![fresh(5, 0, 8_000)], vec![0]),
        (util.clone(), vec![fresh(7, 0, 1_000), fresh(1, 0, 1_000)], vec![1]),
        (util.clone(), vec![fresh(6, 0, 1_000), fresh(1, 0, 1_000)], vec![1]),
        (util.clone(), vec![fresh(1, 0, 9_700), fresh(1, 0, 5_000)], vec![1]),
        (util.clone(), vec![fresh(1, 0, 9_600), fresh(1, 0, 9_599)], vec![1]),
        (util.clone(), vec![stale(), fresh(1, 0, 1_000)], vec![1]),
        (util, vec![fresh(10, 0, 1_000), fresh(1, 0, 9_900)], vec![0, 1]),
        (conc(Requests), vec![held(59, 0), held(60, 0)], vec![0]),
        (conc(Tokens), vec![held(90, 110), held(0, 120)], vec![0]),
        (conc(Hybrid), vec![held(59, 119), held(60, 0), held(0, 120)], vec![0]),
        (conc(Requests), vec![held(60, 0)], vec![]),
        (Detector::Pushed, vec![stale()], vec![0]),
    ] {
        assert_eq!(filter(&detector, &loads), want, "{detector:?} {loads:?}");
    }
}

#[test]
fn token_estimates() {
    let half_again = Some(OutputEstimate { ratio: Ratio(1_500_000), cap: 0 });
    for (input, estimate, want) in [
        (4, None, 4),
        (4, half_again, 10),
        (1, half_again, 3),
        (0, half_again, 0),
        (100, Some(OutputEstimate { ratio: Ratio(1_500_000), cap: 20 }), 120),
        (100, Some(OutputEstimate { ratio: Ratio(-1), cap: 0 }), 100),
        (u64::MAX, half_again, u64::MAX),
    ] {
        assert_eq!(estimate_tokens(input, estimate), want, "{input} {estimate:?}");
    }
}
