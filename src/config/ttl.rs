//! The saturation budget in force for one request, and which of the four words for it won.

use crate::parse_duration;
use weir_kernel::Micros;

/// Which budget is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetOrigin {
    /// `defaultRequestTTL`.
    Global,
    /// The band's own.
    Band,
    /// The caller's header, which was shorter.
    Header,
    /// The caller's deadline, which is sooner.
    Deadline,
}

/// The budget of the header `x-llm-d-inference-ttl`; `None` for text that is no duration, and for zero: both are ignored.
pub fn header_ttl(text: &str) -> Option<Micros> {
    parse_duration(text.trim()).ok().filter(|span| !span.is_zero())
}

/// The effective budget; zero = unbounded. The band's replaces the global one, and what the caller says only shortens it.
pub fn effective_ttl(
    global: Micros,
    band: Option<Micros>,
    header: Option<Micros>,
    deadline_in: Option<Micros>,
) -> (Micros, BudgetOrigin) {
    let mut budget = match band {
        Some(span) => (span, BudgetOrigin::Band),
        None => (global, BudgetOrigin::Global),
    };
    let given = [(header, BudgetOrigin::Header), (deadline_in, BudgetOrigin::Deadline)];
    for (span, origin) in given {
        if let Some(span) = span.filter(|span| !span.is_zero())
            && (budget.0.is_zero() || span < budget.0)
        {
            budget = (span, origin);
        }
    }
    budget
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c006_scoped_budgets_band_global_and_header() {
        let (five, zero) = (Some(Micros::from_secs(5)), Some(Micros::ZERO));
        for (band, header, want, origin) in [
            (five, None, 5, BudgetOrigin::Band),
            (five, Some("2s"), 2, BudgetOrigin::Header),
            (five, Some("60s"), 5, BudgetOrigin::Band),
            (None, None, 60, BudgetOrigin::Global),
            (None, Some("90s"), 60, BudgetOrigin::Global),
            (zero, None, 0, BudgetOrigin::Band),
            (zero, Some("2s"), 2, BudgetOrigin::Header),
            (None, Some(" 2s "), 2, BudgetOrigin::Header),
            (None, Some("0s"), 60, BudgetOrigin::Global),
            (None, Some("-1s"), 60, BudgetOrigin::Global),
        ] {
            let got = effective_ttl(Micros::from_secs(60), band, header.and_then(header_ttl), None);
            assert_eq!(got, (Micros::from_secs(want), origin), "{band:?} {header:?}");
        }
    }

    #[test]
    fn c011_a_huge_header_does_not_lengthen_or_wrap() {
        for text in
            ["2562047h", "2562047h0m1s", "2562046h59m59s", "18446744073709551615s", "9999999999999999999999h"]
        {
            let got = effective_ttl(Micros::from_secs(60), None, header_ttl(text), None);
            assert_eq!(got, (Micros::from_secs(60), BudgetOrigin::Global), "{text}");
        }
    }
}
