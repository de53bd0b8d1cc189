//! The last traced request behind a figure, for OpenMetrics: from a figure to a trace in one step.
//!
//! The encoder takes an exemplar of a counter. Of a histogram it takes those of its own histograms alone: behind the buckets
//! of ours they are put while the text is written.

use prometheus_client::metrics::exemplar::CounterWithExemplar;
use std::collections::HashMap;
use std::fmt::{self, Write};
use std::time::{Duration, SystemTime};
use weir_kernel::{Micros, Trace};

/// A traced request.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    trace_id: [u8; 16],
    /// How long it waited, or took.
    value: Micros,
    at: Micros,
}

/// The labels of an exemplar.
pub type MarkLabels = Vec<(&'static str, String)>;

impl Mark {
    /// Of a request whose caller has it traced.
    pub fn of(trace: Option<Trace>, value: Micros, at: Micros) -> Option<Mark> {
        let trace = trace.filter(|trace| trace.flags & 1 == 1)?;
        Some(Mark { trace_id: trace.trace_id, value, at })
    }

    /// Its value, in microseconds.
    pub fn micros(&self) -> u64 {
        self.value.0
    }

    fn id(&self) -> String {
        self.trace_id.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// In the form that is encoded; its value is in seconds.
    pub fn exemplar(&self) -> CounterWithExemplar<MarkLabels, f64> {
        let counter = CounterWithExemplar::default();
        let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(self.at.0));
        counter.inc_by(self.value.0 as f64 / 1e6, Some(vec![("trace_id", self.id())]), at);
        counter
    }

    /// As it stands behind a sample (OpenMetrics 1.0, exemplars): labels, value in seconds, instant.
    fn text(&self) -> String {
        let (value, at) = (self.value.0 as f64 / 1e6, self.at.0);
        format!(" # {{trace_id=\"{}\"}} {value} {}.{:06}", self.id(), at / 1_000_000, at % 1_000_000)
    }
}

/// What stands behind buckets, by the sample up to its value.
#[derive(Debug, Default)]
pub struct Marks(HashMap<String, String>);

impl Marks {
    /// Behind the bucket with this upper bound of a series.
    pub fn put(&mut self, name: &str, bound: f64, labels: &[(&str, &str)], mark: &Mark) {
        let mut sample = String::new();
        let bound = if bound.is_finite() { format!("{bound:?}") } else { "+Inf".to_owned() };
        // Writing to a string cannot fail.
        let _ = write!(sample, "{name}_bucket{{le=\"{bound}\"");
        for (key, value) in labels {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(sample, ",{key}=\"{value}\"");
        }
        sample.push('}');
        self.0.insert(sample, mark.text());
    }
}

/// Writes lines on, each with what stands behind it.
pub struct Marking<'t> {
    to: &'t mut String,
    marks: Marks,
    /// Where the present line begins.
    line: usize,
}

impl<'t> Marking<'t> {
    /// On to this text.
    pub fn new(to: &'t mut String, marks: Marks) -> Self {
        let line = to.len();
        Marking { to, marks, line }
    }
}

impl Write for Marking<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.split_inclusive('\n') {
            let Some(rest) = piece.strip_suffix('\n') else {
                self.to.push_str(piece);
                continue;
            };
            self.to.push_str(rest);
            let sample = self.to[self.line..].rsplit_once(' ').map_or("", |(sample, _)| sample);
            if let Some(mark) = self.marks.0.get(sample) {
                self.to.push_str(mark);
            }
            self.to.push('\n');
            self.line = self.to.len();
        }
        Ok(())
    }
}
