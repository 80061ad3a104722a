//! The body of every error response: `{"error":{"code","message","request_id"}}`.

use serde::Serialize;
use utoipa::ToSchema;

/// An error response. Some routes add members beside `error`, which their descriptions name.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub(crate) struct Problem<'a> {
    /// The error.
    pub(crate) error: ProblemDetail<'a>,
}

/// Details of an error.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub(crate) struct ProblemDetail<'a> {
    /// Error code for programs. It does not change between versions.
    #[schema(example = "not_found")]
    pub(crate) code: &'a str,
    /// Message for people.
    pub(crate) message: &'a str,
    /// Request id, as in the `x-request-id` header and the server's log.
    pub(crate) request_id: &'a str,
}

impl<'a> Problem<'a> {
    /// An error of the request with this id.
    #[must_use]
    pub(crate) fn new(code: &'a str, message: &'a str, request_id: &'a str) -> Self {
        Self { error: ProblemDetail { code, message, request_id } }
    }

    /// Returns it as JSON.
    #[must_use]
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a structure of texts is always JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_a_code_a_message_and_the_id_of_its_request() {
        let json = Problem::new("busy", "a \"limit\"", "r-1").to_json();
        let expected = r#"{"error":{"code":"busy","message":"a \"limit\"","request_id":"r-1"}}"#;
        assert_eq!(json, expected);
    }
}
