//! Reading a query string: names and values, percent-decoded, each name once.

use super::problem::Invalid;
use std::borrow::Cow;

/// Longest query that is looked at, in bytes.
const LENGTH_MAX: usize = 4_096;

/// Names and values.
pub type Pairs<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// Names and values in their order.
///
/// # Errors
/// A query that is too long, a name that comes twice, or an escape that is none.
pub fn pairs(query: Option<&str>) -> Result<Pairs<'_>, Invalid> {
    let query = query.unwrap_or_default();
    if query.len() > LENGTH_MAX {
        return Err(Invalid::new("query", query, "at most 4096 bytes"));
    }
    let mut pairs = Pairs::new();
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let (name, value) = (decode(name)?, decode(value)?);
        if pairs.iter().any(|(before, _)| *before == name) {
            return Err(Invalid::new(name.into_owned(), value.as_bytes(), "the parameter once"));
        }
        pairs.push((name, value));
    }
    Ok(pairs)
}

fn decode(text: &str) -> Result<Cow<'_, str>, Invalid> {
    if !text.contains(['%', '+']) {
        return Ok(Cow::Borrowed(text));
    }
    let refused = || Invalid::new("query", text, "percent-encoded UTF-8");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(*high).ok_or_else(refused)?, digit(*low).ok_or_else(refused)?);
                bytes.push((16 * high + low) as u8);
                after
            }
            (b'%', _) => return Err(refused()),
            (b'+', after) => {
                bytes.push(b' ');
                after
            }
            (other, after) => {
                bytes.push(*other);
                after
            }
        };
    }
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_read_or_are_refused() {
        let read = |query| {
            pairs(Some(query))
                .map(|pairs| pairs.iter().map(|(n, v)| format!("{n}:{v}")).collect::<Vec<_>>())
                .map_err(|invalid| invalid.field.into_owned())
        };
        let of = |list: &[&str]| Ok(list.iter().map(|s| s.to_string()).collect());
        assert_eq!(read("from=1&follow=true"), of(&["from:1", "follow:true"]));
        assert_eq!(read("a&b=&&c=%41+%C3%A9"), of(&["a:", "b:", "c:A é"]));
        assert_eq!(read(""), of(&[]));
        for (bad, field) in [("a=1&a=2", "a"), ("a=%4", "query"), ("a=%zz", "query"), ("a=%ff", "query")] {
            assert_eq!(read(bad), Err(field.to_owned()), "{bad}");
        }
        assert!(pairs(Some(&"x".repeat(5_000))).is_err());
        assert_eq!(pairs(None), Ok(vec![]));
    }
}
