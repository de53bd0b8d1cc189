//! Reading an [`Ask`] from headers, of an HTTP request or of a list inside an ext_proc message.
//!
//! Names are compared in lower case, as HTTP/1.1 libraries and Envoy hand them over.

use super::ask::{self, Ask, DEADLINE_MS_MAX, Deadline, Key, SLO_MS_MAX};
use super::auth::Actor;
use super::problem::Invalid;
use super::trace::traceparent;
use super::wire_time::grpc_timeout;
use weir_config::parse_duration;
use weir_kernel::Micros;

/// The headers that are read, as they were found.
#[derive(Debug, Default)]
pub struct Found<'a> {
    pool: Option<&'a [u8]>,
    request_id: Option<&'a [u8]>,
    objective: [Option<&'a [u8]>; 2],
    fairness: [Option<&'a [u8]>; 2],
    priority: Option<&'a [u8]>,
    model: Option<&'a [u8]>,
    ttl: Option<&'a [u8]>,
    slo: [Option<&'a [u8]>; 2],
    deadline: [Option<&'a [u8]>; 3],
    choose: Option<&'a [u8]>,
    key: Option<&'a [u8]>,
    authorization: Option<&'a [u8]>,
    traceparent: Option<&'a [u8]>,
    traceparents: usize,
    content_length: Option<&'a [u8]>,
}

const DEADLINE_ALLOWED: &str = "whole milliseconds from now, up to a hundred years";

impl<'a> Found<'a> {
    /// Picks the headers that matter. The same one twice with different values is refused: nobody could say which counts.
    ///
    /// # Errors
    /// Names the header that was there twice.
    pub fn pick(headers: impl Iterator<Item = (&'a str, &'a [u8])>) -> Result<Self, Invalid> {
        let mut found = Found::default();
        for (name, value) in headers {
            let slot = match name {
                "x-weir-pool" => &mut found.pool,
                "x-request-id" => &mut found.request_id,
                "x-llm-d-inference-objective" => &mut found.objective[0],
                "x-gateway-inference-objective" => &mut found.objective[1],
                "x-llm-d-inference-fairness-id" => &mut found.fairness[0],
                "x-gateway-inference-fairness-id" => &mut found.fairness[1],
                "x-weir-priority" => &mut found.priority,
                "x-weir-model" => &mut found.model,
                "x-llm-d-inference-ttl" => &mut found.ttl,
                "x-llm-d-slo-ttft-ms" => &mut found.slo[0],
                "x-slo-ttft-ms" => &mut found.slo[1],
                "x-weir-deadline-ms" => &mut found.deadline[0],
                "x-envoy-expected-rq-timeout-ms" => &mut found.deadline[1],
                "grpc-timeout" => &mut found.deadline[2],
                "x-weir-choose-endpoint" => &mut found.choose,
                "idempotency-key" => &mut found.key,
                "authorization" => &mut found.authorization,
                "content-length" => &mut found.content_length,
                "traceparent" => {
                    // Two of them are as good as none: the standard calls that invalid.
                    found.traceparents += 1;
                    &mut found.traceparent
                }
                _ => continue,
            };
            match slot {
                Some(before) if *before != value && name != "traceparent" => {
                    return Err(Invalid::new(name.to_owned(), value, "the header once, or twice the same"));
                }
                _ => *slot = Some(value),
            }
        }
        Ok(found)
    }

    /// The size that the request says it has.
    pub fn content_length(&self) -> Option<u64> {
        let text = std::str::from_utf8(self.content_length?).ok()?;
        text.parse().ok().filter(|bytes| *bytes <= ask::BYTES_MAX)
    }

    /// Fills in what `ask` does not say yet.
    ///
    /// # Errors
    /// Names the header whose value is not allowed.
    pub fn fill(&self, ask: &mut Ask) -> Result<(), Invalid> {
        let labels = [
            (&mut ask.pool, self.pool, "x-weir-pool"),
            (&mut ask.caller_id, self.request_id, "x-request-id"),
            // An empty current header hides the deprecated one.
            (&mut ask.objective, self.objective[0].or(self.objective[1]), "x-llm-d-inference-objective"),
            (&mut ask.fairness_id, self.fairness[0].or(self.fairness[1]), "x-llm-d-inference-fairness-id"),
            (&mut ask.model, self.model, "x-weir-model"),
        ];
        for (slot, value, name) in labels {
            if let (None, Some(value)) = (&slot, value) {
                *slot = Some(ask::label(name, value)?);
            }
        }
        if let (None, Some(value)) = (ask.priority, self.priority) {
            ask.priority = Some(ask::priority("x-weir-priority", value)?);
        }
        if let (None, Some(value)) = (ask.ttl, self.ttl) {
            (ask.ttl, ask.ttl_unreadable) = ttl(value);
        }
        if ask.slo_ttft.is_none() {
            // Orders only; what cannot be read counts as absent (seed-system.md section 9).
            let value = self.slo[0].or(self.slo[1]);
            let ms = value.and_then(|value| ask::whole("", value, SLO_MS_MAX, "").ok());
            ask.slo_ttft = ms.map(Micros::from_millis);
        }
        if ask.deadline.is_none() {
            ask.deadline = self.deadline()?;
        }
        if let (None, Some(value)) = (ask.choose_endpoint, self.choose) {
            ask.choose_endpoint = match value {
                b"true" => Some(true),
                b"false" => Some(false),
                other => return Err(Invalid::new("x-weir-choose-endpoint", other, "true or false")),
            };
        }
        if self.traceparents == 1 {
            ask.trace = self.traceparent.and_then(traceparent);
        }
        Ok(())
    }

    /// The idempotency key, which only a held admission takes, within the caller's own ones.
    ///
    /// # Errors
    /// An empty, long or unclean key.
    pub fn key(&self, actor: Option<&Actor>) -> Result<Option<Key>, Invalid> {
        let Some(value) = self.key else { return Ok(None) };
        let text = ask::label("Idempotency-Key", value)?;
        if text.is_empty() {
            return Err(Invalid::new("Idempotency-Key", value, "1 to 256 bytes"));
        }
        let token = match actor {
            // No value of a header begins so.
            Some(actor) => format!("\nactor {}", actor.name()).into_bytes(),
            None => self.authorization.unwrap_or_default().to_vec(),
        };
        Ok(Some(Key { text, token }))
    }

    fn deadline(&self) -> Result<Option<Deadline>, Invalid> {
        if let Some(value) = self.deadline[0] {
            let ms = ask::whole("x-weir-deadline-ms", value, DEADLINE_MS_MAX, DEADLINE_ALLOWED)?;
            return Ok(Some(Deadline::In(Micros::from_millis(ms))));
        }
        if let Some(value) = self.deadline[1] {
            let name = "x-envoy-expected-rq-timeout-ms";
            // Envoy's zero stands for no timeout at all.
            let ms = ask::whole(name, value, DEADLINE_MS_MAX, DEADLINE_ALLOWED)?;
            return Ok((ms > 0).then_some(Deadline::In(Micros::from_millis(ms))));
        }
        let Some(value) = self.deadline[2] else { return Ok(None) };
        match std::str::from_utf8(value).ok().and_then(grpc_timeout) {
            Some(span) => Ok(Some(Deadline::In(span))),
            None => Err(Invalid::new("grpc-timeout", value, "one to eight digits and one of H M S m u n")),
        }
    }
}

/// The budget header: (budget, unreadable). Zero asks for no shorter budget; a negative one cannot be meant.
fn ttl(value: &[u8]) -> (Option<Micros>, bool) {
    match std::str::from_utf8(value).map(parse_duration) {
        Ok(Ok(Micros::ZERO)) => (None, false),
        Ok(Ok(span)) => (Some(span), false),
        Ok(Err(_)) | Err(_) => (None, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(headers: &[(&str, &str)]) -> Result<Ask, Invalid> {
        let found = Found::pick(headers.iter().map(|(name, value)| (*name, value.as_bytes())))?;
        let mut ask = Ask::default();
        found.fill(&mut ask)?;
        Ok(ask)
    }

    #[test]
    fn the_current_header_goes_before_the_deprecated_one() {
        let ask = read(&[
            ("x-gateway-inference-objective", "old"),
            ("x-llm-d-inference-objective", "new"),
            ("x-gateway-inference-fairness-id", "tenant"),
        ]);
        let ask = ask.unwrap();
        assert_eq!(ask.objective.as_deref(), Some("new"));
        assert_eq!(ask.fairness_id.as_deref(), Some("tenant"));
        let hidden =
            read(&[("x-gateway-inference-fairness-id", "tenant"), ("x-llm-d-inference-fairness-id", "")]);
        assert_eq!(hidden.unwrap().fairness_id.as_deref(), Some(""));
    }

    #[test]
    fn c011_an_unreadable_budget_is_ignored_and_noted() {
        for (text, want, unreadable) in [
            ("2s", Some(2_000_000), false),
            ("0s", None, false),
            ("-1s", None, true),
            ("5", None, true),
            ("", None, true),
            ("18446744073709551615s", None, true),
            ("2562047h", Some(2_562_047 * 3_600_000_000), false),
        ] {
            let ask = read(&[("x-llm-d-inference-ttl", text)]).unwrap();
            assert_eq!((ask.ttl, ask.ttl_unreadable), (want.map(Micros), unreadable), "{text}");
        }
    }

    #[test]
    fn an_slo_that_cannot_be_read_counts_as_absent() {
        for (text, want) in
            [("250", Some(250_000)), ("0", Some(0)), ("-1", None), ("2.5", None), ("9223372036855", None)]
        {
            let ask = read(&[("x-llm-d-slo-ttft-ms", text)]).unwrap();
            assert_eq!(ask.slo_ttft, want.map(Micros), "{text}");
        }
        assert_eq!(read(&[("x-slo-ttft-ms", "7")]).unwrap().slo_ttft, Some(Micros(7_000)));
    }

    #[test]
    fn deadlines_in_their_order() {
        let of = |headers: &[(&str, &str)]| read(headers).map(|ask| ask.deadline);
        let after = |micros| Ok(Some(Deadline::In(Micros(micros))));
        assert_eq!(
            of(&[
                ("grpc-timeout", "1S"),
                ("x-weir-deadline-ms", "5"),
                ("x-envoy-expected-rq-timeout-ms", "9")
            ]),
            after(5_000)
        );
        assert_eq!(of(&[("grpc-timeout", "1S"), ("x-envoy-expected-rq-timeout-ms", "9")]), after(9_000));
        assert_eq!(of(&[("grpc-timeout", "1S")]), after(1_000_000));
        assert_eq!(of(&[("x-envoy-expected-rq-timeout-ms", "0")]), Ok(None));
        assert_eq!(of(&[("x-weir-deadline-ms", "0")]), after(0));
        for (name, value) in [
            ("x-weir-deadline-ms", "-1"),
            ("x-weir-deadline-ms", "1e3"),
            ("x-envoy-expected-rq-timeout-ms", "99999999999999999999"),
            ("grpc-timeout", "5s"),
        ] {
            assert_eq!(of(&[(name, value)]).unwrap_err().field, name);
        }
    }

    #[test]
    fn a_header_that_is_there_twice_must_agree() {
        assert!(read(&[("x-weir-pool", "a"), ("x-weir-pool", "a")]).is_ok());
        let error = read(&[("x-weir-pool", "a"), ("x-weir-pool", "b")]).unwrap_err();
        assert_eq!(error.field, "x-weir-pool");
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert!(read(&[("traceparent", trace)]).unwrap().trace.is_some());
        assert!(read(&[("traceparent", trace), ("traceparent", trace)]).unwrap().trace.is_none());
    }
}
