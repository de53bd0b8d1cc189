//! The trace of an admitted request as headers that Envoy is told to set and to remove.

use crate::gateway::traces::Onward;

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// Adds them. Where Envoy itself traces, it writes its own `traceparent` after that, as the parent of the model server.
pub fn headers<'h>(
    onward: Option<&'h Onward>,
    mut names: impl Iterator<Item = &'h str>,
    set: &mut Vec<(&'h str, &'h str)>,
    remove: &mut Vec<&'h str>,
) {
    let Some(onward) = onward else { return };
    set.push((TRACEPARENT, &onward.traceparent));
    if onward.is_root && names.any(|name| name == TRACESTATE) {
        remove.push(TRACESTATE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_goes_on_with_its_trace_only() {
        let told = |is_root| {
            let onward = Onward { traceparent: "00-a-b-01".to_owned(), is_root };
            let (mut set, mut remove) = (Vec::new(), Vec::new());
            headers(Some(&onward), ["a", TRACESTATE].into_iter(), &mut set, &mut remove);
            assert_eq!(set, [(TRACEPARENT, "00-a-b-01")]);
            remove == [TRACESTATE]
        };
        assert!(told(true) && !told(false));
        let (mut set, mut remove) = (Vec::new(), Vec::new());
        headers(None, [TRACESTATE].into_iter(), &mut set, &mut remove);
        assert!(set.is_empty() && remove.is_empty());
    }
}
