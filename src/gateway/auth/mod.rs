//! Who may do what: bearer tokens and client certificates, each with its scopes.
//!
//! A caller is known by a token (`x-weir-authorization`, else `authorization`), else by the certificate it showed in the
//! TLS handshake. What it may do stands in one file (`file`), which is read again when it changes. With neither tokens
//! nor certificates set up every caller may do everything, and nothing is looked at. Our own token never goes further
//! than the guard: it is taken off the request before any handler sees it.
//!
//! Not here: TLS itself (`../tls`), making tokens (`weir token new`).

mod access;
mod file;
mod guard;
mod scope;
mod token;

#[cfg(test)]
pub use access::Entry;
pub use access::{Access, Actor};
pub use file::{FileError, entry as file_entry, load, read};
pub use guard::{Guard, Peer};
pub use scope::{Concerns, Need, SCOPES, Scope, Scopes, concerns, need};
pub use token::{Digest, PREFIX, token};
