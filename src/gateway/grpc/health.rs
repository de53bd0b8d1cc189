//! `grpc.health.v1.Health/Check`: ready or not, for Envoy's health checks and a kubelet's probes. Not here: `Watch`.

use crate::gateway::state::Gateway;
use std::future::{Ready, ready};
use std::sync::Arc;
use tonic::server::UnaryService;
use tonic::{Response, Status};

/// Which service is asked about; here all are one.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HealthCheckRequest {
    /// Its name.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// How it is.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct HealthCheckResponse {
    /// `SERVING` or `NOT_SERVING`.
    #[prost(int32, tag = "1")]
    pub status: i32,
}

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;

/// The service.
pub struct Health(pub Arc<Gateway>);

impl UnaryService<HealthCheckRequest> for Health {
    type Response = HealthCheckResponse;
    type Future = Ready<Result<Response<HealthCheckResponse>, Status>>;

    fn call(&mut self, _: tonic::Request<HealthCheckRequest>) -> Self::Future {
        let is_ready = !self.0.is_stopping() && self.0.pools().all(|pool| pool.handle.status().ready());
        let status = if is_ready { SERVING } else { NOT_SERVING };
        ready(Ok(Response::new(HealthCheckResponse { status })))
    }
}
