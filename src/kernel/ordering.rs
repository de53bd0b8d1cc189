//! Order inside a flow: each policy as a key that is computed once, at enqueue (seed-system.md section 9).
//!
//! Not here: the tie-break. Equal keys go by arrival sequence, which the queue adds itself.

use crate::{Arrival, Micros, OrderKey, Ordering};

/// The place of an arrival among the requests of its flow, smallest first.
///
/// `own_budget` is its effective queue-wait budget in `HasEndpoints`; zero means none. A caller's deadline that is
/// sooner takes its place. Sums saturate, so a huge budget sorts last instead of wrapping into the past.
pub fn order_key(ordering: Ordering, arrival: &Arrival, enqueued_at: Micros, own_budget: Micros) -> OrderKey {
    match ordering {
        // Its order is turned in the line as a whole, not by keys.
        Ordering::Fcfs | Ordering::NewestFirstWhenStanding { .. } => OrderKey { primary: 0, secondary: 0 },
        Ordering::Edf => {
            let by_budget = if own_budget.is_zero() { Micros::MAX } else { enqueued_at + own_budget };
            let by_caller = arrival.deadline.unwrap_or(Micros::MAX);
            OrderKey { primary: by_budget.min(by_caller).0, secondary: 0 }
        }
        Ordering::SloDeadline => {
            let due = match arrival.slo_ttft {
                Some(target) => arrival.received_at + target,
                None => Micros::MAX,
            };
            OrderKey { primary: due.0, secondary: arrival.received_at.0 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(received: u64, slo: Option<u64>, deadline: Option<u64>) -> Arrival {
        Arrival {
            received_at: Micros(received),
            slo_ttft: slo.map(Micros),
            deadline: deadline.map(Micros),
            ..Arrival::default()
        }
    }

    #[test]
    fn keys_of_each_policy() {
        use Ordering::{Edf, Fcfs, SloDeadline};
        let max = u64::MAX;
        for (policy, arrival, enqueued, budget, primary, secondary) in [
            (Fcfs, at(7, Some(1), Some(2)), 9, 60, 0, 0),
            (Edf, at(0, None, None), 1_000, 5_000, 6_000, 0),
            (Edf, at(0, None, None), 1_000, 0, max, 0),
            (Edf, at(0, None, Some(4_000)), 1_000, 5_000, 4_000, 0),
            (Edf, at(0, None, Some(9_000)), 1_000, 5_000, 6_000, 0),
            (Edf, at(0, None, Some(9_000)), 1_000, 0, 9_000, 0),
            (Edf, at(0, None, None), 1_000, max, max, 0),
            (SloDeadline, at(20, Some(50), None), 25, 5_000, 70, 20),
            (SloDeadline, at(20, None, None), 25, 5_000, max, 20),
            (SloDeadline, at(20, Some(max), None), 25, 5_000, max, 20),
            // The largest target that llm-d takes is a real deadline.
            (SloDeadline, at(0, Some(9_223_372_036_854_000), None), 0, 0, 9_223_372_036_854_000, 0),
        ] {
            let got = order_key(policy, &arrival, Micros(enqueued), Micros(budget));
            assert_eq!(got, OrderKey { primary, secondary }, "{policy:?} {arrival:?} {budget}");
        }
    }

    #[test]
    fn c056_no_deadline_sorts_last() {
        let none = order_key(Ordering::SloDeadline, &at(0, None, None), Micros(0), Micros::ZERO);
        let late =
            order_key(Ordering::SloDeadline, &at(5, Some(3_600_000_000), None), Micros(5), Micros::ZERO);
        assert!(late < none);
        let none = order_key(Ordering::Edf, &at(0, None, None), Micros(0), Micros::ZERO);
        let late = order_key(Ordering::Edf, &at(0, None, None), Micros(9), Micros::from_secs(3_600));
        assert!(late < none);
    }
}
