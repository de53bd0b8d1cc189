//! Reads three figures out of a Prometheus text exposition, and refuses what cannot be a load.
//!
//! A server with several engines (label `engine`) counts as one endpoint: waiting and running are summed over all
//! series that match, the KV share is their mean. A family that is missing or holds nonsense makes the whole scrape
//! unknown: never zero load. Not here: types, help lines, histograms, time stamps.

use super::names::MetricNames;
use thiserror::Error;

/// Requests beyond this are taken for nonsense.
const COUNT_MAX: f64 = 1_000_000_000.0;
/// How far above 1 a KV share may lie through rounding.
const KV_SLACK: f64 = 0.01;
/// Of a value in a message.
const SHOWN_MAX: usize = 40;

/// What an endpoint says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests waiting in the engine.
    pub waiting: u32,
    /// Requests running in the engine.
    pub running: u32,
    /// KV cache share in ten-thousandths, 0 to 10,000.
    pub kv: u32,
}

/// Metrics that say nothing usable.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TextFault {
    /// A family that must be there is not.
    #[error("metric family {family} is missing")]
    Missing {
        /// Its (first) name.
        family: String,
    },
    /// A value that no load can have.
    #[error("metric {family} is {found}, allowed is {allowed}")]
    Value {
        /// The family.
        family: String,
        /// The text found.
        found: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// Not text.
    #[error("the body is not UTF-8")]
    NotText,
}

/// Sums of one figure.
#[derive(Default)]
struct Figure {
    sum: f64,
    series: u32,
}

/// Reads the body of a scrape.
///
/// # Errors
/// A family is missing or a value is impossible; it names the family.
pub fn read(body: &[u8], names: &MetricNames) -> Result<Load, TextFault> {
    let text = std::str::from_utf8(body).map_err(|_| TextFault::NotText)?;
    let wanted = [&names.waiting, &names.running, &names.kv];
    let mut figures: [Vec<Figure>; 3] =
        wanted.map(|aliases| aliases.iter().map(|_| Figure::default()).collect());
    for line in text.lines() {
        let name_end = line.find(['{', ' ', '\t']).unwrap_or(line.len());
        let name = &line[..name_end];
        for (aliases, found) in wanted.iter().zip(&mut figures) {
            if let Some(at) = aliases.iter().position(|alias| alias == name) {
                add(&mut found[at], name, &line[name_end..], names)?;
            }
        }
    }
    let [waiting, running, kv] = figures;
    Ok(Load {
        waiting: count(&names.waiting, &waiting)?,
        running: count(&names.running, &running)?,
        kv: share(&names.kv, &kv)?,
    })
}

/// Takes in one line of a family that counts.
fn add(figure: &mut Figure, name: &str, rest: &str, names: &MetricNames) -> Result<(), TextFault> {
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => match labels_end(rest) {
            Some(end) => (&rest[..end], &rest[end + 1..]),
            None => return Err(fault(name, rest, "labels that end with }")),
        },
        None => ("", rest),
    };
    if !names.labels.iter().all(|(label, value)| has_label(labels, label, value)) {
        return Ok(());
    }
    let text = rest.split_ascii_whitespace().next().unwrap_or_default();
    let value: f64 = text.parse().map_err(|_| fault(name, text, "a number"))?;
    if !value.is_finite() || value < 0.0 {
        return Err(fault(name, text, "a finite number from 0"));
    }
    figure.sum += value;
    figure.series += 1;
    Ok(())
}

/// Where the labels end: the first `}` outside of quotes.
fn labels_end(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// Do the labels hold `label="value"`? Values with escapes are compared as they are written.
fn has_label(labels: &str, label: &str, value: &str) -> bool {
    let mut rest = labels;
    while let Some((name, after)) = rest.split_once("=\"") {
        let (mut end, mut escaped) = (after.len(), false);
        for (at, byte) in after.bytes().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => {
                    end = at;
                    break;
                }
                _ => {}
            }
        }
        if name.trim_start_matches([',', ' ']) == label && &after[..end] == value {
            return true;
        }
        rest = after.get(end + 1..).unwrap_or_default();
    }
    false
}

/// The first alias that was there.
fn present<'a>(
    aliases: &'a [String],
    figures: &'a [Figure],
) -> Result<Option<(&'a str, &'a Figure)>, TextFault> {
    let Some(first) = aliases.first() else {
        return Ok(None);
    };
    let found = aliases.iter().zip(figures).find(|(_, figure)| figure.series > 0);
    match found {
        Some((name, figure)) => Ok(Some((name, figure))),
        None => Err(TextFault::Missing { family: first.clone() }),
    }
}

fn count(aliases: &[String], figures: &[Figure]) -> Result<u32, TextFault> {
    let Some((name, figure)) = present(aliases, figures)? else {
        return Ok(0);
    };
    if figure.sum > COUNT_MAX {
        return Err(fault(name, &figure.sum.to_string(), "a count of requests up to 1000000000"));
    }
    // In range, checked above.
    Ok(figure.sum.round() as u32)
}

fn share(aliases: &[String], figures: &[Figure]) -> Result<u32, TextFault> {
    let Some((name, figure)) = present(aliases, figures)? else {
        return Ok(0);
    };
    let mean = figure.sum / f64::from(figure.series);
    if mean > 1.0 + KV_SLACK {
        return Err(fault(name, &mean.to_string(), "a share from 0 to 1"));
    }
    Ok((mean.min(1.0) * 10_000.0).round() as u32)
}

fn fault(family: &str, found: &str, allowed: &'static str) -> TextFault {
    let mut shown: String = found.chars().take(SHOWN_MAX).collect();
    shown.retain(|c| !c.is_control());
    TextFault::Value { family: family.to_owned(), found: shown, allowed }
}

#[cfg(test)]
mod tests {
    use super::super::names::Preset;
    use super::*;
    use proptest::prelude::*;

    const VLLM: &str = "# HELP vllm:num_requests_running Number of requests.\n\
        # TYPE vllm:num_requests_running gauge\n\
        vllm:num_requests_running{engine=\"0\",model_name=\"a}b \\\" c\"} 4.0\n\
        vllm:num_requests_running{engine=\"1\",model_name=\"m\"} 2.0 1695827492000\n\
        vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 6.0\n\
        vllm:num_requests_waiting{engine=\"1\",model_name=\"m\"} 1.0\n\
        vllm:num_requests_waiting_by_reason{reason=\"capacity\"} 99.0\n\
        vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.5\n\
        vllm:kv_cache_usage_perc{engine=\"1\",model_name=\"m\"} 2.5e-1\n";

    fn vllm() -> MetricNames {
        Preset::Vllm.names()
    }

    fn body(waiting: &str, kv: &str) -> String {
        format!(
            "vllm:num_requests_waiting {waiting}\nvllm:num_requests_running 1\nvllm:kv_cache_usage_perc {kv}\n"
        )
    }

    #[test]
    fn counts_are_summed_over_engines_and_the_share_is_their_mean() {
        assert_eq!(read(VLLM.as_bytes(), &vllm()), Ok(Load { waiting: 7, running: 6, kv: 3_750 }));
        let mut first = vllm();
        first.labels.insert("engine".to_owned(), "0".to_owned());
        assert_eq!(read(VLLM.as_bytes(), &first), Ok(Load { waiting: 6, running: 4, kv: 5_000 }));
        first.labels.insert("engine".to_owned(), "7".to_owned());
        assert_eq!(
            read(VLLM.as_bytes(), &first),
            Err(TextFault::Missing { family: "vllm:num_requests_waiting".to_owned() })
        );
    }

    #[test]
    fn each_preset_reads_its_server() {
        let rows = [
            (
                Preset::VllmOld,
                "vllm:num_requests_waiting 3\nvllm:num_requests_running 2\nvllm:gpu_cache_usage_perc 0.4\n",
                (3, 2, 4_000),
            ),
            (
                Preset::Vllm,
                "vllm:num_requests_waiting 3\nvllm:num_requests_running 2\nvllm:gpu_cache_usage_perc 0.4\n",
                (3, 2, 4_000),
            ),
            (
                Preset::Sglang,
                "sglang:num_queue_reqs{m=\"x\"} 3\nsglang:num_running_reqs 2\nsglang:token_usage 0.01\n",
                (3, 2, 100),
            ),
            (Preset::Tgi, "tgi_queue_size 3\ntgi_batch_current_size 2\n", (3, 2, 0)),
        ];
        for (preset, text, (waiting, running, kv)) in rows {
            assert_eq!(
                read(text.as_bytes(), &preset.names()),
                Ok(Load { waiting, running, kv }),
                "{}",
                preset.word()
            );
        }
    }

    /// No LoRA family is fine; a renamed KV family or an empty body is unknown, not idle.
    #[test]
    fn c046_what_is_missing_is_never_zero() {
        assert!(read(body("0", "0.1").as_bytes(), &vllm()).is_ok());
        for (text, family) in [
            (
                "vllm:num_requests_waiting 0\nvllm:num_requests_running 0\nvllm:kv_usage 0.1\n",
                "vllm:kv_cache_usage_perc",
            ),
            ("", "vllm:num_requests_waiting"),
        ] {
            assert_eq!(read(text.as_bytes(), &vllm()), Err(TextFault::Missing { family: family.to_owned() }));
        }
    }

    #[test]
    fn values_that_no_load_can_have_are_refused_by_name() {
        for (waiting, kv, bad) in [
            ("NaN", "0.1", "vllm:num_requests_waiting"),
            ("+Inf", "0.1", "vllm:num_requests_waiting"),
            ("-1", "0.1", "vllm:num_requests_waiting"),
            ("1e30", "0.1", "vllm:num_requests_waiting"),
            ("many", "0.1", "vllm:num_requests_waiting"),
            ("", "0.1", "vllm:num_requests_waiting"),
            ("1", "-0.1", "vllm:kv_cache_usage_perc"),
            ("1", "nan", "vllm:kv_cache_usage_perc"),
            ("1", "80", "vllm:kv_cache_usage_perc"),
        ] {
            let found = read(body(waiting, kv).as_bytes(), &vllm());
            assert!(
                matches!(&found, Err(TextFault::Value { family, .. }) if family == bad),
                "{waiting} {kv}: {found:?}"
            );
        }
        assert_eq!(read(body("2.0", "1.0000001").as_bytes(), &vllm()).map(|load| load.kv), Ok(10_000));
        assert_eq!(read(&[0xff, 0xfe], &vllm()), Err(TextFault::NotText));
    }

    proptest! {
        #[test]
        fn no_body_makes_it_panic(body in "(vllm:num_requests_(waiting|running)|vllm:kv_cache_usage_perc|x)?[{}\"\\\\=, a-z0-9.\\n-]{0,80}") {
            let mut names = vllm();
            names.labels.insert("a".to_owned(), "b".to_owned());
            let _ = read(body.as_bytes(), &names);
            let _ = read(body.as_bytes(), &vllm());
        }
    }
}
