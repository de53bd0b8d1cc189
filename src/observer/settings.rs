//! From the settings of a pool to how it is observed.

use super::names::{MetricNames, Preset};
use super::scrape::ScrapeOptions;
use super::table::Spec;
use super::watch::{Feed, ObserverOptions};
use std::time::Duration;
use weir_config::{PoolSettings, ScrapeSettings};
use weir_kernel::{Detector, Micros};

/// For detectors that set no threshold of their own: freshness decides nothing there, but is shown.
const STALENESS: Micros = Micros::from_secs(5);

impl ObserverOptions {
    /// As the settings say: their endpoints, or what is discovered, or a pushed feed where they name neither.
    pub fn from_settings(settings: &PoolSettings) -> ObserverOptions {
        let feed = match &settings.endpoints {
            None if settings.discovery.is_some() => Feed::Discovered,
            None => Feed::Pushed,
            Some(listed) => Feed::Configured(
                listed
                    .iter()
                    .map(|endpoint| Spec {
                        name: endpoint.name.clone(),
                        role: endpoint.role,
                        metrics_url: Some(format!("{}/metrics", endpoint.url)),
                    })
                    .collect(),
            ),
        };
        let staleness = match settings.policy.detector {
            Detector::Utilization { staleness, .. } => staleness,
            Detector::Concurrency { .. } | Detector::Pushed => STALENESS,
        };
        ObserverOptions { feed, scrape: ScrapeOptions::from_settings(&settings.scrape), staleness }
    }
}

impl ScrapeOptions {
    /// As the settings say.
    pub fn from_settings(settings: &ScrapeSettings) -> ScrapeOptions {
        ScrapeOptions {
            interval: Duration::from_micros(settings.interval.0),
            timeout: Duration::from_micros(settings.timeout.0),
            bytes_max: usize::try_from(settings.max_bytes).unwrap_or(usize::MAX),
            names: names(settings),
        }
    }
}

fn names(settings: &ScrapeSettings) -> MetricNames {
    let preset = match settings.preset {
        weir_config::Preset::Vllm => Preset::Vllm,
        weir_config::Preset::VllmOld => Preset::VllmOld,
        weir_config::Preset::Sglang => Preset::Sglang,
        weir_config::Preset::Tgi => Preset::Tgi,
    };
    let mut names = preset.names();
    for (given, place) in [
        (&settings.waiting, &mut names.waiting),
        (&settings.running, &mut names.running),
        (&settings.kv_usage, &mut names.kv),
    ] {
        if let Some(name) = given {
            *place = vec![name.clone()];
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_name_endpoints_metrics_and_the_threshold() {
        let text = "
pools:
  p:
    endpoints: [{name: e1, url: 'http://10.0.0.1:8000', role: prefill}]
    scrape: {interval: 75ms, preset: sglang, names: {waiting: my_waiting}}
  q: {}
  r: {endpoints: []}
  s: {discovery: {dns: {name: a, port: 1}}}
";
        let effective = weir_config::from_text(text, []).unwrap();
        let options = ObserverOptions::from_settings(&effective.pools["p"]);
        let Feed::Configured(specs) = options.feed else { panic!("it lists one") };
        assert_eq!(specs[0].metrics_url.as_deref(), Some("http://10.0.0.1:8000/metrics"));
        assert_eq!(options.scrape.interval, Duration::from_millis(75));
        assert_eq!(options.scrape.names.waiting, ["my_waiting"]);
        assert_eq!(options.scrape.names.kv, ["sglang:token_usage"]);
        assert_eq!(options.staleness, Micros::from_millis(200));
        assert_eq!(ObserverOptions::from_settings(&effective.pools["q"]).feed, Feed::Pushed);
        let none = ObserverOptions::from_settings(&effective.pools["r"]).feed;
        assert_eq!(none, Feed::Configured(Vec::new()), "an empty list is known to be empty");
        assert_eq!(ObserverOptions::from_settings(&effective.pools["s"]).feed, Feed::Discovered);
    }
}
