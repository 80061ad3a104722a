//! Errors as clients see them: `{"error":{"code","message","request_id"}}`.
//!
//! [`Problem`] is an error before it is a response, of handlers and of the server around them, whose
//! own are constants in `serve/problem.rs`. [`ProblemBody`] is what is sent, and what
//! `/openapi.json` describes.

use std::borrow::Cow;

use axum::response::Response;
use http::header::{CACHE_CONTROL, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::answer;

/// The header with the id of a request.
const REQUEST_ID: &str = "x-request-id";

/// An error, before it is a response.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    code: &'static str,
    message: Cow<'static, str>,
    /// Further members of the response beside the error: an object.
    beside: Option<Value>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: Cow::Owned(message.into()), beside: None }
    }

    /// One whose message is always the same.
    pub(crate) const fn fixed(
        status: StatusCode,
        code: &'static str,
        message: &'static str,
    ) -> Self {
        Self { status, code, message: Cow::Borrowed(message), beside: None }
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

    /// Returns the status of the response.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the message for people.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Returns the message for people.
    pub(crate) fn into_message(self) -> String {
        self.message.into_owned()
    }

    /// Adds members to the response beside the error.
    pub(crate) fn beside(mut self, beside: impl Serialize) -> Self {
        self.beside = serde_json::to_value(beside).ok();
        self
    }

    /// Returns `Retry-After` in seconds, where trying again may help.
    pub(crate) fn retry_after(&self) -> Option<&'static str> {
        match self.status {
            // Another server has to start first.
            StatusCode::SERVICE_UNAVAILABLE if self.code == "stopping" => Some("5"),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Some("1"),
            StatusCode::INSUFFICIENT_STORAGE => Some("10"),
            _ => None,
        }
    }

    /// Returns the body of the response to the request with this id.
    pub(crate) fn body<'a>(&'a self, id: &'a HeaderValue) -> ProblemBody<'a> {
        ProblemBody::new(self.code, &self.message, id)
    }

    /// Returns the response to a request.
    pub(crate) fn answer(self, request: &HeaderMap) -> Response {
        let none = HeaderValue::from_static("");
        self.response(request.get(REQUEST_ID).unwrap_or(&none))
    }

    /// Returns the response to the request with this id.
    pub(crate) fn response(mut self, id: &HeaderValue) -> Response {
        let beside = self.beside.take();
        let mut response = answer::json(self.status, &With { beside, problem: self.body(id) });
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after() {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"forebay\""));
        }
        response
    }
}

/// The body of an error response: what the route adds, and the error.
#[derive(Serialize)]
struct With<'a> {
    #[serde(flatten)]
    beside: Option<Value>,
    #[serde(flatten)]
    problem: ProblemBody<'a>,
}

/// An error response. Some routes add members beside `error`, which their descriptions name.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemBody<'a> {
    /// The error.
    error: ProblemDetail<'a>,
}

/// Details of an error.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
struct ProblemDetail<'a> {
    /// Error code for programs. It does not change between versions.
    #[schema(example = "not_found")]
    code: &'a str,
    /// Message for people.
    message: &'a str,
    /// Request id, as in the `x-request-id` header and the server's log.
    request_id: &'a str,
}

impl<'a> ProblemBody<'a> {
    /// An error of the request with this id.
    pub(crate) fn new(code: &'a str, message: &'a str, id: &'a HeaderValue) -> Self {
        let request_id = id.to_str().unwrap_or("");
        Self { error: ProblemDetail { code, message, request_id } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_a_code_a_message_and_the_id_of_its_request() {
        let id = HeaderValue::from_static("r-1");
        let json = answer::line(&ProblemBody::new("busy", "a \"limit\"", &id));
        let expected = r#"{"error":{"code":"busy","message":"a \"limit\"","request_id":"r-1"}}"#;
        assert_eq!(json, expected);
    }

    #[test]
    fn what_a_route_adds_stands_beside_the_error() {
        let beside = Some(serde_json::json!({ "there": "a/" }));
        let id = HeaderValue::from_static("r-1");
        let problem = ProblemBody::new("not_found", "no such prefix", &id);
        let expected = r#"{"there":"a/","error":{"code":"not_found","message":"no such prefix","request_id":"r-1"}}"#;
        assert_eq!(answer::line(&With { beside, problem }), expected);
    }
}
