//! What is odd in the standard's variables without being a reason to refuse them, and lists of `key=value`.

/// A value that does not stop the start, and yet is not what was meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {found} is not allowed; allowed: {allowed}; {instead}")]
pub struct Warning {
    /// The variable.
    pub name: &'static str,
    /// What was found, in words: of a list that may hold secrets not the text itself.
    pub found: String,
    /// What it may be.
    pub allowed: &'static str,
    /// What holds now.
    pub instead: String,
}

/// A variable of the process. One that is no UTF-8 is not passed over: what is odd in it is found by whoever reads it.
pub fn environment(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// What an entry of a list is, perhaps.
pub const ENTRIES: &str = "key=value by commas, other characters of the value as %XX";

/// The pairs of a list, values decoded, and in words what is none of its entries. `secret`: values may be shown to nobody.
///
/// Empty entries are nothing. An entry that is broken is left out alone: with the others, which are well, more is known.
pub fn pairs(name: &'static str, text: &str, secret: bool) -> (Vec<(String, String)>, Vec<Warning>) {
    let (mut found, mut warnings) = (Vec::new(), Vec::new());
    let entries = text.split(',').map(str::trim).enumerate();
    for (at, entry) in entries.filter(|(_, entry)| !entry.is_empty()) {
        let read = match entry.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                percent_decoded(value.trim()).map(|value| (key.trim().to_owned(), value))
            }
            _ => None,
        };
        match read {
            Some(pair) => found.push(pair),
            None => warnings.push(Warning {
                name,
                found: if secret { format!("its entry {}", at + 1) } else { format!("{entry:?}") },
                allowed: ENTRIES,
                instead: "that entry is left out".to_owned(),
            }),
        }
    }
    (found, warnings)
}

/// Values may be percent-encoded; nothing where a `%` begins no byte, or what comes of it is no UTF-8.
fn percent_decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        if *byte != b'%' {
            out.push(*byte);
            continue;
        }
        let (digits, tail) = rest.split_at_checked(2)?;
        let digit = |byte: u8| (byte as char).to_digit(16);
        out.push((digit(digits[0])? * 16 + digit(digits[1])?) as u8);
        rest = tail;
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_what_is_none_of_their_entries_is_named() {
        for (text, want, broken) in [
            ("", &[][..], &[][..]),
            ("a=1, b = x%20y ,", &[("a", "1"), ("b", "x y")], &[]),
            ("a==%3D,a.b=", &[("a", "=="), ("a.b", "")], &[]),
            ("a,b=2", &[("b", "2")], &["\"a\""]),
            (
                "=1,b=%zz,c=%f,d=%,e=%ff,f=%+1,g=2",
                &[("g", "2")],
                &["\"=1\"", "\"b=%zz\"", "\"c=%f\"", "\"d=%\"", "\"e=%ff\"", "\"f=%+1\""],
            ),
        ] {
            let (pairs, warnings) = pairs("V", text, false);
            let pairs: Vec<(&str, &str)> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            assert_eq!(pairs, want, "{text}");
            let found: Vec<&str> = warnings.iter().map(|warning| warning.found.as_str()).collect();
            assert_eq!(found, broken, "{text}");
        }
        let (_, warnings) = pairs("V", "a=1,secret", true);
        let said = warnings[0].to_string();
        assert!(said.starts_with("V: its entry 2 is not allowed; allowed: key=value by commas"), "{said}");
        assert!(!said.contains("secret"), "{said}");
    }
}
