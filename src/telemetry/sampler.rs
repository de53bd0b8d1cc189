//! Which requests are exported while they run: `OTEL_TRACES_SAMPLER` and its argument.

/// Why there is no such sampler.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {found:?} is not allowed; allowed: {allowed}")]
pub struct SamplerError {
    name: &'static str,
    found: String,
    allowed: &'static str,
}

/// A sampler. The default follows the caller, and samples what no caller decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampler {
    follows_parent: bool,
    /// Of 2^56 trace ids so many are sampled.
    share: u64,
}

/// All of them.
const ALL: u64 = 1 << 56;

impl Default for Sampler {
    fn default() -> Self {
        Sampler { follows_parent: true, share: ALL }
    }
}

impl Sampler {
    /// Everything, whatever a caller decided: for a replay.
    pub const EVERYTHING: Sampler = Sampler { follows_parent: false, share: ALL };

    /// From the values of `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG`.
    ///
    /// # Errors
    /// Names what is not allowed.
    pub fn read(name: Option<&str>, argument: Option<&str>) -> Result<Self, SamplerError> {
        let ratio = || match argument.map_or(Ok(1.0), str::parse::<f64>) {
            Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok((ratio * ALL as f64) as u64),
            _ => Err(SamplerError {
                name: "OTEL_TRACES_SAMPLER_ARG",
                found: argument.unwrap_or_default().to_owned(),
                allowed: "a number from 0 to 1",
            }),
        };
        let (follows_parent, share) = match name.unwrap_or("parentbased_always_on") {
            "always_on" => (false, ALL),
            "always_off" => (false, 0),
            "traceidratio" => (false, ratio()?),
            "parentbased_always_on" => (true, ALL),
            "parentbased_always_off" => (true, 0),
            "parentbased_traceidratio" => (true, ratio()?),
            other => {
                return Err(SamplerError {
                    name: "OTEL_TRACES_SAMPLER",
                    found: other.to_owned(),
                    allowed: "always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off, \
                              parentbased_traceidratio",
                });
            }
        };
        Ok(Sampler { follows_parent, share })
    }

    /// Does the sampler of this name go by an argument?
    pub fn takes_argument(name: Option<&str>) -> bool {
        name.is_some_and(|name| name.ends_with("traceidratio"))
    }

    /// Is this trace sampled, given what the caller decided, if there is one?
    pub fn samples(&self, trace_id: &[u8; 16], caller: Option<bool>) -> bool {
        match caller {
            Some(decided) if self.follows_parent => decided,
            _ => {
                // The last seven bytes are those that the standard holds random.
                let mut random = [0; 8];
                random[1..].copy_from_slice(&trace_id[9..]);
                u64::from_be_bytes(random) < self.share
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samplers_are_those_of_the_standard() {
        let (low, high) = ([0; 16], [0xff; 16]);
        // Name, argument, then: no caller (low id, high id), a caller who said yes, one who said no (high id).
        for (name, argument, want) in [
            (None, None, [true, true, true, false]),
            (Some("always_on"), None, [true, true, true, true]),
            (Some("always_off"), None, [false, false, false, false]),
            (Some("parentbased_always_off"), None, [false, false, true, false]),
            (Some("traceidratio"), Some("0.5"), [true, false, false, false]),
            (Some("parentbased_traceidratio"), Some("0.5"), [true, false, true, false]),
            (Some("traceidratio"), Some("0"), [false, false, false, false]),
            (Some("traceidratio"), None, [true, true, true, true]),
        ] {
            let sampler = Sampler::read(name, argument).unwrap();
            let got = [
                sampler.samples(&low, None),
                sampler.samples(&high, None),
                sampler.samples(&high, Some(true)),
                sampler.samples(&high, Some(false)),
            ];
            assert_eq!(got, want, "{name:?} {argument:?}");
        }
        for (name, argument) in
            [("sometimes", None), ("traceidratio", Some("2")), ("traceidratio", Some("x"))]
        {
            let error = Sampler::read(Some(name), argument).unwrap_err().to_string();
            assert!(error.contains("OTEL_TRACES_SAMPLER") && error.contains("allowed"), "{error}");
        }
    }
}
