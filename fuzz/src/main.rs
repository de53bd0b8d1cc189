//! One fuzz target per parser of what strangers send: the environment names which (`WEIR_FUZZ=headers`). The rest of the
//! command line is libFuzzer's. `run.sh` builds and runs them one after another.
#![no_main]

use std::sync::OnceLock;
use weir::gateway::parsers::{ALL, Parser};

static TARGET: OnceLock<Parser> = OnceLock::new();

libfuzzer_sys::fuzz_target!(
    init: {
        let wanted = std::env::var("WEIR_FUZZ").unwrap_or_default();
        match ALL.into_iter().find(|(name, _)| *name == wanted) {
            Some((_, parser)) => drop(TARGET.set(parser)),
            None => {
                eprintln!("WEIR_FUZZ is one of: {}", ALL.map(|(name, _)| name).join(", "));
                std::process::exit(2);
            }
        }
    },
    |data: &[u8]| {
        if let Some(parser) = TARGET.get() {
            parser(data);
        }
    }
);
