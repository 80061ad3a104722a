//! Errors of database servers, the same for every kind of server.
//!
//! Invariant: the kind of a failure determines whether a retry may help, never its text; and no
//! text here contains a password.

use std::path::PathBuf;

/// The underlying error.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a database server failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The settings are invalid or unsupported. Only other settings help.
    #[error("{what}; {way_out}")]
    Settings {
        /// The fault.
        what: String,
        /// The alternative.
        way_out: String,
    },
    /// A file of certificates could not be used.
    #[error("read certificates of {}", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Cause,
    },
    /// No connection could be made, it was lost, or there was no answer in time. A retry may help.
    #[error("{act}: cannot reach {server}")]
    Unreachable {
        /// What was attempted.
        act: String,
        /// The server, without any secret.
        server: String,
        /// The cause.
        source: Cause,
    },
    /// A transient failure: a deadlock, a shutdown, no capacity. A retry may help.
    #[error("{act}: {server} is temporarily unavailable")]
    Busy {
        /// What was attempted.
        act: String,
        /// The server.
        server: String,
        /// The cause.
        source: Cause,
    },
    /// Another writer has the sink. A retry helps once it has ended.
    #[error("{act}: another writer is using {server}")]
    InUse {
        /// What was attempted.
        act: String,
        /// The sink.
        server: String,
    },
    /// The server refused. A retry does not help.
    #[error("{act}: {server} refused")]
    Refused {
        /// What was attempted.
        act: String,
        /// The server.
        server: String,
        /// The cause.
        source: Cause,
    },
    /// The stored contents are invalid.
    #[error("{act}: in {server}, {found}")]
    Contents {
        /// What was attempted.
        act: String,
        /// The location.
        server: String,
        /// The fault, and what was expected.
        found: String,
    },
}

impl ServerError {
    /// A [`Settings`](Self::Settings).
    pub fn settings(what: impl Into<String>, way_out: impl Into<String>) -> ServerError {
        ServerError::Settings { what: what.into(), way_out: way_out.into() }
    }

    /// The server was not reached, or the connection to it was lost.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        matches!(self, ServerError::Unreachable { .. })
    }

    /// Whether a retry may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        use ServerError::{Busy, InUse, Unreachable};
        matches!(self, Unreachable { .. } | Busy { .. } | InUse { .. })
    }
}
