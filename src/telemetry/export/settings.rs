//! The standard `OTEL_*` variables, as far as they concern traces.

use crate::json::resource;
use crate::sampler::{Sampler, SamplerError};
use crate::variables::{Warning, pairs};
use http::{HeaderName, HeaderValue, Uri};
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
const BATCH: &str = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE";
const ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const PROTOCOL_OF_TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL";

impl Settings {
    /// From the environment; `None` if no traces are wanted: that takes an endpoint, or `OTEL_TRACES_EXPORTER=otlp`. Beside it
    /// what is to be said of the variables: where the standard itself says how to go on, a value that is not allowed stops
    /// nobody.
    ///
    /// # Errors
    /// Names the variable, what was found and what is allowed.
    pub fn from_env(
        get: impl Fn(&str) -> Option<String>,
    ) -> Result<(Option<Self>, Vec<Warning>), SettingsError> {
        let get =
            |name: &str| get(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let mut warnings = Vec::new();
        if is_disabled(&get, &mut warnings) {
            return Ok((None, warnings));
        }
        let named = get(ENDPOINT_OF_TRACES).or_else(|| get(ENDPOINT));
        match get("OTEL_TRACES_EXPORTER").as_deref() {
            Some("none") => return Ok((None, warnings)),
            Some("otlp") => {}
            None if named.is_some() => {}
            None => return Ok((None, warnings)),
            Some(other) => return Err(refused("OTEL_TRACES_EXPORTER", other, "otlp, none")),
        }
        let protocol = protocol(&get)?;
        let endpoint = match (get(ENDPOINT_OF_TRACES), get(ENDPOINT), protocol) {
            (Some(whole), _, _) => checked(ENDPOINT_OF_TRACES, whole, true)?,
            (None, Some(base), Protocol::Grpc) => checked(ENDPOINT, base, true)?,
            (None, Some(base), Protocol::Http) => {
                format!("{}/v1/traces", checked(ENDPOINT, base, false)?.trim_end_matches('/'))
            }
            (None, None, Protocol::Grpc) => "http://localhost:4317".to_owned(),
            (None, None, Protocol::Http) => "http://localhost:4318/v1/traces".to_owned(),
        };
        let mut settings = Settings::to(endpoint, protocol);
        let names = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
        if let Some((name, text)) = names.into_iter().find_map(|name| Some((name, get(name)?))) {
            settings.headers = headers(name, &text, &mut warnings)?;
        }
        settings.sampler = sampler(&get, &mut warnings)?;
        let (resource, odd) = resource(get);
        settings.resource = resource;
        warnings.extend(odd);
        settings.spans(&get, &mut warnings)?;
        uncompressed(&get, &mut warnings);
        Ok((Some(settings), warnings))
    }

    /// Times, queue and batch.
    fn spans(
        &mut self,
        get: &impl Fn(&str) -> Option<String>,
        warnings: &mut Vec<Warning>,
    ) -> Result<(), SettingsError> {
        for (names, of) in [
            (&["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"][..], &mut self.timeout),
            (&["OTEL_BSP_SCHEDULE_DELAY"][..], &mut self.delay),
        ] {
            if let Some(millis) = number(get, names, MILLIS_MAX, MILLIS)? {
                *of = Duration::from_millis(millis);
            }
        }
        if let Some(most) = number(get, &["OTEL_BSP_MAX_QUEUE_SIZE"], SPANS_MAX, SPANS)? {
            self.queue_max = usize::try_from(most).unwrap_or(usize::MAX);
        }
        if let Some(most) = number(get, &[BATCH], SPANS_MAX, SPANS)? {
            self.batch_max = usize::try_from(most).unwrap_or(usize::MAX);
            if self.batch_max > self.queue_max {
                warnings.push(Warning {
                    name: BATCH,
                    found: most.to_string(),
                    allowed: "at most OTEL_BSP_MAX_QUEUE_SIZE",
                    instead: format!("a batch has {} spans, as many as the queue", self.queue_max),
                });
            }
        }
        self.batch_max = self.batch_max.min(self.queue_max);
        Ok(())
    }

    /// To a receiver, everything else by default.
    pub fn to(endpoint: String, protocol: Protocol) -> Self {
        Settings {
            endpoint,
            protocol,
            headers: Vec::new(),
            timeout: Duration::from_secs(10),
            sampler: Sampler::default(),
            resource: resource(|_| None).0,
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

/// Anything but `true` is false, as the standard says; what is neither is told.
fn is_disabled(get: &impl Fn(&str) -> Option<String>, warnings: &mut Vec<Warning>) -> bool {
    let name = "OTEL_SDK_DISABLED";
    match get(name) {
        Some(value) if value.eq_ignore_ascii_case("true") => true,
        Some(value) if !value.eq_ignore_ascii_case("false") => {
            let (found, instead) = (format!("{value:?}"), "it is taken as false".to_owned());
            warnings.push(Warning { name, found, allowed: "true, false", instead });
            false
        }
        _ => false,
    }
}

fn sampler(
    get: &impl Fn(&str) -> Option<String>,
    warnings: &mut Vec<Warning>,
) -> Result<Sampler, SettingsError> {
    let (sampler, argument) = (get("OTEL_TRACES_SAMPLER"), get(ARGUMENT));
    let read = Sampler::read(sampler.as_deref(), argument.as_deref())?;
    if let Some(argument) = argument.filter(|_| !Sampler::takes_argument(sampler.as_deref())) {
        warnings.push(Warning {
            name: ARGUMENT,
            found: format!("{argument:?}"),
            allowed: "nothing beside a sampler other than traceidratio and parentbased_traceidratio",
            instead: "it has no effect".to_owned(),
        });
    }
    Ok(read)
}

/// Spans go as they are: another wish is told.
fn uncompressed(get: &impl Fn(&str) -> Option<String>, warnings: &mut Vec<Warning>) {
    for name in ["OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"] {
        if let Some(value) = get(name).filter(|value| !value.eq_ignore_ascii_case("none")) {
            let (found, instead) = (format!("{value:?}"), "spans are sent uncompressed".to_owned());
            warnings.push(Warning { name, found, allowed: "none", instead });
        }
    }
}

/// Can spans be sent to this URL: plain HTTP, a host, a port that is one (if there is any), no fragment?
pub fn is_receiver(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let Some(authority) = uri.authority() else { return false };
    let host = authority.as_str().rsplit('@').next().unwrap_or_default();
    // A port that is none is left out of the URI as if there were none.
    let port = host.rsplit(']').next().unwrap_or_default().rsplit_once(':').map(|(_, port)| port);
    uri.scheme_str() == Some("http")
        && !authority.host().is_empty()
        && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
        && !url.contains('#')
}

/// A URL that can be asked; only one that is taken as it is (`whole`) may have a query.
fn checked(name: &'static str, url: String, whole: bool) -> Result<String, SettingsError> {
    if is_receiver(&url) && (whole || !url.contains('?')) {
        return Ok(url);
    }
    // A password is nobody's business.
    let shown = match url.split_once('@') {
        Some((_, rest)) => format!("…@{rest}"),
        None => url,
    };
    Err(refused(name, &shown, "a URL such as http://127.0.0.1:4318 (plain HTTP, a port from 1 to 65535)"))
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

/// What has not the shape of a pair is left out, as the standard says, and told. What no header may be is a mistake: left out, it
/// would be missed at the receiver, as a refusal that nobody understands.
fn headers(
    name: &'static str,
    text: &str,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<(String, String)>, SettingsError> {
    let (mut found, odd) = pairs(name, text, true);
    warnings.extend(odd);
    for (key, value) in &mut found {
        key.make_ascii_lowercase();
        if HeaderName::try_from(&*key).is_err() || HeaderValue::try_from(&*value).is_err() {
            // The value may be a secret.
            return Err(refused(
                name,
                &format!("{key}=…"),
                "names and values that headers may have, key=value by commas",
            ));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<(Option<Settings>, Vec<Warning>), SettingsError> {
        let found = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Settings::from_env(|name| found(name).map(|(_, value)| (*value).to_owned()))
    }

    fn of(variables: &[(&str, &str)]) -> Result<Option<Settings>, SettingsError> {
        read(variables).map(|(settings, _)| settings)
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
            (&[(ENDPOINT_OF_TRACES, "http://d/p?key=1")], "http://d/p?key=1"),
            (&[(ENDPOINT, "http://[fd00::1]:65535")], "http://[fd00::1]:65535/v1/traces"),
            (&[(ENDPOINT, "http://[fd00::1]"), grpc], "http://[fd00::1]"),
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
            (ENDPOINT, "http://c:99999"),
            (ENDPOINT, "http://c:0"),
            (ENDPOINT, "http://[::1]:99999"),
            (ENDPOINT, "http://:4318"),
            (ENDPOINT, "http://c:4318?x=1"),
            (ENDPOINT, "http://c c:4318"),
            (ENDPOINT_OF_TRACES, "http://c:port/v1/traces"),
            (ENDPOINT_OF_TRACES, "http://c/v1/traces#x"),
            (BATCH, "many"),
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
            (ENDPOINT_OF_TRACES, "http://me:secret@c:99999"),
        ] {
            let error = of(&[(ENDPOINT, "http://c:4318"), (name, value)]).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("allowed:"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    /// Goal: nothing of no sense passes without a word. Method: each such value beside a receiver, with what holds then.
    #[test]
    fn what_the_standard_lets_pass_is_told() {
        let queue = ("OTEL_BSP_MAX_QUEUE_SIZE", "100");
        for (variables, want) in [
            (
                &[("OTEL_SDK_DISABLED", "maybe")][..],
                "OTEL_SDK_DISABLED: \"maybe\" is not allowed; allowed: true, false; it is taken as false",
            ),
            (
                &[(BATCH, "512"), queue],
                "OTEL_BSP_MAX_EXPORT_BATCH_SIZE: 512 is not allowed; allowed: at most OTEL_BSP_MAX_QUEUE_SIZE; a batch has \
                 100 spans, as many as the queue",
            ),
            (
                &[("OTEL_RESOURCE_ATTRIBUTES", "zone=a,broken")],
                "OTEL_RESOURCE_ATTRIBUTES: \"broken\" is not allowed; allowed: key=value by commas, other characters of the \
                 value as %XX; that entry is left out",
            ),
            (
                &[("OTEL_EXPORTER_OTLP_HEADERS", "api-key secret")],
                "OTEL_EXPORTER_OTLP_HEADERS: its entry 1 is not allowed; allowed: key=value by commas, other characters of \
                 the value as %XX; that entry is left out",
            ),
            (
                &[("OTEL_TRACES_SAMPLER", "always_on"), (ARGUMENT, "0.5")],
                "OTEL_TRACES_SAMPLER_ARG: \"0.5\" is not allowed; allowed: nothing beside a sampler other than traceidratio \
                 and parentbased_traceidratio; it has no effect",
            ),
            (
                &[("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")],
                "OTEL_EXPORTER_OTLP_COMPRESSION: \"gzip\" is not allowed; allowed: none; spans are sent uncompressed",
            ),
        ] {
            let variables = [&[(ENDPOINT, "http://c:4318")], variables].concat();
            let (settings, warnings) = read(&variables).unwrap();
            assert!(settings.is_some(), "{variables:?}");
            let said: Vec<String> = warnings.iter().map(Warning::to_string).collect();
            assert_eq!(said, [want], "{variables:?}");
        }
        for quiet in [
            &[("OTEL_SDK_DISABLED", "False")][..],
            &[queue],
            &[(BATCH, "100"), queue],
            &[("OTEL_TRACES_SAMPLER", "traceidratio"), (ARGUMENT, "0.5")],
            &[("OTEL_EXPORTER_OTLP_COMPRESSION", "none")],
        ] {
            let variables = [&[(ENDPOINT, "http://c:4318")], quiet].concat();
            assert_eq!(read(&variables).unwrap().1, [], "{variables:?}");
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
