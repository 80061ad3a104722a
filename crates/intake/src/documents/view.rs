//! The document view: one thread that brings the document database up to the log.
//!
//! It receives each commit, and each change of documents, in log order, waits until the log has it on stable storage, reads the
//! commit and its chunks back and writes them through the sink, many commits to a transaction. The
//! sink stores the log position with the rows, so a commit announced twice is written once.
//!
//! Invariants: commits are applied in log order; a transaction ends only when the log is on stable
//! storage up to its position, whatever the durability, so that a power cut never leaves documents
//! here that the log has lost, which a client that repeats its request would duplicate; when the
//! sink or the log fails, the view stops and reports it, and the log keeps what is missing.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_base::error_chain::chain;
use forebay_log::{CommitError, Log, Lsn};
use forebay_sink::{DocumentSink as _, Position, Sink as _, SinkError};
use forebay_sqlite::{Extent, SqliteSink};
use parking_lot::{Condvar, Mutex};
use tokio::sync::{Notify, watch};

use super::flatten::Bounds;
use super::forward::{Outbox, QueuedCommit};
use super::prepared::Prepared;
use super::work::{Work, read_work, write_work};
use super::write::write_prepared;
use crate::error::{ApplyError, IntakeError};
use crate::format::{ChangeAction, Entry};
use crate::shared::{Applied, reached};
use crate::space::{self, RETRY_AFTER, Reserve, sqlite_passes};

/// Maximum number of waiting commits, of 60 bytes each. A commit that widens a column of a large table
/// holds up those after it: there is room for what small requests bring meanwhile.
const COMMITS_MAX: usize = 262_144;
/// Maximum memory of commits handed over already parsed. Further ones are read from the log.
const PREPARED_MAX: usize = 64 << 20;
/// Approximate number of documents in one transaction.
const DOCUMENTS_PER_TRANSACTION: u64 = 50_000;
/// How long the database may lag behind stable storage.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(10);
/// How long a writer waits for room before it is refused.
const ROOM_WAIT: Duration = Duration::from_secs(10);

/// State shared by the requests and the view.
#[derive(Debug)]
pub(crate) struct ViewQueue {
    state: Mutex<QueueState>,
    work: Condvar,
    room: Notify,
    pub(crate) applied: watch::Sender<Applied>,
    first: watch::Sender<First>,
    /// Reserved space that is released when the database needs it.
    reserve: Arc<Reserve>,
    /// Informed of applied commits, if documents are forwarded to an external database.
    pub(crate) outbox: Option<Arc<Outbox>>,
}

#[derive(Debug, Default)]
struct QueueState {
    commits: VecDeque<QueuedCommit>,
    /// Approximate memory of the prepared commits.
    prepared_size: usize,
    /// First chunk of each request in progress.
    open: HashMap<[u8; 16], Lsn>,
    /// First entry and end of each commit not yet on the database's stable storage.
    unsafe_commits: VecDeque<(Lsn, Lsn)>,
    /// Position up to which the database is on stable storage.
    durable: Lsn,
    /// What it holds there; unknown before the first checkpoint.
    held: Option<Arc<Held>>,
    stop: bool,
}

/// The first checkpoint after a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    Pending,
    /// It was made, or failed and will be tried again later.
    Tried,
}

/// What the database holds on stable storage.
#[derive(Debug)]
pub(crate) struct Held {
    /// Position up to which it reflects the log.
    pub(crate) position: Lsn,
    pub(crate) extents: Vec<Extent>,
}

impl ViewQueue {
    /// * `position`: position up to which the database reflects the log.
    /// * `durable`: the same, on stable storage.
    /// * `held`: what it holds there, if that is known.
    pub(crate) fn new(
        position: Lsn,
        durable: Lsn,
        held: Option<Held>,
        outbox: Option<Arc<Outbox>>,
        reserve: Arc<Reserve>,
    ) -> Self {
        let held = held.map(Arc::new);
        let state = QueueState { durable, held, ..QueueState::default() };
        Self {
            state: Mutex::new(state),
            work: Condvar::new(),
            room: Notify::new(),
            applied: watch::Sender::new(Applied::at(position)),
            first: watch::Sender::new(First::Pending),
            reserve,
            outbox,
        }
    }

    /// Records the first chunk of a request in progress: it must stay in the log.
    pub(crate) fn begin(&self, request: [u8; 16], first_chunk: Lsn) {
        self.state.lock().open.entry(request).or_insert(first_chunk);
    }

    /// Records that a request will commit nothing (more).
    pub(crate) fn end(&self, request: [u8; 16]) {
        self.state.lock().open.remove(&request);
    }

    /// Below this position the log is no longer needed for documents.
    pub(crate) fn safe(&self) -> Lsn {
        let state = self.state.lock();
        let open = state.open.values().copied().min();
        let commits = state.unsafe_commits.iter().map(|(first, _)| *first).min();
        [open, commits].into_iter().flatten().fold(state.durable, Lsn::min)
    }

    /// What the database holds on stable storage.
    pub(crate) fn held(&self) -> Option<Arc<Held>> {
        self.state.lock().held.clone()
    }

    /// Records that the database is on stable storage up to `position`, and what it holds there.
    fn made_durable(&self, position: Lsn, extents: Vec<Extent>) {
        let mut state = self.state.lock();
        state.durable = position;
        state.held = Some(Arc::new(Held { position, extents }));
        state.unsafe_commits.retain(|(_, end)| *end > position);
    }

    /// Announces a commit; the caller holds the lock that orders commits.
    ///
    /// * `commit`: its `first` entry is determined here.
    pub(crate) fn push(&self, request: [u8; 16], mut commit: QueuedCommit) {
        let mut state = self.state.lock();
        commit.first = state.open.get(&request).copied().unwrap_or(commit.lsn);
        state.unsafe_commits.push_back((commit.first, commit.end));
        let size = commit.prepared.as_ref().map_or(0, |prepared| prepared.size());
        commit.prepared = commit.prepared.filter(|_| state.prepared_size + size <= PREPARED_MAX);
        if commit.prepared.is_some() {
            state.prepared_size += size;
        }
        state.commits.push_back(commit);
        drop(state);
        self.work.notify_one();
    }

    /// Drops the `count` oldest commits, now in the database.
    fn forget(&self, count: usize) {
        let mut state = self.state.lock();
        let done: usize =
            state.commits.drain(..count).filter_map(|queued| Some(queued.prepared?.size())).sum();
        state.prepared_size -= done;
    }

    /// Documents accepted but not yet in the database, and when the oldest were received.
    pub(crate) fn unapplied(&self) -> (u64, Option<i64>) {
        let state = self.state.lock();
        let documents = state.commits.iter().map(|queued| queued.count).sum();
        (documents, state.commits.front().map(|queued| queued.received_ms))
    }

    /// Waits until one more commit may be queued.
    pub(crate) async fn wait_for_room(&self) -> Result<(), IntakeError> {
        let full = || self.state.lock().commits.len() >= COMMITS_MAX;
        let waiting = async {
            loop {
                let notified = self.room.notified();
                if !full() {
                    return;
                }
                notified.await;
            }
        };
        tokio::time::timeout(ROOM_WAIT, waiting)
            .await
            .map_err(|_| IntakeError::Busy { what: "the document database is behind the log" })?;
        match &self.applied.borrow().stopped {
            Some(reason) => Err(IntakeError::ViewStopped { reason: reason.to_string() }),
            None => Ok(()),
        }
    }

    /// Waits until the database reflects everything up to `end`.
    pub(crate) async fn reached(&self, end: Lsn) -> Result<(), IntakeError> {
        reached(&mut self.applied.subscribe(), end).await
    }

    /// Waits until what was applied before the start is durable, if that can be.
    ///
    /// # Errors
    /// [`IntakeError::ViewStopped`].
    pub(crate) async fn started(&self) -> Result<(), IntakeError> {
        if *self.first.borrow() == First::Tried {
            return Ok(());
        }
        let mut first = self.first.subscribe();
        let tried = first.wait_for(|first| *first == First::Tried).await;
        tried
            .map(drop)
            .map_err(|_| IntakeError::ViewStopped { reason: "the intake is closing".into() })
    }

    /// End of the newest commit that is not in the database, among those that end at `most` or
    /// before.
    pub(crate) fn newest_up_to(&self, most: Lsn) -> Option<Lsn> {
        let state = self.state.lock();
        state.commits.iter().rev().map(|queued| queued.end).find(|end| *end <= most)
    }
}

/// The running view.
#[derive(Debug)]
pub(crate) struct View {
    queue: Arc<ViewQueue>,
    thread: Option<JoinHandle<()>>,
}

impl View {
    pub(crate) fn start(
        queue: Arc<ViewQueue>,
        log: Log,
        sink: SqliteSink,
        bounds: Bounds,
    ) -> std::io::Result<Self> {
        let worker = Worker { queue: queue.clone(), log, writer: Writer { sink, bounds } };
        let thread = std::thread::Builder::new()
            .name("intake-documents".into())
            .spawn(move || worker.run())?;
        Ok(Self { queue, thread: Some(thread) })
    }

    /// Applies what is queued and ends the thread.
    pub(crate) fn stop(&mut self) {
        self.queue.state.lock().stop = true;
        self.queue.work.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the document view panicked");
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Worker {
    queue: Arc<ViewQueue>,
    log: Log,
    writer: Writer,
}

impl Worker {
    fn run(mut self) {
        let mut checkpointed = Instant::now();
        let mut dirty = !self.begin();
        loop {
            let (batch, stopping) = self.gather();
            let batch = self.acknowledged(batch);
            let done = match self.apply(&batch) {
                Ok(()) => {
                    dirty |= !batch.is_empty();
                    if dirty && (checkpointed.elapsed() >= CHECKPOINT_EVERY || stopping) {
                        checkpointed = Instant::now();
                        dirty = false;
                        self.checkpoint()
                    } else {
                        Ok(())
                    }
                }
                Err(error) => Err(error),
            };
            if let Err(error) = &done
                && passes(error)
                && !stopping
            {
                self.wait(error);
                continue;
            }
            if let Err(error) = done {
                let reason: Arc<str> = chain(&error).to_string().into();
                tracing::error!(
                    %reason,
                    "the document database has stopped; the log holds everything acknowledged"
                );
                self.queue.applied.send_modify(|applied| applied.stopped = Some(reason));
                self.queue.room.notify_waiters();
                return;
            }
            if stopping && batch.is_empty() {
                self.close();
                return;
            }
        }
    }

    /// Makes durable what was applied before the start, by this process or by one that was killed.
    /// Returns `false` if that has to be tried again.
    fn begin(&mut self) -> bool {
        let made = self.checkpoint();
        if let Err(error) = &made {
            // Everything can be read, and the log keeps it. The next checkpoint decides.
            tracing::warn!(error = %chain(error), "could not sync the document database yet");
        }
        self.queue.first.send_replace(First::Tried);
        made.is_ok()
    }

    /// The commits of a batch that the log has on stable storage; the others wait for space.
    fn acknowledged(&self, mut batch: Vec<QueuedCommit>) -> Vec<QueuedCommit> {
        let held = |queued: &QueuedCommit| {
            matches!(self.log.commit(queued.end), Err(CommitError::Stalled { .. }))
        };
        if let Some(first) = batch.iter().position(held) {
            batch.truncate(first);
            if batch.is_empty() {
                // The applier makes the log try again.
                let mut state = self.queue.state.lock();
                self.queue.work.wait_for(&mut state, RETRY_AFTER);
            }
        }
        batch
    }

    /// Rolls back to the last commit and waits before the same is tried again.
    fn wait(&mut self, error: &ApplyError) {
        let reason: Arc<str> = chain(error).to_string().into();
        if self.queue.applied.borrow().waiting.is_none() {
            tracing::warn!(
                %reason,
                "the documents wait for disk space; the log holds everything acknowledged"
            );
        }
        self.queue.applied.send_modify(|applied| applied.waiting = Some(reason));
        if let Err(error) = self.writer.sink.roll_back() {
            tracing::debug!(error = %chain(&error), "could not roll back yet; trying again");
        }
        if !self.queue.reserve.release() {
            let mut state = self.queue.state.lock();
            self.queue.work.wait_for(&mut state, RETRY_AFTER);
        }
    }

    /// Records that the database is up to date with the log, so that the next start replays
    /// nothing.
    ///
    /// No more commits are announced. Those that wait for space are left to the next start.
    fn close(&mut self) {
        let end = self.log.end();
        if self.queue.state.lock().commits.is_empty()
            && self.log.sync_to(end).is_ok()
            && let Err(error) = self.writer.sink.commit(Position(end.0))
        {
            tracing::warn!(error = %chain(&error), "could not record the documents' position");
        }
    }

    fn checkpoint(&mut self) -> Result<(), ApplyError> {
        let position = self.writer.sink.checkpoint().map_err(ApplyError::Sink)?;
        if let Some(position) = position {
            self.queue.made_durable(Lsn(position.0), self.writer.sink.extents());
        }
        Ok(())
    }

    fn gather(&self) -> (Vec<QueuedCommit>, bool) {
        let mut state = self.queue.state.lock();
        if state.commits.is_empty() && !state.stop {
            self.queue.work.wait_for(&mut state, CHECKPOINT_EVERY);
        }
        (state.commits.iter().take(64).cloned().collect(), state.stop)
    }

    fn apply(&mut self, batch: &[QueuedCommit]) -> Result<(), ApplyError> {
        let mut written = 0;
        let mut done = 0;
        for (at, queued) in batch.iter().enumerate() {
            let (lsn, end) = (queued.lsn, queued.end);
            self.log.commit(end).map_err(|source| ApplyError::Commit { lsn: lsn.0, source })?;
            written += match &queued.prepared {
                Some(prepared) => self.writer.write_prepared(end, prepared)?,
                None => self.writer.write_logged(&self.log, lsn, end)?,
            };
            if written >= DOCUMENTS_PER_TRANSACTION || at + 1 == batch.len() {
                let started = Instant::now();
                self.log
                    .sync_to(end)
                    .map_err(|source| ApplyError::Commit { lsn: lsn.0, source })?;
                self.writer.sink.commit(Position(end.0)).map_err(ApplyError::Sink)?;
                crate::meters::documents_applied(written, started.elapsed());
                written = 0;
                // In this order, so that documents which wait for the other database are always counted.
                if let Some(outbox) = &self.queue.outbox {
                    outbox.announce(batch.get(done..=at).unwrap_or_default());
                }
                self.queue.forget(at + 1 - done);
                done = at + 1;
                self.queue.applied.send_modify(|applied| {
                    applied.position = end;
                    applied.waiting = None;
                });
                self.queue.room.notify_waiters();
            }
        }
        Ok(())
    }
}

/// Whether a failure passes without a restart: no space, or no descriptor.
fn passes(error: &ApplyError) -> bool {
    match error {
        ApplyError::Commit { source, .. } => matches!(source, CommitError::Stalled { .. }),
        ApplyError::Sink(SinkError::Database { source, .. }) => {
            source.downcast_ref().is_some_and(sqlite_passes)
        }
        ApplyError::Sink(SinkError::Io { source, .. }) => space::passes(source),
        ApplyError::Sink(SinkError::RolledBack | SinkError::Reread(_)) => true,
        _ => false,
    }
}

/// Writes commits into the sink.
pub(crate) struct Writer {
    pub(crate) sink: SqliteSink,
    pub(crate) bounds: Bounds,
}

impl Writer {
    /// Applies every commit after the sink's position, before any request is served.
    pub(crate) fn replay(&mut self, log: &Log, from: Lsn) -> Result<u64, ApplyError> {
        let mut reader = log.reader(from);
        let (mut commits, mut pending, mut last) = (0, 0, from);
        loop {
            let next = reader.next().map_err(|source| ApplyError::Read { lsn: last.0, source })?;
            let Some(entry) = next else { break };
            last = entry.next;
            let decoded = Entry::decode(entry.payload)
                .map_err(|source| ApplyError::Decode { lsn: entry.lsn.0, source })?;
            if let Some(work) = Work::of(decoded) {
                pending += self.write(log, entry.lsn, entry.next, &work)?;
                commits += 1;
            }
            if pending >= DOCUMENTS_PER_TRANSACTION {
                self.sink.commit(Position(last.0)).map_err(ApplyError::Sink)?;
                pending = 0;
            }
        }
        if last > from {
            self.sink.commit(Position(last.0)).map_err(ApplyError::Sink)?;
        }
        Ok(commits)
    }

    /// Writes a commit that was handed over parsed; returns its number of documents.
    fn write_prepared(&mut self, end: Lsn, commit: &Prepared) -> Result<u64, ApplyError> {
        self.check_follows(end, commit.namespace.as_str(), commit.first_id)?;
        self.sink.set_received(commit.received_ms);
        crate::meters::conflicts(write_prepared(&mut self.sink, end, commit)?);
        self.set_undecided(end, commit.namespace.as_str(), commit.undecided)?;
        Ok(commit.count())
    }

    /// Records whether a namespace is still to be decided, as its newest commit says.
    fn set_undecided(
        &mut self,
        end: Lsn,
        namespace: &str,
        undecided: bool,
    ) -> Result<(), ApplyError> {
        if self.sink.position().is_some_and(|position| end.0 <= position.0) {
            return Ok(());
        }
        self.sink.set_undecided(namespace, undecided).map_err(ApplyError::Sink)
    }

    /// Refuses a commit that would leave a gap: ids of a namespace begin at 1 and follow each other,
    /// so the documents before it have left the log and were not in the database that had them.
    fn check_follows(&mut self, end: Lsn, namespace: &str, first: u64) -> Result<(), ApplyError> {
        if self.sink.position().is_some_and(|position| end.0 <= position.0) {
            return Ok(());
        }
        let last = self.sink.last_id(namespace).map_err(ApplyError::Sink)?.unwrap_or(0);
        if first == last.saturating_add(1) {
            return Ok(());
        }
        Err(ApplyError::Gap { namespace: namespace.to_owned(), last, first })
    }

    fn write_logged(&mut self, log: &Log, lsn: Lsn, end: Lsn) -> Result<u64, ApplyError> {
        read_work(log, lsn, |work| self.write(log, lsn, end, work))
    }

    /// Writes an entry; returns its number of documents.
    fn write(&mut self, log: &Log, lsn: Lsn, end: Lsn, work: &Work<'_>) -> Result<u64, ApplyError> {
        if let Work::Commit(commit) = work {
            self.check_follows(end, commit.namespace.as_str(), commit.first_id)?;
        }
        self.sink.set_received(work.received_ms());
        let written = write_work(&mut self.sink, log, &self.bounds, (lsn, end), work)?;
        crate::meters::conflicts(written.conflicts);
        match work {
            Work::Commit(commit) => {
                self.set_undecided(end, commit.namespace.as_str(), commit.flags.undecided)?;
            }
            Work::Change(change) => {
                let (namespace, id) = (change.namespace.as_str(), change.id);
                if written.rows == 0 && !written.replayed {
                    let namespace = namespace.to_owned();
                    return Err(ApplyError::NoDocument { lsn: lsn.0, namespace, id });
                }
                if let ChangeAction::Replace { flags, .. } = &change.action {
                    self.set_undecided(end, namespace, flags.undecided)?;
                }
            }
            Work::Drop(_) => {}
        }
        Ok(work.count())
    }
}

#[cfg(test)]
mod tests;
