//! Why an index could not be built.

use std::io;
use std::path::{Path, PathBuf};

use crate::format::meta::MetaError;
use crate::format::{DEPTH_MAX, SLOTS_MAX};
use crate::source::{BadRow, SourceError};

/// Why an index could not be built. Nothing of what was written remains.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A file operation failed.
    #[error("{act} {}", path.display())]
    Io {
        /// What was attempted.
        act: &'static str,
        /// The path.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A part of the source could not be read.
    #[error("read {part}")]
    Source {
        /// The part.
        part: String,
        /// What is wrong with it.
        #[source]
        source: Box<SourceError>,
    },
    /// The source as a whole could not be read.
    #[error("read the inventory")]
    Parts(#[source] Box<SourceError>),
    /// A row cannot be read, and invalid rows are not skipped.
    #[error("row {} of {}: {}{}", .0.row, .0.part, Field(&.0.field), .0.reason)]
    BadRow(Box<BadRow>),
    /// A key is listed twice.
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
    /// The number of rows differs from the expected one.
    #[error("the inventory has {found} rows, expected {expected}")]
    Rows {
        /// Expected number of rows.
        expected: u64,
        /// Actual number of rows.
        found: u64,
    },
    /// An index exists already.
    #[error("{} already contains an index", .0.display())]
    Exists(PathBuf),
    /// The directory contains other files.
    #[error(
        "{} contains {name:?}, which does not belong to an index; choose another directory",
        dir.display()
    )]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// The name of such a file.
        name: String,
    },
    /// The index exceeds the range of positions.
    #[error("the index would be larger than a terabyte")]
    TooLarge,
    /// The sizes of all versions add up to more than an index can store.
    #[error("the objects have more than {} bytes together, the limit of an index", u64::MAX)]
    TooManyBytes,
    /// A key has too many delimiters.
    #[error("a key has more than {DEPTH_MAX} delimiters")]
    TooDeep,
    /// There are too many storage classes.
    #[error("there are more than {SLOTS_MAX} storage classes")]
    TooManyClasses,
    /// A file of the build differs from what was written to it.
    #[error("{} is damaged: it differs from what was written", path.display())]
    Spool {
        /// The file.
        path: PathBuf,
    },
    /// The description of the index cannot be encoded.
    #[error("write index.json")]
    Meta(#[source] MetaError),
    /// The build was cancelled.
    #[error("the build was cancelled; nothing of it remains")]
    Cancelled,
    /// A thread could not be started.
    #[error("start a thread")]
    Thread(#[source] io::Error),
}

impl BuildError {
    /// For `map_err`: an error of a file operation.
    pub(crate) fn io(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { act, path, source }
    }
}

/// The field of an invalid row, if there is one.
struct Field<'a>(&'a str);

impl std::fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "{}: ", self.0) }
    }
}
