//! The fit finds what a log tells of its pool, says how well, and is saved and read again.

use super::*;
use crate::what_if::tests::log;

fn fitted(words: &[&str], seconds: u64) -> PoolModel {
    let mut seen = Collector::default();
    log(words, seconds).iter().for_each(|step| seen.take(step));
    fit(&seen).unwrap()
}

#[test]
fn services_are_explained_within_a_few_percent() {
    let model = fitted(&["detector={type: concurrency-detector, parameters: {maxConcurrency: 5}}"], 300);
    let quality = &model.quality;
    assert!(quality.requests > 300 && quality.median_error < 0.08, "{quality:?} {:?}", model.speeds);
    assert!(quality.bias.abs() < 0.1, "{quality:?}");
    assert!(model.usage && model.first_bytes);
    assert_eq!(model.sensor, Sensor { interval: Micros::from_millis(50), lag: Micros::from_millis(8) });
    // Two servers of 400,000 tokens each.
    assert!((300_000..500_000).contains(&model.speeds.kv_tokens), "{:?}", model.speeds);
    assert!(model.has_seen(4, 100) && !model.has_seen(200, 100));
}

#[test]
fn a_saved_model_reads_back_and_another_form_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("m.json");
    let model = fitted(&[], 90);
    std::fs::write(&file, serde_json::to_string(&model).unwrap()).unwrap();
    let back = PoolModel::read(&file).unwrap();
    assert_eq!((back.tokens, back.visited, back.patience), (model.tokens, model.visited, model.patience));
    assert!((back.speeds.base / model.speeds.base - 1.0).abs() < 1e-9);
    std::fs::write(&file, serde_json::to_string(&PoolModel { form: 7, ..PoolModel::of_nothing() }).unwrap())
        .unwrap();
    assert!(PoolModel::read(&file).unwrap_err().contains("form 7; allowed: 1"));
    assert!(PoolModel::read(dir.path()).is_err());
}

#[test]
fn draws_are_of_like_requests_and_repeat_by_their_seed() {
    let mut model = PoolModel::of_nothing();
    model.tokens.insert("0/5".to_owned(), vec![7; 10]);
    model.tokens.insert("0/12".to_owned(), vec![90; 10]);
    let draw = |prompt| model.draw_tokens(0, prompt, &mut Draw::new(1, 2));
    assert_eq!((draw(40), draw(70), draw(5_000)), (7, 7, 90));
    assert_eq!(PoolModel::of_nothing().draw_tokens(0, 5, &mut Draw::new(1, 2)), 1);
    assert_eq!(Draw::new(5, 6).below(1_000), Draw::new(5, 6).below(1_000));
}
