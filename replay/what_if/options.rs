//! How a candidate is run, and what is assumed where no log can tell.

use weir_kernel::Micros;

/// What is assumed where no log can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PatienceRule {
    /// Callers give up when the log says so, and never otherwise.
    Observed,
    /// Nobody gives up while queued.
    Infinite,
    /// Beyond what the log shows of a caller, its patience is drawn from the product-limit estimate over all callers.
    KaplanMeier,
}

/// How a candidate is run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The naive baseline: recorded load and recorded services, whatever the candidate does.
    pub open_loop: bool,
    /// See [`PatienceRule`].
    pub patience: PatienceRule,
    /// Requests that only the candidate sheds come again once, after this long.
    pub retry: Option<Micros>,
    /// Where the draws begin.
    pub seed: u64,
    /// The pool is the model's alone from the beginning: nothing that the log shows of it is used but who is there.
    pub detached: bool,
}
