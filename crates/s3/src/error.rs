//! Errors as S3 clients know them: codes, statuses, and XML with the id of the request.

use axum::body::Body;
use axum::response::Response;
use forebay_base::error_chain::chain;
use forebay_intake::names::NameError;
use forebay_intake::uploads::UploadError;
use forebay_intake::{IntakeError, Shortage};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode};
use s3s::{HttpResponse, S3Error, S3ErrorCode, s3_error};

/// The header in which S3 clients look for the id of a request.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");

/// In the extensions of a response: its ETag is written without quotes, as S3 does in one operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BareTag;

/// In the extensions of a response: its status, where `s3s` says 200.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WithStatus(pub(crate) StatusCode);

/// What a request asks for, as its errors name it.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    /// Path of the request.
    pub(crate) resource: String,
    /// Id of the request.
    pub(crate) id: HeaderValue,
}

/// Converts an error of the intake. A fault of the server is logged here, once.
pub(crate) fn of_intake(error: IntakeError) -> S3Error {
    let mut converted = S3Error::with_message(code(&error), message(&error));
    if error.shortage() == Some(Shortage::Space) {
        converted.set_status_code(StatusCode::INSUFFICIENT_STORAGE);
    } else if matches!(error, IntakeError::Rejected { code: "quota_exceeded", .. }) {
        converted.set_status_code(StatusCode::FORBIDDEN);
    }
    if converted.status_code().is_some_and(|status| status.is_server_error()) {
        tracing::error!(error = %chain(&error), "an S3 request failed");
    }
    converted
}

fn code(error: &IntakeError) -> S3ErrorCode {
    match error.shortage() {
        Some(Shortage::Space) => return S3ErrorCode::Custom("StorageFull".into()),
        Some(Shortage::Passing) => return S3ErrorCode::ServiceUnavailable,
        None if error.is_too_large() => return S3ErrorCode::EntityTooLarge,
        None => {}
    }
    match error {
        IntakeError::Name(NameError::TooLong { .. }) => S3ErrorCode::KeyTooLongError,
        IntakeError::Name(_) => S3ErrorCode::InvalidArgument,
        IntakeError::Rejected { code: "quota_exceeded", .. } => {
            S3ErrorCode::Custom("QuotaExceeded".into())
        }
        IntakeError::Rejected { code: "namespaces", .. } => S3ErrorCode::TooManyBuckets,
        IntakeError::Rejected { .. } | IntakeError::Attributes(_) => S3ErrorCode::InvalidRequest,
        IntakeError::NotFound { .. } => S3ErrorCode::NoSuchKey,
        IntakeError::Precondition { .. } => S3ErrorCode::PreconditionFailed,
        IntakeError::Busy { .. } => S3ErrorCode::SlowDown,
        IntakeError::Body { slow: true, .. } => S3ErrorCode::RequestTimeout,
        IntakeError::Body { slow: false, .. } => S3ErrorCode::IncompleteBody,
        // A part arrived while its upload was completed or aborted.
        IntakeError::Upload(
            UploadError::NotFound { .. }
            | UploadError::Finished { .. }
            | UploadError::Interrupted { .. },
        ) => S3ErrorCode::NoSuchUpload,
        IntakeError::Append(_)
        | IntakeError::Commit(_)
        | IntakeError::Fenced { .. }
        | IntakeError::ObjectStorage(_)
        | IntakeError::ViewStopped { .. } => S3ErrorCode::ServiceUnavailable,
        _ => S3ErrorCode::InternalError,
    }
}

/// Clients see what they can act on; the rest is in the log.
fn message(error: &IntakeError) -> String {
    match error {
        IntakeError::Catalogue(_)
        | IntakeError::Blob { .. }
        | IntakeError::Read { .. }
        | IntakeError::Damaged { .. }
        | IntakeError::ViewDamaged { .. } => {
            "The server failed on this request; its log has the details".to_owned()
        }
        _ => chain(error).to_string(),
    }
}

/// Returns the response to a request that fails.
pub(crate) fn response(error: S3Error, subject: &Subject) -> Response {
    let status = error.status_code().unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    match error.to_http_response() {
        Ok(response) => finish(response, subject),
        Err(error) => {
            tracing::error!(%error, "an S3 error cannot be written as XML");
            let mut response = Response::new(Body::empty());
            *response.status_mut() = status;
            response
        }
    }
}

/// Completes a response: the id of its request everywhere, and what an error is about.
pub(crate) fn finish(response: HttpResponse, subject: &Subject) -> Response {
    let (mut parts, body) = response.into_parts();
    parts.headers.insert(REQUEST_ID, subject.id.clone());
    if let Some(WithStatus(status)) = parts.extensions.remove() {
        parts.status = status;
    }
    let status = parts.status;
    if status == StatusCode::NOT_MODIFIED {
        parts.headers.remove(CONTENT_TYPE);
        parts.headers.remove(CONTENT_LENGTH);
        return Response::from_parts(parts, Body::empty());
    }
    if status == StatusCode::SERVICE_UNAVAILABLE {
        parts.headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if parts.extensions.remove::<BareTag>().is_some()
        && let Some(text) = body.bytes()
    {
        parts.headers.remove(CONTENT_LENGTH);
        return Response::from_parts(parts, Body::from(bare(&text)));
    }
    let is_error = status.is_client_error() || status.is_server_error();
    let Some(text) = body.bytes().filter(|_| is_error) else {
        return Response::from_parts(parts, Body::new(body));
    };
    let Some(end) = text.windows(END.len()).rposition(|found| found == END) else {
        return Response::from_parts(parts, Body::new(body));
    };
    let mut whole = text.slice(..end).to_vec();
    if let Some(message) = missing_message(&text) {
        whole.extend_from_slice(format!("<Message>{message}</Message>").as_bytes());
    }
    let id = subject.id.to_str().unwrap_or_default();
    for (name, value) in [("Resource", subject.resource.as_str()), ("RequestId", id)] {
        whole.extend_from_slice(format!("<{name}>{}</{name}>", escape(value)).as_bytes());
    }
    whole.extend_from_slice(END);
    // An error with headers of its own comes without this one.
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    parts.headers.remove(CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(whole))
}

/// Returns the message of an error that came without one.
fn missing_message(xml: &[u8]) -> Option<&'static str> {
    let text = std::str::from_utf8(xml).ok()?;
    if text.contains("<Message>") {
        return None;
    }
    let (_, rest) = text.split_once("<Code>")?;
    Some(match rest.split_once("</Code>")?.0 {
        "SignatureDoesNotMatch" => {
            "The request signature we calculated does not match the signature you provided. Check your \
             key and signing method."
        }
        "InvalidBucketName" => "The specified bucket is not valid.",
        "InvalidURI" => "Couldn't parse the specified URI.",
        "KeyTooLongError" => "Your key is too long",
        "MalformedXML" => {
            "The XML you provided was not well-formed or did not validate against our published schema."
        }
        "MissingRequestBodyError" => "Request Body is empty",
        "MissingContentLength" => "You must provide the Content-Length HTTP header.",
        "MethodNotAllowed" => "The specified method is not allowed against this resource.",
        "IncompleteBody" => {
            "You did not provide the number of bytes specified by the Content-Length HTTP header"
        }
        "InternalError" => "The server failed on this request; its log has the details",
        _ => return None,
    })
}

/// Removes the quotes of the first ETag.
fn bare(xml: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(xml);
    match text
        .split_once("<ETag>")
        .and_then(|(head, rest)| Some((head, rest.split_once("</ETag>")?)))
    {
        Some((head, (tag, rest))) => {
            let tag = tag.replace("&quot;", "").replace('"', "");
            format!("{head}<ETag>{tag}</ETag>{rest}").into_bytes()
        }
        None => xml.to_vec(),
    }
}

/// The end of every error.
const END: &[u8] = b"</Error>";

/// Escapes text for XML, and leaves out what XML cannot contain.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars().take(2_048) {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            c if c.is_control() || matches!(c, '\u{FFFE}' | '\u{FFFF}') => {}
            c => escaped.push(c),
        }
    }
    escaped
}

/// The body ended before what was announced.
pub(crate) fn incomplete(what: &'static str) -> S3Error {
    s3_error!(IncompleteBody, "{what}")
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    fn subject() -> Subject {
        let resource = "/a/<b>&\u{7}".to_owned();
        Subject { resource, id: HeaderValue::from_static("r-1") }
    }

    #[tokio::test]
    async fn an_error_names_what_was_asked_for_and_its_request() {
        let mut error = s3_error!(NoSuchKey, "there is none");
        let extra = HeaderValue::from_static("true");
        error.set_headers(
            [(HeaderName::from_static("x-amz-delete-marker"), extra)].into_iter().collect(),
        );
        let response = response(error, &subject());
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        assert_eq!(response.headers()[REQUEST_ID], "r-1");
        assert_eq!(response.headers()[CONTENT_TYPE], "application/xml");
        assert_eq!(response.headers()["x-amz-delete-marker"], "true");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        let end = "<Resource>/a/&lt;b&gt;&amp;</Resource><RequestId>r-1</RequestId></Error>";
        assert!(text.ends_with(end), "{text}");
        assert!(text.contains("<Code>NoSuchKey</Code>"), "{text}");
    }

    #[tokio::test]
    async fn what_has_not_changed_has_no_body() {
        let response = response(s3_error!(NotModified), &subject());
        assert_eq!(response.status(), StatusCode::NOT_MODIFIED);
        assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
    }

    #[test]
    fn a_part_that_races_with_the_end_of_its_upload_is_no_fault_of_the_server() {
        let id = forebay_intake::uploads::UploadId::default();
        for error in [UploadError::NotFound { id }, UploadError::Interrupted { id, offset: 9 }] {
            assert_eq!(of_intake(error.into()).status_code(), Some(StatusCode::NOT_FOUND));
        }
    }

    #[test]
    fn a_full_disk_is_507_and_a_busy_server_503() {
        let busy = of_intake(IntakeError::Busy { what: "too many" });
        assert_eq!(busy.status_code(), Some(StatusCode::SERVICE_UNAVAILABLE));
        let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let full = of_intake(IntakeError::Blob { act: "write", source });
        assert_eq!(full.status_code(), Some(StatusCode::INSUFFICIENT_STORAGE));
        assert!(!full.message().unwrap_or_default().contains("blob"));
    }

    #[test]
    fn a_damaged_view_is_500_without_what_the_log_says_of_it() {
        let damaged = of_intake(IntakeError::ViewDamaged {
            view: "the catalogue",
            found: "the row \"notes/secret\"".to_owned(),
            remedy: "restart the server",
        });
        assert_eq!(damaged.status_code(), Some(StatusCode::INTERNAL_SERVER_ERROR));
        assert_eq!(*damaged.code(), S3ErrorCode::InternalError);
        let message = damaged.message().unwrap();
        assert!(!message.contains("secret") && message.contains("log"), "{message}");
    }
}
