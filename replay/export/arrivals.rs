//! Arrivals as a trace that `weir load` takes.

use crate::model::prompt_of;
use std::collections::BTreeMap;
use std::io::{self, Write};
use weir_kernel::{Event, Input, Micros, Step};

/// Arrivals whose rows are not written: rows come in the order of arrival, so that one waits for those before it.
pub struct Arrivals {
    first: Option<Micros>,
    /// By number: time, prompt, tokens made once that is known (or cannot be any more).
    open: BTreeMap<u64, (Micros, u32, Option<u32>)>,
    unknown: u32,
    written: u64,
    unknown_count: u64,
}

impl Arrivals {
    /// `unknown` tokens where the log does not say it.
    pub fn new(unknown: u32) -> Arrivals {
        Arrivals { first: None, open: BTreeMap::new(), unknown, written: 0, unknown_count: 0 }
    }

    /// Takes a step, and writes what is known.
    pub fn take(&mut self, step: &Step, out: &mut dyn Write) -> io::Result<()> {
        if let Input::Arrived(arrival) = &step.input {
            self.open.insert(step.seq, (step.at, prompt_of(arrival).min(1_000_000), None));
        }
        for event in &step.events {
            let (id, tokens) = match event {
                Event::Rejected(_) | Event::Repeated { .. } => (step.seq, None),
                Event::Evicted(e) => (e.request.0, None),
                Event::LeaseEnded(e) => {
                    let usage = match &step.input {
                        Input::Ended(ended) if ended.request == e.request => ended.usage,
                        _ => None,
                    };
                    (e.request.0, usage.map(|usage| usage.completion.clamp(1, 1_000_000)))
                }
                _ => continue,
            };
            if let Some(open) = self.open.get_mut(&id) {
                self.unknown_count += u64::from(tokens.is_none());
                open.2 = Some(tokens.unwrap_or(self.unknown));
            }
        }
        while let Some(entry) = self.open.first_entry().filter(|entry| entry.get().2.is_some()) {
            let (at, prompt, tokens) = entry.remove();
            self.row(at, prompt, tokens.unwrap_or(self.unknown), out)?;
        }
        Ok(())
    }

    /// Writes those that are not over.
    pub fn rest(&mut self, out: &mut dyn Write) -> io::Result<()> {
        for (at, prompt, tokens) in std::mem::take(&mut self.open).into_values() {
            self.unknown_count += u64::from(tokens.is_none());
            self.row(at, prompt, tokens.unwrap_or(self.unknown), out)?;
        }
        Ok(())
    }

    /// Rows, and those of which the log does not say the tokens.
    pub fn counts(&self) -> (u64, u64) {
        (self.written, self.unknown_count)
    }

    fn row(&mut self, at: Micros, prompt: u32, tokens: u32, out: &mut dyn Write) -> io::Result<()> {
        let first = *self.first.get_or_insert(at);
        self.written += 1;
        writeln!(out, "{:.3},{prompt},{tokens}", at.since(first).0 as f64 / 1e3)
    }
}
