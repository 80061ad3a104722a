//! Errors of the event routes as clients see them.

use forebay_base::error_chain::chain;
use forebay_events::{AppendError, ReadError};
use http::StatusCode;

pub(super) use super::super::answer::{Problem, answer, json};

/// The server's fault: the details go to the log.
pub(super) fn internal(error: &anyhow::Error) -> Problem {
    tracing::error!(error = %chain(error.as_ref()), "a request to the event store failed");
    let text = "the event store could not be read; the server's log has the details";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "damaged", text)
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::NotFound { .. } => Self::not_found(error.to_string()),
            ReadError::NoProofs => Self::new(StatusCode::NOT_FOUND, "no_proofs", error.to_string()),
            ReadError::Commit(_) | ReadError::History(_) => {
                tracing::error!(error = %chain(&error), "no checkpoint was signed");
                Self::closed(chain(&error).to_string())
            }
            error => internal(&error.into()),
        }
    }
}

impl From<AppendError> for Problem {
    fn from(error: AppendError) -> Self {
        tracing::error!(error = %chain(&error), "events were not stored");
        Self::closed(chain(&error).to_string())
    }
}
