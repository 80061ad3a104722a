//! The public interface of the log.

use std::{path::Path, sync::Arc, time::Instant};

use forebay_base::{Durability, fs::FileSystem};

use crate::{
    Lsn, Options,
    committer::Committer,
    error::{AppendError, CommitError, OpenError, ReadError},
    reader::{self, Reader},
    recovery::{self, Recovery},
    segment,
    stats::{Stats, add},
    wait::{Committed, Room, block_on},
    writer::Shared,
};

/// The location of an appended entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The entry's position, for [`Log::read`].
    pub lsn: Lsn,
    /// The position after it, for [`Log::commit`] and [`Log::committed`].
    pub end: Lsn,
}

/// A segment file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Position of its first byte, which names it.
    pub base: Lsn,
    /// Where its entries end; if it is not sealed, where they end so far.
    pub end: Lsn,
    /// Whether it is complete: synced, and never appended to again.
    pub sealed: bool,
    /// Bytes it takes on the device, holes not counted.
    pub disk_bytes: u64,
}

/// An append-only log. Cloning is cheap; all clones are the same log.
///
/// ```
/// use std::sync::Arc;
/// use forebay_base::fs::RealFs;
/// use forebay_log::{Log, Options};
///
/// let dir = tempfile::tempdir()?;
/// let (log, _) = Log::open(Arc::new(RealFs), dir.path(), Options::default())?;
/// let appended = log.append(&[b"fore", b"bay"])?;
/// log.commit(appended.end)?; // on stable storage from here on
/// assert_eq!(log.read(appended.lsn)?, b"forebay");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Log {
    pub(crate) shared: Arc<Shared>,
}

impl Log {
    /// Opens the log in `dir`, creating it if it does not exist, and repairs the effects of a
    /// crash.
    ///
    /// Starts no thread: see [`Log::start_committer`]. The directory stays locked until the last
    /// clone, reader and future is dropped.
    ///
    /// * `dir`: contains only this log.
    /// * Returns the log and the result of recovery.
    ///
    /// # Errors
    /// [`OpenError::Option`]: an option is out of range; nothing was touched.
    /// [`OpenError::Locked`]: it is open elsewhere. [`OpenError::Corrupt`]: something synced is
    /// damaged; no segment was changed.
    /// [`OpenError::Io`]: the device failed; opening may be tried again.
    pub fn open(
        fs: Arc<dyn FileSystem>,
        dir: &Path,
        options: Options,
    ) -> Result<(Self, Recovery), OpenError> {
        let (shared, recovery) = recovery::open(fs, dir, options.checked()?)?;
        Ok((Self { shared: Arc::new(shared) }, recovery))
    }

    /// Starts the threads that write and sync on behalf of all waiting callers.
    ///
    /// # Panics
    /// When the operating system refuses a thread, as [`std::thread::spawn`] does.
    pub fn start_committer(&self) -> Committer {
        Committer::start(Arc::clone(&self.shared))
    }

    /// Appends the concatenation of `parts` as one entry, or fails if there is no room.
    ///
    /// The entry is durable only after [`Log::commit`], [`Log::committed`] or [`Log::sync`]. A
    /// crash before that may lose it, but never a part of it, and never without everything after
    /// it.
    ///
    /// # Errors
    /// Nothing was appended. [`AppendError::Full`]: await [`Log::room`] and try again.
    /// [`AppendError::TooLarge`], [`AppendError::Poisoned`].
    pub fn try_append(&self, parts: &[&[u8]]) -> Result<Appended, AppendError> {
        self.append_then(parts, |_| ())
    }

    /// Like [`Log::try_append`], and calls `then` with the entry's position before any later entry
    /// can be appended, so that a view can be built in log order.
    ///
    /// `then` runs under the append lock: it must be brief and must not use the log.
    ///
    /// # Errors
    /// As [`Log::try_append`]; `then` was not called.
    pub fn append_then(
        &self,
        parts: &[&[u8]],
        then: impl FnOnce(Lsn),
    ) -> Result<Appended, AppendError> {
        let bounds = self.shared.bounds();
        let appended = {
            let mut inner = self.shared.inner.lock();
            let appended = inner.push(parts, bounds);
            if let Ok(appended) = &appended {
                then(appended.lsn);
            }
            appended
        };
        let counters = &self.shared.counters;
        match &appended {
            Ok(_) => {
                add(&counters.appended_entries, 1);
                add(&counters.appended_bytes, parts.iter().map(|part| part.len() as u64).sum());
            }
            Err(AppendError::Full { .. }) => add(&counters.full, 1),
            Err(_) => {}
        }
        appended
    }

    /// Like [`Log::try_append`], but writes the buffer itself, blocking, if there is no room.
    ///
    /// # Errors
    /// Nothing was appended. [`AppendError::TooLarge`], [`AppendError::Poisoned`].
    pub fn append(&self, parts: &[&[u8]]) -> Result<Appended, AppendError> {
        loop {
            match self.try_append(parts) {
                Err(AppendError::Full { .. }) => self.make_room()?,
                result => return result,
            }
        }
    }

    fn make_room(&self) -> Result<(), AppendError> {
        match self.shared.drive(false) {
            Err(CommitError::Poisoned { source }) => Err(AppendError::Poisoned { source }),
            // A stalled log accepts entries of operations in progress.
            Ok(()) | Err(CommitError::Beyond { .. } | CommitError::Stalled { .. }) => Ok(()),
        }
    }

    /// Tries again to write what a stalled log holds, and syncs it if the durability requires it.
    ///
    /// On a log that is not stalled this is an ordinary commit.
    ///
    /// # Errors
    /// [`CommitError::Stalled`]: not yet. [`CommitError::Poisoned`].
    pub fn retry(&self) -> Result<(), CommitError> {
        self.shared.drive(!self.shared.is_relaxed())
    }

    /// Position up to which everything is acknowledged under the configured durability.
    #[must_use]
    pub fn acknowledged(&self) -> Lsn {
        Lsn(self.shared.acknowledged())
    }

    /// Why the log is stalled, if it is.
    #[must_use]
    pub fn stalled(&self) -> Option<Arc<crate::DiskError>> {
        if !self.shared.stalled.load(std::sync::atomic::Ordering::Acquire) {
            return None;
        }
        self.shared.inner.lock().stall.clone()
    }

    /// Returns the entries that were appended but not completely written yet, in order.
    ///
    /// Blocks during a write. Intended for a stalled log; otherwise the result is outdated
    /// immediately.
    #[must_use]
    pub fn unwritten(&self) -> Vec<Vec<u8>> {
        let io = self.shared.io.lock();
        let inner = self.shared.inner.lock();
        let mut entries = Vec::new();
        for buffer in io.held.iter().chain([&inner.buffer]) {
            buffer.each_entry(&mut |payload| entries.push(payload.to_vec()));
        }
        entries
    }

    /// Waits until an entry of `len` bytes may fit. Another caller may take the room first: try
    /// again.
    ///
    /// Completes immediately on a log closed by a failure, which the next append reports. Without a
    /// committer a poll writes the buffer itself, blocking.
    pub fn room(&self, len: usize) -> Room {
        Room::new(Arc::clone(&self.shared), len)
    }

    /// Blocks until everything before `end` is acknowledged under the configured durability.
    ///
    /// Writes itself if no committer runs; callers that arrive meanwhile share the next write
    /// and sync. Under `interval` without a committer, the first commit after the interval has
    /// passed performs the sync.
    ///
    /// * `end`: an [`Appended::end`] or [`Log::end`].
    ///
    /// # Errors
    /// [`CommitError::Poisoned`]: a write or sync failed; whether the entries survive is unknown
    /// until the log is reopened. [`CommitError::Beyond`]: the position was never assigned.
    pub fn commit(&self, end: Lsn) -> Result<(), CommitError> {
        block_on(self.committed(end))
    }

    /// Completes when everything before `end` is acknowledged under the configured durability.
    ///
    /// All waiting callers are woken after one write and one sync. Needs a running committer:
    /// without one a poll does the work itself, blocking. The future borrows nothing and may be
    /// dropped at any time.
    ///
    /// # Errors
    /// As [`Log::commit`].
    pub fn committed(&self, end: Lsn) -> Committed {
        Committed::new(Arc::clone(&self.shared), end)
    }

    /// Puts everything appended so far on stable storage, whatever the durability, and returns the
    /// position up to which that holds.
    ///
    /// # Errors
    /// [`CommitError::Poisoned`], as [`Log::commit`].
    pub fn sync(&self) -> Result<Lsn, CommitError> {
        self.shared.drive(true)?;
        Ok(self.synced())
    }

    /// Blocks until everything before `end` is on stable storage, whatever the durability.
    ///
    /// Unlike [`Log::sync`] it does not block other writers, and does nothing if the durability or
    /// another caller's sync has already done it.
    ///
    /// * `end`: an [`Appended::end`] or [`Log::end`].
    ///
    /// # Errors
    /// As [`Log::commit`].
    pub fn sync_to(&self, end: Lsn) -> Result<(), CommitError> {
        self.commit(end)?;
        if self.synced() >= end {
            return Ok(());
        }
        let synced = self.shared.sync_written();
        if synced.is_err() {
            // This closes the log: callers that wait for the committer must be notified.
            self.shared.wake_everyone();
        }
        synced
    }

    /// Random bytes that no other log has: a caller that stores positions should store this with
    /// them.
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        self.shared.log_id
    }

    /// Position before the first entry that was not truncated away: where reading everything
    /// starts.
    #[must_use]
    pub fn start(&self) -> Lsn {
        self.shared.segments.lock().start()
    }

    /// Position after everything appended so far, written or not.
    #[must_use]
    pub fn end(&self) -> Lsn {
        Lsn(self.shared.inner.lock().next)
    }

    /// Position up to which everything is on stable storage.
    #[must_use]
    pub fn synced(&self) -> Lsn {
        Lsn(self.shared.synced())
    }

    /// Position up to which everything was handed to the kernel, and can be read.
    #[must_use]
    pub fn written(&self) -> Lsn {
        Lsn(self.shared.written())
    }

    /// Reads and verifies one entry.
    ///
    /// Entries can be read once they are written: after their commit, or a [`Log::sync`].
    ///
    /// # Errors
    /// [`ReadError::BelowStart`], [`ReadError::Beyond`], [`ReadError::NotAnEntry`]: there is no
    /// entry there.
    /// [`ReadError::Erased`]: the entry was erased, or `lsn` lies among entries that were erased
    /// together, about which nothing else is known. [`ReadError::Corrupt`]: it is damaged.
    /// [`ReadError::Io`].
    pub fn read(&self, lsn: Lsn) -> Result<Vec<u8>, ReadError> {
        reader::read_one(&self.shared, lsn)
    }

    /// Reads entries in order, from the first at or after `from`.
    ///
    /// * `from`: an entry's position, the end of one, or [`Log::start`]. The entry may have been
    ///   erased.
    /// * Errors, such as a position that was truncated away, are returned with the first entry.
    #[must_use]
    pub fn reader(&self, from: Lsn) -> Reader {
        Reader::new(Arc::clone(&self.shared), from)
    }

    /// When an entry is acknowledged.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.shared.durability()
    }

    /// Checks that the log still accepts entries: a failed write or sync closes it permanently. A
    /// stalled log is not closed.
    ///
    /// # Errors
    /// [`CommitError::Poisoned`]: what failed.
    pub fn usable(&self) -> Result<(), CommitError> {
        self.shared.check_poison()
    }

    /// Returns counters since the log was opened.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.counters.read()
    }
}

impl Shared {
    /// Commits on the caller's thread.
    pub(crate) fn commit_here(&self, end: u64) -> Result<(), CommitError> {
        if self.acknowledged() < end {
            self.drive(matches!(self.options.durability, Durability::Sync))?;
        }
        let Durability::Interval(interval) = self.options.durability else { return Ok(()) };
        let dirty_since = self.inner.lock().dirty_since;
        if dirty_since.is_some_and(|since| since + interval <= Instant::now()) {
            self.sync_written()?;
            self.inner.lock().dirty_since = None;
        }
        Ok(())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The last reference. Nothing here was acknowledged, so there is no one to report a failure
        // to: what could not be written is what a crash would have lost.
        self.close().ok();
        if self.prepared.lock().take().is_some() {
            // Opening would remove it too; until then it would only take space.
            self.fs.remove_file(&self.dir.join(segment::PREPARED_NAME)).ok();
        }
    }
}
