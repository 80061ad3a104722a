//! What can go wrong with API keys.

use std::path::PathBuf;

/// A key file that cannot be used or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum KeyError {
    /// A step on the file or its directory failed.
    #[error("cannot {act} {}", path.display())]
    Io {
        /// What was attempted.
        act: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is not a key file.
    #[error("{} is not a key file", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: toml::de::Error,
    },
    /// A record of the file makes no sense.
    #[error("{}: key {id:?}: {problem}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The record.
        id: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// No room for another key.
    #[error("{} already holds {max} keys; revoked ones can be deleted from it by hand", path.display())]
    TooMany {
        /// The file.
        path: PathBuf,
        /// The limit.
        max: usize,
    },
    /// A name that cannot be kept.
    #[error("key name {name:?}: use 1 to 64 characters, none of them control characters")]
    Name {
        /// What was given.
        name: String,
    },
    /// No such key.
    #[error("no key {id:?} in {}; `forebay key list` shows them", path.display())]
    Unknown {
        /// What was given.
        id: String,
        /// The file.
        path: PathBuf,
    },
    /// The kernel gave no random bytes.
    #[error("cannot get random bytes from the kernel")]
    Random(#[source] std::io::Error),
}
