//! Errors of runs.

use forebay_sdk::ConnectorError;

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct RunError {
    /// The stream or side.
    pub what: String,
    /// The cause.
    #[source]
    pub source: ConnectorError,
}

impl RunError {
    pub(crate) fn of(what: &str, source: ConnectorError) -> Self {
        Self { what: what.to_owned(), source }
    }
}
