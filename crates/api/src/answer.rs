//! Request parameters, responses and errors shared by all routes.

use std::io;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use forebay_base::waiting::Waiting;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, RETRY_AFTER,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc::Receiver;

use crate::problem::{self, ProblemDetail};
use crate::query;

/// The header with the id of a request.
const REQUEST_ID: &str = "x-request-id";

/// An error, before it is a response.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    code: &'static str,
    message: String,
    /// Further members of the response beside the error: an object.
    beside: Option<Value>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), beside: None }
    }

    /// The request is wrong.
    pub(crate) fn bad(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// The limit of a setting is reached.
    pub(crate) fn busy(setting: &str) -> Self {
        let text = format!("the number of concurrent requests has reached {setting}");
        Self::new(StatusCode::TOO_MANY_REQUESTS, "busy", text)
    }

    /// The store accepts nothing.
    pub(crate) fn closed(why: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "storage", why)
    }

    /// The disk is full.
    pub(crate) fn full(why: impl Into<String>) -> Self {
        Self::new(StatusCode::INSUFFICIENT_STORAGE, "storage_full", why)
    }

    /// No file descriptor is left.
    pub(crate) fn short(why: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "storage_busy", why)
    }

    /// Returns the message for people.
    pub(crate) fn into_message(self) -> String {
        self.message
    }

    /// Adds members to the response beside the error.
    pub(crate) fn beside(mut self, beside: impl Serialize) -> Self {
        self.beside = serde_json::to_value(beside).ok();
        self
    }

    /// Returns the response to a request.
    pub(crate) fn answer(self, request: &HeaderMap) -> Response {
        let Self { status, code, message, beside } = self;
        failed(status, code, &message, request.get(REQUEST_ID), beside)
    }
}

/// Returns the response of every error: what failed, for programs and for people, and what a route
/// adds beside it.
pub(crate) fn failed(
    status: StatusCode,
    code: &str,
    message: &str,
    id: Option<&HeaderValue>,
    beside: Option<Value>,
) -> Response {
    let id = id.and_then(|id| id.to_str().ok()).unwrap_or("");
    let error = problem::Problem::new(code, message, id).error;
    let mut response = json(status, &Failed { beside, error });
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let seconds = match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Some("1"),
        StatusCode::INSUFFICIENT_STORAGE => Some("10"),
        _ => None,
    };
    if let Some(seconds) = seconds {
        headers.insert(RETRY_AFTER, HeaderValue::from_static(seconds));
    }
    response
}

/// The body of an error response: the error, and what the route adds.
#[derive(Serialize)]
struct Failed<'a> {
    #[serde(flatten)]
    beside: Option<Value>,
    error: ProblemDetail<'a>,
}

/// Returns an answer as one line of JSON, without a line end.
pub(crate) fn line(body: &impl Serialize) -> String {
    serde_json::to_string(body).expect("an answer has only text keys and finite numbers")
}

/// Returns a JSON response.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let mut response = Response::new(Body::from(line(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
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
