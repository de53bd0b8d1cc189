//! Combinations, objectives, the front, and that nothing is lost when a sweep is cut.

use super::objective::{Figures, Objective};
use super::state::{Header, State};
use super::*;

#[test]
fn values_are_split_where_a_comma_stands_alone() {
    let (path, values) = vary::parse("usageLimitPolicy={type: a, parameters: {x: 1}},b,\"c,d\"").unwrap();
    assert_eq!((path.as_str(), values.len()), ("usageLimitPolicy", 3));
    assert!(vary::parse("x").is_err() && vary::parse("x=1,,2").is_err() && vary::parse("=1").is_err());
    let axes = vec![vary::parse("a=1,2,3").unwrap(), vary::parse("b=4,5").unwrap()];
    let all = vary::combinations(&axes, None, 1).unwrap();
    assert_eq!(all.len(), 6);
    assert!(all.contains(&vec!["a=3".to_owned(), "b=5".to_owned()]));
    let some = vary::combinations(&axes, Some(4), 1).unwrap();
    assert_eq!((some.len(), some == vary::combinations(&axes, Some(4), 1).unwrap()), (4, true));
    let many: Vec<_> = (0..40).map(|n| vary::parse(&format!("k{n}=1,2")).unwrap()).collect();
    assert!(vary::combinations(&many, None, 1).unwrap_err().contains("--random"));
    assert_eq!(vary::combinations(&many, Some(9), 1).unwrap().len(), 9);
}

#[test]
fn objectives_weigh_figures_and_name_the_nearest_of_an_unknown_one() {
    let figures = Figures { shed_rate: 0.5, wait_p95_s: 2.0, tokens: 1e6, ..Figures::default() };
    for (text, want) in [
        ("shed_rate", 0.5),
        ("shed_rate + 0.1*wait_p95_s", 0.7),
        ("2 * shed_rate - 1e-6*tokens", 0.0),
        ("- wait_p95_s", -2.0),
    ] {
        let got = text.parse::<Objective>().unwrap().of(&figures);
        assert!((got - want).abs() < 1e-9, "{text}: {got}");
    }
    for (text, want) in
        [("shedrate", "did you mean shed_rate?"), ("", "allowed"), ("3", "allowed"), ("x_y", "known:")]
    {
        assert!(text.parse::<Objective>().unwrap_err().contains(want), "{text}");
    }
    let better = Figures { shed_rate: 0.4, ..figures };
    let objective: Objective = "shed_rate + wait_p95_s".parse().unwrap();
    assert!(objective.dominates(&better, &figures) && !objective.dominates(&figures, &figures));
}

#[test]
fn a_sweep_that_was_cut_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.jsonl");
    let header = Header {
        pool: "chat".to_owned(),
        head: 9,
        range: "all".to_owned(),
        base: String::new(),
        how: String::new(),
    };
    let row = |n: u32| Row {
        words: vec![format!("a={n}")],
        figures: Figures::default(),
        exact: 1.0,
        flipped: 0.0,
        doubt: None,
    };
    let state = State::open(Some(&file), &header).unwrap();
    state.keep(&row(1)).unwrap();
    state.keep(&row(2)).unwrap();
    drop(state);
    let mut text = std::fs::read_to_string(&file).unwrap();
    text.truncate(text.len() - 5);
    std::fs::write(&file, text).unwrap();
    let state = State::open(Some(&file), &header).unwrap();
    assert!(state.has(&row(1).words) && !state.has(&row(2).words));
    state.keep(&row(2)).unwrap();
    drop(state);
    let state = State::open(Some(&file), &header).unwrap();
    assert_eq!(state.rows(&[row(1).words, row(2).words]), [row(1), row(2)]);
    // Killed in the middle of the first line, or twice in the middle of a row.
    std::fs::write(&file, "{\"pool\":\"ch").unwrap();
    let state = State::open(Some(&file), &header).unwrap();
    state.keep(&row(3)).unwrap();
    drop(state);
    let text = std::fs::read_to_string(&file).unwrap();
    let line = text.lines().nth(1).unwrap();
    std::fs::write(&file, format!("{text}{}\n{}\n{line}\n", &line[..9], &line[..20])).unwrap();
    assert_eq!(State::open(Some(&file), &header).unwrap().rows(&[row(3).words]), [row(3)]);
    let other = Header { head: 10, ..header };
    assert!(State::open(Some(&file), &other).unwrap_err().contains("another sweep"));
}
