//! Which traced request stands behind which bucket of our histograms.

use super::Inner;
use super::encode::{QUEUE_DURATION, wait_labels};
use super::exemplar::Marks;
use super::histogram::bound;
use super::more::PROCESSING_DURATION;

/// Of everything that is shown under these prefixes.
pub fn of<'p>(inner: &Inner, prefixes: impl Iterator<Item = &'p str>) -> Marks {
    let mut marks = Marks::default();
    for prefix in prefixes {
        let (waits, whole) =
            (format!("{prefix}_{QUEUE_DURATION}"), format!("{prefix}_{PROCESSING_DURATION}"));
        for (pool, figures) in &inner.pools {
            for ((outcome, bucket), (key, mark)) in &figures.wait_marks {
                let priority = key.priority.to_string();
                let labels = wait_labels(key, *outcome, &priority, pool, &inner.shared);
                marks.put(&waits, bound(*bucket), &labels, mark);
            }
            for (bucket, mark) in &figures.leases.processing_marks {
                marks.put(&whole, bound(*bucket), &[("inference_pool", pool)], mark);
            }
        }
    }
    marks
}
