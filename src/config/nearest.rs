//! The nearest known word to one that is not known, for "did you mean".

/// The nearest of `known` to `word`, if any is near: case and punctuation aside, at most a third of the letters differ.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = normal(word);
    known
        .into_iter()
        .map(|candidate| (distance(&plain, &normal(candidate)), candidate))
        .filter(|(edits, candidate)| *edits <= (candidate.len().max(plain.len()) / 3).max(1))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Letters and digits in lower case: `WEIR_maxRequests` and `weir.max-requests` are one word.
pub fn normal(word: &str) -> String {
    word.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// Insertions, deletions, substitutions and swaps of neighbours (optimal string alignment), on at most 64 letters.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<u8> = a.bytes().take(64).collect();
    let b: Vec<u8> = b.bytes().take(64).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let cost = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + cost);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_find_their_word_and_strangers_do_not() {
        let known =
            ["maxRequests", "maxBytes", "defaultRequestTTL", "noEndpointRequestTTL", "fairnessPolicyRef"];
        for (word, want) in [
            ("maxRequest", Some("maxRequests")),
            ("defaultRequestTtl", Some("defaultRequestTTL")),
            ("max_bytes", Some("maxBytes")),
            ("maxReqeusts", Some("maxRequests")),
            ("listen", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), want, "{word}");
        }
    }
}
