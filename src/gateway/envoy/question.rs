//! The headers of a request that Envoy asks about, as an arrival.

use crate::gateway::admissions;
use crate::gateway::ask::{Ask, Deadline};
use crate::gateway::auth::Actor;
use crate::gateway::problem::{Fault, Invalid};
use crate::gateway::state::{Gateway, PoolFace};
use weir_kernel::{Arrival, Face, Micros, Trace};

/// What is known beside the request's own headers.
#[derive(Debug, Default)]
pub struct About {
    /// How long Envoy itself waits for an answer: after that it comes to nobody.
    pub patience: Option<Micros>,
    /// The trace context of Envoy's call, which is nearer than that of the request.
    pub trace: Option<Trace>,
    /// How the request came, hence what can be known of its end.
    pub face: Face,
    /// Shall the kernel choose the endpoint?
    pub choose_endpoint: bool,
    /// Who asks, where callers are known: Envoy, by the token or certificate of its call.
    pub actor: Option<Actor>,
}

/// A request that Envoy asks about.
#[derive(Debug)]
pub struct Question {
    ask: Ask,
}

impl Question {
    /// Reads the headers, names in lower case.
    ///
    /// # Errors
    /// Names the header whose value is not allowed.
    pub fn read<'h>(headers: impl Iterator<Item = (&'h str, &'h [u8])>) -> Result<Self, Invalid> {
        Ok(Question { ask: admissions::ask_of(headers)? })
    }

    /// The caller's own id, empty if it gave none.
    pub fn caller_id(&self) -> &str {
        self.ask.caller_id.as_deref().unwrap_or_default()
    }

    /// Its size, once more is known than its headers say.
    pub fn set_bytes(&mut self, bytes: u64) {
        self.ask.bytes = Some(bytes);
    }

    /// Its size, where its headers name none.
    pub fn suggest_bytes(&mut self, bytes: u64) {
        self.ask.bytes.get_or_insert(bytes);
    }

    /// The model, where its headers name none.
    pub fn suggest_model(&mut self, model: impl FnOnce() -> Option<String>) {
        if self.ask.model.is_none() {
            self.ask.model = model();
        }
    }

    /// The pool that is asked: the one that Envoy's own settings name for all that comes this way, else the request's.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn pool<'g>(&self, gateway: &'g Gateway, named: Option<&str>) -> Result<&'g PoolFace, Fault> {
        gateway.pool(named.or(self.ask.pool.as_deref()))
    }

    /// The arrival at that pool, now.
    ///
    /// # Errors
    /// Who asks is bound to other pools.
    pub fn arrive(mut self, gateway: &Gateway, pool: &PoolFace, about: About) -> Result<Arrival, Fault> {
        if let Some(patience) = about.patience.filter(|patience| !patience.is_zero()) {
            self.ask.deadline = match self.ask.deadline {
                Some(Deadline::In(span)) if span <= patience => self.ask.deadline,
                Some(Deadline::Wall(_)) => self.ask.deadline,
                _ => Some(Deadline::In(patience)),
            };
        }
        self.ask.trace = about.trace.or(self.ask.trace);
        self.ask.choose_endpoint = Some(about.choose_endpoint);
        let terms = gateway.terms(pool, about.face, about.actor.as_ref())?;
        Ok(self.ask.into_arrival(terms, None))
    }
}
