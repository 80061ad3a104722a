//! Why forwarding stopped where it did, and what is to be done about it.
//!
//! Invariant: only [`ForwardError::Log`] ends the thread; everything else is tried again, and nothing
//! that could not be written is passed over.

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
    /// The database did not do what it was asked.
    #[error("the database failed")]
    Sink(#[source] SinkError),
    /// The log, or what it holds.
    #[error("could not read what is to be forwarded")]
    Log(#[source] ApplyError),
    /// The database lacks documents that come before these.
    #[error(
        "the database has documents of {namespace} up to {last}, the next to be written is {first}"
    )]
    Gap { namespace: String, last: u64, first: u64 },
    /// The database has other documents under these ids.
    #[error(
        "the database has documents of {namespace} up to {last}, and this intake gave {first} to {end} \
         to one request: another intake has written there; point intake.database at an empty schema"
    )]
    Overlap { namespace: String, first: u64, end: u64, last: u64 },
    /// The database was filled by another intake.
    #[error(
        "it holds documents, up to position {position}, and this intake does not remember writing \
         them; point intake.database at an empty schema or database, or, if they came from this data \
         directory, set intake.database.adopt for one start"
    )]
    Foreign { position: u64 },
    /// The database has what the log has not.
    #[error(
        "it holds documents up to {position}, and the log ends at {end}: the intake's directory was set \
         back, or belongs to another database; point intake.database at an empty schema or database"
    )]
    Ahead { position: u64, end: u64 },
    /// The database has lost documents behind its own position.
    #[error(
        "it has no documents of {namespace} after {last}, although it says that it has everything up to \
         {position}: some were removed there; empty its schema, and all documents are copied to it anew"
    )]
    Lost { namespace: String, last: u64, position: u64 },
    /// The spill could not be written or read.
    #[error("the spill failed")]
    Spill(#[source] SpillError),
    /// What is remembered could not be kept.
    #[error("could not remember how far the database is")]
    Memory(#[source] MemoryError),
    /// The local database could not be read.
    #[error("could not read the intake's own documents")]
    Local(#[source] ReadError),
    /// The local database could not be opened.
    #[error("could not open the intake's own documents")]
    OpenLocal(#[source] OpenError),
    /// The intake closes.
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
    /// Whether the documents are no longer where they were to be read, but in the local database.
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
