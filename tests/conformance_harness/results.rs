//! What the operations of one vector gave: results by name, and everything that happened to requests.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use weir_kernel::{BandSettings, Outcome, Ratio, Reason};

/// The result of one operation.
#[derive(Clone, Debug)]
pub enum Outcomes {
    Accepted(Value),
    Rejected(String),
    Number(f64),
    Word(String),
    Less(bool),
    Picked(Vec<Option<String>>),
    Ceilings(Vec<Ratio>),
    Kept(Vec<String>),
    Stages { prefill: Vec<String>, decode: Vec<String> },
    Http(Answer),
    Bands(BTreeMap<i32, BandSettings>),
    Dump { text: String, programs: u64, in_flight: u64 },
    Taken(Taken),
    Metrics(BTreeMap<&'static str, f64>),
}

/// What an operation on leases took back, and how things stood right after it.
#[derive(Clone, Debug)]
pub struct Taken {
    pub revoked: Vec<String>,
    pub in_flight: u64,
    pub evictable: u64,
    pub gate_open: bool,
    pub pending: f64,
    /// The best victim and its priority.
    pub best: Option<(String, i32)>,
}

/// What a caller hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub reason: Option<String>,
}

impl Answer {
    pub fn admitted() -> Answer {
        Answer { status: 200, reason: None }
    }

    pub fn refused(reason: Reason) -> Answer {
        Answer { status: reason.status(), reason: Some(reason.llm_d_word().to_owned()) }
    }
}

/// How a request left the queue.
#[derive(Clone, Debug)]
pub struct Fate {
    pub outcome: Outcome,
    pub at_us: i64,
    pub answer: Answer,
    pub causes: BTreeSet<&'static str>,
}

/// What existed at one instant.
#[derive(Clone, Debug, Default)]
pub struct View {
    pub flows: BTreeSet<(String, i32)>,
    pub bands: BTreeSet<i32>,
    pub programs: BTreeSet<String>,
    pub services: BTreeSet<String>,
    pub gauges: BTreeMap<String, Option<f64>>,
}

/// Counts of one program.
#[derive(Clone, Debug, Default)]
pub struct ProgramStat {
    pub dispatched: u64,
    pub in_flight: u64,
    pub waits_us: Vec<u64>,
}

/// Everything that expectations can ask for.
#[derive(Debug, Default)]
pub struct Results {
    pub named: BTreeMap<String, Outcomes>,
    /// By the vector's own request id.
    pub fates: BTreeMap<String, Vec<Fate>>,
    /// Every request id that arrived.
    pub arrived: BTreeSet<String>,
    pub dispatch_order: Vec<String>,
    /// By the instant, in ms.
    pub views: BTreeMap<i64, View>,
    /// At the end.
    pub last: View,
    /// Occupancy at the end: requests and bytes by band.
    pub occupancy: BTreeMap<i32, (u64, u64)>,
    pub dropped: BTreeMap<&'static str, u64>,
    pub stats: BTreeMap<String, ProgramStat>,
    /// Revocations that were told, in order: when (us) and whose.
    pub revoked: Vec<(i64, String)>,
    /// Terminations of revoked requests.
    pub terminations: BTreeMap<String, u64>,
    /// From order to confirmation, in order.
    pub confirmation_ms: Vec<f64>,
    /// Counters by name and outcome.
    pub counters: BTreeMap<String, u64>,
}

impl Results {
    pub fn of(&self, expectation: &Value) -> Result<&Outcomes, String> {
        let name = expectation["of"].as_str().ok_or("an expectation without of")?;
        self.named.get(name).ok_or_else(|| format!("no step is named {name}"))
    }

    pub fn fate(&self, id: &str) -> Result<Option<&Fate>, String> {
        if !self.arrived.contains(id) {
            return Err(format!("request {id} never arrived"));
        }
        Ok(self.fates.get(id).and_then(|fates| fates.first()))
    }
}
