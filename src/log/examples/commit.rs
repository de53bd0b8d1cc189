//! How near the durable log comes to a plain append with a data sync: interleaved pairs at 64 and 256 decisions a
//! batch. `cargo run --release -p weir-log --example commit -- DIR [PAIRS]`
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use weir_kernel::{
    Arrival, BudgetSource, Dispatched, Ended, Enqueued, Event, Face, FlowId, Input, LeaseEnd, LeaseEnded,
    Micros, OrderKey, Ratio, RequestId, Slot, Step, Termination, Usage,
};
use weir_log::hot::{HotOptions, HotStore};
use weir_log::measure::{PlainFile, through_log};
use weir_log::store::Store;
use weir_log::writer::{Writer, WriterOptions};

const BATCHES: usize = 100;

fn main() {
    let base = std::path::PathBuf::from(std::env::args().nth(1).expect("a directory"));
    let pairs: usize = std::env::args().nth(2).map_or(15, |text| text.parse().expect("a number"));
    for decisions in [64_u64, 256] {
        let dir = base.join(format!("commit-{decisions}"));
        let _ = std::fs::remove_dir_all(&dir);
        let store = HotStore::open(&dir.join("log"), HotOptions::default()).unwrap();
        let window = store.window();
        let options = WriterOptions { commit_bytes_max: 1, ..WriterOptions::default() };
        let writer = Writer::spawn(Box::new(store), options).unwrap();
        let mut plain = PlainFile::create(&dir.join("plain")).unwrap();
        let pool: Arc<str> = Arc::from("default");
        let mut seq = 1;
        let mut ratios = Vec::new();
        let (mut logged, mut appended, mut bytes) = (0.0, 0.0, 0);
        for _ in 0..pairs {
            let first = seq;
            let batches = (0..BATCHES).map(|_| {
                let steps = (0..decisions).flat_map(|n| decision(seq + 2 * n)).collect();
                seq += 2 * decisions;
                steps
            });
            let log = through_log(&writer, &pool, batches).unwrap().as_secs_f64();
            let frames = writer.frames().read(&pool, first, usize::MAX).unwrap();
            assert_eq!(frames.len(), BATCHES);
            bytes += frames.iter().map(|frame| frame.bytes.len()).sum::<usize>();
            let file = plain.append(&frames).unwrap().as_secs_f64();
            logged += log;
            appended += file;
            ratios.push(file / log);
            for closed in window.closed() {
                window.delete(closed.number).unwrap();
            }
        }
        ratios.sort_by(f64::total_cmp);
        let total = decisions as f64 * (BATCHES * pairs) as f64;
        let metrics = writer.metrics();
        println!(
            "{decisions} decisions a batch: {:.0}/s durable, {:.0}/s plain, ratio median {:.2} ({:.2} to {:.2}); \
             {} bytes a batch, {:.0} us a commit, {} commits",
            total / logged,
            total / appended,
            ratios[ratios.len() / 2],
            ratios[0],
            ratios[ratios.len() - 1],
            bytes / (BATCHES * pairs),
            metrics.flush_us as f64 / metrics.commits as f64,
            metrics.commits,
        );
        let (disk, head) = (window.disk_bytes(), writer.frames().head(&pool));
        drop(writer);
        let begun = std::time::Instant::now();
        let store = HotStore::open(&dir.join("log"), HotOptions::default()).unwrap();
        println!(
            "  opened and checked whole: {} MB on disk in {:.0} ms",
            disk / 1_000_000,
            begun.elapsed().as_secs_f64() * 1e3
        );
        assert_eq!(store.frames().head(&pool), head);
        drop(store);
        let _ = std::fs::remove_dir_all(&dir);
    }
}

/// An arrival that is admitted at once, and its end.
fn decision(seq: u64) -> [Step; 2] {
    let at = Micros(1_790_000_000_000_000 + seq * 50);
    let request = RequestId(seq);
    let arrival = Arrival {
        caller_id: format!(
            "{:032x}",
            u128::from(seq).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
        ),
        objective: Some("interactive".to_owned()),
        fairness_id: format!("tenant-{}", seq % 500),
        model: Some("llama".to_owned()),
        bytes: 3_000 + seq % 977,
        prompt_tokens: Some(700),
        received_at: at,
        face: Face::Stream,
        ..Arrival::default()
    };
    let enqueued = Enqueued {
        flow: FlowId((seq % 500) as u32),
        priority: 0,
        objective_unknown: false,
        saturation_budget: Micros(60_000_000),
        no_endpoint_budget: Micros(60_000_000),
        budget_source: BudgetSource::Global,
        header_class: None,
        order: OrderKey::default(),
        depth: 1 + seq % 7,
    };
    let dispatched = Dispatched {
        request,
        endpoint: Some(Slot((seq % 16) as u16)),
        waited: Micros(seq % 5_000),
        raw: Ratio(500_000),
        effective: Ratio(620_000 + (seq % 999) as i64),
        ceiling: Ratio::ONE,
        observed: seq - 1,
        output_estimate: 0,
    };
    let usage = Some(Usage { prompt: 700, completion: 130 });
    let ended = LeaseEnded { request, end: LeaseEnd::Completed, ran: Micros(2_000_000), cause: None };
    [
        Step {
            seq,
            at,
            input: Input::Arrived(arrival),
            events: vec![Event::Enqueued(enqueued), Event::Dispatched(dispatched)],
        },
        Step {
            seq: seq + 1,
            at,
            input: Input::Ended(Ended { request, termination: Termination::Natural, usage }),
            events: vec![Event::LeaseEnded(ended)],
        },
    ]
}
