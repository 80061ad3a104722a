//! Errors as clients see them. The whole chain is logged here, once.

use axum::response::Response;
use forebay_base::error_chain::chain;
use forebay_intake::uploads::UploadError;
use forebay_intake::{IntakeError, Shortage};
use http::header::ACCEPT_ENCODING;
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::problem::Problem;

/// Answers a failed request. A fault of the server is logged with the request's id.
pub(crate) fn answer(error: &IntakeError, request: &HeaderMap) -> Response {
    let (status, code) = classify(error);
    // What this build leaves out is no fault.
    if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED {
        let id = request.get("x-request-id").and_then(|id| id.to_str().ok()).unwrap_or("");
        tracing::error!(request_id = id, error = %chain(error), "a request failed");
    }
    let message = match error {
        // Clients see what they can act on. The rest is in the log.
        IntakeError::Catalogue(_)
        | IntakeError::Search(_)
        | IntakeError::Ask(_)
        | IntakeError::OpenDocuments(_)
        | IntakeError::Blob { .. }
        | IntakeError::Upload(UploadError::Io { .. })
        | IntakeError::Read { .. } => {
            format!("{error}; the server's log has the details under the request id")
        }
        _ => chain(error).to_string(),
    };
    let mut response = Problem::new(status, code, message).answer(request);
    if code == "media_type" {
        let kind = HeaderValue::from_static("application/merge-patch+json");
        response.headers_mut().insert("accept-patch", kind);
    } else if status == StatusCode::UNSUPPORTED_MEDIA_TYPE {
        response.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip, zstd"));
    }
    response
}

/// The status and the stable code of an error; also used for the parts of a batch.
pub(crate) fn classify(error: &IntakeError) -> (StatusCode, &'static str) {
    match error.shortage() {
        Some(Shortage::Space) => return (StatusCode::INSUFFICIENT_STORAGE, "storage_full"),
        Some(Shortage::Passing) => return (StatusCode::SERVICE_UNAVAILABLE, "storage_busy"),
        None if error.is_too_large() => return (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
        None => {}
    }
    match error {
        IntakeError::Name(_) => (StatusCode::BAD_REQUEST, "name"),
        IntakeError::Query(_) => (StatusCode::BAD_REQUEST, "query"),
        IntakeError::Attributes(_) => (StatusCode::BAD_REQUEST, "attributes"),
        IntakeError::Rejected { code: code @ ("namespace_not_empty" | "one_place"), .. } => {
            (StatusCode::CONFLICT, code)
        }
        IntakeError::Rejected { code: code @ ("encoding" | "media_type"), .. } => {
            (StatusCode::UNSUPPORTED_MEDIA_TYPE, code)
        }
        IntakeError::Rejected { code: code @ "quota_exceeded", .. } => {
            (StatusCode::FORBIDDEN, code)
        }
        IntakeError::Rejected { code: code @ "no_thumbnail", .. } => {
            (StatusCode::UNPROCESSABLE_ENTITY, code)
        }
        IntakeError::Rejected { code: code @ "not_built", .. } => {
            (StatusCode::NOT_IMPLEMENTED, code)
        }
        IntakeError::Rejected { code: code @ "target", .. } => (StatusCode::CONFLICT, code),
        IntakeError::Rejected { code, .. } => (StatusCode::BAD_REQUEST, code),
        IntakeError::NotFound { .. } => (StatusCode::NOT_FOUND, "not_found"),
        IntakeError::KeyReused => (StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused"),
        IntakeError::KeyInUse => (StatusCode::CONFLICT, "idempotency_key_in_use"),
        IntakeError::Precondition { .. } => (StatusCode::PRECONDITION_FAILED, "precondition"),
        IntakeError::Busy { .. } => (StatusCode::TOO_MANY_REQUESTS, "busy"),
        IntakeError::DatabaseBehind { .. } => (StatusCode::SERVICE_UNAVAILABLE, "database_behind"),
        IntakeError::Body { slow: true, .. } => (StatusCode::REQUEST_TIMEOUT, "body_too_slow"),
        IntakeError::Body { slow: false, .. } => (StatusCode::BAD_REQUEST, "body_incomplete"),
        IntakeError::Append(_)
        | IntakeError::Commit(_)
        | IntakeError::Fenced { .. }
        | IntakeError::ObjectStorage(_)
        | IntakeError::ViewStopped { .. } => (StatusCode::SERVICE_UNAVAILABLE, "storage"),
        IntakeError::Upload(error) => crate::uploads::classify(error),
        IntakeError::Damaged { .. } | IntakeError::ViewDamaged { .. } => {
            (StatusCode::INTERNAL_SERVER_ERROR, "damaged")
        }
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
    }
}

/// Whether a part of a batch that was refused with a code may be stored later.
pub(crate) fn may_pass(code: &str) -> bool {
    matches!(
        code,
        "body_incomplete"
            | "body_too_slow"
            | "busy"
            | "database_behind"
            | "idempotency_key_in_use"
            | "internal"
            | "storage"
            | "storage_busy"
            | "storage_full"
    )
}

#[cfg(test)]
mod tests {
    use http::header::RETRY_AFTER;

    use super::*;

    #[test]
    fn documents_that_the_database_is_too_far_behind_for_may_be_sent_again_later() {
        let error = IntakeError::DatabaseBehind { state: "away", kept: 2, kept_max: 1 };
        assert_eq!(classify(&error), (StatusCode::SERVICE_UNAVAILABLE, "database_behind"));
        let answer = answer(&error, &HeaderMap::new());
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.headers()[RETRY_AFTER], "1");
    }

    #[tokio::test]
    async fn a_damaged_view_is_500_and_names_the_row_and_the_remedy() {
        let error = IntakeError::ViewDamaged {
            view: "the document database",
            found: "the row with id 7".to_owned(),
            remedy: "run `forebay fsck`",
        };
        assert_eq!(classify(&error), (StatusCode::INTERNAL_SERVER_ERROR, "damaged"));
        assert!(!may_pass("damaged"));
        let answer = answer(&error, &HeaderMap::new());
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert!(!answer.headers().contains_key(RETRY_AFTER));
        let body = axum::body::to_bytes(answer.into_body(), 64 << 10).await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["error"]["code"], "damaged");
        let message = "the document database is damaged: the row with id 7; run `forebay fsck`";
        assert_eq!(body["error"]["message"], message);
    }
}
