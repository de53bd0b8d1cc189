//! A scenario out of an incident: everything since the queue was last empty until the request was decided.

use super::file::parse;
use super::run::run as run_scenario;
use super::{FromLog, judge, settings};
use crate::range::{one, pools};
use crate::settings::{Candidate, document};
use crate::start::start;
use crate::what_if::{Course, WhatIfError};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use weir_config::format_duration;
use weir_kernel::{Arrival, Event, Input, Micros, RequestId, State, Step, fold};
use weir_log::reader::{Bound, Logs};
use weir_log::say;

/// Requests of one incident at most.
const REQUESTS_MAX: usize = 20_000;

/// Where an incident lies.
struct Incident {
    request: RequestId,
    /// The last step after which nothing was queued, before the request arrived.
    from: u64,
    /// The step that decided the request.
    to: u64,
    course: Course,
}

/// Runs `weir-replay scenario from-log`; false where the scenario does not give back what was logged.
pub fn run(args: &FromLog) -> Result<bool, WhatIfError> {
    let opened = args.source.open()?;
    opened.notes.iter().for_each(|note| eprintln!("note: {note}"));
    let named = args.pool.clone().or_else(|| pool_of(&opened.logs, &args.request));
    let pool = one(pools(&opened, named.as_ref())?)?;
    let incident = find(&opened.logs, &pool, &args.request)?;
    let text = write(&opened.logs, &pool, &incident)?;
    match &args.output {
        Some(file) => std::fs::write(file, &text)?,
        None => say!("{}", text.trim_end())?,
    }
    let scenario = parse(&text).map_err(WhatIfError::Nothing)?;
    let policy = settings(&scenario, &Candidate::default())?;
    let verdicts = judge::judge(&scenario, &run_scenario(&scenario, &policy));
    let failed = verdicts.iter().find_map(|verdict| verdict.failed.clone());
    match &failed {
        None => eprintln!("the scenario gives back the logged decision of request {}", incident.request),
        Some(failed) => eprintln!("the scenario does NOT give back what was logged: {failed}"),
    }
    Ok(failed.is_none())
}

/// The pool of an id as the service and the other tools print it (`pool-number`), where this log has that pool.
fn pool_of(logs: &Logs, id: &str) -> Option<String> {
    let (pool, number) = id.rsplit_once('-')?;
    number.parse::<u64>().ok()?;
    logs.pools().into_iter().find(|known| known == pool)
}

/// The number in `number`, or in `pool-number` of this pool.
fn number_of(pool: &str, id: &str) -> Option<u64> {
    let number = id.strip_prefix(pool).and_then(|rest| rest.strip_prefix('-')).unwrap_or(id);
    number.parse().ok()
}

fn find(logs: &Logs, pool: &str, wanted: &str) -> Result<Incident, WhatIfError> {
    let begun = start(logs, pool, Bound::Open)?;
    let number = number_of(pool, wanted);
    let mut state = begun.state;
    let (mut from, mut found) = (begun.head.seq, None);
    let mut course = Course::NEW;
    for step in logs.reader(pool, Bound::Seq(begun.head.seq + 1), Bound::Open).after(begun.head).steps() {
        let step = step?;
        if let Input::Arrived(arrival) = &step.input
            && found.is_none()
            && (number == Some(step.seq) || arrival.caller_id == wanted)
        {
            found = Some(RequestId(step.seq));
        }
        fold(&mut state, &step);
        let Some(request) = found else {
            if state.queued() == 0 {
                from = step.seq;
            }
            continue;
        };
        for event in &step.events {
            if crate::what_if::subject(step.seq, event) == Some(request) {
                course.take(step.at, event);
            }
        }
        if course.fate.is_some() {
            return Ok(Incident { request, from, to: step.seq, course });
        }
    }
    Err(WhatIfError::Nothing(match found {
        Some(request) => format!("request {request} was not decided within this log"),
        None => format!(
            "no request {wanted:?} in pool {pool}; allowed: its number, {pool}-NUMBER, or the caller's own id"
        ),
    }))
}

/// A request as the scenario has it.
struct Entry {
    arrival: Arrival,
    at: Micros,
    dispatched: Option<Micros>,
    runs: Option<Micros>,
    gives_up: Option<Micros>,
    lease: bool,
}

struct Writer {
    zero: Micros,
    entries: Vec<(RequestId, Entry)>,
    places: HashMap<RequestId, usize>,
    pool: Vec<Value>,
    together: u64,
}

fn write(logs: &Logs, pool: &str, incident: &Incident) -> Result<String, WhatIfError> {
    let begun = start(logs, pool, Bound::Open)?;
    let mut state = begun.state;
    let mut live: HashMap<RequestId, (Arrival, Micros)> = HashMap::new();
    let mut writer: Option<Writer> = None;
    let to = Bound::Seq(incident.to);
    for step in logs.reader(pool, Bound::Seq(begun.head.seq + 1), to).after(begun.head).steps() {
        let step = step?;
        if step.seq > incident.from && writer.is_none() {
            writer = Some(Writer::begin(&state, step.at, &live));
        }
        if let Input::Arrived(arrival) = &step.input {
            live.insert(RequestId(step.seq), (arrival.clone(), step.at));
        }
        fold(&mut state, &step);
        for event in &step.events {
            if let Event::Rejected(_) | Event::Repeated { .. } = event {
                live.remove(&RequestId(step.seq));
            }
            if let Event::LeaseEnded(weir_kernel::LeaseEnded { request, .. })
            | Event::Evicted(weir_kernel::Evicted { request, .. }) = event
            {
                live.remove(request);
            }
        }
        if let Some(writer) = &mut writer {
            writer.take(&step, &state);
            if writer.entries.len() > REQUESTS_MAX {
                let count = writer.entries.len();
                let text = format!(
                    "the queue was not empty for {count} requests before; allowed: at most {REQUESTS_MAX}"
                );
                return Err(WhatIfError::Nothing(text));
            }
        }
    }
    let Some(writer) = writer else {
        return Err(WhatIfError::Nothing("no steps of that incident".to_owned()));
    };
    Ok(writer.text(pool, incident, &state))
}

impl Writer {
    fn begin(state: &State, zero: Micros, live: &HashMap<RequestId, (Arrival, Micros)>) -> Writer {
        let mut writer =
            Writer { zero, entries: Vec::new(), places: HashMap::new(), pool: Vec::new(), together: 0 };
        for endpoint in state.endpoints() {
            writer.seen(zero, &endpoint);
        }
        for request in state.leases() {
            let arrival = live.get(&request).map(|(arrival, _)| arrival.clone()).unwrap_or_default();
            writer.add(
                request,
                Entry { arrival, at: zero, dispatched: Some(zero), runs: None, gives_up: None, lease: true },
            );
        }
        writer
    }

    fn add(&mut self, request: RequestId, entry: Entry) {
        self.places.insert(request, self.entries.len());
        self.entries.push((request, entry));
    }

    fn seen(&mut self, at: Micros, endpoint: &weir_kernel::EndpointView<'_>) {
        let mut one = Map::new();
        one.insert("at".to_owned(), json!(format_duration(at.since(self.zero))));
        one.insert("endpoint".to_owned(), json!(endpoint.name));
        if endpoint.stale {
            one.insert("stale".to_owned(), json!(true));
        } else if let Some((waiting, running, kv)) = endpoint.sample {
            one.insert("waiting".to_owned(), json!(waiting));
            one.insert("running".to_owned(), json!(running));
            one.insert("kv".to_owned(), json!(f64::from(kv) / 10_000.0));
        }
        self.pool.push(Value::Object(one));
    }

    fn take(&mut self, step: &Step, state: &State) {
        match &step.input {
            Input::Arrived(arrival) => {
                let entry = Entry {
                    arrival: arrival.clone(),
                    at: step.at,
                    dispatched: None,
                    runs: None,
                    gives_up: None,
                    lease: false,
                };
                self.add(RequestId(step.seq), entry);
            }
            Input::ArrivedMany(many) => self.together += many.count,
            Input::Observed(observation) => {
                for change in &observation.changes {
                    use weir_kernel::EndpointChange::{Joined, Left, Sampled, Stale};
                    let (Joined { slot, .. } | Left { slot } | Sampled { slot, .. } | Stale { slot }) =
                        change;
                    if let Some(endpoint) = state.endpoints().find(|endpoint| endpoint.slot == *slot) {
                        self.seen(step.at, &endpoint);
                    }
                }
            }
            Input::Cancelled(cancelled) => {
                if let Some(entry) = self.entry(cancelled.request) {
                    entry.gives_up = Some(step.at.since(entry.at));
                }
            }
            _ => {}
        }
        for event in &step.events {
            match event {
                Event::Dispatched(e) => {
                    if let Some(entry) = self.entry(e.request) {
                        entry.dispatched = Some(step.at);
                    }
                }
                Event::LeaseEnded(e) => {
                    if let Some(entry) = self.entry(e.request) {
                        entry.runs = entry.dispatched.map(|since| step.at.since(since));
                    }
                }
                _ => {}
            }
        }
    }

    fn entry(&mut self, request: RequestId) -> Option<&mut Entry> {
        let place = *self.places.get(&request)?;
        self.entries.get_mut(place).map(|(_, entry)| entry)
    }

    fn text(&self, pool: &str, incident: &Incident, state: &State) -> String {
        let request = incident.request;
        let fate = incident.course.fate;
        let outcome = fate.map_or("", |fate| fate.outcome.word());
        let mut text =
            format!("# From the log of pool {pool}, sequences {} to {}.\n", incident.from + 1, incident.to);
        if self.together > 0 {
            text += &format!("# {} arrivals were refused together; they are left out.\n", self.together);
        }
        text += &format!("name: request {request} was {outcome}\n");
        text += &format!("settings: {}\n", document(state.policy()));
        let objectives: Map<String, Value> =
            state.objectives().map(|(name, priority)| (name.to_owned(), json!(priority))).collect();
        text += &format!("objectives: {}\n", Value::Object(objectives));
        let list = |name: &str, all: Vec<String>| {
            if all.is_empty() { format!("{name}: []\n") } else { format!("{name}:\n{}\n", all.join("\n")) }
        };
        text += &list("pool", self.pool.iter().map(|seen| format!("  - {seen}")).collect());
        for (name, lease) in [("leases", true), ("requests", false)] {
            let of = self.entries.iter().filter(|(_, entry)| entry.lease == lease);
            text += &list(name, of.map(|(id, entry)| format!("  - {}", self.request(*id, entry))).collect());
        }
        // Nothing is known of the pool after the decision.
        text += &format!("until: {}\n", format_duration(state.now().since(self.zero)));
        let mut expected = json!({ "request": format!("r{request}"), "outcome": outcome });
        if let Some(reason) = fate.and_then(|fate| fate.reason) {
            expected["reason"] = json!(reason.word());
        }
        text + &format!("expect:\n  - {expected}\n")
    }

    fn request(&self, id: RequestId, entry: &Entry) -> Value {
        let arrival = &entry.arrival;
        let span = |span: Micros| json!(format_duration(span));
        let mut one = Map::new();
        one.insert("at".to_owned(), span(entry.at.since(self.zero)));
        one.insert("id".to_owned(), json!(format!("r{id}")));
        one.insert("flow".to_owned(), json!(arrival.fairness_id));
        let mut add = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                one.insert(key.to_owned(), value);
            }
        };
        add("objective", arrival.objective.as_ref().map(|name| json!(name)));
        add("priority", arrival.priority.map(|priority| json!(priority)));
        add("promptTokens", arrival.prompt_tokens.map(|tokens| json!(tokens)));
        add("bytes", Some(arrival.bytes).filter(|bytes| *bytes > 0).map(|bytes| json!(bytes)));
        add("ttl", arrival.ttl.map(span));
        add("sloTtft", arrival.slo_ttft.map(span));
        add("runs", entry.runs.map(span));
        add("givesUpAfter", entry.gives_up.map(span));
        add("chooseEndpoint", arrival.choose_endpoint.then_some(json!(true)));
        Value::Object(one)
    }
}
