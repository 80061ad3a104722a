//! A port with a protocol of its own over HTTP, such as S3.
//!
//! Its connections and requests have the limits of the server and count with those of the main port: one
//! client cannot use up the server by using both. What is admitted is answered by a [`Protocol`], which
//! decides by itself who may do what. Host names are not checked there, since such protocols sign their
//! requests; a page of another origin cannot sign one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, Request, StatusCode};

use crate::problem::Problem;

/// What answers the requests of a port.
pub trait Protocol: Send + Sync + 'static {
    /// Answers a request. Its `x-request-id` header is present and valid. Its body ends with an error if
    /// the client is too slow.
    fn answer(
        self: Arc<Self>,
        request: Request<Body>,
    ) -> Pin<Box<dyn Future<Output = Response> + Send>>;

    /// Returns the response to a request that the server refuses, or could not finish.
    ///
    /// * `id`: id of the request.
    fn refuse(&self, refusal: &Refusal, id: &HeaderValue) -> Response;
}

/// Why the server refuses a request of a port.
#[derive(Debug)]
pub struct Refusal(Problem);

impl Refusal {
    pub(super) fn new(problem: Problem) -> Self {
        Self(problem)
    }

    /// Returns the status that the main port would respond.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.0.status()
    }

    /// Returns the message for people.
    #[must_use]
    pub fn message(&self) -> &str {
        self.0.message()
    }

    /// Returns the seconds after which the client may try again, if that may help.
    #[must_use]
    pub fn retry_after(&self) -> Option<&'static str> {
        self.0.retry_after()
    }
}
