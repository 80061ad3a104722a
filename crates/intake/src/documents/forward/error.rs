//! Why forwarding stopped, and what has to be done about it.
//!
//! Invariant: only [`ForwardError::Log`] ends the thread. Everything else is tried again, and
//! nothing that could not be written is skipped.

use forebay_sink::{OpenError, ReadError, SinkError};

use super::memory::MemoryError;
use super::spill::SpillError;
use crate::error::ApplyError;

/// Why a step of forwarding failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ForwardError {
    /// The database could not be opened.
    #[error("could not open the database")]
    Open(#[source] OpenError),
    /// An operation of the database failed.
    #[error("the database failed")]
    Sink(#[source] SinkError),
    /// The log, or an entry in it, cannot be read.
    #[error("could not read the documents to forward")]
    Log(#[source] ApplyError),
    /// The database lacks documents that come before these.
    #[error(
        "the database has documents of {namespace} up to {last}, but the next to write is {first}"
    )]
    Gap { namespace: String, last: u64, first: u64 },
    /// The database has other documents under these ids.
    #[error(
        "the database has documents of {namespace} up to {last}, but this intake assigned {first} \
         to {end} to one request: another intake has written there; set intake.database to an \
         empty schema"
    )]
    Overlap { namespace: String, first: u64, end: u64, last: u64 },
    /// The database was filled by another intake.
    #[error(
        "the database holds documents up to position {position} that this intake has no record of \
         writing; set intake.database to an empty schema or database, or, if they came from this \
         data directory, set intake.database.adopt for one start"
    )]
    Foreign { position: u64 },
    /// The database holds documents that the log does not.
    #[error(
        "the database holds documents up to {position}, but the log ends at {end}: the intake's \
         directory was restored from a backup, or belongs to another database; set \
         intake.database to an empty schema or database"
    )]
    Ahead { position: u64, end: u64 },
    /// The database lacks documents before its own position.
    #[error(
        "the database has no documents of {namespace} after {last}, although its position is \
         {position}: some were removed there; empty its schema, and all documents are copied again"
    )]
    Lost { namespace: String, last: u64, position: u64 },
    /// The spill could not be written or read.
    #[error("the spill failed")]
    Spill(#[source] SpillError),
    /// The forwarding state could not be written.
    #[error("could not record the database's position")]
    Memory(#[source] MemoryError),
    /// The local database could not be read.
    #[error("could not read the intake's own documents")]
    Local(#[source] ReadError),
    /// The local database could not be opened.
    #[error("could not open the intake's own documents")]
    OpenLocal(#[source] OpenError),
    /// The intake is closing.
    #[error("the intake is closing")]
    Closing,
}

impl From<ApplyError> for ForwardError {
    fn from(error: ApplyError) -> Self {
        match error {
            ApplyError::Sink(error) => Self::Sink(error),
            other => Self::Log(other),
        }
    }
}

impl From<SinkError> for ForwardError {
    fn from(error: SinkError) -> Self {
        Self::Sink(error)
    }
}

impl From<SpillError> for ForwardError {
    fn from(error: SpillError) -> Self {
        Self::Spill(error)
    }
}

impl From<MemoryError> for ForwardError {
    fn from(error: MemoryError) -> Self {
        Self::Memory(error)
    }
}

impl From<ReadError> for ForwardError {
    fn from(error: ReadError) -> Self {
        Self::Local(error)
    }
}

impl ForwardError {
    /// Whether the database was reached and refuses what was written.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Sink(error) if error.is_refusal())
    }

    /// Whether the documents are no longer in the log or the spill, only in the local database.
    pub(super) fn asks_for_a_copy(&self) -> bool {
        match self {
            Self::Gap { .. } | Self::Spill(SpillError::Damaged { .. }) => true,
            Self::Log(ApplyError::Read { source, .. }) => {
                matches!(source, forebay_log::ReadError::Erased { .. })
            }
            _ => false,
        }
    }
}
