//! Why a pipeline did not do what it was told.

use std::path::PathBuf;

/// What went wrong below the traits of connectors.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a connector failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectorError {
    /// No connection came about, or it was lost. Trying again may help.
    #[error("cannot reach {what}")]
    Unreachable {
        /// Whom, without any secret.
        what: String,
        /// Why.
        #[source]
        source: Cause,
    },
    /// The other side was asked and refused. Trying again will not help.
    #[error("cannot {act}")]
    Refused {
        /// What was attempted: `create table public.orders`.
        act: String,
        /// Why.
        #[source]
        source: Cause,
    },
    /// The other side gave up for now: a deadlock, a serialization failure, a shutdown. Trying again helps.
    #[error("cannot {act} now")]
    Busy {
        /// What was attempted.
        act: String,
        /// Why.
        #[source]
        source: Cause,
    },
    /// A file or directory could not be used.
    #[error("cannot {act} {path}")]
    File {
        /// What was attempted: `read`.
        act: &'static str,
        /// The path or address.
        path: PathBuf,
        /// Why.
        #[source]
        source: Cause,
    },
    /// Rows are not what they should be.
    #[error("{place}: {found}")]
    Data {
        /// Where: stream, file, line or row, column.
        place: String,
        /// What was found there, and what was expected.
        found: String,
    },
    /// The settings ask for what cannot be.
    #[error("{what}; {way_out}")]
    Unsupported {
        /// What cannot be.
        what: String,
        /// What can be done instead.
        way_out: String,
    },
    /// Whoever took the rows has gone, or the run was cancelled; the reason is told there.
    #[error("stopped")]
    Stopped,
}

impl ConnectorError {
    /// Whether trying the same again may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Busy { .. })
    }

    /// A [`Data`](Self::Data).
    pub fn data(place: impl Into<String>, found: impl Into<String>) -> Self {
        Self::Data { place: place.into(), found: found.into() }
    }

    /// A [`File`](Self::File).
    pub fn file(act: &'static str, path: impl Into<PathBuf>, source: impl Into<Cause>) -> Self {
        Self::File { act, path: path.into(), source: source.into() }
    }

    /// An [`Unsupported`](Self::Unsupported).
    pub fn unsupported(what: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into(), way_out: way_out.into() }
    }
}

/// Why a run ended before its end.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct RunError {
    /// The stream or side.
    pub what: String,
    /// Why.
    #[source]
    pub source: ConnectorError,
}

impl RunError {
    pub(crate) fn of(what: &str, source: ConnectorError) -> Self {
        Self { what: what.to_owned(), source }
    }
}
