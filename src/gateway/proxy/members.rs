//! The members of a request's JSON object that matter on the way: its model and its priority, found without reading the
//! rest, and a priority put in with every other byte left as it was.
//!
//! Not here: whether the text is JSON in every corner. The engine checks that, and its answer is passed on.

use crate::gateway::ask::label;
use bytes::Bytes;
use std::ops::Range;

/// Where the members stand.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The value of the last `model`.
    model: Option<Range<usize>>,
    /// The value of each `priority`: engines read the last, but one will not rely on it.
    priorities: Vec<Range<usize>>,
    /// Behind the brace that opens the object.
    inside: usize,
    /// There are no members.
    empty: bool,
}

impl Members {
    /// Looks through an object. Nothing, if it is none.
    pub fn find(body: &[u8]) -> Option<Members> {
        let mut at = Cursor { body, at: 0 };
        at.space();
        at.take(b'{')?;
        let mut found = Members { inside: at.at, ..Members::default() };
        at.space();
        if at.take(b'}').is_some() {
            found.empty = true;
        } else {
            loop {
                at.space();
                let key = at.text()?;
                at.space();
                at.take(b':')?;
                at.space();
                let value = at.value()?;
                match name(&body[key]) {
                    Some("model") => found.model = Some(value),
                    Some("priority") => found.priorities.push(value),
                    _ => {}
                }
                at.space();
                if at.take(b'}').is_some() {
                    break;
                }
                at.take(b',')?;
            }
        }
        at.space();
        (at.at == body.len()).then_some(found)
    }

    /// The model by name, if it is fit for a label.
    pub fn model(&self, body: &[u8]) -> Option<String> {
        let text: String = serde_json::from_slice(&body[self.model.clone()?]).ok()?;
        label("model", text.as_bytes()).ok()
    }

    /// The body with this priority, whatever it said before.
    pub fn with_priority(&self, body: &Bytes, priority: i64) -> Bytes {
        let value = priority.to_string();
        let mut new = Vec::with_capacity(body.len() + 16 + value.len() * self.priorities.len());
        let mut done = 0;
        for place in &self.priorities {
            new.extend_from_slice(&body[done..place.start]);
            new.extend_from_slice(value.as_bytes());
            done = place.end;
        }
        if self.priorities.is_empty() {
            new.extend_from_slice(&body[..self.inside]);
            new.extend_from_slice(b"\"priority\":");
            new.extend_from_slice(value.as_bytes());
            if !self.empty {
                new.push(b',');
            }
            done = self.inside;
        }
        new.extend_from_slice(&body[done..]);
        new.into()
    }
}

/// A key without its quotes, where it can be one that is looked for.
fn name(quoted: &[u8]) -> Option<&'static str> {
    let known = ["model", "priority"];
    let inner = quoted.get(1..quoted.len().checked_sub(1)?)?;
    if !inner.contains(&b'\\') {
        return known.into_iter().find(|known| known.as_bytes() == inner);
    }
    // Each character escaped makes six; what is longer is none of these.
    if inner.len() > 6 * 8 {
        return None;
    }
    let text: String = serde_json::from_slice(quoted).ok()?;
    known.into_iter().find(|known| *known == text)
}

struct Cursor<'b> {
    body: &'b [u8],
    at: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// A string with its quotes.
    fn text(&mut self) -> Option<Range<usize>> {
        let from = self.at;
        self.take(b'"')?;
        loop {
            let rest = self.body.get(self.at..)?;
            let step = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
            if rest[step] == b'"' {
                self.at += step + 1;
                return Some(from..self.at);
            }
            self.at += step + 2;
        }
    }

    /// Any value.
    fn value(&mut self) -> Option<Range<usize>> {
        let from = self.at;
        match self.peek()? {
            b'"' => return self.text(),
            b'{' | b'[' => self.nested()?,
            _ => {
                let rest = &self.body[self.at..];
                let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n');
                self.at += rest.iter().position(ends)?;
            }
        }
        (self.at > from).then_some(from..self.at)
    }

    fn nested(&mut self) -> Option<()> {
        let mut depth = 0usize;
        loop {
            let rest = self.body.get(self.at..)?;
            let step = rest.iter().position(|byte| matches!(byte, b'"' | b'{' | b'[' | b'}' | b']'))?;
            self.at += step;
            match rest[step] {
                b'"' => {
                    self.text()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                _ => depth -= 1,
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn the_model_is_found_at_the_top_and_nowhere_else() {
        for (body, model) in [
            (r#"{"model":"m","messages":[]}"#, Some("m")),
            ("{\n  \"messages\": [{\"model\": \"x\"}],\r\n\t\"model\" : \"a\\u00e9\"\n}\n", Some("aé")),
            (r#"{"m\u006fdel":"m"}"#, Some("m")),
            (r#"{"model":"a","model":"b"}"#, Some("b")),
            (r#"{"x":{"model":"m"},"y":"\"model\":\"m\""}"#, None),
            (r#"{"model":7}"#, None),
            (r#"{"model":"a\nb"}"#, None),
            ("{}", None),
        ] {
            let found = Members::find(body.as_bytes()).unwrap_or_else(|| panic!("{body}"));
            assert_eq!(found.model(body.as_bytes()).as_deref(), model, "{body}");
        }
    }

    #[test]
    fn what_is_no_object_is_none() {
        for body in [
            "",
            " ",
            "[]",
            "\"x\"",
            "{",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1",
            "{\"a\":1,}",
            "{a:1}",
            "{\"a\":1} x",
            "{\"a\":\"b}",
            "{\"a\":[1}",
            "\u{feff}{}",
            "{\0\"\0",
        ] {
            // A bracket of the wrong kind is left for the engine to refuse.
            assert_eq!(Members::find(body.as_bytes()), None, "{body:?}");
        }
    }

    #[test]
    fn a_priority_is_put_in_and_every_other_byte_stays() {
        for (body, want) in [
            ("{}", r#"{"priority":-10}"#),
            (" { } ", r#" {"priority":-10 } "#),
            ("{ \"model\" : \"m\" }", "{\"priority\":-10, \"model\" : \"m\" }"),
            (r#"{"a":1,"priority":-99,"b":2.50}"#, r#"{"a":1,"priority":-10,"b":2.50}"#),
            (r#"{"priority":"high"}"#, r#"{"priority":-10}"#),
            (r#"{"pri\u006frity":[1,{"x":"}"}],"priority":null}"#, r#"{"pri\u006frity":-10,"priority":-10}"#),
            (r#"{"x":{"priority":5}}"#, r#"{"priority":-10,"x":{"priority":5}}"#),
        ] {
            let found = Members::find(body.as_bytes()).unwrap();
            let new = found.with_priority(&Bytes::from(body), -10);
            assert_eq!(new, want.as_bytes(), "{body}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(body in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            if let Some(found) = Members::find(&body) {
                found.model(&body);
                found.with_priority(&Bytes::from(body), i64::MIN);
            }
        }

        #[test]
        fn any_object_keeps_all_but_its_priority(
            members in proptest::collection::vec(("[a-z\"\\\\é]{0,9}|priority|model", "[ -~é]{0,12}"), 0..6),
            priority: i32,
        ) {
            let object: serde_json::Map<String, Value> =
                members.into_iter().map(|(key, text)| (key, json!([text.clone(), { "priority": text }]))).collect();
            for text in [serde_json::to_vec(&object).unwrap(), serde_json::to_vec_pretty(&object).unwrap()] {
                let found = Members::find(&text).unwrap();
                let new = found.with_priority(&Bytes::from(text), priority.into());
                let mut want = object.clone();
                want.insert("priority".to_owned(), priority.into());
                proptest::prop_assert_eq!(serde_json::from_slice::<Value>(&new).unwrap(), Value::Object(want));
            }
        }
    }
}
