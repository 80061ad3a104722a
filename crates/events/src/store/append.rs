//! Appending: batches get their positions, are written to the log, and become visible when
//! acknowledged.

#![expect(clippy::cast_possible_truncation, reason = "a batch is bounded in events")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};

use forebay_base::Durability;
use forebay_log::{AppendError as LogAppendError, CommitError, Lsn};
use parking_lot::MutexGuard;

use super::error::AppendError;
use super::seal::Kind;
use super::tree::{Leaves, hashes_of};
use super::{Inner, Sequencer};
use crate::batch::Batch;
use crate::event::EventId;
use crate::format::entry;
use crate::format::request::RequestNote;
use crate::memory::{Run, Table};

/// A batch that was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// Position of its first event; the others follow.
    pub first_seq: u64,
    /// Events in it.
    pub count: u64,
    /// Id of its first event.
    pub first_id: EventId,
    /// Id of its last event.
    pub last_id: EventId,
}

/// What is needed to wait for a submitted batch; borrows nothing of the store.
#[derive(Debug, Clone, Copy)]
#[must_use = "the batch is not acknowledged before it was waited for"]
pub struct Promise {
    accepted: Accepted,
    end: Lsn,
    /// The log to which `end` belongs.
    epoch: u64,
}

impl Promise {
    /// The position after its last event.
    pub(crate) fn end_seq(&self) -> u64 {
        self.accepted.first_seq + self.accepted.count
    }

    /// Whether its acknowledgement also covers `earlier`: not if the log failed between the two.
    #[must_use]
    pub fn follows(&self, earlier: &Self) -> bool {
        self.epoch == earlier.epoch
    }
}

/// A batch with positions that is not yet acknowledged.
#[derive(Debug)]
#[must_use = "the batch is not acknowledged before it was waited for"]
pub struct Submitted<'a> {
    inner: &'a Inner,
    promise: Promise,
}

impl Submitted<'_> {
    /// The position of its first event, if it is acknowledged.
    #[must_use]
    pub fn first_seq(&self) -> u64 {
        self.promise.accepted.first_seq
    }

    /// Whether its acknowledgement also covers `earlier`: not if the log failed between the two.
    #[must_use]
    pub fn follows(&self, earlier: &Self) -> bool {
        self.promise.follows(&earlier.promise)
    }

    /// Returns the same without the store, to wait for it later: see
    /// [`Store::wait`](crate::Store::wait).
    pub fn promise(self) -> Promise {
        self.promise
    }

    /// Blocks until the batch is durable as configured, and visible to readers.
    ///
    /// # Errors
    /// [`AppendError::Commit`]: whether it was stored is unknown until the store is opened again.
    pub fn wait(self) -> Result<Accepted, AppendError> {
        self.inner.wait(self.promise)
    }
}

impl Inner {
    /// Blocks until a batch is acknowledged, and makes it visible to readers.
    pub(crate) fn wait(&self, promise: Promise) -> Result<Accepted, AppendError> {
        let Promise { accepted, end, epoch } = promise;
        let delay = self.options.group_commit_delay;
        if !delay.is_zero() && self.options.durability == Durability::Sync {
            std::thread::park_timeout(delay);
        }
        let (log, current) = self.journal.get().map_err(AppendError::Commit)?;
        if current != epoch {
            return Err(AppendError::Commit(self.journal.failure()));
        }
        log.commit(end).map_err(AppendError::Commit)?;
        self.requests.lock().commit(end);
        self.show(accepted.first_seq + accepted.count);
        Ok(accepted)
    }

    /// Assigns positions to a batch and writes it to the log's buffer.
    pub(crate) fn submit(&self, batch: Batch) -> Result<Submitted<'_>, AppendError> {
        self.submit_when(batch, None, &|| self.sequencer_with_room())
    }

    /// Like [`submit`](Self::submit), with the note of a request, which counts once the batch is
    /// acknowledged; the batch may be empty.
    pub(crate) fn submit_noted(
        &self,
        batch: Batch,
        note: RequestNote,
    ) -> Result<Submitted<'_>, AppendError> {
        self.submit_when(batch, Some(note), &|| self.sequencer_with_room())
    }

    /// Like [`submit`](Self::submit), for entries of the store itself: they are few, and are written
    /// while memory tables cannot become segments.
    pub(crate) fn submit_system(&self, batch: Batch) -> Result<Submitted<'_>, AppendError> {
        self.submit_when(batch, None, &|| {
            let sequencer = self.sequencer.lock();
            match &sequencer.closed {
                Some(reason) => Err(AppendError::closed(reason)),
                None => Ok(sequencer),
            }
        })
    }

    fn submit_when<'a>(
        &'a self,
        batch: Batch,
        note: Option<RequestNote>,
        lock: &dyn Fn() -> Result<MutexGuard<'a, Sequencer>, AppendError>,
    ) -> Result<Submitted<'a>, AppendError> {
        if batch.is_empty() && note.is_none() {
            return Err(AppendError::Empty);
        }
        let first_id = batch.ids().first().copied().unwrap_or_default();
        let last_id = batch.ids().last().copied().unwrap_or_default();
        let encoded = note.as_ref().map(RequestNote::encode);
        // The store's own entries are kept by every rule.
        let received = (!batch.is_system()).then(|| self.now_ns());
        let mut run = Run::new(batch);
        let hashes = self.tree.as_ref().map(|tree| {
            tree.help();
            hashes_of(&run)
        });
        let ends = entry::ends(run.ends());
        let count = run.len() as u64;
        let (kind, events) = match &encoded {
            Some(_) => (Kind::Note, entry::events_digest(&ends, run.leaf_bytes())),
            None => (Kind::Batch, entry::leaves_digest(hashes.as_deref().unwrap_or_default())),
        };
        let (mut sequencer, first_seq, end, epoch) = loop {
            let sequencer = lock()?;
            let first_seq = sequencer.next_seq;
            let (log, epoch) = self.journal.get().map_err(not_taken)?;
            let place = (first_seq, count as u32);
            let header = self.entry_start(&log.id(), kind, place, encoded.as_deref(), &events);
            let parts: [&[u8]; 3] = [&header, &ends, run.leaf_bytes()];
            if let Some(source) = log.stalled() {
                return Err(AppendError::Waiting(CommitError::Stalled { source }));
            }
            match log.try_append(&parts) {
                Ok(appended) => break (sequencer, first_seq, appended.end, epoch),
                Err(LogAppendError::Full { .. }) => {
                    drop(sequencer);
                    block_on(log.room(parts.iter().map(|part| part.len()).sum()));
                }
                Err(error) => return Err(AppendError::Log(error)),
            }
        };
        run.first_seq = first_seq;
        sequencer.next_seq += count;
        sequencer.log_end = end;
        let size = run.leaf_bytes().len() as u64;
        if let Some(note) = note {
            self.requests.lock().submit(end, note);
        }
        if count == 0 {
            drop(sequencer);
            let accepted = Accepted { first_seq, count, first_id, last_id };
            return Ok(Submitted { inner: self, promise: Promise { accepted, end, epoch } });
        }
        if let Some(now_ns) = received {
            sequencer.active.receive(now_ns);
        }
        sequencer.active.push(run);
        // After the memory table: a reader that finds a leaf in the tree finds its event.
        if let (Some(tree), Some(hashes)) = (&self.tree, hashes) {
            tree.push(Leaves::Hashed(hashes), end);
        }
        if sequencer.active.len() >= self.options.memory_table_events
            || sequencer.active.size() >= self.options.memory_table_size
        {
            self.freeze(&mut sequencer);
        }
        drop(sequencer);
        self.counters.events.fetch_add(count, Ordering::Relaxed);
        self.counters.batches.fetch_add(1, Ordering::Relaxed);
        self.counters.leaf_bytes.fetch_add(size, Ordering::Relaxed);
        let accepted = Accepted { first_seq, count, first_id, last_id };
        Ok(Submitted { inner: self, promise: Promise { accepted, end, epoch } })
    }

    /// Waits until a memory table may be filled, and locks the sequencer.
    fn sequencer_with_room(&self) -> Result<MutexGuard<'_, Sequencer>, AppendError> {
        if self.quiet {
            self.recover_log();
        }
        let mut sequencer = self.sequencer.lock();
        loop {
            if let Some(reason) = &sequencer.closed {
                return Err(AppendError::closed(reason));
            }
            if sequencer.frozen.len() < self.options.frozen_tables_max {
                return Ok(sequencer);
            }
            self.counters.waits.fetch_add(1, Ordering::Relaxed);
            if self.quiet {
                drop(sequencer);
                self.flush_frozen().map_err(AppendError::unflushed)?;
                sequencer = self.sequencer.lock();
            } else if let Some((reason, shortage)) = sequencer.flush_failure.clone() {
                return Err(AppendError::Closed { reason, shortage });
            } else {
                self.room.wait(&mut sequencer);
            }
        }
    }

    /// Replaces the current table with an empty one; the old table will become a segment.
    pub(crate) fn freeze(&self, sequencer: &mut Sequencer) {
        if sequencer.active.len() == 0 {
            return;
        }
        let table = Arc::new(Table::new(sequencer.next_seq));
        let frozen = std::mem::replace(&mut sequencer.active, Arc::clone(&table));
        let log_end = sequencer.log_end;
        sequencer.frozen.push_back((frozen, log_end));
        sequencer.active_since = None;
        self.change_view(|view| view.tables.push(table));
        self.maintenance.wake();
    }

    /// Makes everything below `end_seq` visible to readers.
    pub(crate) fn show(&self, end_seq: u64) {
        if self.visible.fetch_max(end_seq, Ordering::AcqRel) < end_seq {
            self.shown.wake();
            if let Some(watcher) = self.watcher.get() {
                watcher.0(end_seq);
            }
        }
    }
}

impl Inner {
    /// Blocks until a submitted batch is on stable storage whatever the durability, and makes it
    /// visible.
    pub(crate) fn sync(&self, promise: Promise) -> Result<(), AppendError> {
        let (log, current) = self.journal.get().map_err(AppendError::Commit)?;
        if current != promise.epoch {
            return Err(AppendError::Commit(self.journal.failure()));
        }
        log.sync_to(promise.end).map_err(AppendError::Commit)?;
        self.show(promise.end_seq());
        Ok(())
    }
}

/// A missing log accepts nothing.
fn not_taken(error: CommitError) -> AppendError {
    match error {
        CommitError::Poisoned { source } => AppendError::Log(LogAppendError::Poisoned { source }),
        error => AppendError::Closed { reason: error.to_string(), shortage: None },
    }
}

/// Wakes a thread that waits in [`block_on`].
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
