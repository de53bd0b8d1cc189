//! A request's name outside: `<pool>-<sequence of its arrival>`.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;
use weir_kernel::RequestId;

/// The longest external id that is looked at, in bytes.
const LENGTH_MAX: usize = 256 + 1 + 20;

/// A request of a pool, as callers name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExternalId {
    /// The pool's name.
    pub pool: String,
    /// The request within the pool's log.
    pub request: RequestId,
}

/// Text that is not an admission id.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IdError {
    /// Longer than any id.
    #[error("admission id: {found} bytes, at most {LENGTH_MAX} are allowed")]
    TooLong {
        /// Its length in bytes.
        found: usize,
    },
    /// Not of the form `<pool>-<number>`.
    #[error("admission id: {found:?} is not of the form <pool>-<number from 1>")]
    Form {
        /// The text.
        found: String,
    },
}

impl ExternalId {
    /// Of a request of `pool`.
    pub fn new(pool: &str, request: RequestId) -> Self {
        ExternalId { pool: pool.to_owned(), request }
    }
}

impl fmt::Display for ExternalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.pool, self.request)
    }
}

impl ExternalId {
    /// The two parts of such a name.
    ///
    /// # Errors
    /// Too long, or not of this form.
    pub fn parts(text: &str) -> Result<(&str, RequestId), IdError> {
        if text.len() > LENGTH_MAX {
            return Err(IdError::TooLong { found: text.len() });
        }
        let form = || IdError::Form { found: text.to_owned() };
        let (pool, number) = text.rsplit_once('-').ok_or_else(form)?;
        let plain =
            !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) && !number.starts_with('0');
        if pool.is_empty() || !plain {
            return Err(form());
        }
        Ok((pool, RequestId(number.parse().map_err(|_| form())?)))
    }
}

impl FromStr for ExternalId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        ExternalId::parts(text).map(|(pool, request)| ExternalId::new(pool, request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_back_and_nothing_else_reads() {
        for (pool, seq) in [("default", 1), ("a-b-7", 42), ("p", u64::MAX)] {
            let id = ExternalId::new(pool, RequestId(seq));
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for bad in
            ["", "-", "default", "default-", "-7", "default-0", "default-07", "default-1x", "default-+1"]
        {
            assert_eq!(bad.parse::<ExternalId>(), Err(IdError::Form { found: bad.to_owned() }), "{bad:?}");
        }
        assert!("p-18446744073709551616".parse::<ExternalId>().is_err());
        assert_eq!("x".repeat(300).parse::<ExternalId>(), Err(IdError::TooLong { found: 300 }));
    }
}
