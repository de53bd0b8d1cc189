//! The combinations of a sweep: `PATH=V1,V2,…`, all of them or some drawn by a seed.

use crate::model::Draw;

/// Combinations that one sweep may have.
const MAX: usize = 100_000;

/// A setting and its values.
pub type Axis = (String, Vec<String>);

/// `PATH=V1,V2,…`; commas within brackets, braces and quotes belong to a value.
pub fn parse(word: &str) -> Result<Axis, String> {
    let refused = || format!("--vary {word:?} is not allowed; allowed: PATH=V1,V2,… with at least one value");
    let (path, text) = word.split_once('=').ok_or_else(refused)?;
    let (mut values, mut value, mut depth, mut quote) = (Vec::new(), String::new(), 0_u32, None);
    for c in text.chars() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => quote = Some(c),
            ('{' | '[', None) => depth += 1,
            ('}' | ']', None) => depth = depth.saturating_sub(1),
            (',', None) if depth == 0 => {
                values.push(std::mem::take(&mut value));
                continue;
            }
            _ => {}
        }
        value.push(c);
    }
    values.push(value);
    let values: Vec<String> = values.iter().map(|v| v.trim().to_owned()).collect();
    if path.trim().is_empty() || values.iter().any(String::is_empty) {
        return Err(refused());
    }
    Ok((path.trim().to_owned(), values))
}

/// Every combination as words of `--set`, or so many of them.
pub fn combinations(axes: &[Axis], random: Option<usize>, seed: u64) -> Result<Vec<Vec<String>>, String> {
    let all = axes.iter().try_fold(1_usize, |n, (_, values)| n.checked_mul(values.len()));
    let all = match (all, random) {
        (Some(all), None) if all <= MAX => all,
        (Some(all), Some(_)) => all,
        _ => return Err(format!("more than {MAX} combinations; allowed: fewer, or --random N")),
    };
    let of = |mut n: usize| -> Vec<String> {
        let mut words = Vec::new();
        for (path, values) in axes {
            words.push(format!("{path}={}", values[n % values.len()]));
            n /= values.len();
        }
        words
    };
    let Some(wanted) = random.filter(|wanted| *wanted < all) else { return Ok((0..all).map(of).collect()) };
    let mut draw = Draw::new(seed, 1);
    let mut drawn = std::collections::BTreeSet::new();
    while drawn.len() < wanted.min(MAX) {
        drawn.insert(draw.below(all as u64) as usize);
    }
    Ok(drawn.into_iter().map(of).collect())
}
