//! A refusal as Envoy is told it, before it is JSON or protobuf.

use crate::engine::{Refused, Revocation};
use crate::gateway::answer::{self, DROPPED, LLM_D_DROPPED};
use crate::gateway::json::Object;
use crate::gateway::problem::Fault;
use http::StatusCode;
use weir_kernel::RequestId;

/// Status, headers and body of a refusal, the same as those of a held admission.
#[derive(Debug)]
pub struct Denial {
    /// The status.
    pub status: StatusCode,
    /// Our word for why.
    pub reason: &'static str,
    llm_d: &'static str,
    retry_after: Option<String>,
    /// `application/problem+json`.
    pub body: Vec<u8>,
}

impl Denial {
    /// Of a request that was decided about.
    pub fn refused(pool: &str, caller_id: &str, refused: &Refused) -> Self {
        let (status, reason, llm_d) = answer::reason_status(refused.reason);
        let retry_after = refused.retry_after.map(|seconds| seconds.to_string());
        Denial { status, reason, llm_d, retry_after, body: answer::refusal_body(pool, caller_id, refused) }
    }

    /// Of a request that was taken back while it ran.
    pub fn revoked(pool: &str, caller_id: &str, request: RequestId, revocation: &Revocation) -> Self {
        let (status, reason, llm_d) = answer::reason_status(revocation.reason());
        let body = answer::revoked_body(pool, caller_id, request, revocation);
        Denial { status, reason, llm_d, retry_after: None, body }
    }

    /// Of a request that nothing could be decided about, or whose headers are not allowed.
    pub fn fault(fault: &Fault, caller_id: Option<&str>) -> Self {
        let (status, reason, llm_d) = answer::fault_status(fault);
        let body = answer::fault_members(Object::new(), fault, caller_id).finish();
        Denial { status, reason, llm_d, retry_after: None, body }
    }

    /// Its headers.
    pub fn headers(&self) -> Vec<(&'static str, &str)> {
        let mut headers = vec![
            ("content-type", "application/problem+json"),
            (DROPPED, self.reason),
            (LLM_D_DROPPED, self.llm_d),
        ];
        headers.extend(self.retry_after.as_deref().map(|seconds| ("retry-after", seconds)));
        headers
    }

    /// What Envoy's access log shows as `%RESPONSE_CODE_DETAILS%`.
    pub fn details(&self) -> String {
        format!("weir_{}", self.reason)
    }

    /// The code that a caller who speaks gRPC is given.
    pub fn grpc_code(&self) -> tonic::Code {
        match self.status.as_u16() {
            429 => tonic::Code::ResourceExhausted,
            503 => tonic::Code::Unavailable,
            403 => tonic::Code::PermissionDenied,
            404 => tonic::Code::NotFound,
            400..=499 => tonic::Code::InvalidArgument,
            _ => tonic::Code::Internal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_kernel::{Micros, Outcome, Reason, Regime};

    fn refused(reason: Reason, retry_after: Option<u8>) -> Refused {
        Refused {
            id: RequestId(9),
            seq: 10,
            outcome: Outcome::RejectedCapacity,
            reason,
            regime: Regime::HasEndpoints,
            waited: Micros(0),
            priority: -1,
            retry_after,
            limit: None,
            cause: None,
            repeated: false,
        }
    }

    #[test]
    fn a_refusal_carries_what_the_held_face_carries() {
        let denial = Denial::refused("p", "r\"1", &refused(Reason::BandLimit, Some(3)));
        assert_eq!((denial.status.as_u16(), denial.grpc_code()), (429, tonic::Code::ResourceExhausted));
        assert_eq!(denial.details(), "weir_rejected-band-limit");
        let want = [
            ("content-type", "application/problem+json"),
            ("x-weir-dropped-reason", "rejected-band-limit"),
            ("x-llm-d-request-dropped-reason", "rejected-saturated"),
            ("retry-after", "3"),
        ];
        assert_eq!(denial.headers(), want);
        let problem: serde_json::Value = serde_json::from_slice(&denial.body).unwrap();
        assert_eq!(problem["requestId"], "r\"1");
        assert_eq!(problem["outcome"], "RejectedCapacity");
    }

    #[test]
    fn a_refusal_without_a_figure_gives_none() {
        let denial = Denial::refused("p", "", &refused(Reason::NoEndpoints, None));
        assert_eq!((denial.status.as_u16(), denial.grpc_code()), (503, tonic::Code::Unavailable));
        assert!(denial.headers().iter().all(|(name, _)| *name != "retry-after"));
        let fault = Denial::fault(&Fault::Internal("x".to_owned()), Some("r"));
        assert_eq!((fault.status.as_u16(), fault.reason), (500, "rejected-internal"));
        assert_eq!(fault.grpc_code(), tonic::Code::Internal);
    }
}
