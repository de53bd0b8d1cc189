//! A sample of each kind of input.

use weir_kernel::{
    Admin, AdminAction, Arrival, ArrivedMany, Cancelled, Cause, Ended, EndpointChange, Face, Idempotency,
    Input, Micros, ObjectivesChange, Observation, Policy, PolicyChange, Pushed, Ratio, RequestId, Role, Slot,
    Started, Termination, Trace, Usage,
};

pub fn all() -> Vec<Input> {
    let observed =
        |pushed| Observation { requested_at: Micros(1_790_000_000_000_100), changes: changes(), pushed };
    vec![
        Input::Started(Started {
            kernel_behaviour: 1,
            version: "0.1.0".to_owned(),
            wall: Micros(1_790_000_000_000_000),
        }),
        Input::Arrived(arrival()),
        Input::Arrived(Arrival::default()),
        Input::Cancelled(Cancelled { request: RequestId(300), cause: Cause::ClientDeadline }),
        Input::Observed(observed(Pushed::Keep)),
        Input::Observed(observed(Pushed::Clear)),
        Input::Observed(observed(Pushed::Pool(Ratio(1_700_000)))),
        Input::Observed(observed(Pushed::Stages { prefill: Ratio(-1), decode: Ratio(i64::MAX) })),
        Input::Ended(Ended {
            request: RequestId(70_000),
            termination: Termination::Error,
            usage: Some(Usage { prompt: 700, completion: 70_000 }),
        }),
        Input::FirstByte { request: RequestId(251) },
        Input::Renewed { request: RequestId(u64::MAX) },
        Input::TimePassed,
        Input::PolicyChanged(PolicyChange { policy: Box::new(Policy::default()), digest: [0xab; 32] }),
        Input::ObjectivesChanged(ObjectivesChange {
            set: vec![("interactive".to_owned(), 10), ("batch".to_owned(), -10), ("".to_owned(), i32::MIN)],
            removed: vec!["gone".to_owned()],
        }),
        Input::Stopping { drain_until: Micros(1_790_000_030_000_000) },
        Input::Stopped,
        Input::LogResumed { since: Micros(1_790_000_000_500_000), refused: 1_000 },
        by_hand(AdminAction::Pause),
        by_hand(AdminAction::Resume),
        by_hand(AdminAction::Purge { request: RequestId(300) }),
        by_hand(AdminAction::PurgeFlow { fairness_id: "tenant-7".to_owned(), priority: -10 }),
        by_hand(AdminAction::Drain { until: Micros(1_790_000_030_000_000) }),
        Input::ArrivedMany(ArrivedMany {
            priority: -10,
            count: 70_000,
            objective_unknown: 3,
            ttl_unreadable: 2,
            bytes: 512,
            ttl: Some(Micros(15_000_000)),
            deadline: Some(Micros(1_790_000_010_000_000)),
            since: Micros(1_790_000_000_000_000),
            received_at: Micros(1_790_000_000_000_050),
            took: Micros(140_000),
        }),
        Input::Revoke { request: RequestId(300), by: "ops@example".to_owned(), why: "runaway".to_owned() },
        Input::Undeliverable { request: RequestId(301) },
        Input::Watched { request: RequestId(302), watching: true },
    ]
}

fn by_hand(action: AdminAction) -> Input {
    Input::Admin(Admin { action, by: "ops".to_owned(), why: "a drill".to_owned() })
}

fn arrival() -> Arrival {
    Arrival {
        caller_id: "a1b2-ü".to_owned(),
        objective: Some("interactive".to_owned()),
        fairness_id: "tenant-7".to_owned(),
        priority: Some(-2_147_483_648),
        model: Some("llama".to_owned()),
        bytes: 1 << 33,
        prompt_tokens: Some(4_096),
        ttl: Some(Micros(15_000_000)),
        ttl_unreadable: true,
        slo_ttft: Some(Micros(250_000)),
        received_at: Micros(1_790_000_000_000_050),
        deadline: Some(Micros(1_790_000_010_000_000)),
        face: Face::ExtProcOpen,
        choose_endpoint: true,
        idempotency: Some(Idempotency { key: [1; 16], body: [2; 8] }),
        trace: Some(Trace { trace_id: [3; 16], parent_id: [4; 8], flags: 1 }),
    }
}

fn changes() -> Vec<EndpointChange> {
    vec![
        EndpointChange::Joined { slot: Slot(3), name: "10.0.0.7:8000".to_owned(), role: Role::Prefill },
        EndpointChange::Left { slot: Slot(65_535) },
        EndpointChange::Sampled { slot: Slot(4), waiting: -7, running: 12, kv: -10_000 },
        EndpointChange::Stale { slot: Slot(5) },
    ]
}
