//! Arrivals of a trace, with a class and a flow each: what every run of the matrix is given alike.
//!
//! A trace is CSV with the columns `TIMESTAMP,ContextTokens,GeneratedTokens`, as the Azure LLM inference traces have them.

use std::path::Path;
use weir_kernel::Micros;
use weir_truth::rng::Rng;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// When it arrives, from the start.
    pub at: Micros,
    /// Prompt tokens.
    pub prompt: u32,
    /// Tokens that it will make.
    pub output: u32,
    /// Index in [`CLASSES`].
    pub class: usize,
    /// Its flow.
    pub flow: u32,
}

/// Objective, priority, share of the arrivals.
pub const CLASSES: [(&str, i32, f64); 3] =
    [("interactive", 100, 0.3), ("standard", 0, 0.4), ("batch", -10, 0.3)];
/// Flows of each class; flow n has a share of 1 / (n + 1) of what flow 0 has.
const FLOWS: u32 = 6;

/// Why a trace was not taken.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("{file}: {source}")]
    File {
        /// Its name.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// A line is of another form.
    #[error("{file}:{line}: {found:?} is not allowed; allowed: {allowed}")]
    Line {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What stands there.
        found: String,
        /// What may.
        allowed: &'static str,
    },
    /// No arrivals.
    #[error("{file}: no rows; allowed: at least 100")]
    Few {
        /// The file.
        file: String,
    },
}

const HEADER: &str = "TIMESTAMP,ContextTokens,GeneratedTokens";
const ROW: &str = "YYYY-MM-DD HH:MM:SS[.fraction],tokens,tokens with 1 to 1000000 tokens";

/// Reads a trace file.
///
/// # Errors
/// The first line that is not allowed.
pub fn read(path: &Path, longest: u32) -> Result<Vec<Planned>, TraceError> {
    let file = path.display().to_string();
    let text =
        std::fs::read_to_string(path).map_err(|source| TraceError::File { file: file.clone(), source })?;
    parse(&file, &text, longest)
}

/// Parses a trace; sizes are cut to what a server can hold.
///
/// # Errors
/// The first line that is not allowed.
pub fn parse(file: &str, text: &str, longest: u32) -> Result<Vec<Planned>, TraceError> {
    let mut lines = text.trim_start_matches('\u{feff}').lines().enumerate();
    let refused = |line: usize, found: &str, allowed| TraceError::Line {
        file: file.to_owned(),
        line,
        found: found.chars().take(64).collect(),
        allowed,
    };
    let header = lines.next().map_or("", |(_, line)| line.trim());
    if header != HEADER {
        return Err(refused(1, header, HEADER));
    }
    let mut rows = Vec::new();
    for (n, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        rows.push(row(line.trim()).ok_or_else(|| refused(n + 1, line, ROW))?);
    }
    rows.sort_unstable();
    if rows.len() < 100 {
        return Err(TraceError::Few { file: file.to_owned() });
    }
    let (first, mut rng) = (rows[0].0, Rng::new(5));
    Ok(rows
        .into_iter()
        .map(|(at, prompt, output)| {
            let output = output.min(longest / 4);
            let (class, flow) = (class(rng.unit()), flow(rng.unit()));
            Planned { at: Micros(at - first), prompt: prompt.min(longest - output), output, class, flow }
        })
        .collect())
}

fn class(mut at: f64) -> usize {
    for (n, (_, _, share)) in CLASSES.iter().enumerate() {
        if at < *share {
            return n;
        }
        at -= share;
    }
    CLASSES.len() - 1
}

fn flow(at: f64) -> u32 {
    let all: f64 = (1..=FLOWS).map(|n| 1.0 / f64::from(n)).sum();
    let mut left = at * all;
    for n in 0..FLOWS {
        left -= 1.0 / f64::from(n + 1);
        if left < 0.0 {
            return n;
        }
    }
    0
}

/// Microseconds since some day, prompt and generated tokens.
fn row(line: &str) -> Option<(u64, u32, u32)> {
    let mut cells = line.split(',').map(str::trim);
    let (time, prompt, output) = (cells.next()?, cells.next()?, cells.next()?);
    let tokens = |text: &str| text.parse::<u32>().ok().filter(|n| (1..=1_000_000).contains(n));
    // Traces have up to nine decimals, times of a log six.
    let time: String = time.replace(' ', "T").chars().take(26).collect();
    let at = weir_log::describe::parse_time(&time).ok()?;
    cells.next().is_none().then_some((at.0, tokens(prompt)?, tokens(output)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_with_classes_and_flows_and_bad_lines_are_named() {
        let mut text = format!("{HEADER}\n");
        for n in 0..600 {
            text.push_str(&format!("2023-11-16 18:{:02}:{:02}.9799600,{},10\n", n / 60, n % 60, 40_000 + n));
        }
        let plan = parse("t.csv", &text, 32_768).unwrap();
        assert_eq!((plan.len(), plan[0].at, plan[1].at), (600, Micros::ZERO, Micros::from_secs(1)));
        assert!(plan.iter().all(|p| p.prompt + p.output <= 32_768));
        let first = plan.iter().filter(|p| p.class == 0).count();
        assert!((140..220).contains(&first), "{first}");
        assert!(plan.iter().any(|p| p.flow == FLOWS - 1));
        for (text, want) in [
            ("a,b\n".to_owned(), "t.csv:1:"),
            (format!("{HEADER}\nyesterday,1,1\n"), "t.csv:2:"),
            (format!("{HEADER}\n2023-11-16 18:00:00,1,0\n"), "t.csv:2:"),
            (format!("{HEADER}\n2023-11-16 18:00:00,1,1\n"), "no rows"),
        ] {
            let got = parse("t.csv", &text, 100).unwrap_err().to_string();
            assert!(got.contains(want), "{got}");
        }
    }
}
