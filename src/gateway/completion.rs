//! Reading the body of `POST /v1/admissions/{id}/complete`.

use super::problem::Invalid;
use super::push::{known, refused};
use serde_json::Value;
use weir_kernel::{Termination, Usage};

/// Tokens of a completed request: `{"usage": {"prompt": 12, "completion": 80}, "termination": "natural"}`.
///
/// # Errors
/// Names the member, what was found and what is allowed.
pub fn read(body: &[u8]) -> Result<(Termination, Option<Usage>), Invalid> {
    if body.is_empty() {
        return Ok((Termination::Natural, None));
    }
    let shape = "an object with usage, termination or nothing";
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| Invalid::new("body", body, format!("{shape} ({error})")))?;
    let Value::Object(members) = value else { return Err(Invalid::new("body", body, shape)) };
    known("body", &members, &["usage", "termination"])?;
    let termination = match members.get("termination") {
        None | Some(Value::Null) => Termination::Natural,
        Some(value) => match value.as_str() {
            Some("natural") => Termination::Natural,
            Some("client-disconnect") => Termination::ClientDisconnect,
            Some("error") => Termination::Error,
            _ => {
                let allowed = "natural, client-disconnect or error";
                return Err(refused("termination".to_owned(), value, allowed));
            }
        },
    };
    let usage = match members.get("usage") {
        None | Some(Value::Null) => None,
        Some(Value::Object(usage)) => {
            // OpenAI's own words are taken as well, so that its usage object can be handed on as it is.
            let names = ["prompt", "completion", "prompt_tokens", "completion_tokens", "total_tokens"];
            known("usage", usage, &names)?;
            let tokens = |short: &str, long: &str| {
                let value = usage.get(short).or(usage.get(long)).unwrap_or(&Value::Null);
                let number = if value.is_null() { Some(0) } else { value.as_u64() };
                let number = number.and_then(|number| u32::try_from(number).ok());
                let allowed = "a whole number of tokens, up to 4294967295";
                number.ok_or_else(|| refused(format!("usage.{short}"), value, allowed))
            };
            Some(Usage {
                prompt: tokens("prompt", "prompt_tokens")?,
                completion: tokens("completion", "completion_tokens")?,
            })
        }
        Some(other) => return Err(refused("usage".to_owned(), other, "an object")),
    };
    Ok((termination, usage))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_are_read_or_refused() {
        let usage = Some(Usage { prompt: 12, completion: 80 });
        for (body, want) in [
            ("", (Termination::Natural, None)),
            ("{}", (Termination::Natural, None)),
            (r#"{"usage":{"prompt":12,"completion":80}}"#, (Termination::Natural, usage)),
            (
                r#"{"usage":{"prompt_tokens":12,"completion_tokens":80,"total_tokens":92},"termination":"error"}"#,
                (Termination::Error, usage),
            ),
        ] {
            assert_eq!(read(body.as_bytes()), Ok(want), "{body}");
        }
        for (body, field) in [
            ("[]", "body"),
            (r#"{"use":{}}"#, "body"),
            (r#"{"usage":7}"#, "usage"),
            (r#"{"usage":{"prompt":-1}}"#, "usage.prompt"),
            (r#"{"usage":{"completion":4294967296}}"#, "usage.completion"),
            (r#"{"usage":{"tokens":1}}"#, "usage"),
            (r#"{"termination":"evicted"}"#, "termination"),
        ] {
            assert_eq!(read(body.as_bytes()).unwrap_err().field, field, "{body}");
        }
    }
}
