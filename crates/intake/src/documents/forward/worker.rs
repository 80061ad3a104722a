//! The forwarder's thread: follows the log, writes, spills, tries again.
//!
//! Invariants: one thread does all of it, so the order of commits is the order of the loop; a database
//! that failed is opened anew and asked how far it is, whatever was known before; the loop never waits
//! for the database while something can be spilled.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_base::clock::Clock;
use forebay_base::error_chain::chain;
use forebay_base::fs::FileSystem;
use forebay_log::{Log, Lsn, Reader};
use forebay_sink::sqlite::Identity;
use forebay_sink::{Position, RowSink};

use super::super::flatten::Bounds;
use super::super::write::{
    Head, read_commit, read_documents, write_commit, write_documents, write_prepared,
};
use super::error::ForwardError;
use super::outbox::{Outbox, Told};
use super::spill::{Item, Spill, SpillError, Spilled, Spilling};
use super::{DatabaseState, Remembered};
use crate::error::ApplyError;
use crate::format::{DocumentCommit, Entry};

/// Documents in one transaction, about.
pub(super) const DOCUMENTS_PER_TRANSACTION: u64 = 10_000;
/// Commits taken at a time.
const COMMITS_PER_STEP: usize = 64;
/// Bytes of log read between two looks at everything else.
const SCAN_SIZE: u64 = 32 << 20;
/// How often the database is asked to put what it has onto stable storage.
const CHECKPOINT_EVERY: Duration = Duration::from_millis(250);
/// How often the loop looks around where nothing is to be done.
const IDLE: Duration = Duration::from_secs(10);
/// How long closing waits for a database that takes documents.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// What the forwarder works with.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) log: Log,
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) bounds: Bounds,
    /// The local database.
    pub(crate) documents: PathBuf,
    /// The directory of spilled documents.
    pub(crate) spill: PathBuf,
}

/// The running forwarder.
#[derive(Debug)]
pub(crate) struct Forwarder {
    outbox: Arc<Outbox>,
    thread: Option<JoinHandle<()>>,
}

impl Forwarder {
    pub(crate) fn start(outbox: Arc<Outbox>, parts: Parts) -> std::io::Result<Self> {
        let worker = Worker::new(outbox.clone(), parts);
        let thread = std::thread::Builder::new()
            .name("intake-forward".into())
            .spawn(move || worker.run())?;
        Ok(Self { outbox, thread: Some(thread) })
    }

    /// Writes what waits, if the database takes it, and ends the thread.
    pub(crate) fn stop(&mut self) {
        self.outbox.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the forwarder panicked");
        }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Called with the position of an entry, its end, and the commit where it is one of documents; says
/// whether to go on.
type Each<'e> = dyn FnMut(&mut Worker, Lsn, Lsn, Option<&DocumentCommit<'_>>) -> Result<bool, ForwardError>
    + 'e;

/// What a step of the loop did.
enum Step {
    /// Something: go on at once.
    Some,
    /// Nothing is there to be done.
    Idle,
}

pub(super) struct Worker {
    pub(super) outbox: Arc<Outbox>,
    pub(super) parts: Parts,
    pub(super) sink: Option<Box<dyn RowSink>>,
    spill: Option<Spill>,
    /// Up to here the database has everything, while there is one.
    pub(super) next: Lsn,
    /// Up to here everything is safe in the database or the spill.
    safe: Lsn,
    /// Up to here nothing is left to be spilled.
    tail: Lsn,
    /// Reads the log where the queue does not reach back.
    scan: Option<Reader>,
    /// The database lacks what only the local database has.
    needs_copy: bool,
    retry: Retry,
    checkpointed: Instant,
    dirty: bool,
    spill_is_full: bool,
}

/// When the database is tried again.
struct Retry {
    at: Instant,
    wait: Duration,
    /// When it was last known to be there.
    away_since: Instant,
}

impl Worker {
    fn new(outbox: Arc<Outbox>, parts: Parts) -> Self {
        let now = Instant::now();
        let wait = outbox.options.retry_min;
        let tail = outbox.memory.lock().now().durable;
        Self {
            outbox,
            parts,
            sink: None,
            spill: None,
            next: Lsn(0),
            safe: tail,
            tail,
            scan: None,
            needs_copy: false,
            retry: Retry { at: now, wait, away_since: now },
            checkpointed: now,
            dirty: false,
            spill_is_full: false,
        }
    }

    fn run(mut self) {
        let mut stop_at = None;
        if let Err(error) = self.begin()
            && !self.settle(&error)
        {
            return;
        }
        loop {
            let stopping = self.outbox.stopping();
            if stopping {
                let limit = *stop_at.get_or_insert_with(|| Instant::now() + STOP_LIMIT);
                if self.sink.is_none() || Instant::now() >= limit {
                    break;
                }
            }
            let step = if self.sink.is_some() { self.forward() } else { self.while_away() };
            match step {
                Ok(Step::Some) => {}
                Ok(Step::Idle) if stopping => break,
                Ok(Step::Idle) => self.rest(),
                Err(ForwardError::Closing) => break,
                Err(error) => {
                    if !self.settle(&error) {
                        return;
                    }
                }
            }
        }
        self.close();
    }

    /// Opens the spill and counts what waits.
    fn begin(&mut self) -> Result<(), ForwardError> {
        self.open_spill()?;
        if self.outbox.memory.lock().now().held {
            self.count_waiting(self.tail)?;
        }
        Ok(())
    }

    /// Waits for something to do.
    fn rest(&mut self) {
        if self.sink.is_some() {
            self.outbox.wait(self.next, if self.dirty { CHECKPOINT_EVERY } else { IDLE });
            return;
        }
        let now = Instant::now();
        let retry = self.retry.at.saturating_duration_since(now);
        let spill_at = self.retry.away_since + self.outbox.options.spill_after;
        match spill_at.checked_duration_since(now).filter(|left| !left.is_zero()) {
            Some(left) => self.outbox.pause(retry.min(left)),
            None if self.spill_is_full || !self.holds() => self.outbox.pause(retry),
            None => self.outbox.wait(self.tail, retry),
        }
    }

    /// Notes how far the database is, so that the next start reads little again.
    fn close(&mut self) {
        let closed = self.checkpoint(true).and_then(|()| {
            let mut memory = self.outbox.memory.lock();
            let now = memory.now();
            let next = Remembered { durable: self.safe, ..now };
            if now.held { Ok(memory.keep(next)?) } else { Ok(()) }
        });
        if let Err(error) = closed {
            tracing::warn!(error = %chain(&error), "could not note how far the database is; the next start finds out");
        }
    }

    /// Answers an error; `false` where the thread has to end.
    fn settle(&mut self, error: &ForwardError) -> bool {
        if error.asks_for_a_copy() {
            tracing::warn!(error = %chain(error), "the database will be given what it lacks from the intake's own documents");
            self.needs_copy = true;
        }
        match error {
            ForwardError::Spill(SpillError::Damaged { .. }) => self.put_spill_aside(),
            ForwardError::Spill(_) => self.spill = None,
            _ => {}
        }
        self.scan = None;
        let reason = chain(error).to_string();
        let now_ms = self.now_ms();
        if matches!(error, ForwardError::Log(_)) && !error.asks_for_a_copy() {
            self.sink = None;
            self.outbox.set_state(DatabaseState::Stopped, Some(reason.clone()), now_ms);
            tracing::error!(%reason, "forwarding has stopped; the log keeps what waits");
            return false;
        }
        let now = Instant::now();
        if self.sink.take().is_some() {
            self.retry.away_since = now;
        }
        let state = match error {
            ForwardError::Open(error) if !error.is_transient() => DatabaseState::Refused,
            ForwardError::Overlap { .. }
            | ForwardError::Foreign { .. }
            | ForwardError::Ahead { .. } => DatabaseState::Refused,
            _ => DatabaseState::Away,
        };
        self.outbox.count_retry();
        crate::meters::forward_retry();
        if self.outbox.set_state(state, Some(reason.clone()), now_ms) {
            tracing::warn!(
                database = self.outbox.options.database.name(),
                state = state.name(),
                %reason,
                "documents wait for the database; the intake goes on"
            );
        }
        self.retry.at = now + self.retry.wait;
        self.retry.wait = (self.retry.wait * 2).min(self.outbox.options.retry_max);
        true
    }

    fn put_spill_aside(&mut self) {
        self.spill = None;
        let (parts, max) = (&self.parts, self.outbox.options.spill_max);
        match Spill::put_aside(parts.fs.clone(), &parts.spill, parts.log.id(), max) {
            Ok(spill) => self.spill = Some(spill),
            Err(error) => {
                tracing::warn!(error = %chain(&error), "could not put damaged spill files aside");
            }
        }
    }

    /// Whether the log keeps what the database lacks.
    fn holds(&self) -> bool {
        !self.needs_copy && self.outbox.memory.lock().now().held
    }

    // ---- While there is no database -----------------------------------------------------------

    fn while_away(&mut self) -> Result<Step, ForwardError> {
        if Instant::now() >= self.retry.at {
            self.connect()?;
            return Ok(Step::Some);
        }
        if self.holds() && self.retry.away_since.elapsed() >= self.outbox.options.spill_after {
            return self.spill_some();
        }
        Ok(Step::Idle)
    }

    /// Opens the database, finds out how far it is, and brings it to where the log goes on.
    fn connect(&mut self) -> Result<(), ForwardError> {
        let database = self.outbox.options.database.clone();
        let sink = database.open().map_err(ForwardError::Open)?;
        let identity = sink.identity().unwrap_or(Identity([0; 16]));
        let position = sink.position().map(|position| Lsn(position.0));
        let known = self.outbox.memory.lock().now();
        let is_known = known.database == Some(identity);
        if let Some(position) = position {
            if !is_known && !self.outbox.options.adopt {
                return Err(ForwardError::Foreign { position: position.0 });
            }
            let end = self.parts.log.end();
            if position > end {
                return Err(ForwardError::Ahead { position: position.0, end: end.0 });
            }
        }
        self.open_spill()?;
        let released = self.outbox.released();
        let spilled = self.spill.as_ref().and_then(Spill::range);
        let reaches = |position: Lsn| {
            let by_log = position >= released;
            let by_spill = spilled.is_some_and(|(after, end)| after <= position && end >= released);
            by_log || by_spill
        };
        let from = position
            .filter(|&position| is_known && known.held && !self.needs_copy && reaches(position));
        self.sink = Some(sink);
        match from {
            Some(position) => self.go_on(position, spilled)?,
            None => self.copy(identity)?,
        }
        self.retry.wait = self.outbox.options.retry_min;
        let now_ms = self.now_ms();
        if self.outbox.set_state(DatabaseState::Following, None, now_ms) {
            tracing::info!(
                database = database.name(),
                position = self.next.0,
                "documents are forwarded to the database"
            );
        }
        Ok(())
    }

    /// Goes on from where the database is: with the spill, then with the log.
    fn go_on(&mut self, position: Lsn, spilled: Option<(Lsn, Lsn)>) -> Result<(), ForwardError> {
        let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
        let safe = sink.checkpoint()?.map_or(Lsn(0), |position| Lsn(position.0));
        self.next = position;
        self.safe = match spilled {
            Some((after, end)) if after <= position => end.max(safe),
            _ => {
                // What was spilled begins later than the database ends; the log has all of it.
                self.clear_spill()?;
                safe
            }
        };
        self.tail = self.safe;
        self.outbox.follow_from(self.safe);
        self.count_waiting(position)
    }

    /// Spills some of what waits in the log.
    fn spill_some(&mut self) -> Result<Step, ForwardError> {
        self.open_spill()?;
        if self.spill_is_full {
            return Ok(Step::Idle);
        }
        let from = self.tail;
        match self.outbox.take(self.tail, COMMITS_PER_STEP) {
            Ok(commits) => {
                for told in &commits {
                    let log = self.parts.log.clone();
                    read_commit(&log, told.lsn, |commit| {
                        self.spill_commit(told.lsn, told.end, commit)
                    })?;
                    if self.spill_is_full {
                        break;
                    }
                }
            }
            Err(until) => self.scan(self.tail, until, &mut |worker, lsn, end, commit| {
                match commit {
                    Some(commit) => worker.spill_commit(lsn, end, commit)?,
                    None => worker.tail = end,
                }
                Ok(!worker.spill_is_full)
            })?,
        }
        if let Some(spill) = &mut self.spill {
            spill.sync()?;
            self.outbox.set_spill(spill.size(), self.spill_is_full);
            self.safe = spill.range().map_or(self.safe, |(_, end)| end.max(self.safe));
            self.outbox.made_safe(self.safe);
        }
        Ok(if self.tail == from { Step::Idle } else { Step::Some })
    }

    fn spill_commit(
        &mut self,
        lsn: Lsn,
        end: Lsn,
        commit: &DocumentCommit<'_>,
    ) -> Result<(), ForwardError> {
        let Some(spill) = &mut self.spill else { return Ok(()) };
        let log = &self.parts.log;
        let head = Head::of(end, commit);
        let done = spill.append::<ForwardError>(self.tail, &head, |each| {
            read_documents(log, lsn, commit, each)
        })?;
        match done {
            Spilling::Done => self.tail = end,
            Spilling::Full => {
                self.spill_is_full = true;
                tracing::warn!(
                    size = spill.size(),
                    "the spill is full: the log is kept until the database is back"
                );
            }
        }
        Ok(())
    }

    // ---- While there is one -------------------------------------------------------------------

    fn forward(&mut self) -> Result<Step, ForwardError> {
        if let Some(spill) = &self.spill
            && spill.range().is_some_and(|(_, end)| end > self.next)
        {
            return self.replay_spill();
        }
        if self.next < self.outbox.applied() {
            match self.outbox.take(self.next, COMMITS_PER_STEP) {
                Ok(commits) if !commits.is_empty() => self.write_told(&commits)?,
                Ok(_) => self.next = self.next.max(self.outbox.applied()),
                Err(until) => self.write_from_log(until)?,
            }
            self.checkpoint(false)?;
            return Ok(Step::Some);
        }
        self.checkpoint(false)?;
        self.outbox.all_written(self.next);
        Ok(Step::Idle)
    }

    fn write_told(&mut self, commits: &[Told]) -> Result<(), ForwardError> {
        let mut batch = Batch::default();
        for told in commits {
            let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
            let (log, bounds) = (&self.parts.log, &self.parts.bounds);
            let (lsn, end) = (told.lsn, told.end);
            match &told.prepared {
                Some(prepared) => {
                    let namespace = prepared.namespace.as_str();
                    let ids = (prepared.first_id, told.count);
                    if batch.admits(sink, namespace, ids, told.received_ms)? {
                        batch.conflicts += write_prepared(sink, end, prepared)?;
                    }
                }
                None => read_commit(log, lsn, |commit| {
                    batch.write(sink, log, bounds, lsn, end, commit)
                })?,
            }
            batch.end = end;
            if batch.is_large() {
                self.commit(std::mem::take(&mut batch))?;
            }
        }
        self.commit(batch)
    }

    /// Writes what the log has from `next` on, up to `until` or so.
    fn write_from_log(&mut self, until: Lsn) -> Result<(), ForwardError> {
        let mut batch = Batch::default();
        self.scan(self.next, until, &mut |worker, lsn, end, commit| {
            let Some(commit) = commit else {
                batch.end = end;
                return Ok(true);
            };
            let sink = worker.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
            let (log, bounds) = (&worker.parts.log, &worker.parts.bounds);
            batch.write(sink, log, bounds, lsn, end, commit)?;
            batch.end = end;
            if batch.is_large() {
                worker.commit(std::mem::take(&mut batch))?;
            }
            Ok(true)
        })?;
        self.commit(batch)
    }

    /// Writes what was spilled after `next`, a segment at a time.
    fn replay_spill(&mut self) -> Result<Step, ForwardError> {
        let Some(spill) = &self.spill else { return Ok(Step::Idle) };
        let Some(mut reader) = spill.reader(self.next)? else { return Ok(Step::Idle) };
        let mut batch = Batch::default();
        let mut open: Option<OpenCommit> = None;
        while let Some(item) = reader.next()? {
            let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
            match item {
                Item::Commit(commit) => {
                    let is_new = commit.end > self.next && {
                        let ids = (commit.first_id, commit.count);
                        batch.admits(sink, &commit.namespace, ids, commit.received_ms)?
                    };
                    open = Some(OpenCommit { commit, is_new, documents: Vec::new(), size: 0 });
                }
                Item::Document(document) => {
                    if let Some(open) = open.as_mut().filter(|open| open.is_new) {
                        open.size += document.raw.len();
                        open.documents.push(document);
                        if open.size >= OpenCommit::SIZE_MAX {
                            batch.conflicts += open.write(sink, &self.parts.bounds)?;
                        }
                    }
                }
                Item::End(end) => {
                    if let Some(mut open) = open.take().filter(|open| open.is_new) {
                        batch.conflicts += open.write(sink, &self.parts.bounds)?;
                    }
                    // One that the database had already is passed all the same.
                    batch.end = batch.end.max(end);
                    if batch.is_large() {
                        self.commit(std::mem::take(&mut batch))?;
                    }
                    if self.outbox.stopping() {
                        break;
                    }
                }
            }
        }
        self.commit(batch)?;
        self.checkpoint(true)?;
        Ok(if self.outbox.stopping() { Step::Idle } else { Step::Some })
    }

    /// Commits a batch, if there is something in it.
    fn commit(&mut self, batch: Batch) -> Result<(), ForwardError> {
        if batch.end <= self.next {
            return Ok(());
        }
        if batch.documents > 0 {
            let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
            let started = Instant::now();
            sink.commit(Position(batch.end.0))?;
            let written = batch.documents - batch.skipped;
            crate::meters::forwarded(written, started.elapsed());
            let (passed, conflicts) = (batch.documents, batch.conflicts);
            self.outbox.count_written(passed, written, conflicts, batch.received_ms);
        }
        self.next = batch.end;
        self.dirty = true;
        Ok(())
    }

    /// Has the database put what it has onto stable storage, now and then.
    pub(super) fn checkpoint(&mut self, now: bool) -> Result<(), ForwardError> {
        let is_due = now || self.checkpointed.elapsed() >= CHECKPOINT_EVERY;
        if !self.dirty || !is_due {
            return Ok(());
        }
        let Some(sink) = self.sink.as_deref_mut() else { return Ok(()) };
        if sink.position().is_none_or(|position| position.0 < self.next.0) {
            // Nothing but a position: entries that have to do with no document.
            sink.commit(Position(self.next.0))?;
        }
        let safe = sink.checkpoint()?.map_or(Lsn(0), |position| Lsn(position.0));
        self.checkpointed = Instant::now();
        self.dirty = safe < self.next;
        if let Some(spill) = &mut self.spill {
            spill.remove_through(safe)?;
            self.spill_is_full = false;
            self.outbox.set_spill(spill.size(), false);
        }
        self.safe = self.safe.max(safe);
        self.tail = self.tail.max(self.safe);
        self.outbox.made_safe(self.safe);
        Ok(())
    }

    // ---- Reading ------------------------------------------------------------------------------

    /// Calls `each` with the entries of the log from `from` on, up to `until` and no more than some; with
    /// commits of documents, and with nothing where an entry is none. `each` says whether to go on.
    fn scan(&mut self, from: Lsn, until: Lsn, each: &mut Each<'_>) -> Result<(), ForwardError> {
        let from = from.max(self.parts.log.start());
        let mut reader = match self.scan.take() {
            Some(reader) if reader.position() == from => reader,
            _ => self.parts.log.reader(from),
        };
        let enough = Lsn(from.0.saturating_add(SCAN_SIZE));
        while reader.position() < until.min(enough) {
            let at = reader.position();
            let entry = reader.next().map_err(|source| ApplyError::Read { lsn: at.0, source })?;
            let Some(entry) = entry else {
                // What is left up to there was erased, or is the log's own.
                each(self, at, until, None)?;
                return Ok(());
            };
            if entry.next > until {
                each(self, at, until, None)?;
                return Ok(());
            }
            let decoded = Entry::decode(entry.payload)
                .map_err(|source| ApplyError::Decode { lsn: entry.lsn.0, source })?;
            let commit = match &decoded {
                Entry::DocumentCommit(commit) => Some(commit),
                _ => None,
            };
            if !each(self, entry.lsn, entry.next, commit)? {
                return Ok(());
            }
        }
        self.scan = Some(reader);
        Ok(())
    }

    /// Counts the documents after `position`.
    fn count_waiting(&mut self, position: Lsn) -> Result<(), ForwardError> {
        let spilled = self.spill.as_ref().and_then(Spill::range).filter(|(_, end)| *end > position);
        let mut waiting = 0;
        if spilled.is_some() {
            waiting += self.spill.as_ref().map_or(0, Spill::documents);
        }
        let mut oldest_ms = None;
        let mut at = spilled.map_or(position, |(_, end)| end);
        let applied = self.outbox.applied();
        while at < applied {
            let before = at;
            self.scan(before, applied, &mut |_, _, end, commit| {
                at = end;
                if let Some(commit) = commit {
                    waiting += commit.count;
                    oldest_ms.get_or_insert(commit.received_ms);
                }
                Ok(true)
            })?;
            if at == before || self.outbox.stopping() {
                break;
            }
        }
        self.scan = None;
        self.outbox.set_waiting(waiting, oldest_ms);
        Ok(())
    }

    fn open_spill(&mut self) -> Result<(), ForwardError> {
        if self.spill.is_some() {
            return Ok(());
        }
        let (parts, max) = (&self.parts, self.outbox.options.spill_max);
        let spill = Spill::open(parts.fs.clone(), &parts.spill, parts.log.id(), max)?;
        if let Some((_, end)) = spill.range() {
            self.safe = self.safe.max(end);
            self.tail = self.tail.max(end);
        }
        self.outbox.set_spill(spill.size(), false);
        self.spill_is_full = false;
        self.spill = Some(spill);
        Ok(())
    }

    pub(super) fn clear_spill(&mut self) -> Result<(), ForwardError> {
        self.open_spill()?;
        if let Some(spill) = &mut self.spill {
            spill.remove_through(Lsn(u64::MAX))?;
            self.spill_is_full = false;
            self.outbox.set_spill(0, false);
        }
        Ok(())
    }

    pub(super) fn now_ms(&self) -> i64 {
        i64::try_from(self.parts.clock.now_ms()).unwrap_or(i64::MAX)
    }

    /// The database has everything up to `position`, and the log keeps what comes after.
    pub(super) fn copied(&mut self, position: Lsn) {
        self.next = position;
        self.safe = position;
        self.tail = position;
        self.needs_copy = false;
        self.dirty = false;
        self.scan = None;
        self.outbox.follow_from(position);
    }
}

/// What is written and not yet committed.
#[derive(Debug, Default)]
struct Batch {
    end: Lsn,
    documents: u64,
    /// Of these, those the database had already.
    skipped: u64,
    conflicts: u64,
    /// When the last were received.
    received_ms: i64,
}

impl Batch {
    fn is_large(&self) -> bool {
        self.documents >= DOCUMENTS_PER_TRANSACTION
    }

    /// Whether these documents are the ones that come next; counts them.
    ///
    /// * `ids`: the first, and how many.
    fn admits(
        &mut self,
        sink: &mut dyn RowSink,
        namespace: &str,
        ids: (u64, u64),
        received_ms: i64,
    ) -> Result<bool, ForwardError> {
        let (first, count) = ids;
        let end = first.saturating_add(count.saturating_sub(1));
        let last = sink.last_id(namespace)?.unwrap_or(0);
        self.documents += count;
        self.received_ms = received_ms;
        if first == last.saturating_add(1) {
            return Ok(true);
        }
        let namespace = namespace.to_owned();
        if end <= last {
            self.skipped += count;
            Ok(false)
        } else if first > last {
            Err(ForwardError::Gap { namespace, last, first })
        } else {
            Err(ForwardError::Overlap { namespace, first, end, last })
        }
    }

    fn write(
        &mut self,
        sink: &mut dyn RowSink,
        log: &Log,
        bounds: &Bounds,
        lsn: Lsn,
        end: Lsn,
        commit: &DocumentCommit<'_>,
    ) -> Result<(), ForwardError> {
        let ids = (commit.first_id, commit.count);
        if self.admits(sink, commit.namespace.as_str(), ids, commit.received_ms)? {
            self.conflicts += write_commit(sink, log, bounds, lsn, end, commit)?;
        }
        Ok(())
    }
}

/// A commit being read from the spill.
struct OpenCommit {
    commit: Spilled,
    is_new: bool,
    documents: Vec<forebay_sink::StoredDocument>,
    size: usize,
}

impl OpenCommit {
    /// Bytes of documents gathered before they are written.
    const SIZE_MAX: usize = 1 << 20;

    fn write(&mut self, sink: &mut dyn RowSink, bounds: &Bounds) -> Result<u64, ForwardError> {
        let Some(first) = self.documents.first().map(|document| document.id) else { return Ok(0) };
        let mut raws = self.documents.iter().map(|document| document.raw.as_slice());
        let conflicts = write_documents(sink, bounds, &self.commit.head(), first, &mut raws)?;
        self.documents.clear();
        self.size = 0;
        Ok(conflicts)
    }
}
