//! The command log: operations in, positions out.
//!
//! Invariants: the operations of one [`Journal::append`] are in the log whole, or recovery takes
//! them for never having been there; the order of appends is the log's order.

use forebay_log::{AppendError, CommitError, Log, Lsn};

use super::error::JournalError;
use super::format::{self, PART_HEADER_SIZE};
use super::ops::Ops;

/// Operations are split into entries of this size, at most, where one entry cannot hold them.
const PART_SIZE_MAX: usize = 2 << 20;

/// The command log.
#[derive(Debug)]
pub struct Journal {
    log: Log,
    /// Most bytes in one entry of operations.
    entry_size_max: usize,
}

impl Journal {
    /// The journal that writes to a log.
    ///
    /// * `entry_size_max`: what the log was opened with.
    #[must_use]
    pub(super) fn new(log: Log, entry_size_max: usize) -> Self {
        Self { log, entry_size_max }
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
        let mut first = Lsn(0);
        let mut end = Lsn(0);
        for (number, part) in bytes.chunks(size_max.max(1)).enumerate() {
            let offset = (number * size_max.max(1)) as u64;
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
}
