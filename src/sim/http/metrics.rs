//! The exposition of a simulated server, with the metric names and labels of vLLM.

use super::engine::{Histogram, View};
use crate::sim::truth::Spec;
use std::fmt::Write;

/// Content type of the exposition.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The exposition; `nan` puts NaN where the gauges are.
pub fn exposition(view: &View, model: &str, nan: bool) -> String {
    let labels = format!("engine=\"0\",model_name=\"{}\"", escaped(model));
    let mut out = String::with_capacity(4_096);
    let gauge = |value: f64| if nan { "NaN".to_owned() } else { format!("{value}") };
    let mut family = |name: &str, kind: &str, help: &str, extra: &str, value: String| {
        // Writing to a string cannot fail.
        let _infallible =
            write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{{{labels}{extra}}} {value}\n");
    };
    let (g, t) = (&view.gauges, &view.totals);
    let running = gauge(f64::from(g.running));
    family("vllm:num_requests_running", "gauge", "Requests in the running batch.", "", running);
    let waiting = gauge(f64::from(g.waiting));
    family("vllm:num_requests_waiting", "gauge", "Requests waiting to be processed.", "", waiting);
    family("vllm:kv_cache_usage_perc", "gauge", "KV cache share in use, 0 to 1.", "", gauge(g.kv_share()));
    let blocks = format!(",block_size=\"{}\",num_gpu_blocks=\"{}\"", Spec::BLOCK, g.kv_total);
    family("vllm:cache_config_info", "gauge", "The KV cache.", &blocks, "1".to_owned());
    for (name, help, count) in [
        ("vllm:num_preemptions_total", "Preemptions.", t.preempted),
        ("vllm:prompt_tokens_total", "Prefilled tokens.", t.prefilled),
        ("vllm:generation_tokens_total", "Generated tokens.", t.generated),
    ] {
        family(name, "counter", help, "", count.to_string());
    }
    let name = "vllm:request_success_total";
    family(name, "counter", "Finished requests.", ",finished_reason=\"length\"", t.finished.to_string());
    histogram(&mut out, "vllm:time_to_first_token_seconds", &labels, &view.ttft);
    out
}

fn histogram(out: &mut String, name: &str, labels: &str, histogram: &Histogram) {
    let _infallible = writeln!(out, "# HELP {name} Time to first token.\n# TYPE {name} histogram");
    let mut below = 0;
    for (i, count) in histogram.counts.iter().enumerate() {
        below += count;
        let bound = match Histogram::BOUNDS.get(i) {
            Some(ms) => format!("{}", *ms as f64 / 1e3),
            None => "+Inf".to_owned(),
        };
        let _infallible = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {below}");
    }
    let seconds = histogram.sum as f64 / 1e6;
    let _infallible = writeln!(out, "{name}_sum{{{labels}}} {seconds}\n{name}_count{{{labels}}} {below}");
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::truth::{Gauges, Totals};

    #[test]
    fn the_names_and_labels_are_those_of_vllm() {
        let view = View {
            gauges: Gauges { waiting: 3, running: 2, kv_used: 1, kv_total: 4 },
            totals: Totals { finished: 9, ..Totals::default() },
            ttft: Histogram { counts: [1; 13], sum: 1_500_000 },
        };
        let text = exposition(&view, "a\"b", false);
        for line in [
            r#"vllm:num_requests_waiting{engine="0",model_name="a\"b"} 3"#,
            r#"vllm:num_requests_running{engine="0",model_name="a\"b"} 2"#,
            r#"vllm:kv_cache_usage_perc{engine="0",model_name="a\"b"} 0.25"#,
            r#"vllm:request_success_total{engine="0",model_name="a\"b",finished_reason="length"} 9"#,
            r#"vllm:time_to_first_token_seconds_bucket{engine="0",model_name="a\"b",le="0.01"} 1"#,
            r#"vllm:time_to_first_token_seconds_bucket{engine="0",model_name="a\"b",le="+Inf"} 13"#,
            r#"vllm:time_to_first_token_seconds_sum{engine="0",model_name="a\"b"} 1.5"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert_eq!(exposition(&view, "m", true).matches(" NaN\n").count(), 3);
    }
}
