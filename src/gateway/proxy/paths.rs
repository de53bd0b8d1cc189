//! Which requests the proxy takes: those that are admitted, those that pass without, and nothing else.
//!
//! A pool may have routes that were never meant for callers (loading adapters, resetting caches), so what is not named
//! here, or in the settings, is no path at all.

use http::Method;
use std::borrow::Cow;

/// Paths whose POST costs the engine something: it is admitted.
const ADMITTED: [&str; 12] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/messages",
    "/v1/rerank",
    "/v1/score",
    "/v1/moderations",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/audio/speech",
    "/v1/images/generations",
];

/// Paths that are looked at, and cost nothing.
const PASSED: [&str; 2] = ["/v1/models", "/v1/models/*"];

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It is admitted first.
    Admit,
    /// It passes.
    Pass,
    /// The path is there, the method is not.
    NoMethod(&'static str),
    /// No such path.
    NoPath,
}

/// The paths of a proxy: the usual ones, and those of its settings.
#[derive(Debug)]
pub struct Paths {
    admitted: Vec<String>,
    passed: Vec<String>,
}

impl Paths {
    /// With these beside the usual ones.
    pub fn new(admitted: &[String], passed: &[String]) -> Self {
        Paths { admitted: admitted.to_vec(), passed: passed.to_vec() }
    }

    /// Is it one of the usual calls that are admitted, which no route of the gateway's own has?
    pub fn is_usual(&self, method: &Method, path: &str) -> bool {
        *method == Method::POST && ADMITTED.contains(&path) && !is_one_of(&self.passed, path)
    }

    /// What becomes of a request. A path that the settings name goes before the usual ones.
    pub fn way(&self, method: &Method, path: &str) -> Way {
        // An endpoint may resolve it to a path that nobody named.
        if has_dot_segment(path) {
            return Way::NoPath;
        }
        if is_one_of(&self.passed, path) {
            return if matches!(*method, Method::CONNECT | Method::TRACE) { Way::NoPath } else { Way::Pass };
        }
        if is_one_of(&self.admitted, path) || is_one_of(&ADMITTED, path) {
            return match *method {
                Method::POST => Way::Admit,
                // A browser asks whether it may ask.
                Method::OPTIONS => Way::Pass,
                _ => Way::NoMethod("POST, OPTIONS"),
            };
        }
        if is_one_of(&PASSED, path) {
            return match *method {
                Method::GET | Method::HEAD | Method::OPTIONS => Way::Pass,
                _ => Way::NoMethod("GET, HEAD, OPTIONS"),
            };
        }
        Way::NoPath
    }
}

fn is_one_of(list: &[impl AsRef<str>], path: &str) -> bool {
    list.iter().any(|known| match known.as_ref().strip_suffix("/*") {
        Some(stem) => path.strip_prefix(stem).is_some_and(|rest| rest.starts_with('/') && rest.len() > 1),
        None => known.as_ref() == path,
    })
}

/// Is a segment `.` or `..`, as an endpoint may read it: percent-encoded, between encoded or back slashes, with parameters?
fn has_dot_segment(path: &str) -> bool {
    let decoded = decoded(path);
    let mut segments = decoded.split(|byte| matches!(byte, b'/' | b'\\'));
    segments.any(|segment| matches!(segment.split(|byte| *byte == b';').next(), Some(b"." | b"..")))
}

/// A path without its percent-encoding, and without what is encoded in that again.
fn decoded(path: &str) -> Cow<'_, [u8]> {
    if !path.contains('%') {
        return Cow::Borrowed(path.as_bytes());
    }
    let mut decoded = Vec::with_capacity(path.len());
    for byte in path.bytes() {
        decoded.push(byte);
        // What was put together may be the end of another one.
        while let [.., b'%', high, low] = decoded[..] {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            let Some(byte) =
                digit(high).zip(digit(low)).and_then(|(high, low)| u8::try_from(high << 4 | low).ok())
            else {
                break;
            };
            decoded.truncate(decoded.len() - 3);
            decoded.push(byte);
        }
    }
    Cow::Owned(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c087_a_path_is_known_or_it_is_none() {
        let own = |list: &[&str]| list.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
        let paths = Paths::new(&own(&["/pooling"]), &own(&["/v1/files/*", "/v1/completions"]));
        for (method, path, usual) in [
            (Method::POST, "/v1/chat/completions", true),
            (Method::GET, "/v1/chat/completions", false),
            (Method::POST, "/v1/chat/completions/", false),
            (Method::POST, "/v1/completions", false),
            (Method::POST, "/pooling", false),
            (Method::POST, "/v1/models", false),
        ] {
            assert_eq!(paths.is_usual(&method, path), usual, "{method} {path}");
        }
        for (method, path, want) in [
            (Method::POST, "/v1/chat/completions", Way::Admit),
            (Method::POST, "/v1/responses", Way::Admit),
            (Method::OPTIONS, "/v1/embeddings", Way::Pass),
            (Method::GET, "/v1/chat/completions", Way::NoMethod("POST, OPTIONS")),
            (Method::HEAD, "/v1/embeddings", Way::NoMethod("POST, OPTIONS")),
            (Method::GET, "/v1/models", Way::Pass),
            (Method::HEAD, "/v1/models/org/name", Way::Pass),
            (Method::POST, "/v1/models", Way::NoMethod("GET, HEAD, OPTIONS")),
            (Method::GET, "/v1/models/", Way::NoPath),
            (Method::POST, "/v1/chat/completions/", Way::NoPath),
            (Method::POST, "/v1/v1/chat/completions", Way::NoPath),
            (Method::POST, "/v1/Chat/Completions", Way::NoPath),
            (Method::POST, "/v1/load_lora_adapter", Way::NoPath),
            (Method::POST, "/pooling", Way::Admit),
            (Method::DELETE, "/v1/files/7", Way::Pass),
            (Method::GET, "/v1/files", Way::NoPath),
            (Method::POST, "/v1/completions", Way::Pass),
            (Method::CONNECT, "/v1/files/7", Way::NoPath),
            (Method::GET, "/", Way::NoPath),
        ] {
            assert_eq!(paths.way(&method, path), want, "{method} {path}");
        }
    }

    #[test]
    fn a_dot_segment_makes_it_no_path() {
        let own = |list: &[&str]| list.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
        let paths = Paths::new(&own(&["/own/*"]), &own(&["/tenant/*"]));
        for rest in [
            "..",
            ".",
            "../../metrics",
            "a/..",
            "a/./b",
            "%2e%2e/x",
            "%2E./x",
            ".%2e",
            "%2e",
            "a%2f..",
            "a%2F%2e%2e%2fx",
            "a\\..",
            "a%5c..\\x",
            "a%5C.",
            "..;/x",
            "..%3bv=1/x",
            "%252e%252e/x",
            "%25252e.",
            "%%32%65.",
        ] {
            for (method, stem) in
                [(Method::GET, "/v1/models"), (Method::POST, "/own"), (Method::PUT, "/tenant")]
            {
                assert_eq!(paths.way(&method, &format!("{stem}/{rest}")), Way::NoPath, "{stem}/{rest}");
            }
        }
        for rest in
            ["...", "a..b", ".well-known", "Qwen2.5", "a%2fb", "..a", "a;..", "%", "%2", "%zz..", "v1.%31"]
        {
            assert_eq!(paths.way(&Method::GET, &format!("/v1/models/{rest}")), Way::Pass, "{rest}");
        }
    }
}
