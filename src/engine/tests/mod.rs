//! The pool's thread against a log that is at once durable, held back or failing.

mod answers;
mod durable;
mod faults;
mod flood;
mod poison;
mod races;
mod revocations;
mod rig;
