//! A sample of each kind of event, in the order of their numbers.

use weir_kernel::{
    BandBounds, BandOrigin, BandSettings, BoundReached, BudgetKind, BudgetSource, Cause, DemandSized,
    Dispatched, Enqueued, Event, Evicted, Face, Fairness, FlowId, Hold, Hopeless, Idempotency, Ignored,
    KeyAnswer, LeaseEnd, LeaseEndCause, LeaseEnded, Limit, LimitKind, Micros, OrderKey, OrderTurned,
    Ordering, Outcome, Policy, ProgramAware, Ratio, Reason, Reclaimed, ReclamationDecided, Regime, Rejected,
    RejectedMany, RequestId, RestatedBand, RestatedCooling, RestatedCore, RestatedEndpoint, RestatedFlow,
    RestatedKey, RestatedLease, RestatedLine, RestatedPause, RestatedProgram, RestatedQueued,
    RestatedReclamation, RestatedRelease, RestatedRevocation, RestatedRevocations, RevocationEnd,
    RevocationEnded, RevocationIssued, RevocationOrder, Role, Slot, SpentBudget, Victim, Whereabouts,
};

pub fn all() -> Vec<Event> {
    let mut events = bands_and_flows();
    events.extend(requests());
    events.extend(the_rest());
    events.extend(restated());
    events.extend(by_hand());
    events.extend(revocations());
    events.extend(lines());
    events
}

fn lines() -> Vec<Event> {
    let bounds = BandBounds { starvation: Micros(30_000_000), reject_hopeless: true };
    vec![
        Event::BandBounded { priority: -10, bounds },
        Event::OrderTurned(OrderTurned {
            priority: 10,
            newest_first: true,
            oldest: RequestId(42),
            waited: Micros(7_000_000),
            standing: Micros(5_000_000),
        }),
        Event::BoundReached(BoundReached {
            request: RequestId(50),
            priority: -10,
            waited: Micros(30_000_001),
            bound: bounds.starvation,
        }),
        Event::FoundHopeless(Hopeless {
            priority: 10,
            predicted: Micros(19_090_909),
            left: Micros(15_000_000),
            ahead: 20,
            drained: 11,
            window: Micros(10_500_000),
        }),
        Event::RestatedLine(Box::new(RestatedLine {
            priority: 10,
            bounds,
            above_from: Micros(1_000_000),
            newest_first: true,
            backlog_since: Some(Micros(9_000_000)),
        })),
    ]
}

fn revocations() -> Vec<Event> {
    let order = RevocationOrder::Reclamation { decision: 7, demand: 10 };
    vec![
        Event::RevocationIssued(RevocationIssued {
            number: 9,
            request: RequestId(42),
            order,
            priority: -10,
            age: Micros(1_500_000),
            debit: Ratio(55_556),
            due: Micros(1_790_000_010_000_000),
        }),
        Event::RevocationEnded(RevocationEnded {
            number: 9,
            request: RequestId(42),
            end: RevocationEnd::TimedOut,
            took: Micros(10_000_000),
            cooling_until: Some(Micros(1_790_000_010_500_000)),
        }),
        Event::ConfirmedLate { number: 9, request: RequestId(42), late: Micros(3_000) },
        Event::Reclaimed(Reclaimed {
            number: 8,
            request: RequestId(41),
            after: Micros(48_000),
            took: Micros(51_000),
        }),
        Event::WatchNoted { request: RequestId(50), watching: false },
        Event::RestatedRevocation(Box::new(RestatedRevocation {
            number: 9,
            request: RequestId(42),
            order: RevocationOrder::Operator,
            issued_at: Micros(25),
            debit: Ratio(26),
            due: Micros(27),
            beyond: Some(-28),
            end: Some(RevocationEnd::Undeliverable),
        })),
        Event::RestatedRevocations(Box::new(RestatedRevocations {
            numbers: vec![9, 1, 2, 3, 4, 5],
            cooling: vec![RestatedCooling { until: Micros(29), number: 7, debit: Ratio(30) }],
            releases: vec![RestatedRelease {
                number: 8,
                request: RequestId(41),
                slot: Some(Slot(3)),
                issued_at: Micros(31),
                confirmed_at: Micros(32),
                beyond: 2,
            }],
            watched: vec![RequestId(50), RequestId(60)],
        })),
        Event::ReclamationDecided(Box::new(ReclamationDecided {
            number: 7,
            demand: 10,
            depth: 32,
            raw: Ratio(1_000_000),
            effective: Ratio(1_050_000),
            saturation: Ratio(1_100_000),
            stale: 1,
            endpoints: 3,
            ceiling: Ratio(900_000),
            target: Ratio(200_000),
            pending: Ratio(1),
            in_flight: 20,
            credit: Ratio(55_000),
            wanted: 4,
            cap: 2,
            evictable: 17,
            victims: vec![Victim { request: RequestId(42), priority: -10, age: Micros(1_500_000) }],
        })),
        Event::ReclamationShut { until: Micros::MAX },
        Event::RestatedReclamation(Box::new(RestatedReclamation {
            numbers: vec![7, 33, 200_000],
            last: Some((7, 10, vec![RequestId(42), RequestId(41)])),
            resting: vec![(RequestId(41), Micros(34))],
        })),
        Event::DemandSized(Box::new(DemandSized {
            number: 8,
            demand: 31,
            charge: 50_000_000_000,
            mean: 55_000_000_000,
            slot: Some(66_666_666_667),
            took: Micros(3_000),
            round_trip: Micros(503_000),
            since: Micros(700_000),
            ended: 4,
            natural: 2,
            hidden: 1,
            wanted: 30,
        })),
    ]
}

fn settings() -> BandSettings {
    BandSettings {
        max_requests: 5_000,
        max_bytes: 1_000_000_000,
        ordering: Ordering::SloDeadline,
        fairness: Fairness::ProgramAware(ProgramAware::default()),
        saturation_budget: Some(Micros(15_000_000)),
        no_endpoint_budget: None,
    }
}

fn hold() -> Hold {
    Hold::Band {
        priority: -10,
        saturation: Ratio(1_200_000),
        ceiling: Ratio(850_000),
        stale: 2,
        endpoints: 5,
    }
}

fn bands_and_flows() -> Vec<Event> {
    let settings = Box::new(settings());
    vec![
        Event::StartNoted { queued: 3, leases: 2, resumable_until: Micros(1_790_000_005_000_000) },
        Event::PolicyAdopted,
        Event::ObjectivesAdopted,
        Event::BandOpened { priority: 10, origin: BandOrigin::Provisioned, settings: settings.clone() },
        Event::BandChanged { priority: -10, origin: BandOrigin::Desired, settings },
        Event::BandClosed { priority: i32::MAX },
        Event::FlowOpened { flow: FlowId(7), priority: 0 },
        Event::FlowClosed { flow: FlowId(u32::MAX) },
    ]
}

fn requests() -> Vec<Event> {
    vec![
        Event::Enqueued(Enqueued {
            flow: FlowId(7),
            priority: 10,
            objective_unknown: true,
            saturation_budget: Micros(60_000_000),
            no_endpoint_budget: Micros::ZERO,
            budget_source: BudgetSource::Header,
            header_class: Some(Micros(14_999_000)),
            order: OrderKey { primary: u64::MAX, secondary: 1_790_000_000_000_000 },
            depth: 4_999,
        }),
        Event::Rejected(Rejected {
            outcome: Outcome::RejectedCapacity,
            reason: Reason::Saturated,
            regime: Regime::HasEndpoints,
            priority: -1,
            objective_unknown: false,
            limit: Some(Limit { which: LimitKind::BandRequests, held: 5_000, limit: 5_000 }),
            cause: Some(Cause::Other),
            retry_after: Some(30),
            saturation: Ratio(1_000_001),
        }),
        Event::Repeated { of: RequestId(41), resumed: true },
        Event::Dispatched(Dispatched {
            request: RequestId(42),
            endpoint: Some(Slot(3)),
            waited: Micros(1_234_567),
            raw: Ratio(500_000),
            effective: Ratio(620_000),
            ceiling: Ratio::ONE,
            observed: 40,
            output_estimate: 1_050,
        }),
        Event::Evicted(Evicted {
            request: RequestId(43),
            outcome: Outcome::EvictedTTL,
            reason: Reason::TtlExpired,
            regime: Regime::HasEndpoints,
            waited: Micros(60_000_000),
            budget: Some(SpentBudget {
                which: BudgetKind::Whole,
                budget: Micros(60_000_000),
                charged_from: Micros(1_790_000_000_000_000),
            }),
            cause: Some(Cause::TicketAbandoned),
            deadline: Some(Micros(1_790_000_100_000_000)),
            held_by: Some(hold()),
        }),
        Event::LeaseEnded(LeaseEnded {
            request: RequestId(42),
            end: LeaseEnd::Lost,
            ran: Micros(2_000_000),
            cause: Some(LeaseEndCause::Cancelled(Cause::Purged)),
        }),
        Event::RenewalNoted { request: RequestId(42) },
        Event::FirstByteNoted { request: RequestId(42) },
    ]
}

fn the_rest() -> Vec<Event> {
    vec![
        Event::Viewed,
        Event::GaugeMoved { endpoints: 5, fresh: 3, saturation: Ratio(910_000) },
        Event::RegimeChanged {
            from: Regime::NoFreshMetrics,
            to: Regime::NoEndpoints,
            endpoints: 0,
            fresh: 0,
        },
        Event::Held { by: Hold::Regime(Regime::Unknown) },
        Event::HoldLifted,
        Event::TurnTaken { priority: 0, last: Some(FlowId(2)) },
        Event::ServiceCharged { request: RequestId(42), service: u128::MAX / 3 },
        Event::ServiceRescaled { epoch: Micros(1_790_000_000_000_000), shift: 64 },
        Event::ProgramForgotten { program: "tenant-7".to_owned() },
        Event::ClassRebudgeted {
            priority: -10,
            header_class: None,
            saturation_budget: Micros(30_000_000),
            no_endpoint_budget: Micros(300_000_000),
        },
        Event::CeilingTicked { tick: 17 },
        Event::DrainBegun { until: Micros(1_790_000_030_000_000) },
        Event::StopNoted,
        Event::RefusalsNoted { refused: 1_000 },
        Event::Ignored { what: Ignored::NoChange },
        Event::KeyForgotten { key: [9; 16] },
        Event::RecoveryEnded,
        Event::OrphansSettled { kept: 4, lost: 1 },
    ]
}

fn by_hand() -> Vec<Event> {
    vec![
        Event::Paused,
        Event::Resumed,
        Event::PurgeBegun { requests: 150 },
        Event::RejectedMany(RejectedMany {
            outcome: Outcome::RejectedCapacity,
            reason: Reason::Saturated,
            regime: Regime::HasEndpoints,
            limit: Some(Limit { which: LimitKind::GlobalRequests, held: 5_000, limit: 5_000 }),
            cause: None,
            retry_after: [None, Some(30)],
            saturation: Ratio(1_000_001),
        }),
        Event::RestatedPause(Box::new(RestatedPause {
            since: Micros(25),
            by: "ops".to_owned(),
            why: "a drill".to_owned(),
        })),
        Event::RestatedPurge { request: RequestId(50) },
    ]
}

fn restated() -> Vec<Event> {
    let key = Idempotency { key: [1; 16], body: [2; 8] };
    vec![
        Event::RestatedCore(Box::new(RestatedCore {
            seq: 57,
            now: Micros(1_790_000_000_009_000),
            regime: Regime::HasEndpoints,
            clocks: [1, 2, 3, 4].map(Micros),
            fresh_from: Micros(5),
            fresh_at: Micros(1_790_000_000_000_000),
            counters: (0..14).collect(),
            numbers: vec![0, u64::MAX],
            hold: Some(Hold::Recovery),
            pushed: Some((Ratio(1), Ratio(-1))),
        })),
        Event::RestatedPolicy { policy: Box::new(Policy::default()) },
        Event::RestatedObjective { name: "interactive".to_owned(), priority: 10 },
        Event::RestatedBand(Box::new(RestatedBand {
            priority: 10,
            origin: BandOrigin::Configured,
            settings: settings(),
            last: Some(FlowId(1)),
            idle_since: Some(Micros(6)),
            refusals: 7,
            active_since: Some(Micros(8)),
            drained: vec![(1_790_000_000, 12), (1_790_000_001, 0)],
        })),
        Event::RestatedFlow(Box::new(RestatedFlow {
            flow: FlowId(7),
            name: "tenant-7".to_owned(),
            priority: 10,
            idle_since: None,
        })),
        Event::RestatedEndpoint(Box::new(RestatedEndpoint {
            slot: Slot(3),
            name: "10.0.0.7:8000".to_owned(),
            role: Role::Both,
            sample: Some((1, 12, 8_500)),
            requested_at: Micros(9),
            stale_since: Some(Micros(10)),
            numbers: vec![1, 2, 3],
        })),
        Event::RestatedQueued(Box::new(RestatedQueued {
            request: RequestId(50),
            flow: FlowId(7),
            order: OrderKey { primary: 1, secondary: 2 },
            enqueued_at: Micros(11),
            marks: [12, 13, 14].map(Micros),
            bytes: 100,
            prompt_tokens: 700,
            header_class: Some(Micros(15)),
            deadline: Some(Micros(16)),
            face: Face::Ticket,
            choose_endpoint: true,
            key: Some(key),
            resumable_until: Some(Micros(17)),
            heard_at: Micros(18),
            budgets: [19, 20].map(Micros),
            doomed: true,
            program: Some("tenant-7".to_owned()),
        })),
        Event::RestatedLease(Box::new(RestatedLease {
            request: RequestId(42),
            priority: 10,
            at: Whereabouts::At(Slot(3)),
            dispatched_at: Micros(21),
            heard_at: Micros(22),
            prompt_tokens: 700,
            output_estimate: 1_050,
            program: None,
            first_byte: true,
            face: Face::Proxy,
            orphan: true,
            doomed: false,
            key: None,
        })),
        Event::RestatedKey(Box::new(RestatedKey {
            key,
            request: RequestId(50),
            answer: Some(KeyAnswer {
                outcome: Outcome::EvictedOther,
                reason: Some(Reason::Restarted),
                seq: 56,
                waited: Micros(23),
                endpoint: Some(Slot(3)),
            }),
        })),
        Event::RestatedProgram(Box::new(RestatedProgram {
            name: "tenant-7".to_owned(),
            service: 1 << 100,
            active: 2,
            idle_since: Some(Micros(24)),
        })),
    ]
}
