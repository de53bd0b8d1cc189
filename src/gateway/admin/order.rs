//! Reading an order: who gives it, why, and what it is about.

use super::super::auth::Actor;
use super::super::problem::Invalid;
use super::super::push::{known, refused};
use http::request::Parts;
use serde_json::{Map, Value};

/// The longest name and the longest reason, in bytes of UTF-8.
const TEXT_MAX: usize = 256;
const TEXT_ALLOWED: &str = "a text of 1 to 256 bytes without control characters";

/// What a purge has to name.
pub const WHAT_TO_PURGE: &str = "the id of a queued admission, or fairnessId and priority of a flow";

/// Names the operator where the body does not.
const ACTOR: &str = "x-weir-actor";
/// Who it is where nobody is asked: only loopback is listened on without tokens.
const NOBODY: &str = "loopback";

/// Which members an order takes beside `by` and `why`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members {
    /// No more.
    None,
    /// `id`, or `fairnessId` and `priority`.
    Purge,
    /// `id`.
    Revoke,
}

/// An order, checked.
#[derive(Debug, PartialEq, Eq)]
pub struct Order {
    /// Who.
    pub by: String,
    /// Why.
    pub why: String,
    /// The admission that it is about.
    pub id: Option<String>,
    /// Fairness id and priority of the flow that it is about.
    pub flow: Option<(String, i32)>,
}

/// Reads an order.
///
/// # Errors
/// Names the member that is missing or not allowed.
pub fn read(parts: &Parts, body: &[u8], members: Members) -> Result<Order, Invalid> {
    let shape = r#"a JSON object with a reason, as in {"why": "moving the pool"}"#;
    let object = match body {
        [] => Map::new(),
        body => match serde_json::from_slice(body) {
            Ok(Value::Object(object)) => object,
            Ok(_) => return Err(Invalid::new("body", body, shape)),
            Err(error) => return Err(Invalid::new("body", body, format!("{shape} ({error})"))),
        },
    };
    let names: &[&str] = match members {
        Members::None => &["by", "why"],
        Members::Revoke => &["by", "why", "id"],
        Members::Purge => &["by", "why", "id", "fairnessId", "priority"],
    };
    known("body", &object, names)?;
    let by = who(parts, &object)?;
    let why = text("why", member(&object, "why"))?
        .ok_or_else(|| Invalid::new("why", "", format!("the reason, {TEXT_ALLOWED}")))?;
    let id = text("id", member(&object, "id"))?;
    let flow = flow(&object)?;
    if members == Members::Revoke && id.is_none() {
        return Err(Invalid::new("id", "", "the id of a running admission"));
    }
    if members == Members::Purge && id.is_some() == flow.is_some() {
        let found = if id.is_some() { "both" } else { "" };
        return Err(Invalid::new("id", found, WHAT_TO_PURGE));
    }
    Ok(Order { by, why, id, flow })
}

fn member<'o>(object: &'o Map<String, Value>, name: &str) -> &'o Value {
    object.get(name).unwrap_or(&Value::Null)
}

/// A text, if there is one.
fn text(name: &'static str, value: &Value) -> Result<Option<String>, Invalid> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) if is_fit(text) => Ok(Some(text.clone())),
        other => Err(refused(name.to_owned(), other, TEXT_ALLOWED)),
    }
}

fn is_fit(text: &str) -> bool {
    !text.trim().is_empty() && text.len() <= TEXT_MAX && !text.chars().any(char::is_control)
}

/// Who showed a token or a certificate, else whom the body names, else the header.
fn who(parts: &Parts, object: &Map<String, Value>) -> Result<String, Invalid> {
    let claimed = text("by", member(object, "by"))?;
    if let Some(actor) = parts.extensions.get::<Actor>() {
        return Ok(actor.name().to_owned());
    }
    if let Some(name) = claimed {
        return Ok(name);
    }
    match parts.headers.get(ACTOR) {
        None => Ok(NOBODY.to_owned()),
        Some(value) => match std::str::from_utf8(value.as_bytes()) {
            Ok(name) if is_fit(name) => Ok(name.to_owned()),
            _ => Err(Invalid::new(ACTOR, value.as_bytes(), TEXT_ALLOWED)),
        },
    }
}

/// Both names of a flow, or neither: the fairness id may be empty (the default flow).
fn flow(object: &Map<String, Value>) -> Result<Option<(String, i32)>, Invalid> {
    let (name, number) = (member(object, "fairnessId"), member(object, "priority"));
    let whole = "the priority of the flow, a whole number of 32 bits";
    let priority = match number {
        Value::Null => None,
        number => Some(
            number
                .as_i64()
                .and_then(|number| i32::try_from(number).ok())
                .ok_or_else(|| refused("priority".to_owned(), number, whole))?,
        ),
    };
    let name = match name {
        Value::Null => None,
        Value::String(name) if name.is_empty() || is_fit(name) => Some(name.clone()),
        other => {
            return Err(refused(
                "fairnessId".to_owned(),
                other,
                "a fairness id, or \"\" for the default flow",
            ));
        }
    };
    match (name, priority) {
        (Some(name), Some(priority)) => Ok(Some((name, priority))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(Invalid::new("priority", "", whole)),
        (None, Some(_)) => Err(Invalid::new("fairnessId", "", "the fairness id of the flow")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(actor: Option<&str>) -> Parts {
        let mut request = http::Request::builder();
        if let Some(actor) = actor {
            request = request.header(ACTOR, actor);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn every_order_says_who_and_why() {
        let long = "x".repeat(257);
        let as_long = format!(r#"{{"why": "{long}"}}"#);
        for (body, members, want) in [
            (r#"{"why": "w"}"#, Members::None, Ok(("loopback", "w"))),
            (r#"{"why": "w", "by": "me"}"#, Members::None, Ok(("me", "w"))),
            ("", Members::None, Err("why")),
            ("{}", Members::None, Err("why")),
            (r#"{"why": " "}"#, Members::None, Err("why")),
            (r#"{"why": 7}"#, Members::None, Err("why")),
            (as_long.as_str(), Members::None, Err("why")),
            (r#"{"why": "w", "by": ""}"#, Members::None, Err("by")),
            (r#"{"why": "w", "by": "a\u0000"}"#, Members::None, Err("by")),
            (r#"{"why": "w", "whom": "x"}"#, Members::None, Err("body")),
            (r#"{"why": "w", "id": "p-1"}"#, Members::None, Err("body")),
            ("[]", Members::None, Err("body")),
            (r#"{"why": "w"}"#, Members::Revoke, Err("id")),
            (r#"{"why": "w", "id": "p-1"}"#, Members::Revoke, Ok(("loopback", "w"))),
            (r#"{"why": "w"}"#, Members::Purge, Err("id")),
            (r#"{"why": "w", "id": "p-1"}"#, Members::Purge, Ok(("loopback", "w"))),
            (r#"{"why": "w", "fairnessId": "", "priority": -1}"#, Members::Purge, Ok(("loopback", "w"))),
            (r#"{"why": "w", "fairnessId": "a"}"#, Members::Purge, Err("priority")),
            (r#"{"why": "w", "priority": 0}"#, Members::Purge, Err("fairnessId")),
            (r#"{"why": "w", "fairnessId": "a", "priority": 2147483648}"#, Members::Purge, Err("priority")),
            (r#"{"why": "w", "id": "p-1", "fairnessId": "a", "priority": 0}"#, Members::Purge, Err("id")),
        ] {
            let got = read(&parts(None), body.as_bytes(), members);
            let got = got.as_ref().map(|o| (o.by.as_str(), o.why.as_str())).map_err(|e| e.field.as_ref());
            assert_eq!(got, want, "{body}");
        }
    }

    #[test]
    fn whoever_is_known_by_a_token_is_not_asked() {
        let body = br#"{"why": "w", "by": "claimed"}"#;
        let mut known = parts(Some("header"));
        assert_eq!(read(&known, br#"{"why": "w"}"#, Members::None).unwrap().by, "header");
        assert_eq!(read(&known, body, Members::None).unwrap().by, "claimed");
        let entry = crate::gateway::auth::Entry { name: "token".to_owned(), ..Default::default() };
        known.extensions.insert(Actor::new(entry));
        assert_eq!(read(&known, body, Members::None).unwrap().by, "token");
    }
}
