//! One segment of a path, as a caller wrote it.

use super::problem::{Fault, Invalid};
use axum::extract::{FromRequestParts, Path};
use http::request::Parts;

/// The only variable segment of the path, percent-decoded.
pub struct Segment(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Fault> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(text)) => Ok(Segment(text)),
            Err(_) => Err(Invalid::new("path", parts.uri.path(), "percent-encoded UTF-8").into()),
        }
    }
}
