//! Documents on their way to a database elsewhere.
//!
//! ```text
//! request -> log -> view (documents.sqlite) -> forwarder -> PostgreSQL, MongoDB, ...
//!                                                 |  while that is away
//!                                                 +-> spill (NDJSON files) -> ... once it is back
//! ```
//!
//! The log stays the truth and the local database the one that answers. A thread follows the log behind
//! the view and writes every commit into the database, the log's position with it in the database's own
//! transaction, so that what it wrote is known from the database alone, whatever was killed.
//!
//! While the database is away, what waits is in the log; after a moment it is also spilled, and the log
//! need not be kept for it. When the spill is full the log is kept, up to a limit, and beyond that
//! documents are refused until the database is back.
//!
//! A database that lacks what neither the log nor the spill has (a new one, one that was set back) is
//! brought up from the local database first, each namespace in the order of its ids.
//!
//! Invariants: documents of a namespace are written in the order of their ids, each once, for the
//! sink's own last id is looked at before every commit and a gap or an overlap is never written over;
//! nothing leaves the log or the spill before the database, or the spill, has it on stable storage; what
//! the log has not on stable storage is not written anywhere.

mod copy;
mod error;
mod memory;
mod outbox;
mod scan;
mod send;
mod spill;
mod spilling;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use forebay_sink::RowSink;
use serde::Serialize;

pub use self::memory::MemoryError;
pub(crate) use self::memory::{Memory, Remembered};
pub(crate) use self::outbox::{Outbox, Told};
pub(crate) use self::spill::{Spill, SpillError};
pub(crate) use self::worker::{Forwarder, Parts};
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use spill::fuzzing::spill_segment;

/// A database documents are forwarded to.
pub trait Database: fmt::Debug + Send + Sync {
    /// What it is called, for people: without secrets.
    fn name(&self) -> String;

    /// Opens it. Blocks for as long as its own time limits allow.
    ///
    /// # Errors
    /// Why it cannot be used now; it is tried again.
    fn open(&self) -> Result<Box<dyn RowSink>, forebay_sink::OpenError>;
}

/// Where documents are forwarded to, and what may wait for it.
#[derive(Debug, Clone)]
pub struct ForwardOptions {
    /// The database.
    pub database: Arc<dyn Database>,
    /// Bytes of documents spilled to files while the database is away.
    pub spill_max: u64,
    /// How long the database is away before what waits is spilled.
    pub spill_after: Duration,
    /// Bytes of log kept for the database; beyond it documents are refused.
    pub log_max: u64,
    /// Whether a database that is not remembered and has documents is taken for this intake's own.
    pub adopt: bool,
    /// How long to wait before the database is tried again, at first.
    pub retry_min: Duration,
    /// How long to wait at most.
    pub retry_max: Duration,
}

impl ForwardOptions {
    /// Defaults for a database.
    #[must_use]
    pub fn new(database: Arc<dyn Database>) -> Self {
        Self {
            database,
            spill_max: 1 << 30,
            spill_after: Duration::from_secs(5),
            log_max: 4 << 30,
            adopt: false,
            retry_min: Duration::from_millis(100),
            retry_max: Duration::from_secs(30),
        }
    }
}

/// How the database and the way to it are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DatabaseState {
    /// It was not reached yet since the start.
    Connecting,
    /// It is given what it lacks from the intake's own database.
    Copying,
    /// It gets documents as they come.
    Following,
    /// It cannot be reached, or cannot write now; it is tried again.
    Away,
    /// It was reached and must not be written to, or refuses; it is tried again.
    Refused,
    /// The way to it has ended by a failure of this machine; a restart tries again.
    Stopped,
}

impl DatabaseState {
    /// The state as one word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Copying => "copying",
            Self::Following => "following",
            Self::Away => "away",
            Self::Refused => "refused",
            Self::Stopped => "stopped",
        }
    }

    /// Whether somebody should look after it.
    #[must_use]
    pub fn is_degraded(self) -> bool {
        matches!(self, Self::Away | Self::Refused | Self::Stopped)
    }
}

/// How forwarding goes.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct DatabaseStatus {
    /// The database, without secrets.
    pub database: String,
    /// How it is.
    pub state: DatabaseState,
    /// Why it is away, refused or stopped.
    pub reason: Option<String>,
    /// Since when the state is what it is, RFC 3339.
    pub since: String,
    /// Documents the intake has and the database not; a new database's are counted when it is reached.
    pub documents_waiting: u64,
    /// Age of the oldest of them in seconds.
    pub lag_seconds: f64,
    /// Documents written since the start.
    pub documents_written: u64,
    /// Values among these that did not fit their columns, which hold NULL instead.
    pub column_conflicts: u64,
    /// Attempts to reach the database that failed, and writes that did, since the start.
    pub retries: u64,
    /// Bytes of documents in spill files.
    pub spill_bytes: u64,
    /// The most there may be.
    pub spill_bytes_max: u64,
    /// Whether the spill has no room for what waits.
    pub spill_is_full: bool,
    /// Bytes of log kept for the database.
    pub log_bytes_kept: u64,
    /// The most there may be before documents are refused.
    pub log_bytes_max: u64,
}
