//! Errors, by the operation that was attempted.

use std::io;
use std::path::{Path, PathBuf};

use forebay_log::{AppendError, CommitError, Lsn, ReadError, TruncateError};

use super::format::EntryFault;
use super::ops::OpsFault;
use super::snapshot::format::SnapshotFault;

/// The device failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {act} {}", path.display())]
pub struct Disk {
    /// The operation that failed, such as `"write to"`.
    pub act: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The operating system's error.
    #[source]
    pub source: io::Error,
}

impl Disk {
    pub(crate) fn new(act: &'static str, path: impl AsRef<Path>, source: io::Error) -> Self {
        Self { act, path: path.as_ref().to_path_buf(), source }
    }
}

/// Why the effects of a command were not logged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The log accepts no more entries. If the operations were split into several entries, some of
    /// these may be in the log; recovery ignores them.
    #[error("cannot append {bytes} bytes of operations to the command log")]
    Append {
        /// Bytes of the operations.
        bytes: usize,
        /// Why.
        #[source]
        source: AppendError,
    },
}

/// Damage in a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("snapshot {} is damaged at byte {offset}: {fault}", path.display())]
pub struct SnapshotDamage {
    /// The file.
    pub path: PathBuf,
    /// Offset of the damage in the file.
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
    /// The log was trimmed since then: operations between the snapshot and the log's start are
    /// missing.
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
    /// A reference between two keys of which the snapshot holds only one as of after it.
    #[error("an operation on two keys was logged while a snapshot read one of them")]
    Divided,
}

/// Why the data was not opened. Nothing on the disk was changed, except for torn tails and
/// unfinished files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process uses it.
    #[error("the cache's data in {} is in use by another process", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The device failed.
    #[error(transparent)]
    Io(Disk),
    /// The command log cannot be opened.
    #[error("cannot open the command log in {}", path.display())]
    Log {
        /// Its directory.
        path: PathBuf,
        /// Why; includes file and offset.
        #[source]
        source: forebay_log::OpenError,
    },
    /// An entry of the command log cannot be read.
    #[error(
        "cannot read the command log in {}; nothing was opened, because the entries that follow \
         are unknown. Restore the directory from a backup, or move it away to start with an \
         empty cache",
        path.display()
    )]
    ReadLog {
        /// Its directory.
        path: PathBuf,
        /// Why; includes file and offset.
        #[source]
        source: ReadError,
    },
    /// An entry of the log is intact but does not contain valid operations.
    #[error("the entry at byte {offset} of {} is not a cache entry: {fault}", path.display())]
    Entry {
        /// The segment file.
        path: PathBuf,
        /// Offset of the entry in the file.
        offset: u64,
        /// What is wrong.
        fault: LogFault,
    },
    /// An operation of the log cannot be replayed.
    #[error("the operation {command} at byte {offset} of {} was refused: {reason}", path.display())]
    Replay {
        /// The segment file.
        path: PathBuf,
        /// Offset of its entry in the file.
        offset: u64,
        /// Its command.
        command: String,
        /// The command's error.
        reason: String,
    },
    /// There are snapshots, but no log.
    #[error(
        "{} has snapshots but no command log, and a snapshot cannot be used without it. Restore \
         the log from the same backup as the snapshots, or move the directory away to start with an \
         empty cache",
        path.display()
    )]
    NoLog {
        /// The directory.
        path: PathBuf,
    },
    /// A snapshot and the log do not belong together.
    #[error(
        "snapshot {} belongs to a different command log. Restore both from the same backup, or \
         move the snapshot away if the log is complete",
        path.display()
    )]
    Foreign {
        /// The snapshot.
        path: PathBuf,
    },
    /// The log has lost entries that were on stable storage.
    #[error(
        "the command log in {} ends at position {end}, but snapshot {} was taken when it reached \
         {highest}: synced entries are missing. Restore the directory from a backup, or move it \
         away to start with an empty cache",
        path.display(), snapshot.display()
    )]
    Behind {
        /// The log's directory.
        path: PathBuf,
        /// The snapshot that refers to a later position.
        snapshot: PathBuf,
        /// The highest position of its ranges.
        highest: Lsn,
        /// Where the log ends.
        end: Lsn,
    },
    /// No snapshot is left from which the log leads to the data.
    #[error(
        "no snapshot in {} can be used with the command log, which begins at position {start}{}. \
         Restore the directory from a backup, or move it away to start with an empty cache",
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
    /// The log did not accept an entry.
    #[error("cannot start using the command log")]
    Append {
        /// Why.
        #[source]
        source: AppendError,
    },
}

fn because(reasons: &[String]) -> String {
    if reasons.is_empty() {
        return String::from(": there are no snapshots");
    }
    format!(" ({})", reasons.join("; "))
}

/// Why no snapshot was taken. The log and the earlier snapshots are unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Another one is being taken.
    #[error("a snapshot is already in progress")]
    Running,
    /// It was cancelled.
    #[error("the snapshot was cancelled")]
    Cancelled,
    /// A command panicked during a change, so memory does not match the log.
    #[error("a command failed after a partial change, so no snapshot is taken of its result")]
    Torn,
    /// The device failed.
    #[error(transparent)]
    Io(Disk),
    /// The log could not be synced up to the position of the snapshot.
    #[error("cannot sync the command log for a snapshot")]
    Log {
        /// Why.
        #[source]
        source: CommitError,
    },
    /// The snapshot is complete, but the log was not trimmed.
    #[error("cannot trim the command log after a snapshot")]
    Trim {
        /// Why.
        #[source]
        source: TruncateError,
    },
}
