//! The header `Idempotency-Key`: read once, and refused where requests are not remembered.
//!
//! Invariant: a request with a key is remembered under it, or is refused; the key is never ignored.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, HeaderValue};

use crate::problem::Problem;

/// Its name.
pub(crate) const HEADER: &str = "idempotency-key";

/// Why two of them are refused.
pub(crate) const SEVERAL: &str = "a request can have only one Idempotency-Key";

/// Returns its value.
///
/// # Errors
/// [`SEVERAL`]: there is more than one.
pub(crate) fn key(headers: &HeaderMap) -> Result<Option<&HeaderValue>, &'static str> {
    let mut values = headers.get_all(HEADER).iter();
    match (values.next(), values.next()) {
        (key, None) => Ok(key),
        (_, Some(_)) => Err(SEVERAL),
    }
}

/// Refuses requests with a key: put around routes that carry out every request they get.
pub(crate) async fn refuse(request: Request, next: Next) -> Response {
    if request.method().is_safe() || !request.headers().contains_key(HEADER) {
        return next.run(request).await;
    }
    let text = "requests to this route are not remembered, so they take no Idempotency-Key";
    let id = request.headers().get("x-request-id").cloned();
    let id = id.unwrap_or_else(|| HeaderValue::from_static(""));
    Problem::bad("idempotency_key", text).response(&id)
}
