//! Do the expectations of a vector hold?

use super::results::{Answer, Fate, Outcomes, Results, View};
use super::taken;
use super::vector::{list, priority, text, whole};
use serde_json::Value;
use weir_kernel::{BandSettings, Ordering};

/// Gauges are kept in millionths: a figure may be off by half of one beside what the vector allows.
const RESOLUTION: f64 = 0.500_001e-6;

/// Instants at which expectations want to look around, in ms.
pub fn probes(expectations: &[Value]) -> Vec<i64> {
    let timed = ["exists", "gauge", "metric_series"];
    let wanted = expectations.iter().filter(|one| timed.iter().any(|kind| one["type"] == *kind));
    wanted.filter_map(|one| one["at_ms"].as_i64()).collect()
}

/// The first expectation that does not hold, in words.
pub fn check(expectations: &[Value], results: &Results) -> Result<(), String> {
    for expectation in expectations {
        one(expectation, results).map_err(|found| format!("expected {expectation}, {found}"))?;
    }
    Ok(())
}

fn one(want: &Value, results: &Results) -> Result<(), String> {
    match text(want, "type")? {
        "outcome" => outcome(want, results),
        "pending" => pending(want, results),
        "finalizations" => {
            let id = text(want, "id")?;
            results.fate(id)?;
            same(&want["equals"], results.fates.get(id).map_or(0, Vec::len))
        }
        "http" => http(want, results),
        "dispatch_order" => equal(&texts(&want["ids"]), &results.dispatch_order),
        "stats" => stats(want, results),
        "gauge" => gauge(want, results),
        "counter" => counter(want, results),
        "exists" => exists(want, results),
        "metric_series" => {
            let flow = text(want, "flow")?;
            let live = view(want, results)?.flows.iter().filter(|(name, _)| name == flow).count();
            same(&want["equals"], live)
        }
        "program_stat" => program_stat(want, results),
        "revoked" if want["of"].is_null() => {
            let by = whole(want, "by_ms")?.saturating_mul(1_000);
            let so_far = results.revoked.iter().filter(|(at_us, _)| *at_us <= by);
            taken::revoked(want, &so_far.map(|(_, name)| name.clone()).collect::<Vec<_>>())
        }
        "terminations" => taken::terminations(want, results),
        "observations" => taken::observations(want, results),
        "inflight_response" => taken::response(want, results),
        "compare_metrics" => taken::compare(want, results),
        "open_count" => open_count(want, results),
        _of_a_step => of_a_step(want, results.of(want)?),
    }
}

fn of_a_step(want: &Value, got: &Outcomes) -> Result<(), String> {
    match (text(want, "type")?, got) {
        ("accepted", Outcomes::Accepted(_)) => Ok(()),
        ("rejected", Outcomes::Rejected(why)) => match want["mentions"].as_str() {
            Some(word) if !plain(why).contains(&plain(word)) => {
                Err(format!("the error does not say so: {why}"))
            }
            _any => Ok(()),
        },
        ("config", Outcomes::Accepted(config)) => config_value(want, config),
        ("value", Outcomes::Number(number)) => value(want, *number),
        ("value", Outcomes::Word(word)) => equal(&want["equals"], &Value::from(word.as_str())),
        ("less", Outcomes::Less(less)) => equal(&want["equals"], &Value::from(*less)),
        ("picked", Outcomes::Picked(picked)) => {
            equal(&want["flow"], &Value::from(picked.first().cloned().flatten()))
        }
        ("picked_counts", Outcomes::Picked(picked)) => picked_counts(want, picked),
        (kind, Outcomes::Ceilings(all)) => {
            let all: Vec<f64> = all.iter().map(|ceiling| ceiling.0 as f64 / 1e6).collect();
            ceilings(kind, want, &all)
        }
        ("kept", Outcomes::Kept(ids)) => equal(&texts(&want["ids"]), ids),
        ("stage_members", Outcomes::Stages { prefill, decode }) => match text(want, "stage")? {
            "prefill" => equal(&texts(&want["ids"]), prefill),
            _decode => equal(&texts(&want["ids"]), decode),
        },
        ("levels", Outcomes::Bands(bands)) => {
            let levels: Vec<i64> = bands.keys().rev().map(|priority| i64::from(*priority)).collect();
            equal(&want["equals"], &Value::from(levels))
        }
        ("band", Outcomes::Bands(bands)) => {
            let band = bands.get(&priority(want, "priority")?).ok_or("there is no such band")?;
            same(&want["equals"], band_field(band, text(want, "field")?)?)
        }
        ("dump", Outcomes::Dump { text, programs, in_flight }) => dump(want, text, *programs, *in_flight),
        ("revocations", Outcomes::Number(number)) => taken::bounded(want, "count", *number),
        (kind, Outcomes::Taken(after)) => taken::after_a_step(kind, want, after),
        ("metric", Outcomes::Metrics(metrics)) => taken::metric(want, metrics),
        (kind, got) => Err(format!("the step gave {got:?}, which has no {kind}")),
    }
}

fn outcome(want: &Value, results: &Results) -> Result<(), String> {
    let Some(fate) = results.fate(text(want, "id")?)? else { return Err("it is still queued".to_owned()) };
    let found = format!("found {} at {} us", fate.outcome.word(), fate.at_us);
    let wanted = if want["equals"].is_null() {
        texts(&want["one_of"])
    } else {
        vec![text(want, "equals")?.to_owned()]
    };
    if !wanted.iter().any(|word| word == fate.outcome.word()) {
        return Err(found);
    }
    let at = |name: &str| want[name].as_i64().map(|ms| ms.saturating_mul(1_000));
    let on_time = at("at_ms").is_none_or(|at| fate.at_us == at)
        && at("by_ms").is_none_or(|by| fate.at_us <= by)
        && at("not_before_ms").is_none_or(|from| fate.at_us >= from);
    if !on_time {
        return Err(found);
    }
    for cause in texts(&want["causes"]) {
        if !fate.causes.contains(cause.as_str()) {
            return Err(format!("{found} with causes {:?}", fate.causes));
        }
    }
    Ok(())
}

fn pending(want: &Value, results: &Results) -> Result<(), String> {
    let until = whole(want, "at_ms")?.saturating_mul(1_000);
    match results.fate(text(want, "id")?)? {
        Some(fate) if fate.at_us <= until => {
            Err(format!("found {} at {} us", fate.outcome.word(), fate.at_us))
        }
        _later => Ok(()),
    }
}

fn http(want: &Value, results: &Results) -> Result<(), String> {
    let answer: &Answer = match want["id"].as_str() {
        Some(id) => match results.fate(id)? {
            Some(Fate { answer, .. }) => answer,
            None => return Err("it is still queued".to_owned()),
        },
        None => match results.of(want)? {
            Outcomes::Http(answer) => answer,
            other => return Err(format!("the step gave {other:?}, which is no answer")),
        },
    };
    let reason = Value::from(answer.reason.clone());
    let as_said = reason == want["reason"] || list(&want["or_reasons"]).contains(&reason);
    if as_said && want["status"] == answer.status { Ok(()) } else { Err(format!("found {answer:?}")) }
}

fn stats(want: &Value, results: &Results) -> Result<(), String> {
    let (requests, bytes) = match want["of_band"].as_i64() {
        Some(band) => {
            let band = i32::try_from(band).map_err(|_| "of_band is no priority")?;
            results.occupancy.get(&band).copied().unwrap_or_default()
        }
        None => results.occupancy.values().fold((0, 0), |sum, band| (sum.0 + band.0, sum.1 + band.1)),
    };
    let fits = |name: &str, held: u64| want[name].is_null() || want[name] == held;
    if fits("len", requests) && fits("bytes", bytes) {
        Ok(())
    } else {
        Err(format!("found {requests} requests, {bytes} bytes"))
    }
}

/// The view at the instant asked for, else the last one.
fn view<'a>(want: &Value, results: &'a Results) -> Result<&'a View, String> {
    match want["at_ms"].as_i64() {
        Some(ms) => results.views.get(&ms).ok_or_else(|| format!("nobody looked at {ms} ms")),
        None => Ok(&results.last),
    }
}

fn gauge(want: &Value, results: &Results) -> Result<(), String> {
    let name = match want["band"].as_i64() {
        Some(band) => format!("{}/{band}", text(want, "name")?),
        None => text(want, "name")?.to_owned(),
    };
    match (want["equals"].as_f64(), view(want, results)?.gauges.get(&name).copied().flatten()) {
        (None, None) => Ok(()),
        (Some(_), Some(got)) => value(want, got),
        (_, got) => Err(format!("found {got:?}")),
    }
}

fn counter(want: &Value, results: &Results) -> Result<(), String> {
    match text(want, "name")? {
        "dropped" => {
            let count = match want["outcome"].as_str() {
                Some(word) => results.dropped.get(word).copied().ok_or("no such outcome")?,
                None => {
                    results.dropped.iter().filter(|(word, _)| **word != "Dispatched").map(|(_, n)| n).sum()
                }
            };
            same(&want["equals"], count)
        }
        name => {
            let key = want["outcome"].as_str().map_or(name.to_owned(), |outcome| format!("{name}/{outcome}"));
            let count = results.counters.get(&key).ok_or(format!("there is no counter {key}"))?;
            same(&want["equals"], *count)
        }
    }
}

fn exists(want: &Value, results: &Results) -> Result<(), String> {
    let view = view(want, results)?;
    let there = match text(want, "kind")? {
        "flow" => view.flows.contains(&(text(want, "flow")?.to_owned(), priority(want, "priority")?)),
        "band" => view.bands.contains(&priority(want, "priority")?),
        "program" => view.programs.contains(text(want, "program")?),
        "service" => view.services.contains(text(want, "program")?),
        other => return Err(format!("there is no kind {other}")),
    };
    equal(&want["equals"], &Value::from(there))
}

fn program_stat(want: &Value, results: &Results) -> Result<(), String> {
    let stat = results.stats.get(text(want, "program")?).cloned().unwrap_or_default();
    let count = stat.waits_us.len() as u64;
    let mean = if count == 0 { 0.0 } else { stat.waits_us.iter().sum::<u64>() as f64 / 1e3 / count as f64 };
    let fits = |name: &str, got: f64| want[name].as_f64().is_none_or(|want| (want - got).abs() < 1e-6);
    if fits("dispatched", stat.dispatched as f64)
        && fits("in_flight", stat.in_flight as f64)
        && fits("wait_count", count as f64)
        && fits("mean_wait_ms", mean)
    {
        Ok(())
    } else {
        Err(format!("found {stat:?}"))
    }
}

pub fn value(want: &Value, got: f64) -> Result<(), String> {
    let within = match want["equals"].as_f64() {
        Some(equals) => (got - equals).abs() <= want["tol"].as_f64().unwrap_or(0.0) + RESOLUTION,
        None => true,
    };
    let above = want["min"].as_f64().is_none_or(|min| got >= min - RESOLUTION);
    let below = want["max"].as_f64().is_none_or(|max| got <= max + RESOLUTION);
    if within && above && below { Ok(()) } else { Err(format!("found {got}")) }
}

fn ceilings(kind: &str, want: &Value, all: &[f64]) -> Result<(), String> {
    let tolerance = want["tol"].as_f64().unwrap_or(0.0) + RESOLUTION;
    let near = |want: &Value, got: f64| want.as_f64().is_some_and(|want| (want - got).abs() <= tolerance);
    let at = |index: &Value| {
        let index = index.as_u64().and_then(|index| usize::try_from(index).ok());
        index
            .and_then(|index| all.get(index))
            .copied()
            .ok_or_else(|| format!("no element {index:?} in {all:?}"))
    };
    let holds = match kind {
        "ceilings" => {
            let wanted = list(&want["equals"]);
            wanted.len() == all.len() && wanted.iter().zip(all).all(|(want, got)| near(want, *got))
        }
        "ceiling_at" => {
            let got = at(&want["index"])?;
            let one_of = list(&want["one_of"]);
            if one_of.is_empty() {
                near(&want["equals"], got)
            } else {
                one_of.iter().any(|want| near(want, got))
            }
        }
        "ceilings_monotone" => all.windows(2).all(|pair| matches!(pair, [above, below] if below <= above)),
        "ceilings_equal_at" => {
            let chosen = list(&want["indexes"]).iter().map(at).collect::<Result<Vec<f64>, String>>()?;
            chosen.windows(2).all(|pair| matches!(pair, [a, b] if (a - b).abs() <= tolerance))
        }
        other => return Err(format!("ceilings have no {other}")),
    };
    if holds { Ok(()) } else { Err(format!("found {all:?}")) }
}

/// In how many of the named results the element is open.
fn open_count(want: &Value, results: &Results) -> Result<(), String> {
    let index = usize::try_from(whole(want, "index")?).map_err(|_| "index is no index")?;
    let open = list(&want["of"]).iter().filter_map(Value::as_str).filter(|name| {
        matches!(results.named.get(*name), Some(Outcomes::Ceilings(all))
            if all.get(index).is_some_and(|ceiling| ceiling.0 > 0))
    });
    let count = open.count() as i64;
    if count >= want["min"].as_i64().unwrap_or(0) { Ok(()) } else { Err(format!("found {count}")) }
}

fn picked_counts(want: &Value, picked: &[Option<String>]) -> Result<(), String> {
    let wanted = want["counts"].as_object().ok_or("counts is no object")?;
    for (flow, count) in wanted {
        let got = picked.iter().filter(|one| one.as_ref() == Some(flow)).count();
        same(count, got).map_err(|found| format!("{flow}: {found}"))?;
    }
    Ok(())
}

fn dump(want: &Value, text: &str, programs: u64, in_flight: u64) -> Result<(), String> {
    let fits = |name: &str, got: u64| want[name].is_null() || want[name] == got;
    let leaked = texts(&want["must_not_contain"]).into_iter().find(|word| text.contains(word.as_str()));
    if fits("total_programs", programs) && fits("total_in_flight", in_flight) && leaked.is_none() {
        Ok(())
    } else {
        Err(format!("found {programs} programs, {in_flight} in flight, leaked {leaked:?}"))
    }
}

fn config_value(want: &Value, config: &Value) -> Result<(), String> {
    let path = text(want, "path")?;
    let got = path.split('.').fold(config, |node, key| &node[key]);
    let same = match (want["equals"].as_f64(), got.as_f64()) {
        (Some(want), Some(got)) => (want - got).abs() <= RESOLUTION,
        _other => want["equals"] == *got,
    };
    if same { Ok(()) } else { Err(format!("found {got}")) }
}

fn band_field(band: &BandSettings, field: &str) -> Result<Value, String> {
    Ok(match field {
        "max_bytes" => Value::from(band.max_bytes),
        "max_requests" => Value::from(band.max_requests),
        "ordering" => Value::from(match band.ordering {
            Ordering::Fcfs => "fcfs-ordering-policy",
            Ordering::Edf => "edf-ordering-policy",
            Ordering::SloDeadline => "slo-deadline-ordering-policy",
            Ordering::NewestFirstWhenStanding { .. } => "newest-first-when-standing",
        }),
        "default_request_ttl_ms" => Value::from(band.saturation_budget.map(|budget| budget.as_millis())),
        other => return Err(format!("a band has no {other}")),
    })
}

pub fn same(want: &Value, got: impl Into<Value>) -> Result<(), String> {
    equal(want, &got.into())
}

pub fn equal<T: PartialEq + std::fmt::Debug>(want: &T, got: &T) -> Result<(), String> {
    if want == got { Ok(()) } else { Err(format!("found {got:?}")) }
}

pub fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(one) => vec![one.clone()],
        other => list(other).iter().filter_map(|one| one.as_str().map(str::to_owned)).collect(),
    }
}

/// Letters and digits in lower case: how the vectors compare names in errors.
fn plain(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}
