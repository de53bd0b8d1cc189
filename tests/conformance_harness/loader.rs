//! Configuration vectors, through the real loader.

use super::results::{Outcomes, Results};
use super::vector::{Step, text};

/// Validates and resolves one layer.
pub fn run(step: &Step, results: &mut Results) -> Result<(), String> {
    let result = match weir_config::layer(text(&step.fields, "layer")?, &step.fields["input"]) {
        Ok(resolved) => Outcomes::Accepted(resolved),
        Err(mistakes) => Outcomes::Rejected(mistakes.to_string()),
    };
    if let Some(name) = &step.name {
        results.named.insert(name.clone(), result);
    }
    Ok(())
}
