//! Errors of reading a source.

use std::path::PathBuf;

use forebay_objects::Failure;
use parquet::errors::ParquetError;

use super::Stopped;

/// Why a source could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// A local file or directory.
    #[error("{act} {path}")]
    Io {
        /// What was attempted: "open", "read".
        act: &'static str,
        /// The path.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// An object of an object store.
    #[error("{act} {location}")]
    Store {
        /// What was attempted: "open", "read".
        act: &'static str,
        /// The URL: `s3://bucket/key`.
        location: String,
        /// Why the request failed.
        #[source]
        source: Failure,
    },
    /// A bucket cannot be listed.
    #[error("list {location}: {reason}")]
    List {
        /// `s3://bucket/prefix`.
        location: String,
        /// The answer of the store.
        reason: String,
    },
    /// The location cannot be read.
    #[error("{given}: {reason}")]
    Spec {
        /// The location as it was specified.
        given: String,
        /// The reason, and an alternative.
        reason: String,
    },
    /// A required column is missing, or has the wrong type.
    #[error("{file}: {reason}")]
    Column {
        /// The file.
        file: String,
        /// The column, and the fault.
        reason: String,
    },
    /// A file is not valid Parquet.
    #[error("{act} {file}")]
    Parquet {
        /// What was attempted.
        act: &'static str,
        /// The file.
        file: String,
        /// The fault.
        #[source]
        source: ParquetError,
    },
    /// A file declares more data than the memory can hold.
    #[error("{act} {file}; build with more memory to read it")]
    Memory {
        /// What was attempted.
        act: &'static str,
        /// The file.
        file: String,
        /// The part of the file, and its declared size.
        #[source]
        source: forebay_parquet::Exceeded,
    },
    /// A stream ends early or cannot be decompressed.
    #[error("decompress {file}: after {read} bytes of the file and {rows} rows")]
    Expand {
        /// The file.
        file: String,
        /// Number of bytes read.
        read: u64,
        /// Number of complete rows.
        rows: u64,
        /// The fault.
        #[source]
        source: std::io::Error,
    },
    /// A row is too long, probably because a quote is never closed.
    #[error("{file}: row {row} is larger than {limit} bytes; check it for a missing closing quote")]
    RowTooLong {
        /// The file.
        file: String,
        /// Number of the row, from 1.
        row: u64,
        /// Maximum size of a row.
        limit: usize,
    },
    /// A manifest is invalid, or refers to something that cannot be read.
    #[error("{manifest}: {reason}")]
    Manifest {
        /// The manifest.
        manifest: String,
        /// The fault.
        reason: String,
    },
    /// A file differs from its description.
    #[error("{file}: its {what} is {found}, expected {expected}")]
    Differs {
        /// The file.
        file: String,
        /// What was compared: "MD5", "size".
        what: &'static str,
        /// The expected value.
        expected: String,
        /// The actual value.
        found: String,
    },
    /// The consumer wants no more objects.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}
