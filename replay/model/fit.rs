//! The fit: the numbers with which the model's servers, given the logged services, end them when the log does.
//!
//! Stretches of the log are run through the model for each guess; a simplex looks for the smallest mean error of the
//! logarithms of service time and time to first token. Not here: what is gathered (`collect`).

use super::collect::{Collector, Service, Stretch};
use super::{FORM, Pool, PoolModel, Quality, Sensor, Speeds, Work, simplex};
use std::collections::BTreeSet;
use weir_kernel::{Micros, Slot};

/// Token budgets that are tried.
const BUDGETS: [u32; 6] = [512, 1_024, 2_048, 4_096, 8_192, 16_384];
/// Where the search for the time of a step begins, as parts of the first guess: under load no request shows it alone.
const BEGINNINGS: [f64; 3] = [1.0, 0.25, 0.06];
/// Calls of the simplex: for each beginning and budget, for the best of them, and at the end.
const CALLS: [usize; 3] = [14, 50, 100];
/// Of each stretch, the part that is only run in: what ran before it is not known.
const RUN_IN: usize = 10;
/// A capacity that bounds nothing.
const UNBOUNDED: u64 = 1 << 40;

/// Fits a model to what was gathered; none where no service was seen.
pub fn fit(seen: &Collector) -> Option<PoolModel> {
    let stretches = seen.stretches();
    let usage = stretches.iter().flat_map(|s| &s.services).any(|service| service.tokens.is_some());
    let first_bytes = stretches.iter().flat_map(|s| &s.services).any(|service| service.first.is_some());
    let start = start(&stretches, seen)?;
    let rough: Vec<&Stretch> = stretches.iter().step_by(stretches.len().div_ceil(3)).copied().collect();
    let mut found: Vec<(Speeds, f64)> = BUDGETS
        .iter()
        .flat_map(|budget| BEGINNINGS.iter().map(move |part| (*budget, *part)))
        .map(|(budget, part)| {
            let base = start.base * part;
            let guess =
                Speeds { budget, base, request: base / 200.0, context_token: base / 200_000.0, ..start };
            search(&rough, guess, CALLS[0])
        })
        .collect();
    found.sort_by(|a, b| a.1.total_cmp(&b.1));
    let better = found.iter().take(4).map(|(speeds, _)| search(&rough, *speeds, CALLS[1]));
    let (best, _) = better.min_by(|a, b| a.1.total_cmp(&b.1))?;
    let (speeds, _) = search(&stretches, best, CALLS[2]);
    let speeds = Speeds { kv_tokens: capacity(&stretches, &speeds).unwrap_or(UNBOUNDED), ..speeds };
    let (interval, lag) = seen.rhythm().unwrap_or((Micros::from_millis(50), Micros::ZERO));
    Some(PoolModel {
        form: FORM,
        speeds,
        sensor: Sensor { interval, lag },
        confirm: seen.confirm(),
        first_bytes,
        usage,
        tokens: seen.tokens.iter().map(|(key, (_, kept))| (key.clone(), kept.clone())).collect(),
        patience: seen.patience.clone(),
        visited: seen.visited.clone(),
        quality: quality(&stretches, &speeds),
    })
}

/// A first guess from requests that were served at little load: the lower end of what was seen.
fn start(stretches: &[&Stretch], seen: &Collector) -> Option<Speeds> {
    let (mut tokens, mut prompts, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for service in stretches.iter().flat_map(|s| &s.services).filter(|service| service.natural) {
        let made = f64::from(service.tokens.unwrap_or(1));
        let took = service.end.since(service.at).0 as f64;
        whole.push(took / (made + f64::from(service.prompt) / 50.0));
        if let Some(first) = service.first {
            if made >= 4.0 {
                tokens.push(service.end.since(first).0 as f64 / (made - 1.0));
            }
            if service.prompt >= 200 {
                prompts.push(first.since(service.at).0 as f64 / f64::from(service.prompt));
            }
        }
    }
    let low = |mut all: Vec<f64>, part: usize| {
        all.sort_by(f64::total_cmp);
        all.get(all.len() / part).copied().filter(|low| *low > 0.0)
    };
    let whole = low(whole, 10)?;
    let base = low(tokens, 50).unwrap_or(whole);
    Some(Speeds {
        base,
        prompt_token: low(prompts, 10).unwrap_or(whole / 50.0).max(0.01),
        request: (base / 200.0).max(0.01),
        context_token: base / 200_000.0,
        budget: 2_048,
        max_requests: seen.most_running.filter(|most| *most >= 16).unwrap_or(seen.peak_running.max(256)),
        kv_tokens: UNBOUNDED,
    })
}

fn search(stretches: &[&Stretch], from: Speeds, calls: usize) -> (Speeds, f64) {
    let of = |x: &[f64]| Speeds {
        base: x[0].exp(),
        prompt_token: x[1].exp(),
        request: x[2].exp(),
        context_token: x[3].exp(),
        ..from
    };
    let x: Vec<f64> =
        [from.base, from.prompt_token, from.request, from.context_token].iter().map(|v| v.ln()).collect();
    let (x, error) = simplex::minimize(&x, 0.3, calls, |x| error(stretches, &of(x)));
    (of(&x), error)
}

/// ln(predicted / logged) of a service, and of its first token.
#[derive(Clone, Copy, Debug)]
struct Residual {
    whole: f64,
    first: Option<f64>,
}

/// Mean over services of a residual that counts large ones less.
fn error(stretches: &[&Stretch], speeds: &Speeds) -> f64 {
    let soft = |r: f64| (1.0 + r * r * 25.0).sqrt() - 1.0;
    let (mut sum, mut n) = (0.0, 0.0);
    for stretch in stretches {
        for residual in residuals(stretch, speeds) {
            sum += soft(residual.whole) + residual.first.map_or(0.0, soft);
            n += 1.0 + f64::from(u8::from(residual.first.is_some()));
        }
    }
    if n > 0.0 { sum / n } else { f64::MAX }
}

/// Work of a service that came to its own end; one without a token count is taken to have ended when it did.
fn work_of(service: &Service) -> Work {
    match service.tokens {
        Some(tokens) if service.natural => Work { prompt: service.prompt, tokens, tail: 0 },
        _ => Work::open(service.prompt),
    }
}

/// A pool with a server in every slot that the stretch names.
fn servers(stretch: &Stretch, speeds: &Speeds) -> Pool {
    let mut pool = Pool::new(*speeds);
    let named = stretch.services.iter().filter_map(|service| service.slot);
    let slots: BTreeSet<Slot> = named.chain(stretch.samples.iter().map(|sample| sample.1)).collect();
    slots.into_iter().for_each(|slot| pool.join(slot));
    pool.join(Slot(if stretch.services.iter().any(|s| s.slot.is_some()) { u16::MAX } else { 0 }));
    pool
}

/// Runs a stretch through the model; `look` sees the pool at each sample.
fn run(
    stretch: &Stretch,
    speeds: &Speeds,
    mut look: impl FnMut(&Pool, usize),
) -> Vec<(Option<Micros>, Option<Micros>)> {
    let mut pool = servers(stretch, speeds);
    let mut seen = vec![(None, None); stretch.services.len()];
    let mut forced: Vec<(Micros, usize)> = Vec::new();
    for (n, service) in stretch.services.iter().enumerate() {
        if work_of(service).tokens == u32::MAX && service.end < Micros::MAX {
            forced.push((service.end, n));
        }
    }
    forced.sort_unstable();
    let (mut next_forced, mut next_sample) = (0, 0);
    let advance = |pool: &mut Pool, to: Micros, seen: &mut Vec<(Option<Micros>, Option<Micros>)>| {
        pool.advance(to, &mut |happened| {
            if let Some(at) = seen.get_mut(happened.id as usize) {
                *(if happened.done { &mut at.1 } else { &mut at.0 }) = Some(happened.at);
            }
        });
    };
    let last = stretch.services.iter().map(|s| s.end).filter(|end| *end < Micros::MAX).max();
    let ends = [(last.unwrap_or(Micros::ZERO) + Micros::from_secs(120), None)];
    let begins = stretch.services.iter().enumerate().map(|(n, service)| (service.at, Some(n)));
    for (at, n) in begins.chain(ends) {
        loop {
            let force = forced.get(next_forced).map(|(at, _)| *at).filter(|due| *due <= at);
            let sample = stretch.samples.get(next_sample).map(|sample| sample.0).filter(|due| *due <= at);
            match (force, sample) {
                (Some(force), sample) if sample.is_none_or(|sample| force <= sample) => {
                    advance(&mut pool, force, &mut seen);
                    pool.remove(force, forced[next_forced].1 as u64);
                    next_forced += 1;
                }
                (_, Some(sample)) => {
                    advance(&mut pool, sample, &mut seen);
                    look(&pool, next_sample);
                    next_sample += 1;
                }
                _ => break,
            }
        }
        advance(&mut pool, at, &mut seen);
        if let Some(n) = n {
            let service = &stretch.services[n];
            pool.submit(at, n as u64, service.slot, work_of(service));
        }
    }
    seen
}

fn residuals(stretch: &Stretch, speeds: &Speeds) -> Vec<Residual> {
    let seen = run(stretch, speeds, |_, _| {});
    let run_in = stretch.services.len() / RUN_IN;
    let mut all = Vec::with_capacity(seen.len());
    for (service, (first, end)) in stretch.services.iter().zip(seen).skip(run_in) {
        if !service.natural || service.tokens.is_none() {
            continue;
        }
        let ln = |predicted: Option<Micros>, logged: Micros| {
            let took = |at: Micros| (at.since(service.at).0 as f64).max(1_000.0);
            // What the model never ends counts as ten times too late.
            predicted.map_or(2.3, |at| (took(at) / took(logged)).ln())
        };
        all.push(Residual { whole: ln(end, service.end), first: service.first.map(|at| ln(first, at)) });
    }
    all
}

/// Tokens that a server's KV cache holds: those that the model holds, over the share that the sensor showed.
fn capacity(stretches: &[&Stretch], speeds: &Speeds) -> Option<u64> {
    let (mut over, mut under) = (0.0, 0.0);
    for stretch in stretches {
        let run_in = stretch.services.get(stretch.services.len() / RUN_IN).map_or(Micros::ZERO, |s| s.at);
        run(stretch, speeds, |pool, n| {
            let (at, slot, _, _, kv) = stretch.samples[n];
            let held = pool.gauge_at(slot, at).held as f64;
            if at >= run_in && kv > 0 {
                over += held * held;
                under += held * f64::from(kv) / 10_000.0;
            }
        });
    }
    (under > 0.0).then(|| (over / under) as u64).filter(|tokens| *tokens > 0)
}

fn quality(stretches: &[&Stretch], speeds: &Speeds) -> Quality {
    let per_stretch: Vec<Vec<Residual>> = stretches.iter().map(|s| residuals(s, speeds)).collect();
    let whole: Vec<f64> = per_stretch.iter().flatten().map(|r| r.whole).collect();
    let firsts: Vec<f64> = per_stretch.iter().flatten().filter_map(|r| r.first).collect();
    if whole.is_empty() {
        return Quality::default();
    }
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len().max(1) as f64;
    let median_error = |all: &[f64]| quantile(all.iter().map(|r| (r.exp() - 1.0).abs()).collect(), 0.5);
    let bias = mean(&whole);
    let means: Vec<f64> = per_stretch
        .iter()
        .filter(|all| all.len() >= 20)
        .map(|all| mean(&all.iter().map(|r| r.whole).collect::<Vec<_>>()))
        .collect();
    let drift = (means.iter().map(|m| (m - bias).powi(2)).sum::<f64>() / means.len().max(1) as f64).sqrt();
    Quality {
        requests: whole.len() as u64,
        median_error: median_error(&whole),
        first_token_error: (!firsts.is_empty()).then(|| median_error(&firsts)),
        bias,
        drift,
        residuals: (quantile(whole.clone(), 0.05), quantile(whole, 0.95)),
        coverage: coverage(&per_stretch),
    }
}

/// The interval of one half of the stretches, held against the other half.
fn coverage(per_stretch: &[Vec<Residual>]) -> f64 {
    let half = |odd: usize| -> Vec<f64> {
        per_stretch.iter().skip(odd).step_by(2).flatten().map(|r| r.whole).collect()
    };
    let (fitted, held) = (half(0), half(1));
    if fitted.is_empty() || held.is_empty() {
        return 0.0;
    }
    let (low, high) = (quantile(fitted.clone(), 0.05), quantile(fitted, 0.95));
    held.iter().filter(|r| (low..=high).contains(*r)).count() as f64 / held.len() as f64
}

fn quantile(mut all: Vec<f64>, q: f64) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(((all.len() as f64 * q) as usize).min(all.len().saturating_sub(1))).copied().unwrap_or(0.0)
}
