//! What the routes that are written here have in common: questions in, answers and errors out.

use std::io;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, RETRY_AFTER,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use serde_json::Value;
use tokio::sync::mpsc::Receiver;

/// Why a request was not answered as it was meant.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    code: &'static str,
    message: String,
    /// What is told beside the error.
    beside: Option<Value>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), beside: None }
    }

    /// The request is wrong.
    pub(super) fn bad(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// As many requests as a setting allows are running.
    pub(super) fn busy(setting: &str) -> Self {
        let text = format!("as many requests as {setting} allows are running");
        Self::new(StatusCode::TOO_MANY_REQUESTS, "busy", text)
    }

    /// The store takes nothing.
    pub(super) fn closed(why: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "storage", why)
    }

    /// What it says to a person.
    pub(super) fn into_message(self) -> String {
        self.message
    }

    /// Tells more beside the error.
    pub(super) fn beside(mut self, beside: Value) -> Self {
        self.beside = Some(beside);
        self
    }

    /// The answer to a request.
    pub(super) fn answer(self, request: &HeaderMap) -> Response {
        let id = request.get("x-request-id").and_then(|id| id.to_str().ok()).unwrap_or("");
        let mut body = self.beside.unwrap_or_else(|| serde_json::json!({}));
        body["error"] =
            serde_json::json!({ "code": self.code, "message": self.message, "request_id": id });
        let mut response = json(self.status, &body);
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if matches!(self.status.as_u16(), 429 | 503) {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// An answer in JSON.
pub(super) fn json(status: StatusCode, body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// What a page of ours may load, and that nothing may frame it; without forms.
pub(super) const PAGE: &str = "default-src 'none'; style-src 'self'; img-src data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// The same with forms that lead to this server.
pub(super) const PAGE_WITH_FORMS: &str = "default-src 'none'; style-src 'self'; img-src data:; \
    base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// A page for people.
pub(super) fn html(text: String, policy: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// An answer that leads elsewhere for good.
pub(super) fn moved(to: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    if let Ok(to) = HeaderValue::try_from(to) {
        response.headers_mut().insert(LOCATION, to);
    }
    response
}

/// An answer of lines, one JSON object each, as they come from a thread.
pub(super) fn streamed_lines(from: Receiver<io::Result<Bytes>>) -> Response {
    let pieces = futures_util::stream::unfold(from, |mut from| async move {
        from.recv().await.map(|piece| (piece, from))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The answer, or the problem's.
pub(super) fn answer(result: Result<Response, Problem>, request: &HeaderMap) -> Response {
    result.unwrap_or_else(|problem| problem.answer(request))
}

/// Whether a client asks for one JSON object a line.
pub(super) fn wants_lines(request: &HeaderMap) -> bool {
    request.get_all(ACCEPT).iter().any(|accept| {
        let accept = accept.to_str().unwrap_or_default();
        accept.contains("application/x-ndjson") || accept.contains("application/ndjson")
    })
}

/// Names and values of a query string, decoded.
pub(super) fn pairs(uri: &Uri) -> Vec<(String, Vec<u8>)> {
    let decode = |text: &str| {
        let spaced = text.replace('+', " ");
        percent_encoding::percent_decode_str(&spaced).collect::<Vec<u8>>()
    };
    uri.query()
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (String::from_utf8_lossy(&decode(name)).into_owned(), decode(value))
        })
        .collect()
}
