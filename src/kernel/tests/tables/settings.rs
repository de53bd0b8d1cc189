//! Settings for tables: a pushed saturation figure unless a table is about detectors.

use std::collections::BTreeMap;
use weir_kernel::*;

/// The documented defaults, with a saturation figure that is pushed.
pub fn pushed() -> Policy {
    Policy { detector: Detector::Pushed, ..Policy::default() }
}

/// The documented defaults as they are: engine metrics, with in-flight credit.
pub fn scraped() -> Policy {
    Policy::default()
}

/// Our own leases against a limit per endpoint.
pub fn counted(max_requests: u64) -> Policy {
    let detector = Detector::Concurrency {
        mode: ConcurrencyMode::Requests,
        max_requests,
        max_tokens: 1_000_000,
        headroom: Ratio::ZERO,
        output_estimate: None,
    };
    Policy { detector, ..Policy::default() }
}

/// A band's priority and how its settings differ from the defaults.
type Change = (i32, fn(&mut BandSettings));

/// Bands by priority, each made from the system defaults.
pub fn bands<const N: usize>(bands: [Change; N]) -> BTreeMap<i32, BandSettings> {
    let mut all = BTreeMap::from([(0, BandSettings::default())]);
    for (priority, change) in bands {
        let mut settings = BandSettings::default();
        change(&mut settings);
        all.insert(priority, settings);
    }
    all
}

/// With budgets: saturation, no endpoint (in seconds; zero = none).
pub fn budgets(policy: Policy, saturation: u64, no_endpoint: u64) -> Policy {
    Policy {
        saturation_budget: Micros::from_secs(saturation),
        no_endpoint_budget: Micros::from_secs(no_endpoint),
        ..policy
    }
}
