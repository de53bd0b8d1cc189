//! The table of who may do what, and one caller in it.

use super::scope::{Concerns, Scope, Scopes, concerns};
use super::token::Digest;
use crate::gateway::problem::Fault;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// A caller that is known. On a request of HTTP it stands among the extensions.
#[derive(Clone, Debug)]
pub struct Actor(Arc<Entry>);

/// What stands in the file about one caller.
#[derive(Debug, Default)]
pub struct Entry {
    /// Its name, unique in the file.
    pub name: String,
    /// What it may do.
    pub scopes: Scopes,
    /// The highest priority that it may ask for.
    pub max_priority: Option<i32>,
    /// The pools that it may concern itself with; `None`: every one.
    pub pools: Option<BTreeSet<String>>,
}

impl Actor {
    /// The caller of this entry.
    pub fn new(entry: Entry) -> Self {
        Actor(Arc::new(entry))
    }

    /// Its name, for the log and the operator.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The highest priority that it may ask for; a higher one is lowered to it.
    pub fn max_priority(&self) -> Option<i32> {
        self.0.max_priority
    }

    /// Has it this scope?
    ///
    /// # Errors
    /// 403 that names the scope.
    pub fn must(&self, scope: Scope) -> Result<(), Fault> {
        if self.0.scopes.has(scope) { Ok(()) } else { Err(Fault::Forbidden { scope: scope.word() }) }
    }

    /// The pools that it is bound to; none: every pool.
    pub fn pools(&self) -> Option<&BTreeSet<String>> {
        self.0.pools.as_ref()
    }

    /// May it concern itself with this pool?
    ///
    /// # Errors
    /// 403 that names the pool.
    pub fn must_pool(&self, pool: &str) -> Result<(), Fault> {
        match &self.0.pools {
            Some(pools) if !pools.contains(pool) => Err(self.not_of(pool)),
            _ => Ok(()),
        }
    }

    /// May it concern itself with the pools of this path, as far as that says which?
    pub(super) fn must_path(&self, path: &str) -> Result<(), Fault> {
        if self.0.pools.is_none() {
            return Ok(());
        }
        match concerns(path) {
            Concerns::All => Err(self.not_of("every pool")),
            Concerns::Pool(pool) => self.must_pool(&pool),
            Concerns::Unsaid => Ok(()),
        }
    }

    fn not_of(&self, pool: &str) -> Fault {
        let allowed = self.0.pools.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(", ");
        Fault::PoolForbidden { pool: crate::gateway::json::shown(pool.as_bytes()), allowed }
    }
}

/// Who may do what. Made by reading a file, replaced as a whole.
#[derive(Debug, Default)]
pub struct Access {
    tokens: HashMap<[u8; 8], (Digest, Actor)>,
    certificates: HashMap<String, Actor>,
    any_certificate: bool,
}

impl Access {
    /// No tokens: whoever shows a certificate of the authority may do everything.
    pub fn any_certificate() -> Self {
        Access { any_certificate: true, ..Access::default() }
    }

    /// Adds a token; false if there is one with that digest.
    pub fn add_token(&mut self, digest: Digest, actor: &Actor) -> bool {
        self.tokens.insert(digest.short(), (digest, actor.clone())).is_none()
    }

    /// Adds a name of a certificate; false if it is there already.
    pub fn add_certificate(&mut self, name: String, actor: &Actor) -> bool {
        self.certificates.insert(name, actor.clone()).is_none()
    }

    /// How many tokens and names of certificates there are.
    pub fn len(&self) -> (usize, usize) {
        (self.tokens.len(), self.certificates.len())
    }

    /// Nobody at all?
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0) && !self.any_certificate
    }

    /// The callers that are bound to pools that are not there, each with such a pool.
    pub fn bound_elsewhere(&self, is_there: impl Fn(&str) -> bool) -> BTreeSet<(&str, &str)> {
        let tokens = self.tokens.values().map(|(_, actor)| actor);
        let actors = tokens.chain(self.certificates.values());
        let bound = actors.flat_map(|Actor(entry)| {
            entry.pools.iter().flatten().map(|pool| (entry.name.as_str(), pool.as_str()))
        });
        bound.filter(|(_, pool)| !is_there(pool)).collect()
    }

    /// Whose token is this?
    pub fn token(&self, presented: &[u8]) -> Option<&Actor> {
        let digest = Digest::of(presented);
        self.tokens.get(&digest.short()).filter(|(known, _)| *known == digest).map(|(_, actor)| actor)
    }

    /// Whose certificate has these names? The first that is known counts.
    pub fn certificate(&self, names: &[String]) -> Option<Actor> {
        if self.any_certificate {
            let name = names.first().cloned().unwrap_or_else(|| "certificate".to_owned());
            return Some(Actor::new(Entry { name, scopes: Scopes::ALL, ..Entry::default() }));
        }
        names.iter().find_map(|name| self.certificates.get(name)).cloned()
    }
}
