//! Which part of a log is asked about: the log, a pool, from, to. Shared by the commands that walk a range.

use crate::source::{Opened, Source};
use crate::what_if::WhatIfError;
use weir_log::SegmentError;
use weir_log::reader::Bound;

/// The part of a log.
#[derive(Debug, clap::Args)]
pub struct Range {
    #[command(flatten)]
    pub source: Source,

    /// Only this pool; needed where the log has several and one is asked about at a time.
    #[arg(long)]
    pub pool: Option<String>,

    /// From this sequence or time on; what comes before is read for the state at that point.
    #[arg(long, value_name = "SEQ|TIME", default_value = "1")]
    pub from: Bound,

    /// Up to this sequence or time.
    #[arg(long, value_name = "SEQ|TIME")]
    pub to: Option<Bound>,
}

impl Range {
    /// Opens the log; what the reader should know about it goes to standard error.
    ///
    /// # Errors
    /// A log that cannot be opened.
    pub fn open(&self) -> Result<Opened, SegmentError> {
        let opened = self.source.open()?;
        opened.notes.iter().for_each(|note| eprintln!("note: {note}"));
        Ok(opened)
    }

    /// Where it ends.
    pub fn to(&self) -> Bound {
        self.to.unwrap_or_default()
    }

    /// The pools that are asked about.
    ///
    /// # Errors
    /// There is none, or none of that name.
    pub fn pools(&self, opened: &Opened) -> Result<Vec<String>, WhatIfError> {
        pools(opened, self.pool.as_ref())
    }

    /// The only pool, or the one that is asked about.
    ///
    /// # Errors
    /// There are several, or none.
    pub fn pool(&self, opened: &Opened) -> Result<String, WhatIfError> {
        one(self.pools(opened)?)
    }
}

/// The pools that are asked about.
///
/// # Errors
/// There is none, or none of that name.
pub fn pools(opened: &Opened, only: Option<&String>) -> Result<Vec<String>, WhatIfError> {
    let mut pools = opened.logs.pools();
    let all = pools.join(", ");
    pools.retain(|pool| only.is_none_or(|only| only == pool));
    match (pools.is_empty(), only) {
        (false, _) => Ok(pools),
        (true, Some(only)) if all.is_empty() => {
            Err(WhatIfError::Nothing(format!("no pool {only:?} in this log; it has none")))
        }
        (true, Some(only)) => {
            Err(WhatIfError::Nothing(format!("no pool {only:?} in this log; it has {all}")))
        }
        (true, None) => Err(WhatIfError::Nothing("no pool in this log".to_owned())),
    }
}

/// The only one.
///
/// # Errors
/// There are several.
pub fn one(mut pools: Vec<String>) -> Result<String, WhatIfError> {
    match pools.len() {
        0 | 1 => Ok(pools.pop().unwrap_or_default()),
        _ => {
            let all = pools.join(", ");
            Err(WhatIfError::Nothing(format!("--pool: one pool at a time; this log has {all}")))
        }
    }
}
