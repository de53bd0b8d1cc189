//! The standard `OTEL_*` variables, as far as they concern traces.

use crate::json::{percent_decoded, resource};
use crate::sampler::{Sampler, SamplerError};
use http::{HeaderName, HeaderValue};
use std::time::Duration;

/// A day: more is meant for something else, and would overrun the clock.
const MILLIS_MAX: u64 = 86_400_000;
const MILLIS: &str = "milliseconds, a whole number from 1 to 86400000";
/// Some gigabytes of spans.
const SPANS_MAX: u64 = 10_000_000;
const SPANS: &str = "a whole number from 1 to 10000000";

/// How spans travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC, port 4317.
    Grpc,
    /// Protobuf over HTTP/1.1, port 4318.
    Http,
}

/// Where spans go, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The receiver. For HTTP the whole URL, path included.
    pub endpoint: String,
    /// How.
    pub protocol: Protocol,
    /// Name and value of headers (or gRPC metadata) that go along, such as an API key.
    pub headers: Vec<(String, String)>,
    /// The longest that one batch may take (default 10 s).
    pub timeout: Duration,
    /// What is exported while it runs.
    pub sampler: Sampler,
    /// What the spans are of.
    pub resource: Vec<(String, String)>,
    /// Spans that may wait (default 2,048).
    pub queue_max: usize,
    /// Spans of one batch (default 512).
    pub batch_max: usize,
    /// How long a batch that is not full waits (default 5 s).
    pub delay: Duration,
}

/// What is wrong with the variables.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A value that is not allowed.
    #[error("{name}: {found:?} is not allowed; allowed: {allowed}")]
    Value {
        /// The variable.
        name: &'static str,
        /// Its value.
        found: String,
        /// What it may be.
        allowed: &'static str,
    },
    /// The sampler.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
}

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const ENDPOINT_OF_TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const PROTOCOL_OF_TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL";

impl Settings {
    /// From the environment; `None` if no traces are wanted: that takes an endpoint, or `OTEL_TRACES_EXPORTER=otlp`.
    ///
    /// # Errors
    /// Names the variable, what was found and what is allowed.
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, SettingsError> {
        let get =
            |name: &str| get(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        if get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let named = get(ENDPOINT_OF_TRACES).or_else(|| get(ENDPOINT));
        match get("OTEL_TRACES_EXPORTER").as_deref() {
            Some("none") => return Ok(None),
            Some("otlp") => {}
            None if named.is_some() => {}
            None => return Ok(None),
            Some(other) => return Err(refused("OTEL_TRACES_EXPORTER", other, "otlp, none")),
        }
        let protocol = protocol(&get)?;
        let endpoint = match (get(ENDPOINT_OF_TRACES), get(ENDPOINT), protocol) {
            (Some(whole), _, _) => checked(ENDPOINT_OF_TRACES, whole)?,
            (None, Some(base), Protocol::Grpc) => checked(ENDPOINT, base)?,
            (None, Some(base), Protocol::Http) => {
                format!("{}/v1/traces", checked(ENDPOINT, base)?.trim_end_matches('/'))
            }
            (None, None, Protocol::Grpc) => "http://localhost:4317".to_owned(),
            (None, None, Protocol::Http) => "http://localhost:4318/v1/traces".to_owned(),
        };
        let mut settings = Settings::to(endpoint, protocol);
        let headers = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
        if let Some((name, text)) = headers.into_iter().find_map(|name| Some((name, get(name)?))) {
            settings.headers = pairs(name, &text)?;
        }
        settings.sampler =
            Sampler::read(get("OTEL_TRACES_SAMPLER").as_deref(), get("OTEL_TRACES_SAMPLER_ARG").as_deref())?;
        settings.resource = resource(get);
        for (names, of) in [
            (&["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"][..], &mut settings.timeout),
            (&["OTEL_BSP_SCHEDULE_DELAY"][..], &mut settings.delay),
        ] {
            if let Some(millis) = number(&get, names, MILLIS_MAX, MILLIS)? {
                *of = Duration::from_millis(millis);
            }
        }
        if let Some(most) = number(&get, &["OTEL_BSP_MAX_QUEUE_SIZE"], SPANS_MAX, SPANS)? {
            settings.queue_max = usize::try_from(most).unwrap_or(usize::MAX);
        }
        if let Some(most) = number(&get, &["OTEL_BSP_MAX_EXPORT_BATCH_SIZE"], SPANS_MAX, SPANS)? {
            settings.batch_max = usize::try_from(most).unwrap_or(usize::MAX);
        }
        settings.batch_max = settings.batch_max.min(settings.queue_max);
        Ok(Some(settings))
    }

    /// To a receiver, everything else by default.
    pub fn to(endpoint: String, protocol: Protocol) -> Self {
        Settings {
            endpoint,
            protocol,
            headers: Vec::new(),
            timeout: Duration::from_secs(10),
            sampler: Sampler::default(),
            resource: resource(|_| None),
            queue_max: 2_048,
            batch_max: 512,
            delay: Duration::from_secs(5),
        }
    }
}

fn refused(name: &'static str, found: &str, allowed: &'static str) -> SettingsError {
    SettingsError::Value { name, found: found.to_owned(), allowed }
}

fn protocol(get: &impl Fn(&str) -> Option<String>) -> Result<Protocol, SettingsError> {
    for name in [PROTOCOL_OF_TRACES, PROTOCOL] {
        match get(name).as_deref() {
            None => {}
            Some("grpc") => return Ok(Protocol::Grpc),
            Some("http/protobuf") => return Ok(Protocol::Http),
            Some(other) => return Err(refused(name, other, "grpc, http/protobuf")),
        }
    }
    // The standard's default.
    Ok(Protocol::Http)
}

fn checked(name: &'static str, url: String) -> Result<String, SettingsError> {
    let host = url.strip_prefix("http://").map(|rest| rest.split('/').next().unwrap_or_default());
    match host {
        Some(host) if !host.is_empty() => Ok(url),
        _ => Err(refused(name, &url, "a URL such as http://127.0.0.1:4318 (plain HTTP)")),
    }
}

fn number(
    get: &impl Fn(&str) -> Option<String>,
    names: &[&'static str],
    most: u64,
    allowed: &'static str,
) -> Result<Option<u64>, SettingsError> {
    for name in names {
        if let Some(text) = get(name) {
            return match text.parse::<u64>() {
                Ok(number) if number > 0 && number <= most => Ok(Some(number)),
                _ => Err(refused(name, &text, allowed)),
            };
        }
    }
    Ok(None)
}

/// `key=value` by commas, values perhaps percent-encoded; what has another shape is left out, as the standard says. What no header
/// may be is a mistake: left out, it would be missed at the receiver, as a refusal that nobody understands.
fn pairs(name: &'static str, text: &str) -> Result<Vec<(String, String)>, SettingsError> {
    let mut found = Vec::new();
    for (key, value) in text.split(',').filter_map(|pair| pair.split_once('=')) {
        let (key, value) = (key.trim().to_ascii_lowercase(), percent_decoded(value.trim()));
        if key.is_empty() {
            continue;
        }
        if HeaderName::try_from(&key).is_err() || HeaderValue::try_from(&value).is_err() {
            // The value may be a secret.
            return Err(refused(
                name,
                &format!("{key}=…"),
                "names and values that headers may have, key=value by commas",
            ));
        }
        found.push((key, value));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Option<Settings>, SettingsError> {
        let found = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Settings::from_env(|name| found(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn traces_are_off_until_asked_for() {
        for off in [
            &[][..],
            &[(ENDPOINT, "http://c:4318"), ("OTEL_TRACES_EXPORTER", "none")],
            &[(ENDPOINT, "http://c:4318"), ("OTEL_SDK_DISABLED", "true")],
            &[(ENDPOINT, "")],
        ] {
            assert_eq!(of(off), Ok(None), "{off:?}");
        }
    }

    #[test]
    fn endpoints_follow_the_standard() {
        let (grpc, http) = ((PROTOCOL, "grpc"), (PROTOCOL, "http/protobuf"));
        for (variables, want) in [
            (&[("OTEL_TRACES_EXPORTER", "otlp")][..], "http://localhost:4318/v1/traces"),
            (&[("OTEL_TRACES_EXPORTER", "otlp"), grpc], "http://localhost:4317"),
            (&[(ENDPOINT, "http://c:1/x/"), http], "http://c:1/x/v1/traces"),
            (&[(ENDPOINT, "http://c:1"), grpc], "http://c:1"),
            (&[(ENDPOINT, "http://c:1"), (ENDPOINT_OF_TRACES, "http://d:2/p")], "http://d:2/p"),
        ] {
            assert_eq!(of(variables).unwrap().unwrap().endpoint, want, "{variables:?}");
        }
    }

    #[test]
    fn values_that_are_not_allowed_are_named() {
        for (name, value) in [
            (PROTOCOL, "http/json"),
            (ENDPOINT, "https://c:4318"),
            (ENDPOINT, "c:4318"),
            ("OTEL_TRACES_EXPORTER", "zipkin"),
            ("OTEL_TRACES_SAMPLER", "sometimes"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        ] {
            let mut variables = vec![(name, value)];
            if name != ENDPOINT {
                variables.push((ENDPOINT, "http://c:4318"));
            }
            let error = of(&variables).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(value) && error.contains("allowed:"), "{error}");
        }
    }

    #[test]
    fn nonsense_is_named_and_secrets_are_not() {
        for (name, value) in [
            ("OTEL_BSP_SCHEDULE_DELAY", "18446744073709551615"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "18446744073709551615"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "0"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "-5"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api key=secret"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "key=secret%0Aother"),
        ] {
            let error = of(&[(ENDPOINT, "http://c:4318"), (name, value)]).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("allowed:"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn everything_else_is_read() {
        let settings = of(&[
            (ENDPOINT, "http://c:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "Api-Key=a=b, x=,broken,authorization=Bearer%20t,=y"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "250"),
            ("OTEL_BSP_SCHEDULE_DELAY", "100"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "100"),
            ("OTEL_TRACES_SAMPLER", "always_off"),
            ("OTEL_SERVICE_NAME", "edge"),
        ]);
        let settings = settings.unwrap().unwrap();
        let headers = [("api-key", "a=b"), ("x", ""), ("authorization", "Bearer t")];
        assert_eq!(settings.headers, headers.map(|(key, value)| (key.to_owned(), value.to_owned())));
        assert_eq!(
            (settings.timeout, settings.delay),
            (Duration::from_millis(250), Duration::from_millis(100))
        );
        assert_eq!((settings.queue_max, settings.batch_max), (100, 100));
        assert_eq!(settings.resource[0].1, "edge");
        assert!(!settings.sampler.samples(&[0; 16], None));
    }
}
