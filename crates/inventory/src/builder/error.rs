//! Why an index could not be built.

use std::io;
use std::path::{Path, PathBuf};

use crate::format::meta::MetaError;
use crate::format::{DEPTH_MAX, SLOTS_MAX};
use crate::source::{BadRow, SourceError};

/// Why an index could not be built. Nothing is left of what was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The disk.
    #[error("{act} {}", path.display())]
    Io {
        /// What was attempted.
        act: &'static str,
        /// On what.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// A part of the source.
    #[error("read {part}")]
    Source {
        /// The part.
        part: String,
        /// What is wrong with it.
        #[source]
        source: Box<SourceError>,
    },
    /// The source as a whole.
    #[error("read the inventory")]
    Parts(#[source] Box<SourceError>),
    /// A row that cannot be read, where such are not skipped.
    #[error("row {} of {}: {}{}", .0.row, .0.part, Field(&.0.field), .0.reason)]
    BadRow(Box<BadRow>),
    /// One key twice.
    #[error(
        "{count} keys right below {:?} are listed more than once",
        String::from_utf8_lossy(dir)
    )]
    Duplicate {
        /// The prefix they are below.
        dir: Vec<u8>,
        /// How many.
        count: u64,
    },
    /// Not as many rows as expected.
    #[error("the inventory has {found} rows, {expected} were expected")]
    Rows {
        /// How many there should be.
        expected: u64,
        /// How many there are.
        found: u64,
    },
    /// There is something where the index is to be.
    #[error("there is an index in {}", .0.display())]
    Exists(PathBuf),
    /// There is something else where the index is to be.
    #[error("{} has {name:?}, which is of no index; choose another directory", dir.display())]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// What is in it.
        name: String,
    },
    /// The index is larger than positions reach.
    #[error("the index would be larger than a terabyte")]
    TooLarge,
    /// More delimiters than an index follows.
    #[error("a key has more than {DEPTH_MAX} delimiters")]
    TooDeep,
    /// More classes than an index tells apart.
    #[error("there are more than {SLOTS_MAX} storage classes")]
    TooManyClasses,
    /// A file of the build is not what was written to it.
    #[error("{} is not what was written to it", path.display())]
    Spool {
        /// The file.
        path: PathBuf,
    },
    /// What the index is of cannot be written down.
    #[error("write index.json")]
    Meta(#[source] MetaError),
    /// It was told to stop.
    #[error("stopped before it was done; nothing is left of it")]
    Cancelled,
    /// A thread could not be started.
    #[error("start a thread")]
    Thread(#[source] io::Error),
}

impl BuildError {
    /// For `map_err`: an error of the disk.
    pub(crate) fn io(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { act, path, source }
    }
}

/// The field of a bad row, where there is one.
struct Field<'a>(&'a str);

impl std::fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "{}: ", self.0) }
    }
}
