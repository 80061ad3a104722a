//! The command log: appends operations, returns positions.
//!
//! Invariants: the operations of one [`Journal::append`] are in the log completely, or recovery
//! ignores them; the order of appends is the log's order.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_base::image::Image;
use forebay_log::{AppendError, CommitError, Log, Lsn};
use parking_lot::Mutex;

use super::directory::Directory;
use super::error::JournalError;
use super::format::{self, Entry, PART_HEADER_SIZE};
use super::front::Front;
use super::image::CacheImageError;
use super::ops::{Ops, OpsReader};
use super::snapshot::{Sizes, SnapshotInfo};

/// Maximum size of the parts into which operations are split if they do not fit one entry.
const PART_SIZE_MAX: usize = 2 << 20;
/// Size of the log in bytes after which a failed snapshot is tried again.
const RETRY_SIZE: u64 = 16 << 20;

/// The command log, and the state of the snapshots that belong to it.
#[derive(Debug)]
pub struct Journal {
    log: Log,
    /// Maximum size of an entry of operations in bytes.
    entry_size_max: usize,
    pub(super) directory: Directory,
    /// Held while a snapshot is taken.
    pub(super) kept: Mutex<Kept>,
    /// How far a snapshot has read the keys.
    pub(super) front: Front,
    pub(super) sizes: Sizes,
    /// Minimum size in bytes of the log between automatic snapshots.
    snapshot_log_min: u64,
    /// Bytes that recovery read from the log; added to the bytes appended since.
    replayed: u64,
    /// Size of the log in bytes at which the next snapshot is due.
    due: AtomicU64,
}

/// What an operation changes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Touched<'a> {
    /// A key of a database.
    Key(usize, &'a [u8]),
    /// Any key.
    All,
}

impl Touched<'_> {
    /// Visits what operations change.
    ///
    /// * `bytes`: [`Ops::as_bytes`].
    pub(crate) fn of_ops(bytes: &[u8], visit: &mut dyn FnMut(Touched<'_>)) {
        let mut ops = OpsReader::new(bytes);
        loop {
            match ops.next() {
                Ok(Some(op)) => {
                    visit(op.key().map_or(Touched::All, |key| Touched::Key(op.database, key)));
                    if let Some((database, key)) = op.second_key() {
                        visit(Touched::Key(database, key));
                    }
                }
                Ok(None) => return,
                Err(_) => return visit(Touched::All),
            }
        }
    }
}

/// The snapshots known to be valid.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) newest: Option<SnapshotInfo>,
    pub(super) next_number: u64,
}

/// The parts from which a journal is built.
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
            front: Front::default(),
            sizes,
            snapshot_log_min,
            replayed,
            due: AtomicU64::new(snapshot_log_min.max(last_bytes)),
        }
    }

    /// Adds the files of the cache to an image. Blocks.
    pub(crate) fn image(&self, image: &mut Image) -> Result<(), CacheImageError> {
        super::image::image(&*self.directory.fs, self.directory.path(), &self.log, image)
    }

    /// Appends the changes of a command; returns the position for [`Journal::commit`].
    ///
    /// Call it while the shards of all affected keys are locked. It blocks only if the log's buffer
    /// is full, until the buffer has been written.
    ///
    /// * `now_ms`: the time at which the command ran; a replay runs it at the same time.
    ///
    /// # Errors
    /// [`JournalError::Append`]: the log accepts no more entries.
    pub fn append(&self, now_ms: u64, ops: &Ops) -> Result<Lsn, JournalError> {
        let bytes = ops.as_bytes();
        let header = format::ops_header(now_ms, ops.refers());
        let appended = if header.len() + bytes.len() <= self.entry_size_max {
            self.log.append(&[&header, bytes]).map(|appended| appended.end)
        } else {
            self.append_parts((now_ms, ops.refers()), bytes)
        };
        appended.map_err(|source| JournalError::Append { bytes: bytes.len(), source })
    }

    /// Entries of other commands may come between the parts, but only for other keys: the keys of
    /// these operations are locked.
    fn append_parts(&self, head: (u64, bool), bytes: &[u8]) -> Result<Lsn, AppendError> {
        let size_max = self.entry_size_max.min(PART_SIZE_MAX).saturating_sub(PART_HEADER_SIZE);
        let size_max = size_max.max(1);
        let mut first = Lsn(0);
        let mut end = Lsn(0);
        for (number, part) in bytes.chunks(size_max).enumerate() {
            let offset = (number * size_max) as u64;
            let header = format::part_header(head, first, bytes.len() as u64, offset);
            let appended = self.log.append(&[&header, part])?;
            if number == 0 {
                first = appended.lsn;
            }
            end = appended.end;
        }
        Ok(end)
    }

    /// Whether an operation may refer from one of two keys to the other
    /// ([`Ops::push_reference`]).
    ///
    /// Not while a snapshot has read only one of them: it holds that key as of before the operation
    /// and will hold the other as of after it, and the value would be lost. Call it while the
    /// shards of both keys are locked, until the operation is in the log.
    ///
    /// * `keys`: the database and the hash of each.
    pub(crate) fn takes_reference(&self, keys: [(usize, u64); 2]) -> bool {
        self.front.is_beside(keys)
    }

    /// Blocks until everything before `end` is acknowledged under the configured durability;
    /// returns immediately if it already is.
    ///
    /// # Errors
    /// As [`Log::commit`].
    pub fn commit(&self, end: Lsn) -> Result<(), CommitError> {
        self.log.commit(end)
    }

    /// Visits what the unwritten entries change; see [`Log::unwritten`].
    pub(crate) fn unwritten(&self, visit: &mut dyn FnMut(Touched<'_>)) {
        for payload in self.log.unwritten() {
            match Entry::decode(&payload) {
                Ok(Entry::Ops { bytes, .. }) => Touched::of_ops(bytes, visit),
                Ok(Entry::Opened) => {}
                // A part reveals its keys only together with the others, some of which have been
                // written.
                Ok(Entry::Part { .. }) | Err(_) => visit(Touched::All),
            }
        }
    }

    /// Position after everything appended so far.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.log.end()
    }

    /// Returns the log.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Whether a snapshot is due: since the last snapshot began, the log grew by more than that
    /// snapshot's size and more than
    /// [`PersistOptions::snapshot_log_min`](super::PersistOptions::snapshot_log_min). Cheap; call
    /// it about once a second.
    #[must_use]
    pub fn snapshot_due(&self) -> bool {
        self.appended_bytes() > self.due.load(Ordering::Relaxed)
    }

    /// The newest snapshot known to be valid; `None` also while one is being taken.
    #[must_use]
    pub fn last_snapshot(&self) -> Option<SnapshotInfo> {
        self.kept.try_lock()?.newest.clone()
    }

    /// Bytes of entries after the recovered snapshot: those found and those appended.
    pub(super) fn appended_bytes(&self) -> u64 {
        self.replayed + self.log.stats().appended_bytes
    }

    /// Records that a snapshot of `bytes` was begun after `appended` bytes.
    pub(super) fn note_snapshot(&self, appended: u64, bytes: u64) {
        self.due.store(appended + bytes.max(self.snapshot_log_min), Ordering::Relaxed);
    }

    /// Records that a snapshot failed: the next is not tried immediately.
    pub(super) fn note_failure(&self) {
        let again = self.appended_bytes() + RETRY_SIZE;
        self.due.fetch_max(again, Ordering::Relaxed);
    }
}
