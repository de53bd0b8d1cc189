//! Records of programs (least attained service), through `step`.
//!
//! Each dispatch of the vector is a request in a band of its own: the pool's figure then opens the bands one by one,
//! so that every request leaves exactly when the vector says, however long it had waited.

use super::engine::{Engine, at};
use super::results::{Outcomes, ProgramStat, Results, View};
use super::settings;
use super::vector::Step;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use weir_kernel::{
    Arrival, BandSettings, Cause, Detector, Event, Input, Micros, Policy, Pushed, Ratio, RequestId, Usage,
    UsageLimit,
};

/// The operations that this module knows.
pub const OPS: [&str; 3] = ["program", "program_sweep", "dump_state"];

const DEFAULT_FLOW: &str = "default-flow";

/// The band of the k-th dispatch, and the figure below which it is open.
fn band_of(k: usize) -> i32 {
    1_000_000 - i32::try_from(k).unwrap_or(i32::MAX)
}

fn ceiling_of(k: usize) -> Ratio {
    Ratio(1_000_000 - 10 * i64::try_from(k).unwrap_or(0))
}

/// Runs all operations of a vector about programs; `probes` are the instants to look around at.
pub fn run(config: &Value, steps: &[Step], probes: &[i64], results: &mut Results) -> Result<(), String> {
    let mut plan = plan(steps);
    plan.extend(probes.iter().map(|ms| (*ms, Act::Look)));
    // At one instant: what comes first in the vector, then the probes.
    plan.sort_by_key(|(ms, act)| (*ms, matches!(act, Act::Look)));
    let start = plan.first().map_or(0, |(ms, _)| *ms);
    let mut run = Run::new(config, steps.len(), at(start))?;
    for (ms, act) in plan {
        run.act(ms, act, results)?;
    }
    results.last = run.look_around();
    for (program, stat) in &mut run.stats {
        stat.in_flight = run.running.get(program).map_or(0, |all| all.len() as u64);
    }
    results.stats = run.stats;
    Ok(())
}

enum Act<'a> {
    /// The k-th dispatch's request arrives.
    Arrive {
        program: &'a str,
        k: usize,
    },
    /// It is let through; its wait counts if its arrival was known.
    Dispatch {
        program: &'a str,
        k: usize,
        waited: bool,
    },
    Seen {
        program: &'a str,
    },
    Complete {
        program: &'a str,
        usage: Option<Usage>,
    },
    Chunk {
        program: &'a str,
    },
    Sweep,
    Dump {
        name: Option<&'a str>,
    },
    Look,
}

fn plan(steps: &[Step]) -> Vec<(i64, Act<'_>)> {
    let mut plan = Vec::new();
    let mut dispatches = 0;
    for step in steps {
        let program = step.fields["program"].as_str().unwrap_or(DEFAULT_FLOW);
        let act = match (step.op.as_str(), step.fields["event"].as_str()) {
            ("program", Some("dispatched")) => {
                let k = dispatches;
                dispatches += 1;
                let wait = step.fields["wait_ms"].as_i64();
                plan.push((step.at_ms - wait.unwrap_or(0), Act::Arrive { program, k }));
                Act::Dispatch { program, k, waited: wait.is_some() }
            }
            ("program", Some("completed")) => Act::Complete { program, usage: None },
            ("program", Some("chunk")) => Act::Chunk { program },
            ("program", _seen) => Act::Seen { program },
            ("service", _) => {
                let k = dispatches;
                dispatches += 1;
                plan.push((step.at_ms, Act::Arrive { program, k }));
                plan.push((step.at_ms, Act::Dispatch { program, k, waited: false }));
                Act::Complete { program, usage: Some(usage_of(&step.fields)) }
            }
            ("dump_state", _) => Act::Dump { name: step.name.as_deref() },
            _sweep => Act::Sweep,
        };
        plan.push((step.at_ms, act));
    }
    plan
}

/// The tokens of a completion.
pub fn usage_of(fields: &Value) -> Usage {
    let tokens = |name: &str| u32::try_from(fields[name].as_u64().unwrap_or(0)).unwrap_or(u32::MAX);
    Usage { prompt: tokens("prompt_tokens"), completion: tokens("completion_tokens") }
}

struct Run {
    engine: Engine,
    waiting: BTreeMap<usize, RequestId>,
    running: BTreeMap<String, VecDeque<RequestId>>,
    stats: BTreeMap<String, ProgramStat>,
}

impl Run {
    fn new(config: &Value, bands: usize, now: Micros) -> Result<Run, String> {
        let settings =
            BandSettings { fairness: settings::fairness(&config["fairness"])?, ..BandSettings::default() };
        let mut policy = Policy {
            saturation_budget: Micros::ZERO,
            no_endpoint_budget: Micros::ZERO,
            lease_timeout: Micros::ZERO,
            detector: Detector::Pushed,
            usage_limit: UsageLimit::Fixed {
                ceilings: (0..bands).map(|k| (band_of(k), ceiling_of(k))).collect(),
                default: Ratio::ZERO,
            },
            ..Policy::default()
        };
        policy.bands.insert(0, settings.clone());
        policy.bands.extend((0..bands).map(|k| (band_of(k), settings.clone())));
        let mut engine = Engine::new(policy, now)?;
        engine.script(now, Ratio::ONE)?;
        Ok(Run { engine, waiting: BTreeMap::new(), running: BTreeMap::new(), stats: BTreeMap::new() })
    }

    fn act(&mut self, ms: i64, act: Act<'_>, results: &mut Results) -> Result<(), String> {
        let now = at(ms);
        let arrival = |program: &str, band: i32| Arrival {
            fairness_id: program.to_owned(),
            priority: Some(band),
            received_at: now,
            ..Arrival::default()
        };
        match act {
            Act::Arrive { program, k } => {
                let request = self.engine.arrive(now, arrival(program, band_of(k)))?;
                self.waiting.insert(k, request);
            }
            Act::Dispatch { program, k, waited } => {
                let figure = Ratio(ceiling_of(k).0 - 1);
                self.engine.look(now, Vec::new(), Pushed::Pool(figure))?;
                let request = self.waiting.remove(&k).ok_or("a dispatch without an arrival")?;
                if !self.engine.runs(request) {
                    return Err(format!("the request of {program} was not dispatched at {ms} ms"));
                }
                self.running.entry(program.to_owned()).or_default().push_back(request);
                let stat = self.stats.entry(program.to_owned()).or_default();
                stat.dispatched += 1;
                // In Weir every arrival is known; a vector's dispatch without one says nothing of waits.
                if waited {
                    stat.waits_us.push(self.engine.notes.waited_us.get(&request).copied().unwrap_or(0));
                }
            }
            Act::Seen { program } => {
                let request = self.engine.arrive(now, arrival(program, 0))?;
                self.engine.cancel(now, request, Cause::ClientDisconnect)?;
            }
            Act::Complete { program, usage } => {
                // An end that fits nothing is told to the kernel as one of a request that never was.
                let oldest = self.running.get_mut(program).and_then(VecDeque::pop_front);
                self.engine.end(now, oldest.unwrap_or_default(), usage)?;
            }
            Act::Chunk { program } => {
                let first = self.running.get(program).and_then(|all| all.front()).copied();
                self.engine.feed(now, Input::FirstByte { request: first.unwrap_or_default() })?;
            }
            Act::Sweep => self.engine.pass(now)?,
            Act::Dump { name } => {
                self.engine.until(now)?;
                if let Some(name) = name {
                    results.named.insert(name.to_owned(), self.dump());
                }
            }
            Act::Look => {
                self.engine.until(now)?;
                results.views.insert(ms, self.look_around());
            }
        }
        Ok(())
    }

    fn look_around(&self) -> View {
        View {
            programs: self.engine.notes.programs.clone(),
            services: self.engine.notes.services.keys().cloned().collect(),
            ..View::default()
        }
    }

    /// Counts alone: names of programs are their callers', and a dump may be read by anybody.
    fn dump(&self) -> Outcomes {
        let programs: Vec<Event> = self
            .engine
            .state()
            .restate()
            .into_iter()
            .filter(|event| matches!(event, Event::RestatedProgram(_)))
            .collect();
        Outcomes::Dump {
            programs: programs.len() as u64,
            in_flight: self.engine.state().in_flight(),
            text: format!(
                "{} programs, {} requests in flight",
                programs.len(),
                self.engine.state().in_flight()
            ),
        }
    }
}
