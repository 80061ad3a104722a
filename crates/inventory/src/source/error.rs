//! What goes wrong while a source is read.

use std::path::PathBuf;

use forebay_base::error_chain::chain;
use parquet::errors::ParquetError;

use super::Stopped;

/// Where Amazon's machines ask for the keys of their role, when none are given.
const METADATA: &str = "169.254.169.254";

/// What to do about a store that cannot be used, where the store itself does not say it.
fn way_out(error: &object_store::Error) -> &'static str {
    if chain(error).to_string().contains(METADATA) {
        ": no keys were given and this machine has no role; set AWS_ACCESS_KEY_ID and \
         AWS_SECRET_ACCESS_KEY, or name a profile"
    } else {
        ""
    }
}

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
    /// An object of an object store.
    #[error("{act} {location}{}", way_out(source))]
    Store {
        /// What was attempted: "open", "read".
        act: &'static str,
        /// On what: `s3://bucket/key`.
        location: String,
        /// What the store said.
        #[source]
        source: object_store::Error,
    },
    /// A bucket cannot be listed.
    #[error("list {location}: {reason}")]
    List {
        /// `s3://bucket/prefix`.
        location: String,
        /// What the store answered.
        reason: String,
    },
    /// What was given names nothing that can be read.
    #[error("{given}: {reason}")]
    Spec {
        /// As it was given.
        given: String,
        /// Why not, and what would do.
        reason: String,
    },
    /// A column that is needed and is not there, or cannot be what it is needed for.
    #[error("{file}: {reason}")]
    Column {
        /// The file it should be in.
        file: String,
        /// Which column, and what is wrong.
        reason: String,
    },
    /// A file that is not the Parquet it should be.
    #[error("{act} {file}")]
    Parquet {
        /// What was attempted.
        act: &'static str,
        /// On what.
        file: String,
        /// What is wrong.
        #[source]
        source: ParquetError,
    },
    /// A stream that ends early or cannot be expanded.
    #[error("expand {file}: after {read} bytes of the file and {rows} rows")]
    Expand {
        /// The file.
        file: String,
        /// How far its bytes were read.
        read: u64,
        /// How many whole rows came out.
        rows: u64,
        /// What is wrong.
        #[source]
        source: std::io::Error,
    },
    /// A row so long that something else must be wrong, as a quote that is never closed.
    #[error("{file}: row {row} has more than {limit} bytes; is a quote left open?")]
    RowTooLong {
        /// The file.
        file: String,
        /// Which row, the first is 1.
        row: u64,
        /// The longest a row may be.
        limit: usize,
    },
    /// A manifest that cannot be understood, or names what cannot be read.
    #[error("{manifest}: {reason}")]
    Manifest {
        /// The manifest.
        manifest: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file is not what was said of it.
    #[error("{file}: its {what} is {found}, not {expected}")]
    Differs {
        /// The file.
        file: String,
        /// What was compared: "MD5", "size".
        what: &'static str,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// Whoever takes the objects wants no more.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}
