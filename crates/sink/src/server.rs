//! What can go wrong with a database that is a server: the same words for every kind of it.
//!
//! Invariant: whether trying again may help is said by the kind of the failure, never to be read out of
//! its text; and no text here has a password in it.

use std::path::PathBuf;

/// What went wrong beneath.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a database server did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The settings ask for what cannot be. Only other settings help.
    #[error("{what}; {way_out}")]
    Settings {
        /// What cannot be.
        what: String,
        /// What can be done instead.
        way_out: String,
    },
    /// A file of certificates could not be used.
    #[error("read certificates of {}", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Cause,
    },
    /// No connection came about, or it was lost, or no answer came in time. Trying again may help.
    #[error("{act}: cannot reach {server}")]
    Unreachable {
        /// What was attempted.
        act: String,
        /// Whom, without any secret.
        server: String,
        /// Why.
        source: Cause,
    },
    /// The server gave up for now: a deadlock, a shutdown, no room. Trying again may help.
    #[error("{act}: {server} cannot now")]
    Busy {
        /// What was attempted.
        act: String,
        /// Who.
        server: String,
        /// Why.
        source: Cause,
    },
    /// Another writer has the sink. Trying again helps once it has gone.
    #[error("{act}: another writer has {server}")]
    InUse {
        /// What was attempted.
        act: String,
        /// Which sink.
        server: String,
    },
    /// The server was asked and refused. Trying the same again does not help.
    #[error("{act}: {server} refused")]
    Refused {
        /// What was attempted.
        act: String,
        /// Who.
        server: String,
        /// Why.
        source: Cause,
    },
    /// What is stored there is not what a sink stores.
    #[error("{act}: in {server}, {found}")]
    Contents {
        /// What was attempted.
        act: String,
        /// Where.
        server: String,
        /// What was found, and what was expected.
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

    /// Trying the same again may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        use ServerError::{Busy, InUse, Unreachable};
        matches!(self, Unreachable { .. } | Busy { .. } | InUse { .. })
    }
}
