//! Errors of opening, writing and reading.
//!
//! Variants distinguish faults of the caller, the device, and the file.

use std::io;
use std::path::PathBuf;

use forebay_base::server_error::Cause;

use crate::ServerError;
use crate::sink::Position;

/// Why a sink or a reader could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The database of a reader does not exist.
    #[error("open {}: no such database", path.display())]
    Missing {
        /// The database.
        path: PathBuf,
    },
    /// The file is a database, but not a sink's.
    #[error("open {}: not a sink's database (application id {found:#010x}, expected {expected:#010x})", path.display())]
    Foreign {
        /// The database.
        path: PathBuf,
        /// The application id in its header.
        found: u32,
        /// The application id of a sink.
        expected: u32,
    },
    /// The layout has another version than this program supports.
    #[error(
        "open {}: layout version {found} is not supported, this program supports {expected}",
        path.display()
    )]
    Version {
        /// The database.
        path: PathBuf,
        /// The version found.
        found: u32,
        /// The supported version.
        expected: u32,
    },
    /// The sink's own state is damaged.
    #[error("open {}: {found}", path.display())]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// The fault.
        found: String,
    },
    /// The database in a file failed.
    #[error("open {}: {act}", path.display())]
    Database {
        /// The operation.
        act: &'static str,
        /// The database.
        path: PathBuf,
        /// Its error.
        source: Cause,
    },
    /// A file operation failed.
    #[error("open {}: {act}", path.display())]
    Io {
        /// The operation.
        act: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A database server failed.
    #[error(transparent)]
    Server(#[from] ServerError),
}

impl OpenError {
    /// A server could not be reached, or the connection was lost.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        matches!(self, OpenError::Server(error) if error.is_unreachable())
    }

    /// Trying the same again may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, OpenError::Server(error) if error.is_transient())
    }
}

/// Why a write, a commit or a checkpoint failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The namespace's name is invalid; see
    /// [`name::check_namespace`](crate::name::check_namespace).
    #[error("write to {namespace:?}: {reason}")]
    Namespace {
        /// The name, shortened.
        namespace: String,
        /// The fault.
        reason: &'static str,
    },
    /// An id is not larger than the ids before it.
    #[error("write to {namespace}: id {id} does not follow {last}")]
    IdOrder {
        /// The namespace.
        namespace: String,
        /// The id.
        id: u64,
        /// The largest id so far.
        last: u64,
    },
    /// A document is to replace one that was never written.
    #[error("replace {id} in {namespace}: its last id is {last}")]
    NoRow {
        /// The namespace.
        namespace: String,
        /// The id.
        id: u64,
        /// The largest id so far; 0 without rows.
        last: u64,
    },
    /// An id, a time or a position exceeds the range that can be stored.
    #[error("write {what} {value}: larger than {}", i64::MAX)]
    TooLarge {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// A row has another number of values than the writer has fields.
    #[error("write to {namespace}: {found} values for {expected} fields")]
    ValueCount {
        /// The namespace.
        namespace: String,
        /// Number of values.
        found: usize,
        /// Number of fields.
        expected: usize,
    },
    /// A commit names a position below that of a write it contains.
    #[error("commit at position {position}: the transaction has writes at position {written}")]
    PositionBehind {
        /// The position given to the commit.
        position: Position,
        /// The largest position written.
        written: Position,
    },
    /// An earlier write of this transaction failed and took the transaction with it.
    #[error("an earlier write failed and the transaction was rolled back")]
    RolledBack,
    /// The stored data is inconsistent.
    #[error("{act} {}: {found}", path.display())]
    Corrupt {
        /// The operation.
        act: &'static str,
        /// The damaged file.
        path: PathBuf,
        /// The fault.
        found: String,
    },
    /// The database in a file failed.
    #[error("{act} in {}", path.display())]
    Database {
        /// The operation.
        act: &'static str,
        /// The database.
        path: PathBuf,
        /// Its error.
        source: Cause,
    },
    /// A file operation failed.
    #[error("{act} {}", path.display())]
    Io {
        /// The operation.
        act: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The committed state could not be read again after a failure.
    #[error("roll back to the committed state")]
    Reread(#[source] OpenError),
    /// A document or row is larger than the database can hold.
    #[error("write to {namespace}: the row {id} has {size} bytes; the limit is {size_max}")]
    RowSize {
        /// The namespace.
        namespace: String,
        /// The row.
        id: u64,
        /// Its size, in bytes.
        size: usize,
        /// The limit.
        size_max: usize,
    },
    /// The committed state is not what this sink committed last: another program wrote to it, or a
    /// backup was restored. [`Sink::position`](crate::Sink::position) is the current position after
    /// the next [`Sink::roll_back`](crate::Sink::roll_back).
    #[error("{server} is at {}, but this sink left it at {}", at(found), at(expected))]
    Moved {
        /// Where.
        server: String,
        /// The position found.
        found: Option<Position>,
        /// The position this sink left it at.
        expected: Option<Position>,
    },
    /// A database server failed.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The connection was lost during a commit, whose outcome is unknown.
    /// [`Sink::position`](crate::Sink::position) shows it after the next
    /// [`Sink::roll_back`](crate::Sink::roll_back) that succeeds.
    #[error("commit at position {position}: its outcome is unknown")]
    CommitInDoubt {
        /// The position given to the commit.
        position: Position,
        /// Why there was no answer.
        source: ServerError,
    },
}

impl SinkError {
    /// A server could not be reached, or the connection was lost.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        match self {
            SinkError::Server(error) => error.is_unreachable(),
            SinkError::CommitInDoubt { .. } => true,
            SinkError::Reread(error) => error.is_unreachable(),
            _ => false,
        }
    }

    /// Whether the database was reached and refuses what was written, so that the same fails again
    /// until something is changed there.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self {
            SinkError::Server(error) => {
                matches!(error, ServerError::Refused { .. } | ServerError::Contents { .. })
            }
            SinkError::RowSize { .. } | SinkError::Database { .. } => true,
            _ => false,
        }
    }

    /// Whether a retry after a roll-back may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            SinkError::Server(error) => error.is_transient(),
            SinkError::CommitInDoubt { .. } | SinkError::Moved { .. } => true,
            SinkError::Reread(error) => error.is_transient(),
            _ => false,
        }
    }
}

fn at(position: &Option<Position>) -> String {
    position.map_or("no position".to_owned(), |position| format!("position {position}"))
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The stored data is inconsistent.
    #[error("{act} {}: {found}", path.display())]
    Corrupt {
        /// The operation.
        act: &'static str,
        /// The damaged file.
        path: PathBuf,
        /// The fault.
        found: String,
    },
    /// The database in a file failed.
    #[error("{act} from {}", path.display())]
    Database {
        /// The operation.
        act: &'static str,
        /// The database.
        path: PathBuf,
        /// Its error.
        source: Cause,
    },
}
