//! What is found, told to whoever follows; what is wrong, said once for each reason and then now and then (`said`).

use super::Found;
use super::said::Said;
use crate::observer::{ENDPOINTS_MAX, Spec};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::watch;
use weir_config::url_key;

/// Faults that are told at once; beyond it they are counted alone.
const FAULTS_MAX: usize = 16;

/// Tells what one search finds; clones share it.
#[derive(Clone, Debug)]
pub struct Teller {
    pool: Arc<str>,
    to: watch::Sender<Found>,
    said: Arc<Mutex<Said>>,
}

impl Teller {
    /// For a pool.
    pub fn new(pool: &str, to: watch::Sender<Found>) -> Teller {
        Teller { pool: pool.into(), to, said: Arc::new(Mutex::new(Said::new(FAULTS_MAX))) }
    }

    /// These are all endpoints now, in any order; one that stands twice counts once.
    pub fn endpoints(&self, mut specs: Vec<Spec>) {
        specs.sort_by(|a, b| a.name.cmp(&b.name));
        specs.dedup_by(|a, b| a.name == b.name);
        self.each_server_once(&mut specs);
        if specs.len() > ENDPOINTS_MAX {
            let found = specs.len();
            self.fault(
                "endpoints",
                format!("{found} endpoints, at most {ENDPOINTS_MAX} are allowed in a pool"),
            );
            return;
        }
        self.well("endpoints");
        let (pool, count) = (&*self.pool, specs.len());
        let changed = self.to.send_if_modified(|found| {
            let changed = found.endpoints.as_ref() != Some(&specs);
            found.endpoints = Some(specs);
            changed
        });
        if changed {
            tracing::info!(pool, endpoints = count, "discovery: these are the endpoints now");
        }
    }

    /// Leaves out who has the URL of another one, which goes before by its name: its capacity would count twice.
    fn each_server_once(&self, specs: &mut Vec<Spec>) {
        let mut first: BTreeMap<String, String> = BTreeMap::new();
        let mut twice = Vec::new();
        specs.retain(|spec| {
            let Some(url) = &spec.metrics_url else { return true };
            match first.entry(url_key(url)) {
                Entry::Vacant(place) => {
                    place.insert(spec.name.clone());
                    true
                }
                Entry::Occupied(other) => {
                    twice.push((spec.name.clone(), other.get().clone(), url.clone()));
                    false
                }
            }
        });
        let place = "servers with two names";
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, other, url) in twice {
            let text = format!("{other} and {name} are one server, which counts once: {name} is left out");
            if said.due(place, &text, Instant::now()) {
                tracing::warn!(pool = &*self.pool, url, "discovery: {text}");
            }
        }
        // It is no fault that could be well again.
        said.well(place);
    }

    /// These are all objectives now.
    pub fn objectives(&self, objectives: BTreeMap<String, i32>) {
        let (pool, count) = (&*self.pool, objectives.len());
        let changed = self.to.send_if_modified(|found| {
            let changed = found.objectives.as_ref() != Some(&objectives);
            found.objectives = Some(objectives);
            changed
        });
        if changed {
            tracing::info!(pool, objectives = count, "discovery: these are the objectives now");
        }
    }

    /// Something cannot be found out there. What was found before stays.
    pub fn fault(&self, place: &str, error: String) {
        self.to.send_modify(|found| {
            found.failures += 1;
            if found.faults.len() < FAULTS_MAX || found.faults.contains_key(place) {
                found.faults.insert(place.to_owned(), error.clone());
            }
        });
        self.still(place, &error);
    }

    /// Says in the process's log what is wrong there, if that is due; it counts nothing.
    pub fn still(&self, place: &str, error: &str) {
        if self.said.lock().unwrap_or_else(PoisonError::into_inner).due(place, error, Instant::now()) {
            tracing::warn!(pool = &*self.pool, place, error, "discovery fails; what was found last stays");
        }
    }

    /// The same of something that is looked at again and again: counted when it begins or changes.
    pub fn standing(&self, place: &str, error: String) {
        if self.to.borrow().faults.get(place) == Some(&error) {
            self.still(place, &error);
        } else {
            self.fault(place, error);
        }
    }

    /// Nothing is wrong there (any more).
    pub fn well(&self, place: &str) {
        self.to.send_if_modified(|found| found.faults.remove(place).is_some());
        if self.said.lock().unwrap_or_else(PoisonError::into_inner).well(place) {
            tracing::info!(pool = &*self.pool, place, "discovery works again");
        }
    }
}
