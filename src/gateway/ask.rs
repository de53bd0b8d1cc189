//! What a caller asks for, checked: the one shape that bodies and headers of every face are read into.
//!
//! Not here: the reading itself (`ask_body.rs`, `ask_headers.rs`).

use super::metrics::GatewayCounters;
use super::problem::Invalid;
use super::state::Objectives;
use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_kernel::{Arrival, Face, Idempotency, Micros, Trace};

/// Longest id, name or label that is taken, in bytes.
pub const ID_BYTES_MAX: usize = 256;

/// Largest size that is taken: what every JSON reader holds exactly.
pub const BYTES_MAX: u64 = (1 << 53) - 1;

/// Largest SLO in milliseconds (seed-system.md section 9: beyond it, nanoseconds overflow).
pub const SLO_MS_MAX: u64 = (1 << 63) / 1_000_000;

/// Largest deadline in milliseconds from now: a hundred years.
pub const DEADLINE_MS_MAX: u64 = 100 * 366 * 86_400_000;

/// The caller's own deadline as it was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// From the receipt of the request.
    In(Micros),
    /// An instant of the wall clock.
    Wall(Micros),
}

/// A request for admission. `None` = not said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// The pool by name.
    pub pool: Option<String>,
    /// The caller's own id.
    pub caller_id: Option<String>,
    /// The objective by name.
    pub objective: Option<String>,
    /// The fairness id; empty is the default flow.
    pub fairness_id: Option<String>,
    /// A raw priority.
    pub priority: Option<i32>,
    /// The model by name.
    pub model: Option<String>,
    /// Size for the byte limits.
    pub bytes: Option<u64>,
    /// Prompt tokens.
    pub prompt_tokens: Option<u32>,
    /// The caller's shorter queue-wait budget; never zero.
    pub ttl: Option<Micros>,
    /// A budget in a header could not be read, and is ignored.
    pub ttl_unreadable: bool,
    /// Time to first token aimed at.
    pub slo_ttft: Option<Micros>,
    /// The caller's deadline.
    pub deadline: Option<Deadline>,
    /// Shall an endpoint be chosen?
    pub choose_endpoint: Option<bool>,
    /// The idempotency key and what it is scoped by, hashed without the pool.
    pub key: Option<Key>,
    /// Trace context.
    pub trace: Option<Trace>,
}

/// An idempotency key as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The key.
    pub text: String,
    /// Whose it is: the name of the caller, where callers are known, else the value of `authorization`.
    pub token: Vec<u8>,
}

impl Key {
    /// The hashes that the log keeps; neither key nor token can be had back from them.
    pub fn hashed(&self, pool: &str, body: &[u8]) -> Idempotency {
        use sha2::{Digest, Sha256};
        let mut scope = Sha256::new();
        for part in [pool.as_bytes(), &self.token, self.text.as_bytes()] {
            scope.update((part.len() as u64).to_le_bytes());
            scope.update(part);
        }
        let (scope, body) = (scope.finalize(), Sha256::digest(body));
        let mut hashed = Idempotency { key: [0; 16], body: [0; 8] };
        hashed.key.copy_from_slice(&scope[..16]);
        hashed.body.copy_from_slice(&body[..8]);
        hashed
    }
}

/// What decides how an [`Ask`] becomes an arrival, beyond itself.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'g> {
    /// The pool's clock at receipt.
    pub now: Micros,
    /// How it came in.
    pub face: Face,
    /// Is a raw priority honoured?
    pub trust_priority: bool,
    /// The highest priority that the caller may have, if there is a bound.
    pub highest: Option<Highest<'g>>,
    /// What is ignored or lowered is counted here.
    pub counters: &'g GatewayCounters,
}

/// A bound on the priority of a caller.
#[derive(Clone, Copy, Debug)]
pub struct Highest<'g> {
    /// The bound.
    pub priority: i32,
    /// What the names of objectives stand for.
    pub objectives: &'g Objectives,
}

impl Highest<'_> {
    /// The priority that is asked for in one way or the other, lowered to the bound; and whether it was lowered.
    ///
    /// It is said outright, not left to the table of objectives: that may be another one at the decision.
    fn of(self, raw: Option<i32>, objective: Option<&str>) -> (i32, bool) {
        let asked = raw.or_else(|| self.objectives.get(objective?)).unwrap_or(0);
        (asked.min(self.priority), asked > self.priority)
    }
}

impl Ask {
    /// The arrival. A raw priority that is not trusted is ignored, one that is too high is lowered; both are counted.
    pub fn into_arrival(self, terms: Terms<'_>, key: Option<Idempotency>) -> Arrival {
        if self.priority.is_some() && !terms.trust_priority {
            GatewayCounters::add(&terms.counters.priority_ignored);
        }
        let mut priority = self.priority.filter(|_| terms.trust_priority);
        if let Some(highest) = terms.highest {
            let (bounded, lowered) = highest.of(priority, self.objective.as_deref());
            if lowered {
                GatewayCounters::add(&terms.counters.priority_capped);
            }
            priority = Some(bounded);
        }
        let deadline = self.deadline.map(|deadline| match deadline {
            Deadline::In(span) => terms.now + span,
            Deadline::Wall(at) => terms.now + at.since(wall()),
        });
        Arrival {
            caller_id: self.caller_id.unwrap_or_default(),
            objective: self.objective.filter(|name| !name.is_empty()),
            fairness_id: self.fairness_id.unwrap_or_default(),
            priority,
            model: self.model.filter(|name| !name.is_empty()),
            bytes: self.bytes.unwrap_or(0),
            prompt_tokens: self.prompt_tokens,
            ttl: self.ttl,
            ttl_unreadable: self.ttl_unreadable,
            slo_ttft: self.slo_ttft,
            received_at: terms.now,
            deadline,
            face: terms.face,
            choose_endpoint: self.choose_endpoint.unwrap_or(false),
            idempotency: key,
            trace: self.trace,
        }
    }
}

/// The wall clock, in microseconds since the epoch.
fn wall() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// Checks an id, name or label: at most 256 bytes of UTF-8 without control characters.
///
/// # Errors
/// Names the field and what was found.
pub fn label(field: impl Into<Cow<'static, str>>, value: &[u8]) -> Result<String, Invalid> {
    const ALLOWED: &str = "at most 256 bytes of UTF-8 without control characters";
    if value.len() > ID_BYTES_MAX {
        return Err(Invalid::new(field, value, ALLOWED));
    }
    match std::str::from_utf8(value) {
        Ok(text) if !text.chars().any(char::is_control) => Ok(text.to_owned()),
        _ => Err(Invalid::new(field, value, ALLOWED)),
    }
}

/// Digits only, at most `max`.
///
/// # Errors
/// Names the field and what was found.
pub fn whole(
    field: impl Into<Cow<'static, str>>,
    value: &[u8],
    max: u64,
    allowed: &'static str,
) -> Result<u64, Invalid> {
    let digits = !value.is_empty() && value.len() <= 20 && value.iter().all(u8::is_ascii_digit);
    let number = if digits { std::str::from_utf8(value).ok().and_then(|t| t.parse().ok()) } else { None };
    match number {
        Some(number) if number <= max => Ok(number),
        _ => Err(Invalid::new(field, value, allowed)),
    }
}

/// A priority in decimal: `-5`, `10`; not `+10`, `1e1`, ` 10` or `ten`.
///
/// # Errors
/// Names the field and what was found.
pub fn priority(field: &'static str, value: &[u8]) -> Result<i32, Invalid> {
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    let plain = !digits.is_empty() && digits.len() <= 10 && digits.iter().all(u8::is_ascii_digit);
    let number = if plain { std::str::from_utf8(value).ok().and_then(|t| t.parse().ok()) } else { None };
    number.ok_or_else(|| Invalid::new(field, value, PRIORITY_ALLOWED))
}

/// What a priority may be.
pub const PRIORITY_ALLOWED: &str = "an integer from -2147483648 to 2147483647";

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn c083_only_a_plain_integer_is_a_priority() {
        for (text, want) in [
            ("10", Some(10)),
            ("-1", Some(-1)),
            ("-2147483648", Some(i32::MIN)),
            ("2147483647", Some(i32::MAX)),
            ("007", Some(7)),
            ("2147483648", None),
            ("+10", None),
            ("ten", None),
            ("1e1", None),
            ("10 ", None),
            ("1.0", None),
            ("-", None),
            ("", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(priority("priority", text.as_bytes()).ok(), want, "{text}");
        }
    }

    #[test]
    fn labels_are_short_and_clean() {
        assert_eq!(label("x", b"tenant-\xc3\xa9").unwrap(), "tenant-é");
        assert_eq!(label("x", &[b'a'; 256]).unwrap().len(), 256);
        for bad in [&[b'a'; 257][..], b"a\nb", b"\xff", b"a\x7f", b"\xc2\x85"] {
            let error = label("requestId", bad).unwrap_err();
            assert_eq!(error.field, "requestId");
            assert!(error.value.chars().count() <= 65, "{error}");
        }
    }

    fn terms(counters: &GatewayCounters) -> Terms<'_> {
        Terms { now: Micros(1_000), face: Face::Held, trust_priority: false, highest: None, counters }
    }

    #[test]
    fn an_untrusted_priority_is_ignored_and_said() {
        let counters = GatewayCounters::default();
        let terms = terms(&counters);
        let ask = Ask { priority: Some(9), ..Ask::default() };
        assert_eq!(ask.clone().into_arrival(terms, None).priority, None);
        assert_eq!(counters.priority_ignored.load(Relaxed), 1);
        let trusted = ask.into_arrival(Terms { trust_priority: true, ..terms }, None);
        assert_eq!((trusted.priority, counters.priority_ignored.load(Relaxed)), (Some(9), 1));
    }

    #[test]
    fn a_caller_cannot_promote_itself_beyond_its_bound() {
        let objectives = Objectives::default();
        objectives.set([("gold", 10), ("bronze", -5)].map(|(name, p)| (name.to_owned(), p)).into());
        let counters = GatewayCounters::default();
        for (bound, trust, raw, objective, want, lowered) in [
            (3, true, Some(9), None, 3, true),
            (3, true, Some(2), None, 2, false),
            (3, true, Some(2), Some("gold"), 2, false),
            (3, false, Some(2), Some("gold"), 3, true),
            (3, false, Some(9), None, 0, false),
            (3, false, None, Some("gold"), 3, true),
            (3, false, None, Some("bronze"), -5, false),
            (3, false, None, Some("unknown"), 0, false),
            (3, false, None, None, 0, false),
            (-1, false, None, None, -1, true),
            (-1, false, None, Some("bronze"), -5, false),
        ] {
            let before = counters.priority_capped.load(Relaxed);
            let ask = Ask { priority: raw, objective: objective.map(str::to_owned), ..Ask::default() };
            let highest = Some(Highest { priority: bound, objectives: &objectives });
            let arrival =
                ask.into_arrival(Terms { trust_priority: trust, highest, ..terms(&counters) }, None);
            let case = format!("{bound} {trust} {raw:?} {objective:?}");
            assert_eq!(arrival.priority, Some(want), "{case}");
            assert_eq!(arrival.objective.as_deref(), objective, "{case}: the name stays in the log");
            assert_eq!(counters.priority_capped.load(Relaxed) - before, u64::from(lowered), "{case}");
        }
    }

    #[test]
    fn a_deadline_counts_on_the_clock_of_the_pool() {
        let counters = GatewayCounters::default();
        let of = |deadline| {
            let ask = Ask { deadline: Some(deadline), ..Ask::default() };
            ask.into_arrival(terms(&counters), None).deadline
        };
        assert_eq!(of(Deadline::In(Micros(7))), Some(Micros(1_007)));
        assert_eq!(of(Deadline::In(Micros::MAX)), Some(Micros::MAX));
        assert_eq!(of(Deadline::Wall(Micros(1))), Some(Micros(1_000)), "long past is due at once");
    }

    #[test]
    fn keys_are_scoped_by_pool_and_token() {
        let key = |text: &str, token: &str| Key { text: text.into(), token: token.into() };
        let base = key("k", "t").hashed("p", b"body");
        assert_eq!(base, key("k", "t").hashed("p", b"body"));
        assert_ne!(base.key, key("k", "t").hashed("q", b"body").key);
        assert_ne!(base.key, key("k", "u").hashed("p", b"body").key);
        assert_ne!(key("ab", "c").hashed("p", b"").key, key("b", "ca").hashed("p", b"").key);
        let other = key("k", "t").hashed("p", b"other");
        assert_eq!(base.key, other.key);
        assert_ne!(base.body, other.body);
    }
}
