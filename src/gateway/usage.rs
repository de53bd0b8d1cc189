//! Token usage, read from a response as it passes: whole JSON or server-sent events, in whatever pieces it comes.
//!
//! One pass over the bytes, a few kilobytes of memory, nothing decoded but the object `usage` itself. The last one
//! counts: engines that report as they go end with the sum.

use serde::Deserialize;
use weir_kernel::Usage;

/// The longest `usage` object that is read, in bytes.
const OBJECT_MAX: usize = 4_096;

/// How deep `usage` may stand: in the answer itself, or in the `response` of an event.
const DEPTH_MAX: u32 = 2;

const KEY: &[u8] = b"usage";

/// Reads a response's usage.
#[derive(Debug, Default)]
pub struct UsageReader {
    /// Server-sent events: each line is a text of its own.
    by_line: bool,
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// How much of [`KEY`] the present string is so far; `None` once it is something else.
    matched: Option<usize>,
    /// The last string was the key.
    key_seen: bool,
    /// The key and its colon are behind us.
    armed: bool,
    /// The object, and the depth that it began at.
    object: Option<(Vec<u8>, u32)>,
    found: Option<Usage>,
}

/// As OpenAI's completions and its responses name them.
#[derive(Deserialize)]
struct Wire {
    #[serde(alias = "input_tokens", default)]
    prompt_tokens: Option<u64>,
    #[serde(alias = "output_tokens", default)]
    completion_tokens: Option<u64>,
}

impl UsageReader {
    /// For a response of this content type.
    pub fn new(content_type: &[u8]) -> Self {
        let by_line =
            content_type.len() >= 17 && content_type[..17].eq_ignore_ascii_case(b"text/event-stream");
        UsageReader { by_line, ..UsageReader::default() }
    }

    /// What has been read so far.
    pub fn found(&self) -> Option<Usage> {
        self.found
    }

    /// Takes the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.take(*byte);
        }
    }

    fn take(&mut self, byte: u8) {
        if self.by_line && byte == b'\n' {
            *self = UsageReader { by_line: true, found: self.found, ..UsageReader::default() };
            return;
        }
        let room = match &mut self.object {
            Some((object, _)) => {
                object.push(byte);
                object.len() <= OBJECT_MAX
            }
            None => true,
        };
        if !room {
            self.object = None;
        }
        if self.in_string {
            return self.take_in_string(byte);
        }
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => return,
            // Outside of any object there is nothing but framing.
            b'"' if self.depth > 0 => {
                self.in_string = true;
                self.matched = Some(0);
            }
            b':' if self.key_seen && self.depth <= DEPTH_MAX && self.object.is_none() => {
                self.key_seen = false;
                self.armed = true;
                return;
            }
            b'{' | b'[' if self.depth > 0 || byte == b'{' => {
                if self.armed && byte == b'{' {
                    self.object = Some((vec![b'{'], self.depth));
                }
                self.depth = self.depth.saturating_add(1);
            }
            b'}' | b']' => self.close(),
            _ => {}
        }
        self.key_seen = false;
        self.armed = false;
    }

    fn take_in_string(&mut self, byte: u8) {
        if self.escaped {
            self.escaped = false;
            self.matched = None;
            return;
        }
        match byte {
            b'\\' => self.escaped = true,
            b'"' => {
                self.in_string = false;
                self.key_seen = self.matched == Some(KEY.len());
                self.matched = None;
            }
            _ => self.matched = self.matched.filter(|at| KEY.get(*at) == Some(&byte)).map(|at| at + 1),
        }
    }

    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        let ended = self.object.take_if(|(_, began)| *began >= self.depth);
        let Some((object, _)) = ended else { return };
        // Other people's JSON: what is not a usage object is passed over.
        let Ok(wire) = serde_json::from_slice::<Wire>(&object) else { return };
        if wire.prompt_tokens.is_none() && wire.completion_tokens.is_none() {
            return;
        }
        let tokens = |number: Option<u64>| u32::try_from(number.unwrap_or(0)).unwrap_or(u32::MAX);
        self.found =
            Some(Usage { prompt: tokens(wire.prompt_tokens), completion: tokens(wire.completion_tokens) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content_type: &str, body: &str) -> Option<Usage> {
        let mut whole = UsageReader::new(content_type.as_bytes());
        whole.feed(body.as_bytes());
        let mut pieces = UsageReader::new(content_type.as_bytes());
        for byte in body.as_bytes() {
            pieces.feed(&[*byte]);
        }
        assert_eq!(whole.found(), pieces.found(), "in one piece or in many: {body}");
        whole.found()
    }

    const JSON: &str = "application/json";
    const EVENTS: &str = "text/event-stream; charset=utf-8";

    #[test]
    fn usage_is_found_wherever_the_engine_puts_it() {
        let want = Some(Usage { prompt: 12, completion: 80 });
        for (content_type, body) in [
            (
                JSON,
                r#"{"id":"x","choices":[{"text":"a"}],"usage":{"prompt_tokens":12,"total_tokens":92,"completion_tokens":80}}"#,
            ),
            (
                JSON,
                "{\n  \"usage\" : {\n \"prompt_tokens\" : 12 , \"completion_tokens\": 80, \"details\": {\"a\": [1]} },\n \"prompt_logprobs\": null}",
            ),
            (JSON, r#"{"response":{"usage":{"input_tokens":12,"output_tokens":80}}}"#),
            (
                EVENTS,
                "data: {\"choices\":[],\"usage\":null}\n\ndata: {\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":80}}\n\ndata: [DONE]\n\n",
            ),
            (
                EVENTS,
                "data: {\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":1}}\r\n\r\ndata: {\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":80}}\r\n\r\n",
            ),
            (
                EVENTS,
                ": a comment with { and \"\ndata: {\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":80}}",
            ),
        ] {
            assert_eq!(read(content_type, body), want, "{body}");
        }
    }

    #[test]
    fn what_only_looks_like_usage_is_not() {
        for (content_type, body) in [
            (JSON, ""),
            (JSON, r#"{"usage":null}"#),
            (JSON, r#"{"usage":7}"#),
            (JSON, r#"{"usage":{"prompt_tokens":-1,"completion_tokens":80}}"#),
            (JSON, r#"{"usage":{}}"#),
            (JSON, r#"{"text":"usage","x":{"prompt_tokens":1}}"#),
            (JSON, r#"{"text":"\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}"}"#),
            (JSON, r#"{"choices":[{"usage":{"prompt_tokens":1,"completion_tokens":2}}]}"#),
            (JSON, r#"{"usages":{"prompt_tokens":1,"completion_tokens":2}}"#),
            (JSON, r#"{"usage":{"prompt_tokens":1,"completion_"#),
            (EVENTS, "data: {\"usage\":{\"prompt_tokens\":1,\n\"completion_tokens\":2}}\n"),
        ] {
            assert_eq!(read(content_type, body), None, "{body}");
        }
    }

    #[test]
    fn an_endless_object_takes_no_memory() {
        let mut reader = UsageReader::new(JSON.as_bytes());
        reader.feed(br#"{"usage":{"prompt_tokens":12,"completion_tokens":80}}{"usage":{"#);
        for _ in 0..OBJECT_MAX {
            reader.feed(br#""filler":1,"#);
        }
        assert!(reader.object.is_none());
        assert_eq!(reader.found(), Some(Usage { prompt: 12, completion: 80 }));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(body in proptest::collection::vec(proptest::num::u8::ANY, 0..400), events: bool) {
            let mut reader = UsageReader::new(if events { EVENTS } else { JSON }.as_bytes());
            reader.feed(&body);
        }
    }
}
