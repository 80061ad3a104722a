//! Errors of connectors.

use std::path::PathBuf;

use forebay_base::ServerError;

/// The cause of a connector's failure.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a connector failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectorError {
    /// No connection could be made, or it was lost. Trying again may help.
    #[error("cannot reach {what}")]
    Unreachable {
        /// The peer, without any secret.
        what: String,
        /// The cause.
        #[source]
        source: Cause,
    },
    /// The other side refused. Trying again will not help.
    #[error("cannot {act}")]
    Refused {
        /// What was attempted: `create table public.orders`.
        act: String,
        /// The cause.
        #[source]
        source: Cause,
    },
    /// A transient failure: a deadlock, a serialization failure, a shutdown. Trying again helps.
    #[error("temporarily unable to {act}")]
    Busy {
        /// What was attempted.
        act: String,
        /// The cause.
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
        /// The cause.
        #[source]
        source: Cause,
    },
    /// Rows are invalid.
    #[error("{place}: {found}")]
    Data {
        /// Where: stream, file, line or row, column.
        place: String,
        /// The fault, and what was expected.
        found: String,
    },
    /// The settings ask for something unsupported.
    #[error("{what}; {way_out}")]
    Unsupported {
        /// What is unsupported.
        what: String,
        /// The alternative.
        way_out: String,
    },
    /// The consumer of the rows has gone, or the run was cancelled. The reason is reported there.
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

    /// A part of the program that this build leaves out.
    #[must_use]
    pub fn not_built(part: &str) -> Self {
        Self::unsupported(
            format!("this build has no {part}"),
            "build everything with `cargo build --release --features full`",
        )
    }

    /// An [`Unsupported`](Self::Unsupported).
    pub fn unsupported(what: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into(), way_out: way_out.into() }
    }
}

/// A failure of a server, as that of the connector that uses it.
impl From<ServerError> for ConnectorError {
    fn from(error: ServerError) -> Self {
        let named = |act: String, server: &str| match server {
            "" => act,
            server => format!("{act} to {server}"),
        };
        match error {
            ServerError::Settings { what, way_out } => Self::Unsupported { what, way_out },
            ServerError::Certificates { path, source } => {
                Self::file("read certificates of", path, source)
            }
            // What was attempted names the server where nothing else does.
            ServerError::Unreachable { act, server, source } if server.is_empty() => {
                Self::Unreachable { what: format!("the server to {act}"), source }
            }
            ServerError::Unreachable { server, source, .. } => {
                Self::Unreachable { what: server, source }
            }
            ServerError::Busy { act, server, source } => {
                Self::Busy { act: named(act, &server), source }
            }
            ServerError::Refused { act, server, source } => {
                Self::Refused { act: named(act, &server), source }
            }
            // Of a sink, which no connector uses.
            error => Self::Refused { act: "use the server".to_owned(), source: error.into() },
        }
    }
}
