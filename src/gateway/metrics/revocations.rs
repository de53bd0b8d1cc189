//! Figures of revocations: how many, for whom, how each ended, and how long the way to the engine and back took.

use super::encode::{Pools, Series, write};
use super::histogram::Histogram;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use std::collections::BTreeMap;
use std::fmt::Error;
use weir_kernel::{Event, RevocationEnd, RevocationOrder};

/// One pool's figures.
#[derive(Debug, Default)]
pub struct Revocations {
    /// Issued, by the priority of the demand band; none = an operator's.
    issued: BTreeMap<Option<i32>, u64>,
    /// Ended.
    ends: BTreeMap<RevocationEnd, u64>,
    /// Streams that ended after their revocation had timed out.
    late: u64,
    /// From the order to the end of the stream.
    confirmation: Histogram,
    /// From the end of the stream to the samples that show it.
    reclaim: Histogram,
    /// From the order to the same.
    whole: Histogram,
}

impl Revocations {
    /// Takes in an event; those of other concerns move nothing.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::RevocationIssued(issued) => {
                let demand = match issued.order {
                    RevocationOrder::Operator => None,
                    RevocationOrder::Reclamation { demand, .. } => Some(demand),
                };
                *self.issued.entry(demand).or_default() += 1;
            }
            Event::RevocationEnded(ended) => {
                *self.ends.entry(ended.end).or_default() += 1;
                if ended.end == RevocationEnd::Confirmed {
                    self.confirmation.observe(ended.took.0);
                }
            }
            Event::ConfirmedLate { .. } => self.late += 1,
            Event::Reclaimed(reclaimed) => {
                self.reclaim.observe(reclaimed.after.0);
                self.whole.observe(reclaimed.took.0);
            }
            _ => {}
        }
    }
}

type Of = fn(&Revocations) -> &Histogram;

/// Writes the series of all pools.
pub fn encode(encoder: &mut DescriptorEncoder<'_>, pools: &Pools) -> Result<(), Error> {
    let help = "Revocations issued, by the priority of the demand band.";
    let mut series = Series::counter(encoder, "flow_control_revocations_issued", help)?;
    for (pool, figures) in pools {
        for (demand, count) in &figures.revocations.issued {
            let priority = demand.map_or_else(|| "operator".to_owned(), |priority| priority.to_string());
            series.count(vec![("priority", &*priority), ("inference_pool", &**pool)], *count)?;
        }
    }
    let mut series = Series::counter(encoder, "flow_control_revocations", "Revocations, by how they ended.")?;
    for (pool, figures) in pools {
        for end in RevocationEnd::ALL {
            let count = figures.revocations.ends.get(&end).copied().unwrap_or(0);
            series.count(vec![("outcome", end.word()), ("inference_pool", &**pool)], count)?;
        }
    }
    let help = "Streams that ended after their revocation had timed out.";
    let mut series = Series::counter(encoder, "flow_control_late_confirmations", help)?;
    for (pool, figures) in pools {
        series.count(vec![("inference_pool", &**pool)], figures.revocations.late)?;
    }
    let all: [(&str, &str, Of); 3] = [
        (
            "flow_control_revocation_confirmation_seconds",
            "From a revocation to the end of its lease's stream.",
            |r| &r.confirmation,
        ),
        (
            "flow_control_revocation_reclaim_seconds",
            "From the end of a revoked lease's stream to the endpoint's own metrics that show it.",
            |r| &r.reclaim,
        ),
        (
            "flow_control_revocation_duration_seconds",
            "From a revocation to the endpoint's own metrics that show its lease is gone.",
            |r| &r.whole,
        ),
    ];
    for (name, help, of) in all {
        let mut histogram = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (pool, figures) in pools {
            write(&mut histogram, &vec![("inference_pool", &**pool)], of(&figures.revocations))?;
        }
    }
    Ok(())
}
