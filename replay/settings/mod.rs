//! The settings of a candidate: the logged ones with changes, or a file's, resolved as the service resolves its own.
//!
//! Whatever the service would refuse is refused here with the same words. Not here: what the settings do.

mod document;
mod path;

#[cfg(test)]
mod tests;

use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use weir_config::{Effective, Mistakes, Node};
use weir_kernel::Policy;

pub use document::{document, json_of};

/// Which settings shall be tried.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct SettingsArgs {
    /// One setting of the candidate, by its path in the configuration; may be given more than once. What follows from
    /// another setting follows here too: noEndpointRequestTTL, where it was logged equal to defaultRequestTTL.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub set: Vec<String>,

    /// The candidate is this configuration file; `--patch` and `--set` are laid over it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// A part of a configuration (YAML) that is laid over the logged settings: sections are merged, lists replaced.
    #[arg(long, value_name = "FILE")]
    pub patch: Option<PathBuf>,
}

/// Why a candidate was not taken.
#[derive(Debug, thiserror::Error)]
pub enum CandidateError {
    /// The service would refuse it.
    #[error("the candidate's settings are refused: {0}")]
    Refused(#[from] Mistakes),
    /// A word of `--set` that is no path and value.
    #[error("--set {word:?}: {reason}")]
    Set {
        /// The word.
        word: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file that cannot be read.
    #[error("{file}: {source}")]
    File {
        /// Its name.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// A file that is no document.
    #[error("{file}: {reason}")]
    Yaml {
        /// Its name.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The file has no such pool.
    #[error("{file}: no pool {pool:?}; it has {known}")]
    Pool {
        /// The file.
        file: String,
        /// The pool of the log.
        pool: String,
        /// The pools of the file.
        known: String,
    },
    /// Settings that the decisions in a log do not depend on.
    #[error(
        "the candidate sets {paths}: no part of what is replayed, since it acts before a request comes to the decisions \
         that the log holds, or after them; leave it out"
    )]
    Beside {
        /// Their paths.
        paths: String,
    },
    /// Another mode.
    #[error(
        "mode: the candidate has {candidate}, and the log was made under {logged}: both decide alike, and what callers do \
         where nothing is enforced is not in the log of the other"
    )]
    Mode {
        /// That of the log.
        logged: &'static str,
        /// That of the candidate.
        candidate: &'static str,
    },
    /// The logged settings have no form in a file.
    #[error("the logged settings cannot be written as a configuration (give --config): {0}")]
    NoForm(String),
}

/// A candidate, ready to be resolved against any logged settings.
#[derive(Clone, Debug, Default)]
pub struct Candidate {
    /// From a file: the same whatever was logged.
    base: Option<(PathBuf, Json)>,
    patch: Option<Json>,
    sets: Vec<(String, Json)>,
}

impl Candidate {
    /// Reads the files and words.
    ///
    /// # Errors
    /// A file that cannot be read or is no document; a word that is not `PATH=VALUE`.
    pub fn read(args: &SettingsArgs) -> Result<Candidate, CandidateError> {
        let base = args.config.as_ref().map(|file| read_yaml(file).map(|json| (file.clone(), json)));
        let patch = args.patch.as_ref().map(|file| read_yaml(file));
        Ok(Candidate {
            base: base.transpose()?,
            patch: patch.transpose()?,
            sets: args.set.iter().map(|word| path::parse(word)).collect::<Result<_, _>>()?,
        })
    }

    /// A whole configuration document.
    pub fn of_document(document: Json) -> Candidate {
        Candidate { base: Some((PathBuf::from("the document"), document)), ..Candidate::default() }
    }

    /// The same with more words of `--set` laid over it.
    ///
    /// # Errors
    /// A word that is not `PATH=VALUE`.
    pub fn with(&self, words: &[String]) -> Result<Candidate, CandidateError> {
        let mut more = self.clone();
        for word in words {
            more.sets.push(path::parse(word)?);
        }
        Ok(more)
    }

    /// Does it change nothing?
    pub fn is_empty(&self) -> bool {
        self.base.is_none() && self.patch.is_none() && self.sets.is_empty()
    }

    /// The candidate's settings where these were logged.
    ///
    /// # Errors
    /// Settings that the service would refuse, in its own words.
    pub fn resolve(&self, logged: &Policy, pool: &str) -> Result<Policy, CandidateError> {
        if self.is_empty() {
            return Ok(logged.clone());
        }
        let (mut json, mut name) = match &self.base {
            Some((_, json)) => (json.clone(), pool.to_owned()),
            None => (document(logged), weir_config::DEFAULT_POOL.to_owned()),
        };
        if self.base.is_none() {
            faithful(&json, logged)?;
        }
        if let Some(patch) = &self.patch {
            path::merge(&mut json, patch);
        }
        // In a file, the pool may stand under its own name: there a path leads.
        let home = json["pools"].get(&name).map(|_| name.clone()).filter(|_| self.base.is_some());
        for (at, value) in &self.sets {
            path::set(&mut json, at, value, home.as_deref())?;
        }
        let effective = weir_config::resolve(Node::from_json(&json), [])?;
        if self.base.is_some() && !effective.pools.contains_key(&name) && effective.pools.len() == 1 {
            name = effective.pools.keys().next().cloned().unwrap_or(name);
        }
        match effective.pools.get(&name) {
            Some(pool) => Ok(pool.policy.clone()),
            None => Err(self.no_pool(pool, &effective)),
        }
    }

    /// [`Candidate::resolve`], for decisions that are compared with those of a log.
    ///
    /// # Errors
    /// As there; and settings of which a log cannot tell what would have been.
    pub fn beside(&self, logged: &Policy, pool: &str) -> Result<Policy, CandidateError> {
        let policy = self.resolve(logged, pool)?;
        let sets = self.sets.iter().filter_map(|(at, _)| path::full(at).ok());
        let patched = self.patch.iter().flat_map(path::leaves);
        let paths: Vec<String> = sets.chain(patched).filter(|path| !path::decides(path)).collect();
        if !paths.is_empty() {
            return Err(CandidateError::Beside { paths: paths.join(", ") });
        }
        if policy.observe != logged.observe {
            let mode = |observe| if observe { "observe" } else { "enforce" };
            return Err(CandidateError::Mode {
                logged: mode(logged.observe),
                candidate: mode(policy.observe),
            });
        }
        Ok(policy)
    }

    fn no_pool(&self, pool: &str, effective: &Effective) -> CandidateError {
        let file = self.base.as_ref().map_or_else(String::new, |(file, _)| file.display().to_string());
        let known = effective.pools.keys().cloned().collect::<Vec<_>>().join(", ");
        CandidateError::Pool { file, pool: pool.to_owned(), known }
    }

    /// In a few words, for a report.
    pub fn shown(&self) -> String {
        let mut parts = Vec::new();
        if let Some((file, _)) = &self.base {
            parts.push(format!("--config {}", file.display()));
        }
        if self.patch.is_some() {
            parts.push("a patch".to_owned());
        }
        parts.extend(self.sets.iter().map(|(at, value)| format!("{at}={}", path::shown(value))));
        if parts.is_empty() { "the logged settings".to_owned() } else { parts.join(", ") }
    }
}

/// The document of the logged settings must lead back to them: else a candidate would differ by more than was asked for.
fn faithful(json: &Json, logged: &Policy) -> Result<(), CandidateError> {
    let effective = weir_config::resolve(Node::from_json(json), [])
        .map_err(|mistakes| CandidateError::NoForm(format!("this version refuses them: {mistakes}")))?;
    match effective.pools.get(weir_config::DEFAULT_POOL) {
        Some(pool) if pool.policy == *logged => Ok(()),
        Some(pool) => {
            let (a, b) = (logged.to_canonical_json(), pool.policy.to_canonical_json());
            let at = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
            let from = a[..at].rfind(",\"").map_or(0, |comma| comma + 1);
            let part: String = a[from..].chars().take(60).collect();
            Err(CandidateError::NoForm(format!("from {part}")))
        }
        None => Err(CandidateError::NoForm("no pool".to_owned())),
    }
}

fn read_yaml(file: &Path) -> Result<Json, CandidateError> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file)
        .map_err(|source| CandidateError::File { file: name.clone(), source })?;
    let node = weir_config::parse_yaml(&text).map_err(|error| CandidateError::Yaml {
        file: error.line.map_or_else(|| name.clone(), |line| format!("{name}:{line}")),
        reason: error.message.clone(),
    })?;
    json_of(&node)
        .map_err(|key| CandidateError::Yaml { file: name, reason: format!("the key {key} stands twice") })
}
