//! What can go wrong: opening, writing and reading.
//!
//! Variants keep apart what a caller did, what the device did, and what the file says.

use std::io;
use std::path::PathBuf;

use crate::server::ServerError;
use crate::sink::Position;

/// Why a sink or a reader could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A reader was asked for a database that is not there.
    #[error("open {}: there is no such database", path.display())]
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
    /// The layout is of another version than this program writes.
    #[error("open {}: layout version {found}, this program knows {expected}", path.display())]
    Version {
        /// The database or manifest.
        path: PathBuf,
        /// The version it states.
        found: u32,
        /// The version understood here.
        expected: u32,
    },
    /// What the sink keeps about itself makes no sense.
    #[error("open {}: {found}", path.display())]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// What was found in it.
        found: String,
    },
    /// SQLite refused.
    #[error("open {}: {act}", path.display())]
    Sqlite {
        /// What was being done.
        act: &'static str,
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The file system refused.
    #[error("open {}: {act}", path.display())]
    Io {
        /// What was being done.
        act: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A database server did not do it.
    #[error(transparent)]
    Server(#[from] ServerError),
}

impl OpenError {
    /// A server was not reached, or the connection to it was lost.
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
    /// The namespace's name is not one; see [`name::check_namespace`](crate::name::check_namespace).
    #[error("write to {namespace:?}: {reason}")]
    Namespace {
        /// The name, cut short where it is long.
        namespace: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An id is not larger than the ids before it.
    #[error("write to {namespace}: id {id} does not follow {last}")]
    IdOrder {
        /// The namespace.
        namespace: String,
        /// The offending id.
        id: u64,
        /// The largest id there so far.
        last: u64,
    },
    /// An id, a time or a position is beyond what can be stored.
    #[error("write {what} {value}: larger than {}", i64::MAX)]
    TooLarge {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// A row has another number of values than the writer has fields, or a batch another number
    /// of documents than rows.
    #[error("write to {namespace}: {found} values for {expected} fields")]
    ValueCount {
        /// The namespace.
        namespace: String,
        /// How many were given.
        found: usize,
        /// How many are needed.
        expected: usize,
    },
    /// A commit names a position below that of a write it contains.
    #[error("commit at position {position}: holds writes of position {written}")]
    PositionBehind {
        /// The position given to the commit.
        position: Position,
        /// The largest position written.
        written: Position,
    },
    /// An earlier write of this transaction failed and took the transaction with it.
    #[error("an earlier write failed and the transaction was rolled back")]
    RolledBack,
    /// The stored data contradicts itself.
    #[error("{act} {}: {found}", path.display())]
    Corrupt {
        /// What was being done.
        act: &'static str,
        /// The damaged file.
        path: PathBuf,
        /// What was found in it.
        found: String,
    },
    /// SQLite refused.
    #[error("{act} in {}", path.display())]
    Sqlite {
        /// What was being done.
        act: &'static str,
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The file system refused.
    #[error("{act} {}", path.display())]
    Io {
        /// What was being done.
        act: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The committed state could not be read again after a failure.
    #[error("roll back to the committed state")]
    Reread(#[source] OpenError),
    /// A record batch could not be read.
    #[error("{act} for {namespace}")]
    Arrow {
        /// What was being done.
        act: &'static str,
        /// The namespace.
        namespace: String,
        /// What Arrow said.
        source: arrow::error::ArrowError,
    },
    /// A Parquet file could not be written.
    #[error("{act} {}", path.display())]
    Parquet {
        /// What was being done.
        act: &'static str,
        /// The file.
        path: PathBuf,
        /// What the Parquet writer said.
        source: parquet::errors::ParquetError,
    },
    /// A document or row is larger than the database can hold.
    #[error(
        "write to {namespace}: the row {id} has {size} bytes, at most {size_max} can be stored"
    )]
    RowSize {
        /// The namespace.
        namespace: String,
        /// The row.
        id: u64,
        /// Its size, in bytes.
        size: usize,
        /// The largest there can be.
        size_max: usize,
    },
    /// What is committed there is not what this sink committed last: somebody else wrote, or an older
    /// state was restored. [`Sink::position`](crate::Sink::position) says what holds after the next
    /// [`Sink::roll_back`](crate::Sink::roll_back).
    #[error("{server} stands at {}, it was left at {}", at(found), at(expected))]
    Moved {
        /// Where.
        server: String,
        /// The position found.
        found: Option<Position>,
        /// The position this sink left it at.
        expected: Option<Position>,
    },
    /// A database server did not do it.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The connection was lost while a commit was under way: it has happened, or it has not.
    /// [`Sink::position`](crate::Sink::position) tells after the next
    /// [`Sink::roll_back`](crate::Sink::roll_back) that succeeds.
    #[error("commit at position {position}: whether it has happened is not known")]
    CommitInDoubt {
        /// The position given to the commit.
        position: Position,
        /// Why no answer came.
        source: ServerError,
    },
}

impl SinkError {
    /// A server was not reached, or the connection to it was lost.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        match self {
            SinkError::Server(error) => error.is_unreachable(),
            SinkError::CommitInDoubt { .. } => true,
            SinkError::Reread(error) => error.is_unreachable(),
            _ => false,
        }
    }

    /// Trying the same again, after a roll-back, may succeed.
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
    /// The stored data contradicts itself.
    #[error("{act} {}: {found}", path.display())]
    Corrupt {
        /// What was being done.
        act: &'static str,
        /// The damaged file.
        path: PathBuf,
        /// What was found in it.
        found: String,
    },
    /// SQLite refused.
    #[error("{act} from {}", path.display())]
    Sqlite {
        /// What was being done.
        act: &'static str,
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The file system refused.
    #[error("{act} {}", path.display())]
    Io {
        /// What was being done.
        act: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A database server did not do it.
    #[error(transparent)]
    Server(#[from] ServerError),
}
