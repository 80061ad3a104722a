//! Request parameters and responses shared by all routes.

use std::io;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use forebay_base::waiting::Waiting;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use serde::Serialize;
use tokio::sync::mpsc::Receiver;

use crate::problem::Problem;
use crate::query;

/// Number of headers of the answer to an upload: there is room for them from the beginning. More room would
/// be a block of more than 1 KiB, for which glibc's allocator takes a lock.
const HEADERS_USUAL: usize = 6;

/// Returns an answer as one line of JSON, without a line end.
pub(crate) fn line(body: &impl Serialize) -> String {
    serde_json::to_string(body).expect("an answer has only text keys and finite numbers")
}

/// Returns a JSON response.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    encoded(status, line(body))
}

/// Returns a JSON response whose body is encoded already.
pub(crate) fn encoded(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.reserve(HEADERS_USUAL);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns a page that shows what was found, or with the status of a problem what the problem is.
pub(crate) fn found_or_problem<T>(
    found: Result<T, Problem>,
    policy: &'static str,
    page: impl FnOnce(&Result<T, String>) -> String,
) -> Response {
    let status = found.as_ref().err().map_or(StatusCode::OK, Problem::status);
    let mut response = html(page(&found.map_err(Problem::into_message)), policy);
    *response.status_mut() = status;
    response
}

/// Returns a response that says no more than that the request was carried out.
pub(crate) fn no_content() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// Makes a response one that says that the client has the content already.
///
/// Its body has no known length, so that no `Content-Length` of 0 is added for HEAD: there it would be
/// that of the content (RFC 9110, section 8.6).
pub(crate) fn unchanged(mut response: Response) -> Response {
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    *response.body_mut() = Body::from_stream(futures_util::stream::empty::<io::Result<Bytes>>());
    response
}

/// What a page may load, and that no page may frame it; without forms.
pub(crate) const PAGE: &str = "default-src 'none'; style-src 'self'; img-src data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// The same with forms that lead to this server.
pub(crate) const PAGE_WITH_FORMS: &str = "default-src 'none'; style-src 'self'; img-src data:; \
    base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Returns an HTML page.
pub(crate) fn html(text: String, policy: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Whether a browser asks for a page; other clients that accept anything get data.
pub(crate) fn wants_page(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let mut kinds = accept.split(',').filter_map(|kind| kind.split(';').next());
    kinds.any(|kind| kind.trim().eq_ignore_ascii_case("text/html"))
}

/// Returns data that browsers get as a page, which caches have to distinguish.
pub(crate) fn varied(mut response: Response) -> Response {
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    response
}

/// Returns a permanent redirect.
pub(crate) fn moved(to: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    if let Ok(to) = HeaderValue::try_from(to) {
        response.headers_mut().insert(LOCATION, to);
    }
    response
}

/// Returns a response of lines, one JSON object each, as a thread produces them. `waiting` signals
/// to the thread that the client has disconnected.
pub(crate) fn streamed_lines(from: Receiver<io::Result<Bytes>>, waiting: Waiting) -> Response {
    let pieces = futures_util::stream::unfold((from, waiting), |(mut from, waiting)| async move {
        from.recv().await.map(|piece| (piece, (from, waiting)))
    });
    lines(Body::from_stream(pieces))
}

/// Returns a response of lines, one JSON object each.
pub(crate) fn lines(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Returns the response, or that of the problem.
pub(crate) fn answer(result: Result<Response, Problem>, request: &HeaderMap) -> Response {
    result.unwrap_or_else(|problem| problem.answer(request))
}

/// Returns whether a client accepts one JSON object per line.
pub(crate) fn wants_lines(request: &HeaderMap) -> bool {
    request.get_all(ACCEPT).iter().any(|accept| {
        let accept = accept.to_str().unwrap_or_default();
        accept.contains("application/x-ndjson") || accept.contains("application/ndjson")
    })
}

/// Returns the decoded names and values of a query string.
pub(crate) fn pairs(uri: &Uri) -> Vec<(String, Vec<u8>)> {
    query::pairs(uri.query().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_response_of_lines_is_not_waited_for() {
        let waiting = Waiting::default();
        let gone = waiting.gone();
        let (_to, from) = tokio::sync::mpsc::channel(1);
        let response = streamed_lines(from, waiting);
        assert!(!gone.is_gone());
        drop(response);
        assert!(gone.is_gone());
    }
}
