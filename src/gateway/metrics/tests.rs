//! Goal: figures add up to the steps they came from, and the exposition stays readable whatever names come in.

use super::projection::{QUEUE_SERIES_MAX, WAIT_SERIES_MAX};
use super::*;
use weir_kernel::*;

fn arrival(flow: &str, model: Option<&str>) -> Arrival {
    Arrival {
        fairness_id: flow.to_owned(),
        model: model.map(str::to_owned),
        bytes: 10,
        received_at: Micros(1),
        ..Arrival::default()
    }
}

fn enqueued(flow: u32, priority: i32) -> Event {
    Event::Enqueued(Enqueued {
        flow: FlowId(flow),
        priority,
        objective_unknown: false,
        saturation_budget: Micros::ZERO,
        no_endpoint_budget: Micros::ZERO,
        budget_source: BudgetSource::Global,
        header_class: None,
        order: OrderKey::default(),
        depth: 1,
    })
}

fn evicted(request: u64) -> Event {
    Event::Evicted(Evicted {
        request: RequestId(request),
        outcome: Outcome::EvictedTTL,
        reason: Reason::TtlExpired,
        regime: Regime::HasEndpoints,
        waited: Micros(2_000_000),
        budget: None,
        cause: None,
        deadline: None,
        held_by: None,
    })
}

fn queued(seq: u64, flow: u32, name: &str, model: Option<&str>) -> Step {
    let events = vec![Event::FlowOpened { flow: FlowId(flow), priority: -1 }, enqueued(flow, -1)];
    Step { seq, at: Micros(11), input: Input::Arrived(arrival(name, model)), events }
}

fn passed(seq: u64, events: Vec<Event>) -> Step {
    Step { seq, at: Micros(20), input: Input::TimePassed, events }
}

/// The sum of all series whose line starts so.
fn sum(text: &str, start: &str) -> f64 {
    let values = text.lines().filter(|line| line.starts_with(start));
    values.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

#[test]
fn c060_one_request_is_counted_once_and_its_priority_keeps_its_sign() {
    let metrics = Arc::new(Metrics::new(&[]));
    metrics.restate("p", &[]);
    metrics.apply("p", &[queued(1, 0, "a", None)]);
    let text = metrics.render(Vec::new(), LogMetrics::default(), false);
    assert!(
        text.contains("weir_flow_control_queue_size{fairness_id=\"a\",priority=\"-1\",inference_pool=\"p\"")
    );
    assert_eq!(sum(&text, "weir_flow_control_queue_size{"), 1.0, "{text}");
    assert_eq!(sum(&text, "weir_flow_control_queue_bytes{"), 10.0);
    metrics.apply("p", &[passed(2, vec![evicted(1)]), passed(2, vec![evicted(1)])]);
    let text = metrics.render(Vec::new(), LogMetrics::default(), false);
    assert_eq!(sum(&text, "weir_flow_control_queue_size{"), 0.0);
    let line =
        "weir_flow_control_requests_total{outcome=\"EvictedTTL\",priority=\"-1\",inference_pool=\"p\"} 1\n";
    assert!(text.contains(line), "{text}");
    assert_eq!(sum(&text, "weir_flow_control_dropped_total{reason=\"rejected-ttl-expired\""), 1.0);
    assert_eq!(sum(&text, "weir_flow_control_request_queue_duration_seconds_sum{"), 2.0);
    assert_eq!(sum(&text, "weir_flow_control_request_queue_duration_seconds_count{"), 1.0);
}

#[test]
fn c132_c136_flows_share_a_bounded_number_of_labels_and_go_when_collected() {
    let metrics = Arc::new(Metrics::new(&[]));
    metrics.restate("p", &[]);
    let flows = 5_000u64;
    for flow in 0..flows {
        let name = if flow == flows - 1 { "other".to_owned() } else { format!("f{flow}") };
        let seq = 2 * flow + 1;
        metrics.apply("p", &[queued(seq, flow as u32, &name, None), passed(seq + 1, vec![evicted(seq)])]);
    }
    let text = metrics.render(Vec::new(), LogMetrics::default(), false);
    let series = text.lines().filter(|line| line.starts_with("weir_flow_control_queue_size{")).count();
    assert_eq!(series, FLOW_LABELS_MAX + 1);
    assert_eq!(sum(&text, "weir_flow_control_requests_total{"), flows as f64);
    assert_eq!(sum(&text, "weir_flow_control_request_queue_duration_seconds_count{"), flows as f64);
    let close = |flow: u32| Event::FlowClosed { flow: FlowId(flow) };
    metrics.apply("p", &[passed(2 * flows + 1, vec![close(0), close(flows as u32 - 1)])]);
    let text = metrics.render(Vec::new(), LogMetrics::default(), false);
    assert!(!text.contains("fairness_id=\"f0\""), "the collected flow is gone");
    assert!(text.contains("fairness_id=\"other\""), "the shared one stays");
    assert_eq!(sum(&text, "weir_flow_control_requests_total{"), flows as f64);
}

/// Flows and models are bounded each, and so is what the two make together: in lines and in bytes, with nothing left out.
#[test]
fn c132_flows_by_models_share_a_bounded_number_of_series() {
    let metrics = Arc::new(Metrics::new(&[]));
    metrics.restate("p", &[]);
    let (flows, models) = (900_u64, 5_u64);
    for n in 0..flows * models {
        let (flow, model) = (n / models, n % models);
        let (name, seq) = (format!("tenant-of-the-{flow}"), 2 * n + 1);
        let arrived = queued(seq, flow as u32, &name, Some(&format!("llama-3-{model}b-instruct")));
        metrics.apply("p", &[arrived, passed(seq + 1, vec![evicted(seq)])]);
    }
    let text = metrics.render(Vec::new(), LogMetrics::default(), false);
    let lines = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
    let waits = "weir_flow_control_request_queue_duration_seconds_count{";
    assert_eq!(lines(waits), WAIT_SERIES_MAX + 1, "and the shared one");
    assert_eq!(sum(&text, waits), (flows * models) as f64, "no wait is left out");
    assert_eq!(lines("weir_flow_control_queue_size{"), QUEUE_SERIES_MAX + 1);
    assert_eq!(sum(&text, "weir_flow_control_queue_size{"), 0.0, "who leaves is taken off where it was put");
    assert_eq!(lines("weir_flow_control_request_queue_duration_seconds"), 23 * (WAIT_SERIES_MAX + 1));
    assert!(text.len() < 16 << 20, "{} bytes", text.len());
}

#[test]
fn c133_a_configured_model_keeps_its_label_and_foreign_names_are_escaped() {
    let metrics = Arc::new(Metrics::new(&["m1".to_owned()]));
    metrics.restate("p", &[]);
    let mut seq = 0;
    for junk in 0..2_000 {
        seq += 1;
        metrics.apply("p", &[queued(seq, 0, "a", Some(&format!("junk\"{junk}\\")))]);
    }
    metrics.apply("p", &[queued(seq + 1, 0, "a", Some("m1"))]);
    let text = metrics.render(Vec::new(), LogMetrics::default(), false);
    assert!(text.contains("model_name=\"m1\""));
    assert!(text.contains("model_name=\"other\""));
    assert!(text.contains("junk\\\"0\\\\"));
    assert_eq!(sum(&text, "weir_flow_control_queue_size{"), 2_001.0);
}

#[test]
fn a_restart_begins_with_what_is_queued() {
    let metrics = Arc::new(Metrics::new(&[]));
    let core = RestatedCore { seq: 7, ..RestatedCore::default() };
    let flow = RestatedFlow { flow: FlowId(3), name: "a".to_owned(), priority: 5, idle_since: None };
    metrics.restate("p", &[Event::RestatedCore(Box::new(core)), Event::RestatedFlow(Box::new(flow))]);
    assert_eq!(metrics.seq("p"), 7);
    metrics.apply("p", &[queued(7, 9, "old", None)]);
    let events = vec![enqueued(3, 5)];
    let step = Step { seq: 8, at: Micros(11), input: Input::Arrived(arrival("a", None)), events };
    metrics.apply("p", &[step]);
    let text = metrics.render(Vec::new(), LogMetrics::default(), false);
    assert!(!text.contains("\"old\""), "what the snapshot covers counts once");
    assert!(text.contains("fairness_id=\"a\",priority=\"5\""), "{text}");
}

#[test]
fn every_line_is_a_comment_or_a_sample() {
    let metrics = Arc::new(Metrics::new(&[]));
    metrics.restate("p", &[]);
    metrics.apply("p", &[queued(1, 0, "a\"b\\c", None)]);
    let band = BandGauge { priority: -7, requests: (1, 4), bytes: (10, 40), ceiling: Ratio::ONE };
    let gauges = PoolGauges {
        pool: "p".to_owned(),
        saturation: (Ratio(1_700_000), Ratio(1_800_000)),
        bands: vec![band],
        limits: (10, 0),
        detector: "utilization-detector".to_owned(),
        ..PoolGauges::default()
    };
    let mut log = LogMetrics { commits: 3, steps: 9, bytes: 700, flush_us: 1_500, ..LogMetrics::default() };
    log.flush_buckets[0] = 3;
    let text = metrics.render(vec![gauges], log, true);
    for line in text.lines() {
        let sample = line.rsplit_once(' ').is_some_and(|(_, value)| value.parse::<f64>().is_ok());
        assert!(line.starts_with("# ") || sample, "{line}");
    }
    assert!(text.contains("stage=\"raw\"} 1.7\n"), "{text}");
    assert!(text.contains(
        "weir_flow_control_capacity_utilization_requests{priority=\"-7\",inference_pool=\"p\"} 0.25"
    ));
    assert!(
        text.contains("weir_flow_control_global_capacity_utilization_requests{inference_pool=\"p\"} 0.1")
    );
    assert!(!text.contains("weir_flow_control_global_capacity_utilization_bytes{"));
    assert!(text.contains("weir_log_steps_total 9\n"), "{text}");
    assert!(text.contains("weir_log_commit_duration_seconds_count 3\n"), "{text}");
    assert!(text.contains("weir_log_commit_duration_seconds_sum 0.0015\n"), "{text}");
    assert!(text.contains("llm_d_epp_flow_control_queue_size{"));
    assert!(!text.contains("llm_d_epp_log") && !text.contains("llm_d_epp_gateway"));
}

/// Counted together or one by one, the sums are the same.
#[test]
fn c138_refusals_that_are_counted_together_are_all_counted() {
    let metrics = Arc::new(Metrics::new(&[]));
    metrics.restate("p", &[]);
    let rejected = RejectedMany {
        outcome: Outcome::RejectedCapacity,
        reason: Reason::Saturated,
        regime: Regime::HasEndpoints,
        limit: None,
        cause: None,
        retry_after: [None, None],
        saturation: Ratio::ONE,
    };
    let many = ArrivedMany {
        priority: -1,
        count: 700,
        objective_unknown: 3,
        ttl_unreadable: 2,
        took: Micros(700_000_000),
        ..ArrivedMany::default()
    };
    let events = vec![Event::RejectedMany(rejected)];
    metrics.apply("p", &[Step { seq: 1, at: Micros(5), input: Input::ArrivedMany(many), events }]);
    let text = metrics.render(Vec::new(), LogMetrics::default(), false);
    for (series, want) in [
        ("weir_flow_control_arrivals_total{", 700.0),
        ("weir_flow_control_requests_total{outcome=\"RejectedCapacity\",priority=\"-1\"", 700.0),
        ("weir_flow_control_dropped_total{reason=\"rejected-saturated\"", 700.0),
        ("weir_flow_control_objective_unknown_total{", 3.0),
        ("weir_flow_control_ttl_unreadable_total{", 2.0),
        ("weir_flow_control_request_queue_duration_seconds_count{", 700.0),
        ("weir_flow_control_request_enqueue_duration_seconds_sum{", 700.0),
    ] {
        assert_eq!(sum(&text, series), want, "{series} in\n{text}");
    }
    assert_eq!(metrics.refusals("p")[&Reason::Saturated], 700);
}

#[test]
fn revocations_are_counted_by_demand_and_by_end() {
    let metrics = Arc::new(Metrics::new(&[]));
    metrics.restate("p", &[]);
    let issued = |number, order| {
        Event::RevocationIssued(RevocationIssued {
            number,
            request: RequestId(number),
            order,
            priority: -1,
            age: Micros(5),
            debit: Ratio(50_000),
            due: Micros(10_000_020),
        })
    };
    let ended = |number, end, took| {
        let cooling_until = Some(Micros(500_020));
        let request = RequestId(number);
        Event::RevocationEnded(RevocationEnded { number, request, end, took: Micros(took), cooling_until })
    };
    let reclaim = RevocationOrder::Reclamation { decision: 1, demand: 10 };
    let seen = Reclaimed { number: 1, request: RequestId(1), after: Micros(40_000), took: Micros(43_000) };
    metrics.apply(
        "p",
        &[
            passed(1, vec![issued(1, reclaim), issued(2, reclaim), issued(3, RevocationOrder::Operator)]),
            passed(2, vec![ended(1, RevocationEnd::Confirmed, 3_000), Event::Reclaimed(seen)]),
            passed(3, vec![ended(2, RevocationEnd::TimedOut, 10_000_000)]),
            passed(4, vec![Event::ConfirmedLate { number: 2, request: RequestId(2), late: Micros(9) }]),
            passed(5, vec![ended(3, RevocationEnd::Undeliverable, 0)]),
        ],
    );
    let text = metrics.render(Vec::new(), LogMetrics::default(), true);
    for line in [
        "weir_flow_control_revocations_issued_total{priority=\"10\",inference_pool=\"p\"} 2",
        "weir_flow_control_revocations_issued_total{priority=\"operator\",inference_pool=\"p\"} 1",
        "weir_flow_control_revocations_total{outcome=\"confirmed\",inference_pool=\"p\"} 1",
        "weir_flow_control_revocations_total{outcome=\"timed_out\",inference_pool=\"p\"} 1",
        "weir_flow_control_revocations_total{outcome=\"undeliverable\",inference_pool=\"p\"} 1",
        "weir_flow_control_late_confirmations_total{inference_pool=\"p\"} 1",
        "weir_flow_control_revocation_confirmation_seconds_sum{inference_pool=\"p\"} 0.003",
        "weir_flow_control_revocation_reclaim_seconds_count{inference_pool=\"p\"} 1",
        "llm_d_epp_flow_control_revocation_confirmation_seconds_count{inference_pool=\"p\"} 1",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

/// A request from its queue to its end, on an endpoint that has a name.
#[test]
fn running_requests_are_counted_by_endpoint_and_whole_ones_timed() {
    let metrics = Arc::new(Metrics::new(&[]));
    metrics.restate("p", &[]);
    let joined = EndpointChange::Joined { slot: Slot(2), name: "e2".to_owned(), role: Role::Both };
    let view = Observation { changes: vec![joined], ..Observation::default() };
    let dispatched = |request| {
        Event::Dispatched(Dispatched {
            request: RequestId(request),
            endpoint: Some(Slot(2)),
            waited: Micros(4_000_000),
            raw: Ratio::ZERO,
            effective: Ratio::ZERO,
            ceiling: Ratio::ONE,
            observed: 1,
            output_estimate: 0,
        })
    };
    let ended = |request| {
        let end = LeaseEnd::Completed;
        Event::LeaseEnded(LeaseEnded { request: RequestId(request), end, ran: Micros(5), cause: None })
    };
    let traced = Trace { trace_id: [0xab; 16], parent_id: [1; 8], flags: 1 };
    let mut first = queued(2, 0, "a", None);
    if let Input::Arrived(arrival) = &mut first.input {
        (arrival.prompt_tokens, arrival.trace) = (Some(30), Some(traced));
    }
    let observed = Step { seq: 1, at: Micros(1), input: Input::Observed(view), events: Vec::new() };
    metrics.apply("p", &[observed, first, queued(3, 0, "a", None)]);
    metrics.apply("p", &[passed(4, vec![dispatched(2), dispatched(3)])]);
    let text = metrics.render(Vec::new(), LogMetrics::default(), false);
    let labels =
        "endpoint_name=\"e2\",namespace=\"\",producer_name=\"weir\",fairness_id=\"a\",priority=\"-1\"";
    assert!(text.contains(&format!("weir_inflight_requests{{{labels},inference_pool=\"p\"}} 2.0")), "{text}");
    assert_eq!(sum(&text, "weir_inflight_tokens{"), 30.0);
    assert_eq!(sum(&text, "weir_program_aware_avg_wait_time_milliseconds{program_id=\"a\""), 4_000.0);
    assert_eq!(sum(&text, "weir_program_aware_jains_fairness_index{"), 1.0);
    // The same request behind its bucket of the waits; no series is without the bucket that has no bound.
    let open = metrics.show(Vec::new(), LogMetrics::default(), true, Form::OpenMetrics);
    let marked = |text: &str, start: &str| {
        let line = text.lines().find(|line| line.starts_with(start));
        let behind = format!(" # {{trace_id=\"{}\"}} ", "ab".repeat(16));
        assert!(line.is_some_and(|line| line.contains(&behind)), "{start}: {line:?}");
    };
    for prefix in ["weir", "llm_d_epp"] {
        let name = format!("{prefix}_flow_control_request_queue_duration_seconds");
        marked(&open, &format!("{name}_bucket{{le=\"5.0\",fairness_id=\"a\",priority=\"-1\""));
        let number = |start: &str| open.lines().filter(|line| line.starts_with(start)).count();
        let (last, count) =
            (number(&format!("{name}_bucket{{le=\"+Inf\"")), number(&format!("{name}_count")));
        assert!(last > 0 && last == count, "{name}: {last} {count}");
    }
    // The flow goes while its requests run: its label stays theirs.
    metrics.apply("p", &[passed(5, vec![Event::FlowClosed { flow: FlowId(0) }])]);
    metrics.apply("p", &[queued(6, 7, "b", None)]);
    let text = metrics.render(Vec::new(), LogMetrics::default(), false);
    assert_eq!(
        sum(
            &text,
            "weir_inflight_requests{endpoint_name=\"e2\",namespace=\"\",producer_name=\"weir\",fairness_id=\"a\""
        ),
        2.0
    );
    metrics.apply("p", &[passed(7, vec![ended(2), ended(3)])]);
    let gauges =
        vec![PoolGauges { pool: "p".to_owned(), chain: (7, 0xffff_ffff_ffff), ..PoolGauges::default() }];
    let text = metrics.show(gauges, LogMetrics::default(), true, Form::OpenMetrics);
    assert!(!text.contains("weir_inflight_requests{"), "{text}");
    assert_eq!(sum(&text, "weir_request_processing_duration_seconds_count{"), 2.0);
    assert!(text.contains("weir_log_chain_head_hash{inference_pool=\"p\"} 281474976710655.0"), "{text}");
    let trace = "ab".repeat(16);
    let line =
        text.lines().find(|line| line.starts_with("weir_flow_control_requests_total{outcome=\"Dispatched\""));
    assert!(line.unwrap().contains(&format!("2 # {{trace_id=\"{trace}\"}} 4.0 ")), "{line:?}");
    assert!(text.ends_with("# EOF\n"));
    for prefix in ["weir", "llm_d_epp"] {
        marked(
            &text,
            &format!(
                "{prefix}_request_processing_duration_seconds_bucket{{le=\"0.0001\",inference_pool=\"p\"}}"
            ),
        );
    }
    assert!(!text.contains("e308"), "a bucket without bound is written as such");
    assert!(text.contains("llm_d_epp_inflight_requests") && text.contains("llm_d_epp_program_aware_"));
}
