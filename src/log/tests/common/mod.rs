//! What the tests of the log share: steps that look like real ones, and a chain of batches.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use weir_kernel::{Arrival, Event, Input, Micros, RequestId, Step};
use weir_log::{Codec, Draft, Frame, Head};

/// Steps `from`, `from + 1`, …; each carries `filler` bytes that do not repeat, so that batches have some size.
pub fn steps(from: u64, count: u64, filler: usize) -> Vec<Step> {
    (from..from + count)
        .map(|seq| {
            let mut state = seq.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let text: String = (0..filler)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    char::from(b'a' + (state % 26) as u8)
                })
                .collect();
            let arrival = Arrival { caller_id: text, bytes: seq, ..Arrival::default() };
            Step {
                seq,
                at: Micros(1_000 * seq),
                input: Input::Arrived(arrival),
                events: vec![Event::RenewalNoted { request: RequestId(seq) }],
            }
        })
        .collect()
}

/// The batch after a head.
pub fn batch(pool: &str, head: &Head, count: u64, filler: usize) -> Frame {
    let steps = steps(head.seq + 1, count, filler);
    let draft = Draft::encode(weir_migrations::CURRENT, Codec::Plain, &Arc::from(pool), &steps).unwrap();
    draft.seal(head.hash, Micros(7))
}
