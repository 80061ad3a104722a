//! What can go wrong, by the act that was attempted.

use std::io;
use std::path::{Path, PathBuf};

use forebay_log::{AppendError, CommitError, Lsn, ReadError, TruncateError};

use super::format::EntryFault;
use super::ops::OpsFault;
use super::snapshot::format::SnapshotFault;

/// The device failed.
#[derive(Debug, thiserror::Error)]
#[error("{act} {}", path.display())]
pub struct Disk {
    /// What was attempted, such as `"write to"`.
    pub act: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// What the operating system said.
    #[source]
    pub source: io::Error,
}

impl Disk {
    pub(crate) fn new(act: &'static str, path: impl AsRef<Path>, source: io::Error) -> Self {
        Self { act, path: path.as_ref().to_path_buf(), source }
    }
}

/// Why the effects of a command were not taken into the log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The log takes nothing more. Of what was split into several entries some may be in it;
    /// recovery passes over those.
    #[error("append {bytes} bytes of operations to the command log")]
    Append {
        /// Bytes of the operations.
        bytes: usize,
        /// Why.
        #[source]
        source: AppendError,
    },
}

/// A damaged place of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("snapshot {} is damaged at byte {offset}: {fault}", path.display())]
pub struct SnapshotDamage {
    /// The file.
    pub path: PathBuf,
    /// Where in it the damaged thing begins.
    pub offset: u64,
    /// What is wrong there.
    pub fault: SnapshotFault,
}

/// Why a snapshot was not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotReadError {
    /// It is damaged.
    #[error(transparent)]
    Damaged(SnapshotDamage),
    /// The device failed.
    #[error(transparent)]
    Io(Disk),
    /// The log was trimmed since: operations between it and the log's start are gone.
    #[error(
        "snapshot {} was taken at position {lowest} of the log, which begins at {start}",
        path.display()
    )]
    Unreachable {
        /// The file.
        path: PathBuf,
        /// The lowest position of its ranges.
        lowest: Lsn,
        /// Where the log begins.
        start: Lsn,
    },
}

/// What is wrong with the contents of an entry of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogFault {
    /// The entry itself.
    #[error(transparent)]
    Entry(EntryFault),
    /// The operations in it.
    #[error(transparent)]
    Ops(OpsFault),
}

/// Why the data was not opened. What is on the disk was not changed, but for torn tails and
/// unfinished files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process uses it.
    #[error("the cache's data in {} is in use by another process", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The device failed.
    #[error(transparent)]
    Io(Disk),
    /// The command log cannot be opened.
    #[error("open the command log in {}", path.display())]
    Log {
        /// Its directory.
        path: PathBuf,
        /// Why; it names file and offset.
        #[source]
        source: forebay_log::OpenError,
    },
    /// An entry of the command log cannot be read.
    #[error(
        "read the command log in {}; nothing was opened, since what follows cannot be told. \
         Restore the directory from a copy, or move it away to begin empty",
        path.display()
    )]
    ReadLog {
        /// Its directory.
        path: PathBuf,
        /// Why; it names file and offset.
        #[source]
        source: ReadError,
    },
    /// An entry of the log is whole but does not hold what an entry holds.
    #[error("the entry at byte {offset} of {} is not one of the cache's: {fault}", path.display())]
    Entry {
        /// The segment file.
        path: PathBuf,
        /// Where in it the entry begins.
        offset: u64,
        /// What is wrong.
        fault: LogFault,
    },
    /// An operation of the log cannot be done again.
    #[error("the operation {command} at byte {offset} of {} was refused: {reason}", path.display())]
    Replay {
        /// The segment file.
        path: PathBuf,
        /// Where in it its entry begins.
        offset: u64,
        /// Its name.
        command: String,
        /// What was said to it.
        reason: String,
    },
    /// There are snapshots, but no log.
    #[error(
        "{} has snapshots but no command log, and a snapshot is nothing without it. Restore the log \
         from the same copy as the snapshots, or move the directory away to begin empty",
        path.display()
    )]
    NoLog {
        /// The directory.
        path: PathBuf,
    },
    /// A snapshot and the log do not belong together.
    #[error(
        "snapshot {} belongs to another command log than the one beside it. Restore both from the \
         same copy, or move the snapshot away if the log is whole",
        path.display()
    )]
    Foreign {
        /// The snapshot.
        path: PathBuf,
    },
    /// The log has lost what it once had on stable storage.
    #[error(
        "the command log in {} ends at position {end}, but snapshot {} was taken when it reached \
         {highest}: synced entries are gone. Restore the directory from a copy, or move it away to \
         begin empty",
        path.display(), snapshot.display()
    )]
    Behind {
        /// The log's directory.
        path: PathBuf,
        /// The snapshot that knows more.
        snapshot: PathBuf,
        /// The highest position of its ranges.
        highest: Lsn,
        /// Where the log ends.
        end: Lsn,
    },
    /// Nothing is left from which the log could lead to the data.
    #[error(
        "no snapshot in {} can be used with the command log, which begins at position {start}{}. \
         Restore the directory from a copy, or move it away to begin empty",
        path.display(), because(reasons)
    )]
    NoSnapshot {
        /// The directory.
        path: PathBuf,
        /// Where the log begins.
        start: Lsn,
        /// What is wrong with each snapshot, newest first.
        reasons: Vec<String>,
    },
    /// The log took no entry.
    #[error("begin to use the command log")]
    Append {
        /// Why.
        #[source]
        source: AppendError,
    },
}

fn because(reasons: &[String]) -> String {
    if reasons.is_empty() {
        return String::from(": there is none");
    }
    format!(" ({})", reasons.join("; "))
}

/// Why no snapshot was taken. The log and the snapshots before are as they were.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// One is being taken.
    #[error("a snapshot is being taken already")]
    Running,
    /// It was told to stop.
    #[error("the snapshot was cancelled")]
    Cancelled,
    /// A command panicked amid a change, so what is in memory is not what the log leads to.
    #[error("a command failed half done: no snapshot is taken of what it left")]
    Torn,
    /// The device failed.
    #[error(transparent)]
    Io(Disk),
    /// The log could not be put on stable storage up to where the snapshot was taken.
    #[error("sync the command log for a snapshot")]
    Log {
        /// Why.
        #[source]
        source: CommitError,
    },
    /// The snapshot is there, but the log was not trimmed.
    #[error("trim the command log after a snapshot")]
    Trim {
        /// Why.
        #[source]
        source: TruncateError,
    },
}
