//! W3C trace context of the caller: kept where it is valid, dropped without harm where it is not.
//!
//! Not here: spans of our own, `tracestate` (it decides nothing, and travels on untouched).

use weir_kernel::Trace;

/// Reads `traceparent`. Anything that the standard calls invalid gives `None`: the request is unaffected.
pub fn traceparent(value: &[u8]) -> Option<Trace> {
    // version "-" trace-id "-" parent-id "-" flags; a later version may append more behind another dash.
    if value.len() < 55 || [2, 35, 52].iter().any(|at| value[*at] != b'-') {
        return None;
    }
    let version = hex::<1>(&value[..2])?[0];
    let whole = value.len() == 55;
    if version == 0xff || (version == 0 && !whole) || (!whole && value[55] != b'-') {
        return None;
    }
    let trace_id = hex::<16>(&value[3..35])?;
    let parent_id = hex::<8>(&value[36..52])?;
    let flags = hex::<1>(&value[53..55])?[0];
    (trace_id != [0; 16] && parent_id != [0; 8]).then_some(Trace { trace_id, parent_id, flags })
}

/// Lower-case hex only, as the standard demands.
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let nibble = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut out = [0; N];
    for (index, slot) in out.iter_mut().enumerate() {
        *slot = nibble(*text.get(2 * index)?)? << 4 | nibble(*text.get(2 * index + 1)?)?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c129_a_valid_context_is_kept_and_an_invalid_one_dropped() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let read = traceparent(good.as_bytes()).unwrap();
        assert_eq!(read.trace_id[0], 0x0a);
        assert_eq!(read.parent_id[7], 0x31);
        assert_eq!(read.flags, 1);
        assert_eq!(traceparent(good.replace("-01", "-00").as_bytes()).unwrap().flags, 0);
        assert!(traceparent(format!("01{}-later", &good[2..]).as_bytes()).is_some());
        for bad in [
            "",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01x",
        ] {
            assert_eq!(traceparent(bad.as_bytes()), None, "{bad}");
        }
    }
}
