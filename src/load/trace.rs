//! Traces as CSV: `TIMESTAMP,ContextTokens,GeneratedTokens` (as the Azure LLM inference traces have them) or
//! `t_ms,input_tokens,output_tokens`.

use std::fs;
use std::path::Path;
use weir_kernel::Micros;

/// Tokens that one column may hold at most.
const TOKENS_MAX: u32 = 1_000_000;

/// One arrival of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Time after the first arrival.
    pub at: Micros,
    /// Prompt tokens.
    pub input: u32,
    /// Generated tokens.
    pub output: u32,
}

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
    /// The first line names other columns.
    #[error("{file}:1: header {found:?} is not allowed; allowed: {TIMESTAMPS} or {MILLIS}")]
    Header {
        /// The file.
        file: String,
        /// What stands there.
        found: String,
    },
    /// A row has too few or too many values.
    #[error("{file}:{line}: {found} values; allowed: 3")]
    Width {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// How many there are.
        found: usize,
    },
    /// A value is not allowed.
    #[error("{file}:{line}: {field}: {value:?} is not allowed; allowed: {allowed}")]
    Value {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The column.
        field: &'static str,
        /// What stands there.
        value: String,
        /// What may.
        allowed: &'static str,
    },
    /// A header and nothing else.
    #[error("{file}: no rows; allowed: at least one")]
    Empty {
        /// The file.
        file: String,
    },
}

const TIMESTAMPS: &str = "TIMESTAMP,ContextTokens,GeneratedTokens";
const MILLIS: &str = "t_ms,input_tokens,output_tokens";

/// The columns of one form.
struct Form {
    time: &'static str,
    time_allowed: &'static str,
    parse_time: fn(&str) -> Option<Micros>,
    input: &'static str,
    output: &'static str,
}

const FORM_TIMESTAMPS: Form = Form {
    time: "TIMESTAMP",
    time_allowed: "YYYY-MM-DD HH:MM:SS with up to 9 decimals, from 1970 to 2200",
    parse_time: timestamp,
    input: "ContextTokens",
    output: "GeneratedTokens",
};
const FORM_MILLIS: Form = Form {
    time: "t_ms",
    time_allowed: "milliseconds from 0 to 10^12, decimals allowed",
    parse_time: millis,
    input: "input_tokens",
    output: "output_tokens",
};

/// Reads a trace file.
///
/// # Errors
/// As [`parse`], and a file that cannot be read.
pub fn read(path: &Path) -> Result<Vec<Row>, TraceError> {
    let file = path.display().to_string();
    let bytes = fs::read(path).map_err(|source| TraceError::File { file: file.clone(), source })?;
    parse(&file, &String::from_utf8_lossy(&bytes))
}

/// Parses a trace; rows are put in the order of their times. Empty lines are passed over.
///
/// # Errors
/// The first line and value that is not allowed.
pub fn parse(file: &str, text: &str) -> Result<Vec<Row>, TraceError> {
    let file = file.to_owned();
    let mut lines = text.trim_start_matches('\u{feff}').lines().enumerate();
    let header = lines.next().map_or("", |(_, line)| line.trim());
    let form = match header {
        TIMESTAMPS => FORM_TIMESTAMPS,
        MILLIS => FORM_MILLIS,
        found => return Err(TraceError::Header { file, found: shortened(found) }),
    };
    let mut rows = Vec::new();
    for (i, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        rows.push(row(&form, &file, i + 1, line)?);
    }
    rows.sort_by_key(|row| row.at);
    let Some(first) = rows.first().map(|row| row.at) else { return Err(TraceError::Empty { file }) };
    for row in &mut rows {
        row.at = row.at.since(first);
    }
    Ok(rows)
}

fn row(form: &Form, file: &str, line: usize, text: &str) -> Result<Row, TraceError> {
    let values: Vec<&str> = text.split(',').map(str::trim).collect();
    let [time, input, output] = values[..] else {
        return Err(TraceError::Width { file: file.to_owned(), line, found: values.len() });
    };
    let bad = |field, value: &str, allowed| TraceError::Value {
        file: file.to_owned(),
        line,
        field,
        value: shortened(value),
        allowed,
    };
    let tokens = |field, value: &str| {
        value
            .parse::<u32>()
            .ok()
            .filter(|n| (1..=TOKENS_MAX).contains(n))
            .ok_or_else(|| bad(field, value, "whole numbers from 1 to 1000000"))
    };
    Ok(Row {
        at: (form.parse_time)(time).ok_or_else(|| bad(form.time, time, form.time_allowed))?,
        input: tokens(form.input, input)?,
        output: tokens(form.output, output)?,
    })
}

fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

fn millis(text: &str) -> Option<Micros> {
    let ms: f64 = text.parse().ok()?;
    (0.0..=1e12).contains(&ms).then(|| Micros((ms * 1_000.0).round() as u64))
}

/// `YYYY-MM-DD HH:MM:SS[.fraction]` as time since 1970, no zone.
fn timestamp(text: &str) -> Option<Micros> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let in_month = *days.get(usize::try_from(month).ok()?.checked_sub(1)?)?;
    if !(1970..=2200).contains(&year) || !(1..=in_month).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 59 || fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let before = year - 1;
    let leaps = before / 4 - before / 100 + before / 400;
    let month_days: u64 = days.iter().take(usize::try_from(month - 1).ok()?).sum();
    // 719,162 days lie between 0001-01-01 and 1970-01-01.
    let day_number = before * 365 + leaps + month_days + day - 1 - 719_162;
    let micros: u64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    let seconds = ((day_number * 24 + hour) * 60 + minute) * 60 + second;
    Some(Micros(seconds * 1_000_000 + micros))
}

/// Three numbers of these widths.
fn numbers(text: &str, separator: char, widths: [usize; 3]) -> Option<[u64; 3]> {
    let mut parts = text.split(separator);
    let mut all = [0; 3];
    for (number, width) in all.iter_mut().zip(widths) {
        let part = parts.next().filter(|p| p.len() == width && p.bytes().all(|b| b.is_ascii_digit()))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_and_count_from_the_first_row() {
        let azure = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 23:59:59.9799600,4808,10\r\n\
                     2023-11-17 00:00:00.0319600,3180,8\r\n\r\n";
        let rows = parse("a.csv", azure).unwrap();
        assert_eq!(rows[0], Row { at: Micros(0), input: 4_808, output: 10 });
        assert_eq!(rows[1], Row { at: Micros(52_000), input: 3_180, output: 8 });
        let plain = "\u{feff}t_ms,input_tokens,output_tokens\n20.5,5,6\n10,1,2\n";
        let rows = parse("b.csv", plain).unwrap();
        assert_eq!(rows[0], Row { at: Micros(0), input: 1, output: 2 }, "sorted");
        assert_eq!(rows[1], Row { at: Micros(10_500), input: 5, output: 6 });
    }

    #[test]
    fn timestamps_count_days_as_the_calendar_does() {
        for (text, seconds) in [
            ("1970-01-01 00:00:00", 0),
            ("2000-02-29 12:00:00", 951_825_600),
            ("2023-11-16 18:17:03", 1_700_158_623),
            ("2100-03-01 00:00:00", 4_107_542_400),
        ] {
            assert_eq!(timestamp(text), Some(Micros::from_secs(seconds)), "{text}");
        }
    }

    #[test]
    fn bad_rows_name_file_line_field_value_and_what_is_allowed() {
        let azure = |row: &str| format!("{TIMESTAMPS}\n2023-11-16 18:17:03.9,10,10\n{row}\n");
        let plain = |row: &str| format!("{MILLIS}\n0,10,10\n{row}\n");
        for (text, want) in [
            (azure("yesterday,1,1"), "f.csv:3: TIMESTAMP: \"yesterday\" is not allowed; allowed: YYYY-MM-DD"),
            (azure("2023-02-30 00:00:00,1,1"), "f.csv:3: TIMESTAMP:"),
            (azure("2023-01-01 24:00:00,1,1"), "f.csv:3: TIMESTAMP:"),
            (azure("2023-01-01 00:00:00.,1,1"), "f.csv:3: TIMESTAMP:"),
            (azure("2023-01-01 00:00:00,-1,1"), "f.csv:3: ContextTokens: \"-1\" is not allowed"),
            (azure("2023-01-01 00:00:00,1,0"), "f.csv:3: GeneratedTokens: \"0\""),
            (azure("2023-01-01 00:00:00,1"), "f.csv:3: 2 values; allowed: 3"),
            (plain("NaN,1,1"), "f.csv:3: t_ms: \"NaN\""),
            (plain("-5,1,1"), "f.csv:3: t_ms: \"-5\""),
            (plain("1e13,1,1"), "f.csv:3: t_ms: \"1e13\""),
            (plain("5,1.5,1"), "f.csv:3: input_tokens: \"1.5\""),
            (plain("5,1,99999999999"), "f.csv:3: output_tokens: \"99999999999\""),
            ("a,b,c\n1,2,3\n".to_owned(), "f.csv:1: header \"a,b,c\" is not allowed"),
            (String::new(), "f.csv:1: header \"\""),
            (format!("{MILLIS}\n"), "f.csv: no rows"),
        ] {
            let got = parse("f.csv", &text).unwrap_err().to_string();
            assert!(got.starts_with(want), "{text:?}: {got}");
        }
    }
}
