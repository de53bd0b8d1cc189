//! `GET /admin/config`: the settings that decide, as the log holds them, and how the last reload went.

use super::super::answer;
use super::super::json::Object;
use super::super::problem::Fault;
use super::super::state::Gateway;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use weir_log::describe::show_time;

/// A pool's settings.
struct InForce {
    pool: String,
    /// Canonical JSON.
    policy: String,
    objectives: Vec<(String, i32)>,
    seq: u64,
}

/// `GET /admin/config`
pub async fn show(State(gateway): State<Arc<Gateway>>) -> Result<Response, Fault> {
    let mut pools = Vec::new();
    for pool in gateway.pools() {
        let see = |state: &weir_kernel::State| {
            let objectives = state.objectives().map(|(name, priority)| (name.to_owned(), priority));
            (state.policy().to_canonical_json(), objectives.collect::<Vec<_>>(), state.seq())
        };
        let (policy, objectives, seq) = pool.handle.query(see).await.map_err(answer::unavailable)?;
        pools.push(InForce { pool: pool.handle.name().to_owned(), policy, objectives, seq });
    }
    let body = Object::new().list("pools", &pools, |object, in_force| {
        object
            .text("pool", &in_force.pool)
            .plain("sequence", in_force.seq)
            // The digest of the log's own `PolicyChanged`.
            .text("policyDigest", &hex(&Sha256::digest(in_force.policy.as_bytes())))
            .plain("policy", &in_force.policy)
            .list("objectives", &in_force.objectives, |object, (name, priority)| {
                object.text("name", name).plain("priority", priority)
            })
    });
    let body = match gateway.upkeep.last_reload() {
        None => body,
        Some(reload) => body.object("lastReload", |object| {
            object
                .text("at", &show_time(reload.at))
                .plain("count", reload.count)
                .plain("ok", reload.error.is_none())
                .text_opt("error", reload.error.as_deref())
        }),
    };
    Ok(answer::json(StatusCode::OK, body.finish()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
