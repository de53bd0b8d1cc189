//! Steps printed as a table, or one JSON object per line.

use super::error::Failed;
use serde_json::Value;
use std::io::Write;
use weir_kernel::Step;
use weir_log::describe::{event_text, input_kind, input_text, show_time, step_json};

/// How steps are printed.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// As JSON.
    pub json: bool,
    /// With the pool's name, because there are several.
    pub pools: bool,
}

/// Prints steps, the heading first.
pub struct Printer<W: Write> {
    out: W,
    style: Style,
    begun: bool,
}

impl<W: Write> Printer<W> {
    /// Nothing printed yet.
    pub fn new(out: W, style: Style) -> Self {
        Printer { out, style, begun: false }
    }

    /// Prints one step.
    pub fn step(&mut self, pool: &str, step: &Step) -> Result<(), Failed> {
        if self.style.json {
            let mut value = step_json(step)?;
            if let Value::Object(fields) = &mut value {
                fields.insert("pool".to_owned(), Value::String(pool.to_owned()));
            }
            writeln!(self.out, "{value}")?;
            return Ok(());
        }
        if !self.begun {
            self.begun = true;
            let pool = if self.style.pools { format!("{:12} ", "POOL") } else { String::new() };
            writeln!(self.out, "{:>8} {:27} {pool}INPUT and, below it, what was DECIDED", "SEQ", "TIME")?;
        }
        let pool = if self.style.pools { format!("{pool:12} ") } else { String::new() };
        let (kind, text) = (input_kind(&step.input), input_text(&step.input));
        let line = format!("{:>8} {} {pool}{kind} {text}", step.seq, show_time(step.at));
        writeln!(self.out, "{}", line.trim_end())?;
        for event in &step.events {
            writeln!(
                self.out,
                "{:>8} {:27} {:width$}=> {}",
                "",
                "",
                "",
                event_text(event),
                width = pool.len()
            )?;
        }
        Ok(())
    }

    /// Sends what was printed on its way.
    pub fn flush(&mut self) -> Result<(), Failed> {
        Ok(self.out.flush()?)
    }
}
