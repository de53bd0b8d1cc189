//! Writing JSON by hand where an answer is on the hot path, and showing foreign text safely.
//!
//! Not here: reading JSON (`ask_body.rs`, `ext_proc.rs`, `push.rs`).

use std::fmt::Display;
use std::io::Write;

/// A JSON object under construction; keys are ours and need no escaping.
#[derive(Debug)]
pub struct Object {
    buf: Vec<u8>,
    first: bool,
}

impl Object {
    /// An empty object with room for a usual answer.
    pub fn new() -> Self {
        Object::continuing(Vec::with_capacity(256))
    }

    /// An object that is written behind what `buf` holds already.
    pub fn continuing(mut buf: Vec<u8>) -> Self {
        buf.push(b'{');
        Object { buf, first: true }
    }

    /// An object that was finished, opened again for more members. It has some already.
    pub fn reopened(mut object: Vec<u8>) -> Self {
        object.pop();
        Object { buf: object, first: false }
    }

    fn key(&mut self, key: &str) {
        if !self.first {
            self.buf.push(b',');
        }
        self.first = false;
        self.buf.push(b'"');
        self.buf.extend_from_slice(key.as_bytes());
        self.buf.extend_from_slice(b"\":");
    }

    /// A string member.
    pub fn text(mut self, key: &str, value: &str) -> Self {
        self.key(key);
        write_text(&mut self.buf, value);
        self
    }

    /// A string member whose display form needs no escaping: names and numbers of ours.
    pub fn name(mut self, key: &str, value: impl Display) -> Self {
        self.key(key);
        // Writing to a vector cannot fail.
        let _ = write!(self.buf, "\"{value}\"");
        self
    }

    /// A string member, left out if there is none.
    pub fn text_opt(self, key: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.text(key, value),
            None => self,
        }
    }

    /// A member whose display form is JSON already: integers, `Ratio`.
    pub fn plain(mut self, key: &str, value: impl Display) -> Self {
        self.key(key);
        // Writing to a vector cannot fail.
        let _ = write!(self.buf, "{value}");
        self
    }

    /// As [`Object::plain`], left out if there is none.
    pub fn plain_opt(self, key: &str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.plain(key, value),
            None => self,
        }
    }

    /// A nested object.
    pub fn object(mut self, key: &str, fill: impl FnOnce(Object) -> Object) -> Self {
        self.key(key);
        let inner = fill(Object::continuing(self.buf));
        self.buf = inner.finish();
        self
    }

    /// A list of objects.
    pub fn list<T>(
        mut self,
        key: &str,
        items: impl IntoIterator<Item = T>,
        mut fill: impl FnMut(Object, T) -> Object,
    ) -> Self {
        self.key(key);
        self.buf.push(b'[');
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.buf.push(b',');
            }
            self.buf = fill(Object::continuing(self.buf), item).finish();
        }
        self.buf.push(b']');
        self
    }

    /// The bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.buf.push(b'}');
        self.buf
    }
}

impl Default for Object {
    fn default() -> Self {
        Object::new()
    }
}

/// Appends `value` as a JSON string.
pub fn write_text(buf: &mut Vec<u8>, value: &str) {
    buf.push(b'"');
    let bytes = value.as_bytes();
    let mut done = 0;
    for (index, byte) in bytes.iter().enumerate() {
        if *byte >= 0x20 && *byte != b'"' && *byte != b'\\' && *byte != 0x7f {
            continue;
        }
        buf.extend_from_slice(&bytes[done..index]);
        match byte {
            b'"' => buf.extend_from_slice(b"\\\""),
            b'\\' => buf.extend_from_slice(b"\\\\"),
            b'\n' => buf.extend_from_slice(b"\\n"),
            // Writing to a vector cannot fail.
            other => drop(write!(buf, "\\u{other:04x}")),
        }
        done = index + 1;
    }
    buf.extend_from_slice(&bytes[done..]);
    buf.push(b'"');
}

/// Longest part of a foreign value that an error message repeats, in characters.
const SHOWN_MAX: usize = 64;

/// A foreign value as an error message may repeat it: cut, and with control characters escaped.
pub fn shown(value: &[u8]) -> String {
    let head = &value[..value.len().min(4 * SHOWN_MAX + 4)];
    let text = String::from_utf8_lossy(head);
    let mut out = String::with_capacity(SHOWN_MAX + 8);
    for (index, ch) in text.chars().enumerate() {
        if index == SHOWN_MAX {
            out.push('…');
            return out;
        }
        if ch.is_control() {
            out.extend(ch.escape_default());
        } else {
            out.push(ch);
        }
    }
    if head.len() < value.len() {
        out.push('…');
    }
    out
}

/// The word of `known` that is nearest to `word`, if it is near enough to be meant (at most 3 edits, under half its length).
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    if word.len() > 64 {
        return None;
    }
    known
        .iter()
        .map(|candidate| (edits(word, candidate), *candidate))
        .filter(|(edits, candidate)| *edits <= 3 && 2 * *edits < candidate.chars().count().max(2))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Edit distance, case folded: `defaultRequestTtl` is no edit away from `defaultRequestTTL`.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().map(|c| c.to_ascii_lowercase()).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let ca = ca.to_ascii_lowercase();
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_nest_and_escape() {
        let bytes = Object::new()
            .text("a", "q\"\\\n\u{1}é")
            .plain("n", -3)
            .text_opt("none", None)
            .object("o", |o| o.plain("x", 1).list("l", [1, 2], |o, i| o.plain("i", i)))
            .finish();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(
            text,
            "{\"a\":\"q\\\"\\\\\\n\\u0001é\",\"n\":-3,\"o\":{\"x\":1,\"l\":[{\"i\":1},{\"i\":2}]}}"
        );
        let back: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back["a"], "q\"\\\n\u{1}é");
    }

    #[test]
    fn foreign_text_is_cut_and_escaped() {
        assert_eq!(shown(b"plain"), "plain");
        assert_eq!(shown(b"a\nb\x00"), "a\\nb\\u{0}");
        assert_eq!(shown(&[0xff, b'x']), "\u{fffd}x");
        assert_eq!(shown(&vec![b'y'; 100_000]).chars().count(), SHOWN_MAX + 1);
    }

    #[test]
    fn the_nearest_key_is_named_only_when_it_is_near() {
        let known = ["pool", "priority", "promptTokens"];
        for (word, want) in [
            ("priorty", Some("priority")),
            ("prompttokens", Some("promptTokens")),
            ("Pool", Some("pool")),
            ("zzzz", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, &known), want, "{word}");
        }
    }
}
