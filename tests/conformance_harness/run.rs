//! Runs the operations of one vector, each by the module that knows it, and looks around when an expectation asks to.

use super::picks::{self, Picks};
use super::pure::{self, Policies};
use super::results::{Results, View};
use super::vector::{Step, Vector};
use super::world::{self, World};
use super::{expect, loader, plant, programs, reclaim, scenarios};
use serde_json::Value;
use std::collections::BTreeSet;

/// Everything that the vector's expectations, and those of a listed deviation, can ask for.
pub fn run(vector: &Vector, listed: &[Value]) -> Result<Results, String> {
    let mut steps = vector.steps.clone();
    world::delay_admissions(&mut steps);
    let probes: BTreeSet<i64> =
        expect::probes(&vector.expect).into_iter().chain(expect::probes(listed)).collect();
    let mut results = Results::default();
    if steps.iter().any(|step| programs::OPS.contains(&step.op.as_str())) {
        let probes: Vec<i64> = probes.into_iter().collect();
        programs::run(&vector.config, &steps, &probes, &mut results)?;
        return Ok(results);
    }
    let mut parts =
        Parts { world: None, policies: Policies::new(&vector.config)?, picks: Picks::new(&vector.config)? };
    let pooled = |op: &str| world::OPS.contains(&op) || reclaim::OPS.contains(&op);
    if steps.iter().any(|step| pooled(&step.op)) {
        parts.world = Some(World::new(&vector.config, &steps)?);
    }
    let mut probes = probes.into_iter().peekable();
    for step in &steps {
        while let Some(ms) = probes.next_if(|ms| *ms < step.at_ms) {
            let view = parts.view(ms)?;
            results.views.insert(ms, view);
        }
        let told = |error| format!("{} at {} ms: {error}", step.op, step.at_ms);
        parts.run(step, &mut results).map_err(told)?;
    }
    for ms in probes {
        let view = parts.view(ms)?;
        results.views.insert(ms, view);
    }
    if let Some(world) = parts.world {
        world.finish(&mut results);
    }
    Ok(results)
}

struct Parts {
    world: Option<World>,
    policies: Policies,
    picks: Picks,
}

impl Parts {
    fn run(&mut self, step: &Step, results: &mut Results) -> Result<(), String> {
        let op = step.op.as_str();
        if let Some(world) =
            self.world.as_mut().filter(|_| world::OPS.contains(&op) || reclaim::OPS.contains(&op))
        {
            world.run(step, results)
        } else if pure::OPS.contains(&op) {
            self.policies.run(step, results)
        } else if picks::OPS.contains(&op) {
            self.picks.run(step, results)
        } else if scenarios::OPS.contains(&op) {
            scenarios::run(step, results)
        } else if reclaim::PURE.contains(&op) {
            reclaim::pure(step, results)
        } else if plant::OPS.contains(&op) {
            plant::run(step, results)
        } else if op == "config" {
            loader::run(step, results)
        } else {
            Err("an operation that nobody knows".to_owned())
        }
    }

    fn view(&mut self, ms: i64) -> Result<View, String> {
        let mut view = match &mut self.world {
            Some(world) => world.view(ms)?,
            None => View::default(),
        };
        view.services.extend(self.picks.services(ms)?);
        if let Some((_, stale)) = self.policies.stale.range(..=ms).next_back() {
            view.gauges.insert("stale_endpoints".to_owned(), Some(*stale));
        }
        Ok(view)
    }
}
