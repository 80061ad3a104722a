//! Errors of API keys.

use std::path::PathBuf;

/// A key file that cannot be used or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A step on the file or its directory failed.
    #[error("cannot {act} {}", path.display())]
    Io {
        /// The failed step.
        act: &'static str,
        /// Its path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file is not a key file.
    #[error("{} is not a key file", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The position and the cause.
        #[source]
        source: toml::de::Error,
    },
    /// A record of the file is not valid.
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
    #[error("{} has the maximum of {max} keys; delete revoked ones from the file", path.display())]
    TooMany {
        /// The file.
        path: PathBuf,
        /// The limit.
        max: usize,
    },
    /// A name that is not allowed.
    #[error("key name {name:?}: use 1 to 64 characters, none of them control characters")]
    Name {
        /// What was given.
        name: String,
    },
    /// Keys were created, and their file is missing.
    #[error(
        "API keys were created for this data directory, but {} is missing: restore the file, or \
         create a new key with `forebay key new`", path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// No such key.
    #[error("no key {id:?} in {}; `forebay key list` lists the keys", path.display())]
    Unknown {
        /// What was given.
        id: String,
        /// The file.
        path: PathBuf,
    },
    /// Several keys have this name.
    #[error("several keys have the name {name:?}; give one of the ids {ids}")]
    Ambiguous {
        /// What was given.
        name: String,
        /// The ids of those that are not revoked.
        ids: String,
    },
    /// The master key is not one.
    #[error("{} is not a master key: it must have exactly 32 bytes; restore it from a backup", path.display())]
    Master {
        /// The file.
        path: PathBuf,
    },
    /// The kernel returned no random bytes.
    #[error("cannot get random bytes from the kernel")]
    Random(#[source] std::io::Error),
}
