//! What the OpenAI-style routes read and write, with every mistake named by its field.

use serde::Deserialize;
use serde_json::{Value, json};

/// Characters that count as one token of a text prompt.
pub const CHARS_PER_TOKEN: usize = 4;
/// Tokens where a request asks for no number.
const DEFAULT_OUTPUT: u32 = 16;

/// A request as it came.
#[derive(Debug, Deserialize)]
pub struct Body {
    prompt: Option<Value>,
    messages: Option<Vec<Message>>,
    max_tokens: Option<Value>,
    max_completion_tokens: Option<Value>,
    n: Option<Value>,
    #[serde(default)]
    stream: bool,
    stream_options: Option<StreamOptions>,
}

#[derive(Debug, Deserialize)]
struct Message {
    #[serde(default)]
    content: Value,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

/// A request, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Prompt tokens.
    pub prompt: u32,
    /// Tokens to generate.
    pub output: u32,
    /// As server-sent events?
    pub stream: bool,
    /// With the usage as the last event?
    pub usage: bool,
}

/// What is wrong with a request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {found} is not allowed; allowed: {allowed}")]
pub struct Invalid {
    /// The field.
    pub field: &'static str,
    /// What it holds, shortened.
    pub found: String,
    /// What it may hold.
    pub allowed: &'static str,
}

fn invalid(field: &'static str, found: &Value, allowed: &'static str) -> Invalid {
    let mut found = found.to_string();
    if found.len() > 64 {
        let cut = (0..=61).rev().find(|i| found.is_char_boundary(*i)).unwrap_or(0);
        found.truncate(cut);
        found.push_str("...");
    }
    Invalid { field, found, allowed }
}

impl Body {
    /// Reads a body.
    ///
    /// # Errors
    /// No JSON of this shape.
    pub fn parse(bytes: &[u8]) -> Result<Body, String> {
        serde_json::from_slice(bytes).map_err(|e| format!("body: {e}"))
    }

    /// Checks it; `chat` says which route it came by.
    ///
    /// # Errors
    /// The first field that is missing or wrong.
    pub fn check(&self, chat: bool) -> Result<Ask, Invalid> {
        if let Some(n) = self.n.as_ref().filter(|n| n.as_u64() != Some(1)) {
            return Err(invalid("n", n, "1"));
        }
        let prompt = if chat { self.chat_tokens()? } else { self.prompt_tokens()? };
        let asked = match (&self.max_completion_tokens, &self.max_tokens) {
            (Some(value), _) => Some(("max_completion_tokens", value)),
            (None, Some(value)) => Some(("max_tokens", value)),
            (None, None) => None,
        };
        let output = match asked {
            None => DEFAULT_OUTPUT,
            Some((field, value)) => value
                .as_u64()
                .and_then(|n| u32::try_from(n).ok())
                .filter(|n| *n > 0)
                .ok_or_else(|| invalid(field, value, "a whole number from 1"))?,
        };
        let usage = self.stream_options.as_ref().is_some_and(|o| o.include_usage);
        Ok(Ask { prompt, output, stream: self.stream, usage })
    }

    fn prompt_tokens(&self) -> Result<u32, Invalid> {
        const ALLOWED: &str = "a text, or an array of token numbers, not empty";
        let tokens = match &self.prompt {
            Some(Value::String(text)) => text.len().div_ceil(CHARS_PER_TOKEN),
            Some(Value::Array(tokens)) if tokens.iter().all(Value::is_u64) => tokens.len(),
            other => return Err(invalid("prompt", other.as_ref().unwrap_or(&Value::Null), ALLOWED)),
        };
        match u32::try_from(tokens) {
            Ok(tokens) if tokens > 0 => Ok(tokens),
            _ => Err(invalid("prompt", &json!(tokens), ALLOWED)),
        }
    }

    fn chat_tokens(&self) -> Result<u32, Invalid> {
        const ALLOWED: &str = "a list of messages with text, not empty";
        let messages = self.messages.as_ref().ok_or_else(|| invalid("messages", &Value::Null, ALLOWED))?;
        let mut bytes = 0;
        for message in messages {
            bytes += match &message.content {
                Value::String(text) => text.len(),
                Value::Array(parts) => {
                    parts.iter().map(|part| part["text"].as_str().map_or(0, str::len)).sum()
                }
                other => return Err(invalid("messages", other, ALLOWED)),
            };
        }
        match u32::try_from(bytes.div_ceil(CHARS_PER_TOKEN)) {
            Ok(tokens) if tokens > 0 => Ok(tokens),
            _ => Err(invalid("messages", &json!(messages.len()), ALLOWED)),
        }
    }
}

/// Writes answers of one request.
#[derive(Clone, Debug)]
pub struct Writer {
    /// By the chat route?
    pub chat: bool,
    /// The answer's id.
    pub id: String,
    /// The model's name.
    pub model: String,
    /// The request.
    pub ask: Ask,
}

impl Writer {
    fn envelope(&self, object: &str, choices: Value) -> Value {
        json!({ "id": self.id, "object": object, "created": 0, "model": self.model, "choices": choices })
    }

    fn usage(&self) -> Value {
        let Ask { prompt, output, .. } = self.ask;
        json!({ "prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output })
    }

    /// One token as an event.
    pub fn chunk(&self, token: u32) -> String {
        let finish = if token == self.ask.output { json!("length") } else { Value::Null };
        let value = if self.chat {
            let choice = json!([{ "index": 0, "delta": { "content": " tok" }, "finish_reason": finish }]);
            self.envelope("chat.completion.chunk", choice)
        } else {
            let choice = json!([{ "index": 0, "text": " tok", "finish_reason": finish }]);
            self.envelope("text_completion", choice)
        };
        format!("data: {value}\n\n")
    }

    /// The end of the event stream.
    pub fn last(&self) -> String {
        if !self.ask.usage {
            return "data: [DONE]\n\n".to_owned();
        }
        let object = if self.chat { "chat.completion.chunk" } else { "text_completion" };
        let mut value = self.envelope(object, json!([]));
        value["usage"] = self.usage();
        format!("data: {value}\n\ndata: [DONE]\n\n")
    }

    /// The whole answer at once.
    pub fn whole(&self) -> Value {
        let text = " tok".repeat(self.ask.output as usize);
        let mut value = if self.chat {
            let message = json!({ "role": "assistant", "content": text });
            let choice = json!([{ "index": 0, "message": message, "finish_reason": "length" }]);
            self.envelope("chat.completion", choice)
        } else {
            let choice = json!([{ "index": 0, "text": text, "finish_reason": "length" }]);
            self.envelope("text_completion", choice)
        };
        value["usage"] = self.usage();
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(body: &str, chat: bool) -> Result<Ask, String> {
        Body::parse(body.as_bytes())?.check(chat).map_err(|e| e.to_string())
    }

    #[test]
    fn prompts_are_counted() {
        for (body, chat, prompt, output) in [
            (r#"{"prompt":"abcde"}"#, false, 2, 16),
            (r#"{"prompt":[1,2,3],"max_tokens":5}"#, false, 3, 5),
            (r#"{"messages":[{"role":"user","content":"abcdefgh"}],"max_completion_tokens":7}"#, true, 2, 7),
            (r#"{"messages":[{"content":[{"type":"text","text":"abcd"}]}]}"#, true, 1, 16),
        ] {
            let got = ask(body, chat).unwrap();
            assert_eq!((got.prompt, got.output), (prompt, output), "{body}");
        }
    }

    #[test]
    fn mistakes_name_their_field() {
        for (body, chat, field) in [
            ("{", false, "body"),
            (r#"{"max_tokens":5}"#, false, "prompt"),
            (r#"{"prompt":""}"#, false, "prompt"),
            (r#"{"prompt":[1,"x"]}"#, false, "prompt"),
            (r#"{"prompt":"a","max_tokens":0}"#, false, "max_tokens"),
            (r#"{"prompt":"a","max_tokens":-3}"#, false, "max_tokens"),
            (r#"{"prompt":"a","max_tokens":99999999999}"#, false, "max_tokens"),
            (r#"{"prompt":"a","n":2}"#, false, "n"),
            (r#"{"prompt":"a"}"#, true, "messages"),
            (r#"{"messages":[]}"#, true, "messages"),
            (r#"{"messages":[{"content":5}]}"#, true, "messages"),
        ] {
            let got = ask(body, chat).unwrap_err();
            assert!(got.starts_with(field), "{body}: {got}");
        }
    }

    #[test]
    fn a_stream_ends_with_its_usage_where_asked() {
        let ask = Ask { prompt: 3, output: 2, stream: true, usage: true };
        let writer = Writer { chat: false, id: "x".to_owned(), model: "m".to_owned(), ask };
        assert!(writer.chunk(1).contains(r#""finish_reason":null"#));
        assert!(writer.chunk(2).contains(r#""finish_reason":"length""#));
        assert!(writer.last().contains(r#""completion_tokens":2"#));
        assert_eq!(Writer { ask: Ask { usage: false, ..ask }, ..writer }.last(), "data: [DONE]\n\n");
    }
}
