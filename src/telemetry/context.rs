//! The ids of a request's spans: a function of what the log holds of it, so that whoever reads the log finds the same.

use crate::sampler::Sampler;
use sha2::{Digest, Sha256};
use weir_kernel::{Micros, RequestId, Trace};

/// Bit 0 of the trace flags.
const SAMPLED: u8 = 1;

/// The ids of a request's spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// Its trace: the caller's, else one of its own.
    pub trace_id: [u8; 16],
    /// The caller's span.
    pub parent: Option<[u8; 8]>,
    /// The span of the whole request.
    pub admission: [u8; 8],
    /// Is it exported while it runs?
    pub sampled: bool,
}

impl Context {
    /// Of a request, by its pool, its number, the instant at which its face saw it and its caller's own context.
    pub fn of(
        pool: &str,
        request: RequestId,
        received_at: Micros,
        caller: Option<Trace>,
        sampler: &Sampler,
    ) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"weir request\0");
        hash.update(pool.as_bytes());
        hash.update([0]);
        hash.update(request.0.to_be_bytes());
        hash.update(received_at.0.to_be_bytes());
        if let Some(caller) = caller {
            hash.update(caller.trace_id);
            hash.update(caller.parent_id);
        }
        let (own, admission) = halves(hash);
        let trace_id = caller.map_or(own, |caller| caller.trace_id);
        let sampled = sampler.samples(&trace_id, caller.map(|caller| caller.flags & SAMPLED != 0));
        Context { trace_id, parent: caller.map(|caller| caller.parent_id), admission, sampled }
    }

    /// A trace of its own: something that no caller asked for.
    pub fn of_pool(what: &str, pool: &str, number: u64, at: Micros, sampler: &Sampler) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"weir ");
        hash.update(what.as_bytes());
        hash.update([0]);
        hash.update(pool.as_bytes());
        hash.update([0]);
        hash.update(number.to_be_bytes());
        hash.update(at.0.to_be_bytes());
        let (trace_id, admission) = halves(hash);
        Context { trace_id, parent: None, admission, sampled: sampler.samples(&trace_id, None) }
    }

    /// The span of the wait in the queue.
    pub fn queue(&self) -> [u8; 8] {
        child(self.admission, 1)
    }

    /// The span of the lease, which is what the model server is told of as its parent.
    pub fn lease(&self) -> [u8; 8] {
        child(self.admission, 2)
    }

    /// `traceparent` for the model server: its work is part of the lease.
    pub fn traceparent(&self) -> String {
        let flags = if self.sampled { "01" } else { "00" };
        format!("00-{}-{}-{flags}", hex(&self.trace_id), hex(&self.lease()))
    }
}

/// A trace id and a span id, neither of them all zeros.
fn halves(hash: Sha256) -> ([u8; 16], [u8; 8]) {
    let digest = hash.finalize();
    let (mut trace_id, mut span_id) = ([0; 16], [0; 8]);
    trace_id.copy_from_slice(&digest[..16]);
    span_id.copy_from_slice(&digest[16..24]);
    // All zeros mean "none"; the odds are those of a broken hash.
    trace_id[15] |= u8::from(trace_id == [0; 16]);
    span_id[7] |= u8::from(span_id == [0; 8]);
    (trace_id, span_id)
}

/// The finaliser of splitmix64: a bijection, so that the spans of one request never share an id.
fn child(span: [u8; 8], place: u64) -> [u8; 8] {
    let mut x = u64::from_be_bytes(span).wrapping_add(place.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 31;
    // All zeros mean "none".
    if x == 0 { [0xff; 8] } else { x.to_be_bytes() }
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pool: &str, request: u64, caller: Option<Trace>) -> Context {
        Context::of(pool, RequestId(request), Micros(7), caller, &Sampler::default())
    }

    #[test]
    fn ids_depend_on_the_request_alone_and_differ_within_it() {
        let caller = Trace { trace_id: [3; 16], parent_id: [4; 8], flags: 1 };
        let one = of("p", 5, Some(caller));
        assert_eq!(one, of("p", 5, Some(caller)));
        assert_eq!((one.trace_id, one.parent, one.sampled), ([3; 16], Some([4; 8]), true));
        let spans = [one.admission, one.queue(), one.lease()];
        assert!(spans.iter().all(|id| *id != [0; 8]));
        assert!(spans[0] != spans[1] && spans[1] != spans[2] && spans[0] != spans[2]);
        assert_ne!(of("p", 6, Some(caller)).admission, one.admission);
        assert_ne!(of("q", 5, Some(caller)).admission, one.admission);
        let alone = of("p", 5, None);
        assert!(alone.parent.is_none() && alone.trace_id != of("p", 6, None).trace_id);
    }

    #[test]
    fn the_callers_decision_is_passed_on() {
        let caller = |flags| Trace { trace_id: [0xab; 16], parent_id: [4; 8], flags };
        let (yes, no) = (of("p", 5, Some(caller(3))), of("p", 5, Some(caller(2))));
        assert!(yes.sampled && !no.sampled);
        assert_eq!(yes.traceparent(), format!("00-{}-{}-01", "ab".repeat(16), hex(&yes.lease())));
        assert!(no.traceparent().ends_with("-00"));
        assert_eq!(yes.lease(), no.lease(), "sampled or not, the ids are the same");
    }
}
