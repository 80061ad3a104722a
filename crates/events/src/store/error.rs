//! Errors of a store, by the operation that was attempted.

use std::io;
use std::path::PathBuf;

use forebay_base::error_chain::chain;
use forebay_log::{AppendError as LogAppendError, CommitError};

use super::Shortage;
use super::flush::FlushError;
use crate::checkpoint::{CheckpointError, HistoryError, KeyFileError};
use crate::merkle::TreeFileError;
use crate::segment::SegmentError;

/// The device failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {act} {}", path.display())]
pub struct Disk {
    /// The operation that failed.
    pub act: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The operating system's error.
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
    /// Another process, or another store in this process, has the directory open.
    #[error("the event store {} is in use by another process", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// There is no store, and none may be created.
    #[error("there is no event store in {}", path.display())]
    Absent {
        /// The directory.
        path: PathBuf,
    },
    /// The device failed.
    #[error("cannot open the event store")]
    Io(#[source] Disk),
    /// The manifest, or another small file, is damaged.
    #[error("the file {} of the event store is damaged: {reason}", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: &'static str,
    },
    /// A segment is damaged or missing.
    #[error("cannot open a segment of the event store")]
    Segment(#[source] SegmentError),
    /// The tree's file is damaged.
    #[error("cannot open the tree of the event store")]
    Tree(#[source] TreeFileError),
    /// The tree's file does not match the segments.
    #[error("the tree of the event store does not match its segments")]
    Parts(#[source] crate::merkle::PartsError),
    /// The last leaves of the tree cannot be read.
    #[error("cannot build the right edge of the event store's tree: {reason}")]
    Edge {
        /// Why.
        reason: String,
    },
    /// The name for signing is not valid.
    #[error("cannot create a key for the configured origin")]
    Origin(#[source] crate::checkpoint::KeyError),
    /// The key is damaged or could not be created.
    #[error("cannot open the key of the event store")]
    Key(#[source] KeyFileError),
    /// The checkpoints are damaged.
    #[error("cannot open the checkpoints of the event store")]
    History(#[source] HistoryError),
    /// The latest checkpoint was not signed by this store's key.
    #[error("the latest checkpoint of the event store does not verify")]
    Checkpoint(#[source] CheckpointError),
    /// The log is damaged or could not be read.
    #[error("cannot open the log of the event store")]
    Log(#[source] forebay_log::OpenError),
    /// The log's files could not be listed.
    #[error("cannot list the files of the event store's log")]
    LogFiles(#[source] forebay_log::DiskError),
    /// The log could not be read.
    #[error("cannot read the log of the event store")]
    LogRead(#[source] forebay_log::ReadError),
    /// An entry of the log is not a batch, or not the expected one.
    #[error("the log entry at position {lsn} is not a batch of events: {reason}")]
    Entry {
        /// Its position.
        lsn: u64,
        /// What is wrong.
        reason: &'static str,
    },
    /// The manifest belongs to another log.
    #[error("the log in {} does not belong to this event store", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
    },
    /// The store was created with the other setting.
    #[error(
        "the event store in {} was created with proofs {}; this cannot be changed afterwards",
        path.display(), if *merkle { "on" } else { "off" }
    )]
    Merkle {
        /// The directory.
        path: PathBuf,
        /// How it was created.
        merkle: bool,
    },
    /// The store has fewer events than a checkpoint it signed.
    #[error(
        "the event store has {found} events, but its own checkpoint covers {signed}: \
         the newest events are missing"
    )]
    Truncated {
        /// Number of events found.
        found: u64,
        /// Number of events in the checkpoint.
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
    /// The request's key belongs to one with another body: nothing was stored.
    #[error("the key of the request belongs to a request with another body")]
    KeyReused,
    /// The log did not accept it: nothing was stored.
    #[error("cannot append the batch to the log")]
    Log(#[source] LogAppendError),
    /// Whether it was stored is unknown until the store is opened again.
    #[error("the batch was not committed")]
    Commit(#[source] CommitError),
    /// The store accepts nothing: a flush failed, or its events differ from those it signed.
    #[error("the event store accepts no events: {reason}")]
    Closed {
        /// Why.
        reason: String,
        /// What is lacking, if the condition is temporary.
        shortage: Option<Shortage>,
    },
    /// The log waits for space or descriptors: nothing was stored.
    #[error("the event store accepts no events until its log can be written again")]
    Waiting(#[source] CommitError),
}

impl ReadError {
    /// Says which events a change is among, without the place in the store's files; `None` for other
    /// errors.
    #[must_use]
    pub fn change(&self) -> Option<String> {
        match self {
            Self::Changed { stream, first, last, .. } => Some(among(*first, *last, stream)),
            _ => None,
        }
    }
}

impl AppendError {
    /// What is lacking, if the condition is temporary.
    #[must_use]
    pub fn shortage(&self) -> Option<Shortage> {
        match self {
            Self::Closed { shortage, .. } => *shortage,
            error => Shortage::of(error),
        }
    }

    pub(crate) fn closed(reason: &str) -> Self {
        Self::Closed { reason: reason.to_owned(), shortage: None }
    }

    /// Events cannot become a segment.
    pub(crate) fn unflushed(error: FlushError) -> Self {
        Self::Closed { reason: chain(&error).to_string(), shortage: Shortage::of(&error) }
    }
}

/// Says which events a change is among. Where one hash covers many, it may be any of them.
fn among(first: u64, last: u64, stream: &str) -> String {
    if first == last {
        return format!("event {first} of stream {stream:?} was changed after it was stored");
    }
    format!(
        "at least one of the events {first} to {last}, in stream {stream:?} or another, was changed \
         after it was stored"
    )
}

/// Why something could not be read or proven.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A segment is damaged or could not be read.
    #[error("cannot read a segment")]
    Segment(#[source] SegmentError),
    /// Events are not those that were signed: their bytes were changed, and their checksums
    /// corrected.
    #[error(
        "cannot read {place}: {}: {reason}; restore the file from a backup, or see what was changed \
         with `events.verified_reads=false`; `forebay events verify` finds every change",
        among(*first, *last, stream)
    )]
    Changed {
        /// The stream of the first of them, as far as it is known.
        stream: String,
        /// The block and the file.
        place: String,
        /// Index of the first event among which the change is.
        first: u64,
        /// Index of the last.
        last: u64,
        /// What was compared.
        reason: String,
    },
    /// Nothing shows whether events are those that were signed: the store was opened without the end
    /// of its tree, and no signature covers their block.
    #[error("cannot read {place}: {reason}; restore the segments from a backup")]
    Unproven {
        /// The block and the file.
        place: String,
        /// What is lacking.
        reason: String,
    },
    /// The caller has left.
    #[error("the caller no longer waits for the result")]
    Gone,
    /// No event has this id.
    #[error("there is no event {id}")]
    NotFound {
        /// The id.
        id: crate::EventId,
    },
    /// The store keeps no proofs.
    #[error("this event store keeps no proofs: it was created with `merkle` off")]
    NoProofs,
    /// The tree does not have this size.
    #[error("the tree has {size} events, but {wanted} were requested")]
    Size {
        /// Requested size.
        wanted: u64,
        /// Actual size.
        size: u64,
    },
    /// Leaves that a proof needs are missing or have changed.
    #[error("cannot create the proof: {reason}")]
    Proof {
        /// Why.
        reason: String,
    },
    /// The events contradict what was signed: nothing more is signed.
    #[error("the event store signs nothing: {reason}")]
    Distrusted {
        /// Why.
        reason: String,
    },
    /// What was removed could not be recorded.
    #[error("cannot record what the store removes")]
    Record(#[source] AppendError),
    /// The manifest could not be replaced.
    #[error("cannot upgrade the event store")]
    Upgrade(#[source] Disk),
    /// A checkpoint could not be signed.
    #[error("cannot sign a checkpoint")]
    Checkpoint(#[source] CheckpointError),
    /// A checkpoint could not be stored.
    #[error("cannot store a checkpoint")]
    History(#[source] HistoryError),
    /// The copy of the newest checkpoint could not be replaced.
    #[error("cannot copy the newest checkpoint")]
    Copy(#[source] Disk),
    /// The log failed.
    #[error("cannot sync the log")]
    Commit(#[source] CommitError),
}
