//! Why a request for an upload is refused, as clients see it.

use axum::response::Response;
use forebay_intake::IntakeError;
use forebay_intake::uploads::UploadError;
use http::{HeaderMap, StatusCode};

use super::headers::OFFSET;
use crate::intake;
use crate::problem::Problem;

/// A request that is refused.
#[derive(Debug)]
pub(super) enum Refused {
    /// The request itself is wrong.
    Http(Problem),
    /// The intake refused it.
    Intake(IntakeError),
}

impl From<IntakeError> for Refused {
    fn from(error: IntakeError) -> Self {
        Self::Intake(error)
    }
}

impl From<UploadError> for Refused {
    fn from(error: UploadError) -> Self {
        Self::Intake(error.into())
    }
}

impl Refused {
    pub(super) fn http(status: StatusCode, code: &'static str, text: impl Into<String>) -> Self {
        Self::Http(Problem::new(status, code, text))
    }

    pub(super) fn bad(code: &'static str, text: impl Into<String>) -> Self {
        Self::Http(Problem::bad(code, text))
    }

    /// Returns the response. Where the upload ends is in it, if the client has to know.
    pub(super) fn answer(self, request: &HeaderMap) -> Response {
        let error = match self {
            Self::Http(problem) => return problem.answer(request),
            // Clients of this protocol repeat a request after 503, not after 429.
            Self::Intake(IntakeError::Busy { what }) => {
                let text = format!("{what}; try again later");
                return Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", text).answer(request);
            }
            Self::Intake(error) => error,
        };
        let mut response = intake::refuse(&error, request);
        if let IntakeError::Upload(
            UploadError::Offset { expected: offset, .. }
            | UploadError::Interrupted { offset, .. }
            | UploadError::Source { offset, .. },
        ) = error
        {
            response.headers_mut().insert(OFFSET, offset.into());
        }
        response
    }
}

/// The status and the stable code of an error.
pub(crate) fn classify(error: &UploadError) -> (StatusCode, &'static str) {
    /// Of the extension "checksum"; it has no registered name.
    const CHECKSUM_MISMATCH: u16 = 460;
    match error {
        UploadError::NotFound { .. } => (StatusCode::NOT_FOUND, "not_found"),
        UploadError::Damaged { .. } => (StatusCode::GONE, "upload_damaged"),
        UploadError::Offset { .. } => (StatusCode::CONFLICT, "upload_offset"),
        UploadError::Checksum { .. } => (
            StatusCode::from_u16(CHECKSUM_MISMATCH).unwrap_or(StatusCode::BAD_REQUEST),
            "upload_checksum",
        ),
        UploadError::Interrupted { .. } => (StatusCode::CONFLICT, "upload_interrupted"),
        UploadError::InUse { .. } => (StatusCode::LOCKED, "upload_in_use"),
        UploadError::Finished { .. } => (StatusCode::CONFLICT, "upload_finished"),
        UploadError::Incomplete { .. } => (StatusCode::CONFLICT, "upload_incomplete"),
        UploadError::Length { .. } => (StatusCode::CONFLICT, "upload_length"),
        UploadError::TooLong { .. } | UploadError::TooLarge { .. } => {
            (StatusCode::PAYLOAD_TOO_LARGE, "too_large")
        }
        UploadError::Attributes { .. } => (StatusCode::BAD_REQUEST, "upload_metadata"),
        UploadError::TooMany { .. } => (StatusCode::TOO_MANY_REQUESTS, "uploads_full"),
        UploadError::NoRoom { .. } => (StatusCode::INSUFFICIENT_STORAGE, "uploads_full"),
        UploadError::Source { source, .. } => intake::classify(source),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
    }
}
