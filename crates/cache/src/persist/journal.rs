//! The command log: operations in, positions out.
//!
//! Invariants: the operations of one [`Journal::append`] are in the log whole, or recovery takes
//! them for never having been there; the order of appends is the log's order.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_log::{AppendError, CommitError, Log, Lsn};
use parking_lot::Mutex;

use super::directory::Directory;
use super::error::JournalError;
use super::format::{self, PART_HEADER_SIZE};
use super::ops::Ops;
use super::snapshot::{Sizes, SnapshotInfo};

/// Operations are split into entries of this size, at most, where one entry cannot hold them.
const PART_SIZE_MAX: usize = 2 << 20;
/// Bytes of log after which a snapshot that failed is tried again.
const RETRY_SIZE: u64 = 16 << 20;

/// The command log, and what is known of the snapshots beside it.
#[derive(Debug)]
pub struct Journal {
    log: Log,
    /// Most bytes in one entry of operations.
    entry_size_max: usize,
    pub(super) directory: Directory,
    /// Held while a snapshot is taken.
    pub(super) kept: Mutex<Kept>,
    pub(super) sizes: Sizes,
    /// Least bytes of log between snapshots taken of themselves.
    snapshot_log_min: u64,
    /// Bytes that recovery read from the log, added to what was appended since.
    replayed: u64,
    /// Bytes of log after which the next snapshot is due.
    due: AtomicU64,
}

/// The snapshots known to be good.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) newest: Option<SnapshotInfo>,
    pub(super) next_number: u64,
}

/// What a journal is made of.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) log: Log,
    pub(super) entry_size_max: usize,
    pub(super) directory: Directory,
    pub(super) kept: Kept,
    pub(super) sizes: Sizes,
    pub(super) snapshot_log_min: u64,
    pub(super) replayed: u64,
}

impl Journal {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { log, entry_size_max, directory, kept, sizes, snapshot_log_min, replayed } =
            parts;
        let last_bytes = kept.newest.as_ref().map_or(0, |info| info.bytes);
        Self {
            log,
            entry_size_max,
            directory,
            kept: Mutex::new(kept),
            sizes,
            snapshot_log_min,
            replayed,
            due: AtomicU64::new(snapshot_log_min.max(last_bytes)),
        }
    }

    /// Appends what a command changed; returns the position to [`Journal::commit`].
    ///
    /// Call it with the shards of all keys concerned still locked. It blocks only where the log's
    /// buffer is full, until that is written.
    ///
    /// * `now_ms`: the time the command ran at; it is run again at the same.
    ///
    /// # Errors
    /// [`JournalError::Append`]: the log takes nothing more.
    pub fn append(&self, now_ms: u64, ops: &Ops) -> Result<Lsn, JournalError> {
        let bytes = ops.as_bytes();
        let header = format::ops_header(now_ms);
        let appended = if header.len() + bytes.len() <= self.entry_size_max {
            self.log.append(&[&header, bytes]).map(|appended| appended.end)
        } else {
            self.append_parts(now_ms, bytes)
        };
        appended.map_err(|source| JournalError::Append { bytes: bytes.len(), source })
    }

    /// Entries of others may come between the parts, but about other keys: those of these
    /// operations are locked.
    fn append_parts(&self, now_ms: u64, bytes: &[u8]) -> Result<Lsn, AppendError> {
        let size_max = self.entry_size_max.min(PART_SIZE_MAX).saturating_sub(PART_HEADER_SIZE);
        let size_max = size_max.max(1);
        let mut first = Lsn(0);
        let mut end = Lsn(0);
        for (number, part) in bytes.chunks(size_max).enumerate() {
            let offset = (number * size_max) as u64;
            let header = format::part_header(now_ms, first, bytes.len() as u64, offset);
            let appended = self.log.append(&[&header, part])?;
            if number == 0 {
                first = appended.lsn;
            }
            end = appended.end;
        }
        Ok(end)
    }

    /// Blocks until everything before `end` is acknowledged under the configured durability; at
    /// once where it already is.
    ///
    /// # Errors
    /// As [`Log::commit`].
    pub fn commit(&self, end: Lsn) -> Result<(), CommitError> {
        self.log.commit(end)
    }

    /// Position after everything appended so far.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.log.end()
    }

    /// The log itself.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Whether a snapshot should be taken: the log grew by more than the last snapshot's size, and
    /// [`PersistOptions::snapshot_log_min`](super::PersistOptions::snapshot_log_min), since that was
    /// begun. Cheap; ask about once a second.
    #[must_use]
    pub fn snapshot_due(&self) -> bool {
        self.appended_bytes() > self.due.load(Ordering::Relaxed)
    }

    /// The newest snapshot known to be good; `None` also while one is being taken.
    #[must_use]
    pub fn last_snapshot(&self) -> Option<SnapshotInfo> {
        self.kept.try_lock()?.newest.clone()
    }

    /// Bytes of entries after the snapshot that was recovered from: those found and those appended.
    pub(super) fn appended_bytes(&self) -> u64 {
        self.replayed + self.log.stats().appended_bytes
    }

    /// A snapshot of `bytes` was begun when so many bytes were appended.
    pub(super) fn note_snapshot(&self, appended: u64, bytes: u64) {
        self.due.store(appended + bytes.max(self.snapshot_log_min), Ordering::Relaxed);
    }

    /// A snapshot was not taken: not again at once.
    pub(super) fn note_failure(&self) {
        let again = self.appended_bytes() + RETRY_SIZE;
        self.due.fetch_max(again, Ordering::Relaxed);
    }
}
