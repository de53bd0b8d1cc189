//! Goal: the manual is what the tables say.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

#[test]
fn the_manual_is_in_step_with_the_tables() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let written = fs::read_to_string(&file).unwrap();
    assert!(
        written == weir_config::reference(),
        "docs/configuration.md is out of step: cargo run -- config reference > docs/configuration.md"
    );
}
