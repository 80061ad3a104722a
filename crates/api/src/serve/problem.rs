//! The errors of the server itself, and those that routers make, in the form of [`Problem`].

use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};

use crate::answer;
use crate::problem::{Problem, ProblemBody};

/// Maximum size of a handler's plain-text error that is kept.
const MESSAGE_SIZE_MAX: usize = 4096;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The errors of the server around the handlers.
impl Problem {
    pub(super) const NOT_FOUND: Self =
        Self::fixed(StatusCode::NOT_FOUND, "not_found", "no such path; /docs lists every route");
    pub(super) const METHOD: Self = Self::fixed(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "this route does not support this method; the Allow header lists the supported ones",
    );
    pub(super) const STARTING: Self = Self::fixed(
        StatusCode::SERVICE_UNAVAILABLE,
        "starting",
        "the server is still opening its data",
    );
    pub(super) const STOPPING: Self =
        Self::fixed(StatusCode::SERVICE_UNAVAILABLE, "stopping", "the server is shutting down");
    pub(super) const BUSY: Self = Self::fixed(
        StatusCode::TOO_MANY_REQUESTS,
        "too_many_requests",
        "the number of requests in progress has reached server.requests_in_flight_max",
    );
    pub(super) const CLIENT_BUSY: Self = Self::fixed(
        StatusCode::TOO_MANY_REQUESTS,
        "too_many_requests_of_client",
        "this address or API key has reached its share of the requests in progress; see \
         server.client_share_max",
    );
    pub(super) const PART: Self = Self::fixed(
        StatusCode::BAD_REQUEST,
        "content_range",
        "a part cannot be stored: send the whole body, without Content-Range",
    );
    pub(super) const DIGEST: Self = Self::fixed(
        StatusCode::BAD_REQUEST,
        "digest",
        "this route does not compare the body with a digest: omit Content-Digest, Repr-Digest and \
         Content-MD5; uploads in parts have Upload-Checksum",
    );
    pub(super) const FOLLOWERS: Self = Self::fixed(
        StatusCode::TOO_MANY_REQUESTS,
        "too_many_followers",
        "the clients that follow documents, events or jobs have reached their share of the \
         connections; see server.followers_share_max",
    );
    pub(super) const CONNECTIONS: Self = Self::fixed(
        StatusCode::SERVICE_UNAVAILABLE,
        "too_many_connections",
        "the number of open connections has reached server.connections_max",
    );
    pub(super) const KEY_MISSING: Self = Self::fixed(
        StatusCode::UNAUTHORIZED,
        "key_missing",
        "send an API key as 'Authorization: Bearer fbk_...' or 'X-API-Key: fbk_...'",
    );
    pub(super) const KEY_UNKNOWN: Self =
        Self::fixed(StatusCode::UNAUTHORIZED, "key_unknown", "this API key is not valid");
    pub(super) const KEY_SCOPE: Self = Self::fixed(
        StatusCode::FORBIDDEN,
        "key_scope",
        "this API key lacks the scope for this request",
    );
    pub(crate) const KEY_LIMIT: Self = Self::fixed(
        StatusCode::FORBIDDEN,
        "key_limit",
        "this API key is limited to other names, or the request does not name exactly one",
    );
    pub(super) const PRESIGN_INVALID: Self = Self::fixed(
        StatusCode::FORBIDDEN,
        "presign_invalid",
        "this URL was not signed by this server for this request, or its API key was revoked",
    );
    pub(super) const PRESIGN_EXPIRED: Self =
        Self::fixed(StatusCode::FORBIDDEN, "presign_expired", "this URL has expired");
    pub(super) const PRESIGN_HEADER: Self = Self::fixed(
        StatusCode::FORBIDDEN,
        "presign_header",
        "a presigned URL takes no Forebay-… headers: metadata and tags are not signed",
    );
    pub(super) const PRESIGN_LENGTH: Self = Self::fixed(
        StatusCode::LENGTH_REQUIRED,
        "presign_length",
        "this URL limits the size: send Content-Length, and Upload-Length to begin an upload",
    );
    pub(super) const PRESIGN_ENCODING: Self = Self::fixed(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "encoding",
        "this URL limits the size, so it takes no Content-Encoding",
    );
    pub(super) const BODY_SLOW: Self = Self::fixed(
        StatusCode::REQUEST_TIMEOUT,
        "body_too_slow",
        "the request body arrived too slowly; see server.body_idle_timeout and server.rate_min",
    );
    pub(super) const FORM: Self =
        Self::fixed(StatusCode::BAD_REQUEST, "form", "cannot read the form");
    pub(super) const HOST_MALFORMED: Self = Self::fixed(
        StatusCode::BAD_REQUEST,
        "host_malformed",
        "send exactly one Host header with the name or address of this server",
    );
    pub(super) const HOST_UNKNOWN: Self = Self::fixed(
        StatusCode::MISDIRECTED_REQUEST,
        "host_unknown",
        "the Host header does not name this server; add the name to server.hosts",
    );
    pub(super) const ORIGIN: Self = Self::fixed(
        StatusCode::FORBIDDEN,
        "origin",
        "pages of other origins may not send requests to this server; see server.cors_origins",
    );
    pub(crate) const INTERNAL: Self = Self::fixed(
        StatusCode::INTERNAL_SERVER_ERROR,
        "internal",
        "the server failed on this request; the server's log has the details under the request id",
    );

    /// Returns whether another key, or a login, may help.
    pub(super) fn asks_for_key(&self) -> bool {
        self.status() == StatusCode::UNAUTHORIZED
    }

    /// Returns a complete HTTP/1.1 message for a connection that is refused before a request is
    /// read.
    pub(super) fn raw(&self) -> String {
        let body = answer::line(&self.body(&HeaderValue::from_static("-")));
        let (status, retry) = (self.status(), self.retry_after().unwrap_or("1"));
        format!(
            "HTTP/1.1 {} {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             retry-after: {retry}\r\nconnection: close\r\n\r\n{body}",
            status.as_u16(),
            status.canonical_reason().unwrap_or(""),
            body.len(),
        )
    }
}

/// Converts an error response that is empty or plain text to the common JSON form.
///
/// Routers make some error responses themselves (an extractor's rejection, a body over a limit);
/// their text becomes the message, their other headers are kept.
pub(super) async fn normalise(response: Response, method: &Method, id: &HeaderValue) -> Response {
    let status = response.status();
    let is_text = response
        .headers()
        .get(CONTENT_TYPE)
        .is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"));
    if !(status.is_client_error() || status.is_server_error()) || !is_text || method == Method::HEAD
    {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let text = axum::body::to_bytes(body, MESSAGE_SIZE_MAX).await.unwrap_or_default();
    let reason = status.canonical_reason().unwrap_or("error");
    let text = String::from_utf8_lossy(&text);
    let message = if text.trim().is_empty() { reason } else { text.trim() };
    let code = reason.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    parts.headers.insert(CONTENT_TYPE, JSON);
    parts.headers.remove(CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(answer::line(&ProblemBody::new(&code, message, id))))
}
