//! Forwarding documents to an external database.
//!
//! ```text
//! request -> log -> view (documents.sqlite) -> forwarder -> PostgreSQL, MongoDB, ...
//!                                                 |  while that is away
//!                                                 +-> spill (NDJSON files) -> ... once it is back
//! ```
//!
//! The log stays the truth, and the local database answers queries. A thread follows the log after
//! the view and writes every commit into the database, with the log's position in the same
//! transaction, so the database alone shows what was written, whichever side was killed.
//!
//! While the database is away, documents wait in the log. After a moment they are also spilled, and
//! the log need not keep them. When the spill is full the log is kept, up to a limit; beyond it
//! documents are refused until the database is back.
//!
//! A database that lacks what neither the log nor the spill has (a new one, or one restored from a
//! backup) is first filled from the local database, each namespace in the order of its ids.
//!
//! A namespace whose rows the database refuses is quarantined: the others continue, and it is tried again
//! from the local database until the cause is removed (module `quarantine`).
//!
//! Invariants: documents of a namespace are written in the order of their ids, each once, since the
//! sink's own last id is checked before every commit and a gap or an overlap is never written over;
//! nothing leaves the log or the spill before the database, or the spill, has it on stable storage;
//! what is not on stable storage in the log is not written anywhere.

mod copy;
mod error;
mod memory;
mod outbox;
mod quarantine;
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
pub(crate) use self::outbox::{Outbox, QueuedCommit};
pub use self::quarantine::QuarantinedNamespace;
pub(crate) use self::spill::{Spill, SpillError};
pub(crate) use self::worker::{Forwarder, Parts};
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub use spill::fuzzing::spill_segment;

/// A database documents are forwarded to.
pub trait Database: fmt::Debug + Send + Sync {
    /// Its name in messages, without secrets.
    fn name(&self) -> String;

    /// Opens it. Blocks at most as long as its own time limits allow.
    ///
    /// # Errors
    /// Why it is unavailable; the caller tries again.
    fn open(&self) -> Result<Box<dyn RowSink>, forebay_sink::OpenError>;
}

/// The database that documents are forwarded to, and limits on what waits for it.
#[derive(Debug, Clone)]
pub struct ForwardOptions {
    /// The database.
    pub database: Arc<dyn Database>,
    /// Maximum number of bytes of documents spilled to files while the database is away.
    pub spill_max: u64,
    /// How long the database has to be away before waiting documents are spilled.
    pub spill_after: Duration,
    /// Maximum number of bytes of log kept for the database. Beyond it documents are refused.
    pub log_max: u64,
    /// Whether an unknown database that holds documents is accepted as this intake's own.
    pub adopt: bool,
    /// Initial delay before the database is tried again. It doubles with each failure, and each is
    /// shortened at random by up to half.
    pub retry_min: Duration,
    /// Maximum delay.
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

/// State of the database and of the connection to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DatabaseState {
    /// Not reached yet since the start.
    Connecting,
    /// Receives what it lacks from the intake's own database.
    Copying,
    /// Receives documents as they arrive.
    Following,
    /// Unreachable, or unable to write at present; tried again.
    Away,
    /// Reached, but must not be written to, or refuses; tried again.
    Refused,
    /// Forwarding has ended by a failure of this machine; a restart tries again.
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

    /// Whether an operator should look into it.
    #[must_use]
    pub fn is_degraded(self) -> bool {
        matches!(self, Self::Away | Self::Refused | Self::Stopped)
    }
}

/// State of forwarding.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct DatabaseStatus {
    /// The database, without secrets.
    pub database: String,
    /// Its state.
    pub state: DatabaseState,
    /// Why it is away, refused or stopped; null otherwise.
    #[schema(required)]
    pub reason: Option<String>,
    /// When the state last changed, RFC 3339.
    pub since: String,
    /// Namespaces whose documents the database refuses. Their documents are kept and tried again; those
    /// of other namespaces are written.
    pub quarantined: Vec<QuarantinedNamespace>,
    /// Number of documents that the intake has accepted and the database lacks, wherever they wait.
    /// All of the intake's documents until a new database is reached.
    pub documents_waiting: u64,
    /// Age of the oldest of them in seconds.
    pub lag_seconds: f64,
    /// Documents written since the start.
    pub documents_written: u64,
    /// Number of values among these that did not fit their columns, which hold NULL instead.
    pub column_conflicts: u64,
    /// Number of failed connection attempts and failed writes since the start.
    pub retries: u64,
    /// Bytes of documents in spill files.
    pub spill_bytes: u64,
    /// Maximum number of bytes in spill files.
    pub spill_bytes_max: u64,
    /// Whether the spill has no room for documents that wait.
    pub spill_is_full: bool,
    /// Bytes of log kept for the database.
    pub log_bytes_kept: u64,
    /// Maximum number of bytes of log kept before documents are refused.
    pub log_bytes_max: u64,
}

/// One line per property.
impl std::fmt::Display for DatabaseStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "database   {}", self.database)?;
        writeln!(f, "state      {} since {}", self.state.name(), self.since)?;
        if let Some(reason) = &self.reason {
            writeln!(f, "reason     {reason}")?;
        }
        for held in &self.quarantined {
            let QuarantinedNamespace { namespace, reason, since, documents_waiting, retries } =
                held;
            writeln!(
                f,
                "refused    {namespace}: {documents_waiting} documents since {since}, tried {retries} \
                 times: {reason}"
            )?;
        }
        let (waiting, lag) = (self.documents_waiting, self.lag_seconds);
        writeln!(f, "waiting    {waiting} documents, the oldest for {lag:.1} s")?;
        writeln!(
            f,
            "written    {} documents since the start, {} values did not fit their columns",
            self.documents_written, self.column_conflicts
        )?;
        writeln!(f, "retries    {}", self.retries)?;
        let full = if self.spill_is_full { ", full" } else { "" };
        writeln!(f, "spill      {} of {} bytes{full}", self.spill_bytes, self.spill_bytes_max)?;
        writeln!(f, "log kept   {} of {} bytes", self.log_bytes_kept, self.log_bytes_max)
    }
}
