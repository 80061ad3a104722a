//! What can go wrong with a store, by what was attempted.

use std::io;
use std::path::PathBuf;

use forebay_log::{AppendError as LogAppendError, CommitError};

use crate::checkpoint::{CheckpointError, HistoryError, KeyFileError};
use crate::merkle::TreeFileError;
use crate::segment::SegmentError;

/// The device failed.
#[derive(Debug, thiserror::Error)]
#[error("{act} {}", path.display())]
pub struct Disk {
    /// What was attempted.
    pub act: &'static str,
    /// On what.
    pub path: PathBuf,
    /// What the operating system said.
    #[source]
    pub source: io::Error,
}

impl Disk {
    pub(crate) fn new(act: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self { act, path: path.into(), source }
    }
}

/// Why a store was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or another store of this one, has the directory.
    #[error("the event store {} is in use by another process", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// There is no store, and none was to be made.
    #[error("there is no event store in {}", path.display())]
    Absent {
        /// The directory.
        path: PathBuf,
    },
    /// The device failed.
    #[error("the event store cannot be opened")]
    Io(#[source] Disk),
    /// The manifest is damaged.
    #[error("the manifest {} is damaged: {reason}", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: &'static str,
    },
    /// A segment is damaged or missing.
    #[error("a segment of the event store cannot be opened")]
    Segment(#[source] SegmentError),
    /// The tree's file is damaged.
    #[error("the tree of the event store cannot be opened")]
    Tree(#[source] TreeFileError),
    /// The tree's file does not fit the segments.
    #[error("the tree of the event store does not fit its segments")]
    Parts(#[source] crate::merkle::PartsError),
    /// The last leaves of the tree cannot be had.
    #[error("the edge of the event store's tree cannot be made: {reason}")]
    Edge {
        /// Why.
        reason: String,
    },
    /// The name to sign under is none.
    #[error("no key can be made for the configured origin")]
    Origin(#[source] crate::checkpoint::KeyError),
    /// The key is damaged or could not be made.
    #[error("the key of the event store cannot be opened")]
    Key(#[source] KeyFileError),
    /// The checkpoints are damaged.
    #[error("the checkpoints of the event store cannot be opened")]
    History(#[source] HistoryError),
    /// The latest checkpoint is not one this store's key signed.
    #[error("the latest checkpoint of the event store does not verify")]
    Checkpoint(#[source] CheckpointError),
    /// The log is damaged or was not readable.
    #[error("the log of the event store cannot be opened")]
    Log(#[source] forebay_log::OpenError),
    /// The log's files could not be listed.
    #[error("the files of the event store's log cannot be listed")]
    LogFiles(#[source] forebay_log::DiskError),
    /// The log could not be read.
    #[error("the log of the event store cannot be read")]
    LogRead(#[source] forebay_log::ReadError),
    /// An entry of the log is no batch, or not the one that should be there.
    #[error("the log entry at position {lsn} is no batch of events: {reason}")]
    Entry {
        /// Where.
        lsn: u64,
        /// What is wrong.
        reason: &'static str,
    },
    /// The manifest is of another log than the one that is there.
    #[error("the log in {} is not the one this event store was written with", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
    },
    /// The store was made with the other choice.
    #[error(
        "the event store in {} was made with proofs {}; they cannot be switched afterwards",
        path.display(), if *merkle { "on" } else { "off" }
    )]
    Merkle {
        /// The directory.
        path: PathBuf,
        /// How it was made.
        merkle: bool,
    },
    /// Fewer events are there than a checkpoint signed here speaks of.
    #[error(
        "the event store has {found} events, but its own checkpoint is of {signed}: \
         the newest were taken away"
    )]
    Truncated {
        /// Events found.
        found: u64,
        /// Events signed for.
        signed: u64,
    },
}

/// Why a batch was not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The batch has no events.
    #[error("the batch has no events")]
    Empty,
    /// The log did not take it: nothing was stored.
    #[error("the log did not take the batch")]
    Log(#[source] LogAppendError),
    /// Whether it was stored is unknown until the store is opened again.
    #[error("the batch was not committed")]
    Commit(#[source] CommitError),
    /// The store takes nothing more: a flush failed, or its history is not the one that was signed.
    #[error("the event store takes no events: {reason}")]
    Closed {
        /// Why.
        reason: String,
    },
}

/// Why something could not be read or proven.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A segment is damaged or could not be read.
    #[error("a segment could not be read")]
    Segment(#[source] SegmentError),
    /// No event is stored under this id.
    #[error("there is no event {id}")]
    NotFound {
        /// The id.
        id: crate::EventId,
    },
    /// The store keeps no proofs.
    #[error("this event store keeps no proofs: it was made with `merkle` off")]
    NoProofs,
    /// The tree has no such size.
    #[error("the tree has {size} events; {wanted} were asked for")]
    Size {
        /// What was asked for.
        wanted: u64,
        /// What there is.
        size: u64,
    },
    /// Leaves that a proof needs are gone, or are not what they were.
    #[error("the proof cannot be made: {reason}")]
    Proof {
        /// Why.
        reason: String,
    },
    /// A checkpoint could not be signed.
    #[error("a checkpoint could not be signed")]
    Checkpoint(#[source] CheckpointError),
    /// A checkpoint could not be written down.
    #[error("a checkpoint could not be kept")]
    History(#[source] HistoryError),
    /// The log failed.
    #[error("the log could not be synced")]
    Commit(#[source] CommitError),
}
