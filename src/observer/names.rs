//! Which metric families say how loaded a model server is: presets by server, or names given one by one.

use std::collections::BTreeMap;

/// The families that are read. Several names for one figure are aliases: the first one that is there counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricNames {
    /// Requests waiting in the engine.
    pub waiting: Vec<String>,
    /// Requests running in the engine. Empty: not read, counts as 0.
    pub running: Vec<String>,
    /// Share of the KV cache in use, 0 to 1. Empty: not read, counts as 0.
    pub kv: Vec<String>,
    /// Only series with these label values count; empty: all.
    pub labels: BTreeMap<String, String>,
}

/// Names by model server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// vLLM; the older name of the KV gauge is accepted as well.
    #[default]
    Vllm,
    /// vLLM before the KV gauge was renamed; the newer name is accepted as well.
    VllmOld,
    /// SGLang.
    Sglang,
    /// Text Generation Inference, which has no KV gauge.
    Tgi,
}

impl Preset {
    /// Every preset.
    pub const ALL: [Preset; 4] = [Preset::Vllm, Preset::VllmOld, Preset::Sglang, Preset::Tgi];

    /// The word in settings.
    pub const fn word(self) -> &'static str {
        match self {
            Preset::Vllm => "vllm",
            Preset::VllmOld => "vllm-old",
            Preset::Sglang => "sglang",
            Preset::Tgi => "tgi",
        }
    }

    /// By its word.
    pub fn from_word(word: &str) -> Option<Preset> {
        Preset::ALL.into_iter().find(|preset| preset.word() == word)
    }

    /// The families.
    pub fn names(self) -> MetricNames {
        let (waiting, running, kv): (&str, &str, &[&str]) = match self {
            Preset::Vllm => (
                "vllm:num_requests_waiting",
                "vllm:num_requests_running",
                &["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"],
            ),
            Preset::VllmOld => (
                "vllm:num_requests_waiting",
                "vllm:num_requests_running",
                &["vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"],
            ),
            Preset::Sglang => ("sglang:num_queue_reqs", "sglang:num_running_reqs", &["sglang:token_usage"]),
            Preset::Tgi => ("tgi_queue_size", "tgi_batch_current_size", &[]),
        };
        MetricNames {
            waiting: vec![waiting.to_owned()],
            running: vec![running.to_owned()],
            kv: kv.iter().map(|&name| name.to_owned()).collect(),
            labels: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_found_by_their_words() {
        for preset in Preset::ALL {
            assert_eq!(Preset::from_word(preset.word()), Some(preset));
        }
        assert_eq!(Preset::from_word("VLLM"), None);
    }
}
