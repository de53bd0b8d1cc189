//! Format 1: `Vec<Step>` of the kernel's types (`Vec<Event>` in snapshots), bincode 2 `standard()` through serde.
//!
//! While it is the current format the types are the kernel's own; the stored sample holds them to what was written.

use crate::{Format, from_bytes, to_bytes};

pub(crate) const FORMAT: Format = Format {
    number: 1,
    since: "0.1.0",
    decode: from_bytes,
    decode_events: from_bytes,
    encode: Some(to_bytes),
    encode_events: Some(to_bytes),
};
