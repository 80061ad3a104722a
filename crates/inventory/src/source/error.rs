//! What goes wrong while a source is read.

use std::path::PathBuf;

use super::Stopped;

/// Why a source could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// A file or directory of the local disk.
    #[error("{act} {path}")]
    Io {
        /// What was attempted: "open", "read".
        act: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Whoever takes the objects wants no more.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}
