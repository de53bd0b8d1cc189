//! The truth model: tokens are conserved, the same seed gives the same run, an abort frees at once.

use super::*;
use crate::rng::Rng;
use std::collections::BTreeMap;
use weir_kernel::Micros;

/// Round numbers: 10 ms a step, 1 ms per prefilled token, nothing else.
fn plain() -> Spec {
    Spec {
        step_base_ns: 10_000_000,
        prefill_token_ns: 1_000_000,
        decode_seq_ns: 0,
        context_token_ns: 0,
        token_budget: 100,
        max_num_seqs: 4,
        kv_blocks: 100,
        max_model_len: 1_600,
        ..Spec::default()
    }
}

fn at_ms(ms: u64) -> Micros {
    Micros::from_millis(ms)
}

fn told(server: &mut Server, to: Micros) -> Vec<(u64, u64, What)> {
    let mut all = Vec::new();
    server.advance(to, &mut |p| all.push((p.at.as_millis(), p.id, p.what)));
    all
}

#[test]
fn a_lone_request_takes_its_prefill_and_one_step_per_token() {
    let mut server = Server::new(plain(), Micros::ZERO, 1);
    server.submit(Micros::ZERO, Job { id: 7, prompt: 150, output: 3 }).unwrap();
    assert_eq!(server.gauges(), Gauges { waiting: 0, running: 1, kv_used: 7, kv_total: 100 });
    // Two chunks (100 and 50 tokens), the second yields the first token, then two decode steps.
    assert_eq!(
        told(&mut server, at_ms(10_000)),
        [
            (170, 7, What::Token(1)),
            (180, 7, What::Token(2)),
            (190, 7, What::Token(3)),
            (190, 7, What::Finished)
        ]
    );
    assert_eq!(server.gauges(), Gauges { kv_total: 100, ..Gauges::default() });
    assert_eq!(server.next_event(), None);
    assert_eq!((server.totals().prefilled, server.totals().generated, server.totals().steps), (150, 3, 4));
}

#[test]
fn one_step_shares_its_token_budget_and_its_slots() {
    let mut server = Server::new(plain(), Micros::ZERO, 1);
    for id in 0..6 {
        server.submit(Micros::ZERO, Job { id, prompt: 40, output: 2 }).unwrap();
    }
    // The first came alone into its step; the next step takes 2.5 prompts beside one decode.
    assert_eq!((server.gauges().running, server.gauges().waiting), (1, 5));
    assert_eq!(told(&mut server, at_ms(50)), [(50, 0, What::Token(1))]);
    assert_eq!((server.gauges().running, server.gauges().waiting), (4, 2), "max_num_seqs");
    let rest = told(&mut server, at_ms(60_000));
    assert_eq!(rest.iter().filter(|(.., what)| *what == What::Finished).count(), 6);
}

#[test]
fn kv_that_runs_out_preempts_the_last_and_it_is_computed_again() {
    let spec = Spec { kv_blocks: 5, token_budget: 1_000, max_model_len: 80, ..plain() };
    let mut server = Server::new(spec, Micros::ZERO, 1);
    server.submit(Micros::ZERO, Job { id: 1, prompt: 32, output: 40 }).unwrap();
    server.submit(Micros::ZERO, Job { id: 2, prompt: 32, output: 2 }).unwrap();
    let all = told(&mut server, at_ms(60_000));
    let preempted: Vec<_> = all.iter().filter(|(.., what)| *what == What::Preempted).collect();
    assert_eq!(preempted.len() as u64, server.totals().preempted);
    assert!(preempted.iter().all(|(_, id, _)| *id == 2), "last in, first out: {preempted:?}");
    for (id, output) in [(1, 40), (2, 2)] {
        let tokens: Vec<_> = all
            .iter()
            .filter_map(|(_, i, what)| match what {
                What::Token(n) if *i == id => Some(*n),
                _ => None,
            })
            .collect();
        assert_eq!(tokens, (1..=output).collect::<Vec<_>>(), "each token once, in order");
    }
}

#[test]
fn ranks_decide_who_waits_and_who_is_preempted() {
    let spec = Spec { max_num_seqs: 1, ..plain() };
    let mut server = Server::new(spec, Micros::ZERO, 1);
    for (id, rank) in [(1, 9), (2, 10), (3, -5), (4, 10), (5, -5)] {
        server.submit_ranked(Micros::ZERO, Job { id, prompt: 10, output: 1 }, rank).unwrap();
    }
    let order: Vec<_> = told(&mut server, at_ms(60_000))
        .iter()
        .filter(|(.., what)| *what == What::Finished)
        .map(|(_, id, _)| *id)
        .collect();
    assert_eq!(order, [1, 3, 5, 2, 4], "the first runs already; then by rank, equal ones as they came");

    let spec = Spec { kv_blocks: 5, token_budget: 1_000, max_model_len: 80, ..plain() };
    let mut server = Server::new(spec, Micros::ZERO, 1);
    server.submit_ranked(Micros::ZERO, Job { id: 1, prompt: 32, output: 40 }, 10).unwrap();
    server.submit_ranked(Micros::ZERO, Job { id: 2, prompt: 32, output: 20 }, -5).unwrap();
    let all = told(&mut server, at_ms(60_000));
    let preempted: Vec<_> = all.iter().filter(|(.., what)| *what == What::Preempted).collect();
    assert!(!preempted.is_empty() && preempted.iter().all(|(_, id, _)| *id == 1), "{preempted:?}");
}

#[test]
fn an_abort_frees_at_once() {
    let mut server = Server::new(plain(), Micros::ZERO, 1);
    server.submit(Micros::ZERO, Job { id: 1, prompt: 600, output: 5 }).unwrap();
    server.submit(Micros::ZERO, Job { id: 2, prompt: 10, output: 5 }).unwrap();
    told(&mut server, at_ms(250));
    assert!(server.gauges().kv_used > 0);
    assert!(server.abort(1));
    assert!(!server.abort(1), "once");
    assert!(server.abort(2), "a waiting one too");
    assert_eq!(server.gauges(), Gauges { kv_total: 100, ..Gauges::default() });
    assert_eq!(told(&mut server, at_ms(60_000)), [], "an aborted job is never heard of again");
    assert_eq!(server.totals().aborted, 2);
    assert!((1..=600).contains(&server.totals().abandoned), "{:?}", server.totals());
}

#[test]
fn what_can_never_be_served_is_refused() {
    let spec = Spec { cold_start: at_ms(500), ..plain() };
    let mut server = Server::new(spec, at_ms(100), 1);
    let job = Job { id: 1, prompt: 10, output: 1 };
    assert_eq!(server.submit(at_ms(599), job), Err(Refusal::Cold { ready_at: 600_000 }));
    assert_eq!(server.submit(at_ms(600), job), Ok(()));
    for (prompt, output) in [(1_600, 1), (0, 1), (1, 0), (u32::MAX, u32::MAX)] {
        let got = server.submit(at_ms(600), Job { id: 2, prompt, output });
        assert!(matches!(got, Err(Refusal::TooLong { longest: 1_600, .. })), "{prompt} {output}: {got:?}");
    }
}

#[test]
fn a_stall_moves_the_step_under_way_and_all_later_ones() {
    let mut server = Server::new(plain(), Micros::ZERO, 1);
    server.submit(Micros::ZERO, Job { id: 1, prompt: 10, output: 2 }).unwrap();
    server.stall(at_ms(5), at_ms(100));
    assert_eq!(
        told(&mut server, at_ms(10_000)),
        [(120, 1, What::Token(1)), (130, 1, What::Token(2)), (130, 1, What::Finished)]
    );
}

/// A random world: submits, aborts, stalls, a small KV; everything that was told, and the totals.
fn world(seed: u64) -> (Vec<Progress>, Totals) {
    let mut rng = Rng::new(seed);
    let spec = Spec {
        kv_blocks: 60 + rng.below(200) as u32,
        max_num_seqs: 1 + rng.below(8) as u32,
        stall_every: at_ms(300),
        stall_for: at_ms(40),
        max_model_len: 900,
        ..plain()
    };
    let mut server = Server::new(spec, Micros::ZERO, seed);
    let (mut now, mut all) = (Micros::ZERO, Vec::new());
    let mut outputs = BTreeMap::new();
    let mut aborted = Vec::new();
    for id in 0..150 {
        now = now + Micros(rng.below(120_000));
        server.advance(now, &mut |p| all.push(p));
        let job = Job { id, prompt: 1 + rng.below(400) as u32, output: 1 + rng.below(60) as u32 };
        // Every other world schedules by priority.
        let rank = if seed % 2 == 1 { rng.below(3) as i32 } else { 0 };
        server.submit_ranked(now, job, rank).unwrap();
        outputs.insert(id, job.output);
        if rng.below(5) == 0 {
            let victim = rng.below(id + 1);
            if server.abort(victim) {
                aborted.push(victim);
            }
        }
        server.check().unwrap_or_else(|broken| panic!("seed {seed}, job {id}: {broken}"));
    }
    server.advance(Micros::MAX, &mut |p| all.push(p));
    server.check().unwrap_or_else(|broken| panic!("seed {seed}, at the end: {broken}"));
    assert_eq!(server.gauges().waiting + server.gauges().running + server.gauges().kv_used, 0, "seed {seed}");
    assert!(all.windows(2).all(|pair| pair[0].at <= pair[1].at), "seed {seed}: time went back");
    let mut tokens: BTreeMap<u64, u32> = BTreeMap::new();
    for progress in &all {
        if let What::Token(n) = progress.what {
            let count = tokens.entry(progress.id).or_default();
            *count += 1;
            assert_eq!(*count, n, "seed {seed}: tokens of {} out of order", progress.id);
        }
    }
    for (id, output) in outputs.iter().filter(|(id, _)| !aborted.contains(id)) {
        assert_eq!(tokens.get(id), Some(output), "seed {seed}: job {id}");
    }
    assert_eq!(server.totals().generated, tokens.values().map(|n| u64::from(*n)).sum::<u64>());
    (all, server.totals())
}

#[test]
fn tokens_are_conserved_and_the_seed_decides_everything() {
    let mut preempted = 0;
    for seed in 0..40 {
        let (told, totals) = world(seed);
        assert_eq!((told, totals), world(seed), "seed {seed} twice");
        preempted += totals.preempted;
    }
    assert!(preempted > 100, "the worlds are too easy: {preempted} preemptions");
}

#[test]
fn the_default_serves_about_as_much_as_it_says() {
    // Prefill-bound: 10,000 tokens/s less the fixed 10 ms per step of 2,048 tokens.
    let mut server = Server::new(Spec::default(), Micros::ZERO, 1);
    for id in 0..50 {
        server.submit(Micros::ZERO, Job { id, prompt: 2_048, output: 1 }).unwrap();
    }
    let all = told(&mut server, Micros::MAX);
    let took_ms = all.last().map(|last| last.0).unwrap();
    assert!((10_700..10_900).contains(&took_ms), "{took_ms} ms for 102,400 tokens");
}
