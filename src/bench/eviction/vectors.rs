//! The figures that the conformance vectors give of the closed loop, by what was run.
//!
//! Whether a run agrees with them is the conformance test's to say; here they only stand beside the measured ones.

use super::params::Params;
use crate::bench::BenchError;
use serde_json::Value;

const VECTORS: &str = include_str!("../../../tests/conformance/closed_loop.json");

/// What the vectors say of their runs.
pub struct Vectors(Vec<(Params, Vec<(String, f64)>)>);

impl Vectors {
    /// Reads them.
    ///
    /// # Errors
    /// Vectors that cannot be read.
    pub fn read() -> Result<Vectors, BenchError> {
        let file: Value =
            serde_json::from_str(VECTORS).map_err(|error| BenchError(format!("vectors: {error}")))?;
        let mut all = Vec::new();
        for vector in list(&file["vectors"]) {
            for step in list(&vector["steps"]).iter().filter(|step| step["op"] == "sim") {
                let of = |expect: &&Value| expect["type"] == "metric" && expect["of"] == step["as"];
                let figure =
                    |expect: &Value| Some((expect["name"].as_str()?.to_owned(), expect["equals"].as_f64()?));
                let figures = list(&vector["expect"]).iter().filter(of).filter_map(figure).collect();
                all.push((Params::read(&step["params"])?, figures));
            }
        }
        Ok(Vectors(all))
    }

    /// The figure of this name for this run, where a vector has it.
    pub fn figure(&self, params: &Params, name: &str) -> Option<f64> {
        let runs = self.0.iter().filter(|(run, _)| run == params);
        runs.flat_map(|(_, figures)| figures).find(|(known, _)| known == name).map(|(_, figure)| *figure)
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
