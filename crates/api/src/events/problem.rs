//! Errors of the event routes as clients see them.

use forebay_base::error_chain::chain;
use forebay_events::segment::SegmentError;
use forebay_events::{AppendError, ReadError, Shortage};
use http::StatusCode;

pub(super) use crate::answer::{answer, json};
pub(super) use crate::problem::Problem;

/// A fault of the server: the details are logged.
pub(super) fn internal(error: &anyhow::Error) -> Problem {
    tracing::error!(error = %chain(error.as_ref()), "cannot read the event store");
    let text = "cannot read the event store; the server's log has the details";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "damaged", text)
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::NotFound { .. } => Self::not_found(error.to_string()),
            ReadError::NoProofs => Self::new(StatusCode::NOT_FOUND, "no_proofs", error.to_string()),
            error if Shortage::of(&error).is_some() => short(&error, Shortage::of(&error)),
            ReadError::Commit(_) | ReadError::History(_) | ReadError::Copy(_) => {
                tracing::error!(error = %chain(&error), "cannot sign a checkpoint");
                Self::closed(chain(&error).to_string())
            }
            // Which events is for the client; where they are is for the log.
            ref changed if let Some(change) = changed.change() => {
                tracing::error!(error = %chain(&error), "events were changed");
                let text = format!(
                    "{change}; the server's log names the file, `forebay events verify` finds every \
                     change"
                );
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "changed", text)
            }
            ReadError::Segment(SegmentError::Block { rows, first, last, .. }) => {
                tracing::error!(error = %chain(&error), "a block of events is damaged");
                let text = format!(
                    "a block with {rows} events between the indexes {first} and {last} is damaged; \
                     other events can be read; the server's log names the file, `forebay events \
                     verify` finds every damage"
                );
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "damaged", text)
            }
            ReadError::Segment(SegmentError::Unreadable { .. }) => {
                tracing::error!(error = %chain(&error), "a segment of events is damaged");
                let text = "a segment that may have such events is damaged; queries that other \
                            segments answer succeed; the server's log names the file, `forebay \
                            events verify` finds every damage";
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "damaged", text)
            }
            // Everything that is signed already can be read; the reason says what to do.
            ReadError::Distrusted { .. } => Self::closed(chain(&error).to_string()),
            // Not a fault, and there is no client to answer.
            ReadError::Gone => Self::closed(error.to_string()),
            error => internal(&error.into()),
        }
    }
}

impl From<AppendError> for Problem {
    fn from(error: AppendError) -> Self {
        if matches!(error, AppendError::KeyReused) {
            let text =
                "the Idempotency-Key belongs to a request with another body or other options";
            return Self::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused", text);
        }
        let shortage = error.shortage();
        if shortage.is_some() {
            return short(&error, shortage);
        }
        tracing::error!(error = %chain(&error), "cannot store events");
        Self::closed(chain(&error).to_string())
    }
}

/// A temporary condition: not a fault, and not worth a log line for each request.
fn short(error: &(dyn std::error::Error + 'static), shortage: Option<Shortage>) -> Problem {
    let why = chain(error).to_string();
    match shortage {
        Some(Shortage::Space) => Problem::full(why),
        Some(Shortage::Descriptors) => Problem::short(why),
        None => Problem::closed(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_signs_nothing_is_unavailable_and_says_why() {
        let reason = "newest-checkpoint is missing; restore it from a backup".to_owned();
        let problem = Problem::from(ReadError::Distrusted { reason: reason.clone() });
        assert_eq!(problem.status(), StatusCode::SERVICE_UNAVAILABLE);
        let body = format!("{problem:?}");
        assert!(body.contains(&reason), "{body}");
    }
}
