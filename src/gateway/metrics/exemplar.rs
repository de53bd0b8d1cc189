//! The last traced request behind a counter, for OpenMetrics: from a figure to a trace in one step.
//!
//! On counters alone: the encoder that is used takes no exemplars of another's histograms.

use prometheus_client::metrics::exemplar::CounterWithExemplar;
use std::time::{Duration, SystemTime};
use weir_kernel::{Micros, Trace};

/// A traced request.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    trace_id: [u8; 16],
    /// How long it waited.
    waited: Micros,
    at: Micros,
}

/// The labels of an exemplar.
pub type MarkLabels = Vec<(&'static str, String)>;

impl Mark {
    /// Of a request whose caller has it traced.
    pub fn of(trace: Option<Trace>, waited: Micros, at: Micros) -> Option<Mark> {
        let trace = trace.filter(|trace| trace.flags & 1 == 1)?;
        Some(Mark { trace_id: trace.trace_id, waited, at })
    }

    /// In the form that is encoded; its value is the wait in seconds.
    pub fn exemplar(&self) -> CounterWithExemplar<MarkLabels, f64> {
        let counter = CounterWithExemplar::default();
        let id = self.trace_id.iter().map(|byte| format!("{byte:02x}")).collect();
        let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(self.at.0));
        counter.inc_by(self.waited.0 as f64 / 1e6, Some(vec![("trace_id", id)]), at);
        counter
    }
}
