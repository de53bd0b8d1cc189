//! Which service a call is for, and what its metadata says.

use super::health::{Health, HealthCheckRequest, HealthCheckResponse};
use crate::gateway::ask;
use crate::gateway::auth::{Actor, Peer};
use crate::gateway::envoy::Pace;
use crate::gateway::ext_authz::message::{CheckRequest, CheckResponse};
use crate::gateway::ext_authz::{self, Authorization};
use crate::gateway::ext_proc_grpc::message::{ProcessingRequest, ProcessingResponse};
use crate::gateway::ext_proc_grpc::{Answers, Call, Processor};
use crate::gateway::problem::Fault;
use crate::gateway::state::Gateway;
use crate::gateway::trace::traceparent;
use crate::gateway::wire_time::grpc_timeout;
use http::Request;
use hyper::body::Incoming;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use tonic::metadata::MetadataMap;
use tonic::server::{Grpc, StreamingService, UnaryService};
use tonic::{Response, Status, Streaming};
use tonic_prost::ProstCodec;
use weir_kernel::{Micros, Trace};

/// The smallest bound on a message: what a gRPC client takes for granted.
const MESSAGE_MIN: usize = 4 << 20;

/// Room for what is around a body in a message.
const AROUND: usize = 64 << 10;

/// Everything that is served.
#[derive(Clone, Debug)]
pub struct Services {
    gateway: Arc<Gateway>,
    processor: Arc<Processor>,
    message_max: usize,
}

impl Services {
    /// Over a gateway.
    pub fn new(gateway: Arc<Gateway>) -> Self {
        let body = usize::try_from(gateway.options.body_bytes_max).unwrap_or(usize::MAX);
        let message_max = body.saturating_add(AROUND).max(MESSAGE_MIN);
        Services { processor: Arc::new(Processor::new(Arc::clone(&gateway))), gateway, message_max }
    }

    /// Answers one call.
    pub async fn call(
        &self,
        mut request: Request<Incoming>,
        pace: Pace,
        peer: Option<&Peer>,
    ) -> http::Response<tonic::body::Body> {
        // Probes are for anybody.
        if request.uri().path() != HEALTH {
            match self.gateway.guard.rpc(request.headers_mut(), peer) {
                Ok(Some(actor)) => drop(request.extensions_mut().insert(actor)),
                Ok(None) => {}
                Err(fault) => {
                    self.gateway.turned_away(&fault);
                    return refused(&fault).into_http();
                }
            }
        }
        match request.uri().path() {
            "/envoy.service.ext_proc.v3.ExternalProcessor/Process" => {
                let codec = ProstCodec::<ProcessingResponse, ProcessingRequest>::default();
                let service = Process { processor: Arc::clone(&self.processor), pace };
                let mut grpc = Grpc::new(codec).max_decoding_message_size(self.message_max);
                grpc.streaming(service, request).await
            }
            "/envoy.service.auth.v3.Authorization/Check" => {
                let codec = ProstCodec::<CheckResponse, CheckRequest>::default();
                let mut grpc = Grpc::new(codec).max_decoding_message_size(self.message_max);
                grpc.unary(Check(Authorization::new(Arc::clone(&self.gateway), pace)), request).await
            }
            HEALTH => {
                let codec = ProstCodec::<HealthCheckResponse, HealthCheckRequest>::default();
                Grpc::new(codec).unary(Health(Arc::clone(&self.gateway)), request).await
            }
            path => {
                tracing::debug!(path, "a gRPC call for a service that is not here");
                Status::unimplemented("not served here").into_http()
            }
        }
    }
}

const HEALTH: &str = "/grpc.health.v1.Health/Check";

fn refused(fault: &Fault) -> Status {
    match fault {
        Fault::Unauthenticated { .. } => Status::unauthenticated(fault.to_string()),
        _ => Status::permission_denied(fault.to_string()),
    }
}

/// What the metadata of a call says.
struct Metadata {
    /// The pool that Envoy's settings name (`initial_metadata`).
    pool: Option<String>,
    trace: Option<Trace>,
    timeout: Option<Micros>,
}

impl Metadata {
    fn read(map: &MetadataMap) -> Result<Self, Status> {
        let pool = map.get("x-weir-pool").map(|pool| ask::label("x-weir-pool", pool.as_bytes())).transpose();
        let timeout =
            map.get("grpc-timeout").and_then(|timeout| timeout.to_str().ok()).and_then(grpc_timeout);
        Ok(Metadata {
            pool: pool.map_err(|invalid| Status::invalid_argument(invalid.to_string()))?,
            trace: map.get("traceparent").and_then(|value| traceparent(value.as_bytes())),
            timeout,
        })
    }
}

struct Process {
    processor: Arc<Processor>,
    pace: Pace,
}

impl StreamingService<ProcessingRequest> for Process {
    type Response = ProcessingResponse;
    type ResponseStream = Answers;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: tonic::Request<Streaming<ProcessingRequest>>) -> Self::Future {
        let Metadata { pool, trace, .. } = match Metadata::read(request.metadata()) {
            Ok(metadata) => metadata,
            Err(status) => return ready(Err(status)),
        };
        let actor = request.extensions().get::<Actor>().cloned();
        let call = Call { pool, trace, pace: self.pace.clone(), actor };
        ready(Ok(Response::new(self.processor.process(call, request.into_inner()))))
    }
}

struct Check(Authorization);

impl UnaryService<CheckRequest> for Check {
    type Response = CheckResponse;
    type Future = Pin<Box<dyn Future<Output = Result<Response<CheckResponse>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<CheckRequest>) -> Self::Future {
        let authorization = self.0.clone();
        Box::pin(async move {
            let Metadata { pool, trace, timeout } = Metadata::read(request.metadata())?;
            let actor = request.extensions().get::<Actor>().cloned();
            let call = ext_authz::Call { pool, trace, patience: timeout, actor };
            Ok(Response::new(authorization.check(call, request.into_inner()).await))
        })
    }
}
