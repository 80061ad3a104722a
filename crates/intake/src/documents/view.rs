//! The document view: one thread that brings the document database up to the log.
//!
//! It is told of each commit in log order, waits until the log has it for sure, reads the commit
//! and its chunks back and writes them through the sink, many commits to a transaction. The sink
//! keeps the log position with the rows, so whatever is told twice is written once.
//!
//! Invariants: commits are applied in log order; a transaction ends only when the log is on stable
//! storage up to its position, whatever the durability, so that a power cut never leaves documents
//! here that the log has lost, which a client that repeats its request would double; when the sink
//! or the log fails, the view stops and says so, and the log keeps what is missing.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_base::error_chain::chain;
use forebay_log::{Log, Lsn};
use forebay_sink::{Position, Sink as _, SqliteSink};
use parking_lot::{Condvar, Mutex};
use tokio::sync::{Notify, watch};

use super::flatten::Bounds;
use super::forward::{Outbox, Told};
use super::prepared::Prepared;
use super::write::{read_commit, write_commit, write_prepared};
use crate::error::{ApplyError, IntakeError};
use crate::format::{DocumentCommit, Entry};
use crate::shared::Applied;

/// Commits waiting at most.
const COMMITS_MAX: usize = 4_096;
/// Memory of commits handed over read already; further ones are read from the log.
const PREPARED_MAX: usize = 64 << 20;
/// Documents in one transaction, about.
const DOCUMENTS_PER_TRANSACTION: u64 = 50_000;
/// How long the database may lag behind stable storage.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(10);
/// How long a writer waits for room before it is told to come back.
const ROOM_WAIT: Duration = Duration::from_secs(10);

/// What the request side and the view share.
#[derive(Debug)]
pub(crate) struct ViewQueue {
    state: Mutex<QueueState>,
    work: Condvar,
    room: Notify,
    pub(crate) applied: watch::Sender<Applied>,
    /// Told of what is applied, where documents are forwarded to a database elsewhere.
    pub(crate) outbox: Option<Arc<Outbox>>,
}

#[derive(Debug, Default)]
struct QueueState {
    commits: VecDeque<Told>,
    /// Memory the prepared commits take, about.
    prepared_size: usize,
    /// First chunk of each request that is still coming in.
    open: HashMap<[u8; 16], Lsn>,
    /// First entry and end of each commit not yet on the database's stable storage.
    unsafe_commits: VecDeque<(Lsn, Lsn)>,
    /// Up to where the database is on stable storage.
    durable: Lsn,
    stop: bool,
}

impl ViewQueue {
    pub(crate) fn new(position: Lsn, outbox: Option<Arc<Outbox>>) -> Self {
        let state = QueueState { durable: position, ..QueueState::default() };
        Self {
            state: Mutex::new(state),
            work: Condvar::new(),
            room: Notify::new(),
            applied: watch::Sender::new(Applied::at(position)),
            outbox,
        }
    }

    /// Notes the first chunk of a request that is coming in: it must stay in the log.
    pub(crate) fn begin(&self, request: [u8; 16], first_chunk: Lsn) {
        self.state.lock().open.entry(request).or_insert(first_chunk);
    }

    /// Notes that a request will commit nothing (more).
    pub(crate) fn end(&self, request: [u8; 16]) {
        self.state.lock().open.remove(&request);
    }

    /// Below this position the log is not needed for documents any more.
    pub(crate) fn safe(&self) -> Lsn {
        let state = self.state.lock();
        let open = state.open.values().copied().min();
        let commits = state.unsafe_commits.iter().map(|(first, _)| *first).min();
        [open, commits].into_iter().flatten().fold(state.durable, Lsn::min)
    }

    /// Notes that the database is on stable storage up to `position`.
    fn made_durable(&self, position: Lsn) {
        let mut state = self.state.lock();
        state.durable = position;
        state.unsafe_commits.retain(|(_, end)| *end > position);
    }

    /// Tells of a commit; the caller holds the lock that orders commits.
    ///
    /// * `commit`: its `first` entry is found out here.
    pub(crate) fn push(&self, request: [u8; 16], mut commit: Told) {
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
            state.commits.drain(..count).filter_map(|told| Some(told.prepared?.size())).sum();
        state.prepared_size -= done;
    }

    /// Waits until one more commit may be made.
    pub(crate) async fn wait_for_room(&self) -> Result<(), IntakeError> {
        let full = || self.state.lock().commits.len() >= COMMITS_MAX;
        let waiting = async {
            loop {
                let told = self.room.notified();
                if !full() {
                    return;
                }
                told.await;
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

    /// Waits until the database shows everything up to `end`.
    pub(crate) async fn reached(&self, end: Lsn) -> Result<(), IntakeError> {
        let mut applied = self.applied.subscribe();
        let reached =
            applied.wait_for(|applied| applied.position >= end || applied.stopped.is_some()).await;
        match reached {
            Ok(applied) if applied.position >= end => Ok(()),
            Ok(applied) => {
                let reason = applied.stopped.as_deref().unwrap_or("it was closed").to_owned();
                Err(IntakeError::ViewStopped { reason })
            }
            Err(_) => Err(IntakeError::ViewStopped { reason: "the intake is closing".into() }),
        }
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
        let mut dirty = false;
        loop {
            let (batch, stopping) = self.gather();
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
            if let Err(error) = done {
                let reason: Arc<str> = chain(&error).to_string().into();
                tracing::error!(%reason, "the document database has stopped; the log has everything acknowledged");
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

    /// Notes that the database is up to the log's end, so that the next start reads nothing again.
    fn close(&mut self) {
        let end = self.log.end();
        if self.log.sync_to(end).is_ok()
            && let Err(error) = self.writer.sink.commit(Position(end.0))
        {
            tracing::warn!(error = %chain(&error), "could not note the documents' position");
        }
    }

    fn checkpoint(&mut self) -> Result<(), ApplyError> {
        let position = self.writer.sink.checkpoint().map_err(ApplyError::Sink)?;
        if let Some(position) = position {
            self.queue.made_durable(Lsn(position.0));
        }
        Ok(())
    }

    fn gather(&self) -> (Vec<Told>, bool) {
        let mut state = self.queue.state.lock();
        if state.commits.is_empty() && !state.stop {
            self.queue.work.wait_for(&mut state, CHECKPOINT_EVERY);
        }
        (state.commits.iter().take(64).cloned().collect(), state.stop)
    }

    fn apply(&mut self, batch: &[Told]) -> Result<(), ApplyError> {
        let mut written = 0;
        let mut done = 0;
        for (at, told) in batch.iter().enumerate() {
            let (lsn, end) = (told.lsn, told.end);
            self.log.commit(end).map_err(|source| ApplyError::Commit { lsn: lsn.0, source })?;
            written += match &told.prepared {
                Some(prepared) => self.writer.write_prepared(end, prepared)?,
                None => self.writer.write_commit(&self.log, lsn, end)?,
            };
            if written >= DOCUMENTS_PER_TRANSACTION || at + 1 == batch.len() {
                let started = Instant::now();
                self.log
                    .sync_to(end)
                    .map_err(|source| ApplyError::Commit { lsn: lsn.0, source })?;
                self.writer.sink.commit(Position(end.0)).map_err(ApplyError::Sink)?;
                crate::meters::documents_applied(written, started.elapsed());
                written = 0;
                self.queue.forget(at + 1 - done);
                if let Some(outbox) = &self.queue.outbox {
                    outbox.tell(batch.get(done..=at).unwrap_or_default());
                }
                done = at + 1;
                self.queue.applied.send_modify(|applied| applied.position = end);
                self.queue.room.notify_waiters();
            }
        }
        Ok(())
    }
}

/// Writes commits into the sink.
pub(crate) struct Writer {
    pub(crate) sink: SqliteSink,
    pub(crate) bounds: Bounds,
}

impl Writer {
    /// Applies every commit from the sink's position on, before anything is served.
    pub(crate) fn replay(&mut self, log: &Log, from: Lsn) -> Result<u64, ApplyError> {
        let mut reader = log.reader(from);
        let (mut commits, mut pending, mut last) = (0, 0, from);
        loop {
            let next = reader.next().map_err(|source| ApplyError::Read { lsn: last.0, source })?;
            let Some(entry) = next else { break };
            last = entry.next;
            let decoded = Entry::decode(entry.payload)
                .map_err(|source| ApplyError::Decode { lsn: entry.lsn.0, source })?;
            if let Entry::DocumentCommit(commit) = decoded {
                pending += self.write(log, entry.lsn, entry.next, &commit)?;
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

    /// Writes a commit that was read when it came in; returns how many documents it has.
    fn write_prepared(&mut self, end: Lsn, commit: &Prepared) -> Result<u64, ApplyError> {
        crate::meters::conflicts(write_prepared(&mut self.sink, end, commit)?);
        Ok(commit.count())
    }

    fn write_commit(&mut self, log: &Log, lsn: Lsn, end: Lsn) -> Result<u64, ApplyError> {
        read_commit(log, lsn, |commit| self.write(log, lsn, end, commit))
    }

    fn write(
        &mut self,
        log: &Log,
        lsn: Lsn,
        end: Lsn,
        commit: &DocumentCommit<'_>,
    ) -> Result<u64, ApplyError> {
        let conflicts = write_commit(&mut self.sink, log, &self.bounds, lsn, end, commit)?;
        crate::meters::conflicts(conflicts);
        Ok(commit.count)
    }
}
