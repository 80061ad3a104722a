//! The forwarder's thread: follows the log, writes, spills, tries again.
//!
//! Invariants: one thread does all of it, so the order of commits is the order of the loop; after a
//! failure the database is opened again and asked for its position, whatever was known before; the
//! loop never waits for the database while something can be spilled.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_base::backoff::Backoff;
use forebay_base::clock::Clock;
use forebay_base::error_chain::chain;
use forebay_base::fs::FileSystem;
use forebay_log::{Log, Lsn, Reader};
use forebay_sink::Identity;
use forebay_sink::RowSink;

use super::super::flatten::Bounds;
use super::error::ForwardError;
use super::outbox::Outbox;
use super::quarantine::Attempt;
use super::spill::{Spill, SpillError};
use super::{DatabaseState, Remembered};

/// Approximate number of documents in one transaction.
pub(super) const DOCUMENTS_PER_TRANSACTION: u64 = 10_000;
/// Commits processed in one step.
pub(super) const COMMITS_PER_STEP: usize = 512;
/// How often the database is asked to put what it has onto stable storage.
pub(super) const CHECKPOINT_EVERY: Duration = Duration::from_millis(250);
/// How often the loop checks for work when idle.
const IDLE: Duration = Duration::from_secs(10);
/// How long closing waits for a responsive database.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// What the forwarder uses.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) log: Log,
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) bounds: Bounds,
    /// The local database.
    pub(crate) documents: PathBuf,
    /// The directory of spill files.
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

    /// Writes what waits, if the database accepts it, and ends the thread.
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

/// The result of one step of the loop.
pub(super) enum Step {
    /// Some work: continue at once.
    Some,
    /// There is nothing to do.
    Idle,
}

pub(super) struct Worker {
    pub(super) outbox: Arc<Outbox>,
    pub(super) parts: Parts,
    pub(super) sink: Option<Box<dyn RowSink>>,
    pub(super) spill: Option<Spill>,
    /// The database, if open, has everything up to here.
    pub(super) next: Lsn,
    /// Everything up to here is safe in the database or the spill.
    pub(super) safe: Lsn,
    /// Nothing up to here has to be spilled.
    pub(super) tail: Lsn,
    /// Reads the log for commits that are no longer queued.
    pub(super) scan: Option<Reader>,
    /// The database lacks documents that only the local database has.
    needs_copy: bool,
    /// Its last ids have been compared with the local ones since it was reached.
    pub(super) is_audited: bool,
    retry: Retry,
    pub(super) checkpointed: Instant,
    pub(super) dirty: bool,
    pub(super) spill_is_full: bool,
    /// Commits up to here are written one by one, to see which of them is refused.
    pub(super) isolate_to: Lsn,
    /// When the quarantined namespaces are tried again.
    pub(super) attempts: HashMap<String, Attempt>,
    /// The documents of these have been counted since the position passed some.
    pub(super) is_counted: bool,
}

/// Reports a thread that ended by a panic.
struct Ended(Arc<Outbox>);

impl Drop for Ended {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stopped_by_panic();
        }
    }
}

/// When the database will be tried again.
struct Retry {
    at: Instant,
    backoff: Backoff,
    /// When it was last reachable.
    away_since: Instant,
}

impl Worker {
    fn new(outbox: Arc<Outbox>, parts: Parts) -> Self {
        let now = Instant::now();
        let backoff = Backoff::new(outbox.options.retry_min, outbox.options.retry_max);
        let retry_max = outbox.options.retry_max;
        let (tail, attempts) = {
            let memory = outbox.memory.lock();
            let quarantined = memory.quarantined().keys();
            let attempts = quarantined.map(|it| (it.clone(), Attempt::new(retry_max))).collect();
            (memory.now().durable, attempts)
        };
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
            is_audited: false,
            retry: Retry { at: now, backoff, away_since: now },
            checkpointed: now,
            dirty: false,
            spill_is_full: false,
            isolate_to: Lsn(0),
            attempts,
            is_counted: false,
        }
    }

    fn run(mut self) {
        let _ended = Ended(self.outbox.clone());
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
            let limit = if self.dirty { CHECKPOINT_EVERY } else { IDLE };
            let limit = self.next_attempt().map_or(limit, |attempt| attempt.min(limit));
            self.outbox.wait(self.next, limit);
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

    /// Records the database's position, so that the next start has little to read again.
    fn close(&mut self) {
        let closed = self.checkpoint(true).and_then(|()| {
            let mut memory = self.outbox.memory.lock();
            let now = memory.now();
            let next = Remembered { durable: self.safe, ..now };
            if now.held { Ok(memory.keep(next)?) } else { Ok(()) }
        });
        if let Err(error) = closed {
            tracing::warn!(
                error = %chain(&error),
                "could not record the database's position; the next start determines it"
            );
        }
    }

    /// Handles an error; returns `false` if the thread has to end.
    fn settle(&mut self, error: &ForwardError) -> bool {
        if error.asks_for_a_copy() {
            tracing::warn!(
                error = %chain(error),
                "the documents that the database lacks will be copied from the intake's own"
            );
            self.needs_copy = true;
        }
        if error.is_refusal() {
            self.isolate_to = self.outbox.applied();
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
            tracing::error!(
                %reason,
                "forwarding has stopped; the log keeps the documents that wait"
            );
            return false;
        }
        let now = Instant::now();
        let state = match error {
            ForwardError::Open(error) if !error.is_transient() => DatabaseState::Refused,
            ForwardError::Overlap { .. }
            | ForwardError::Foreign { .. }
            | ForwardError::Lost { .. }
            | ForwardError::Ahead { .. } => DatabaseState::Refused,
            _ => DatabaseState::Away,
        };
        if let Some(sink) = self.sink.take() {
            self.retry.away_since = now;
            if state == DatabaseState::Away {
                self.let_go(sink);
            }
        }
        self.outbox.count_retry();
        crate::meters::forward_retry();
        if self.outbox.set_state(state, Some(reason.clone()), now_ms) {
            tracing::warn!(
                database = self.outbox.options.database.name(),
                state = state.name(),
                %reason,
                "the database is unavailable: documents wait for it; the intake continues"
            );
        }
        self.retry.at = now + self.retry.backoff.delay();
        true
    }

    /// Parts with a database that is unavailable. What it has on stable storage needs neither the spill nor
    /// the log: a change among it would end the spill.
    fn let_go(&mut self, mut sink: Box<dyn RowSink>) {
        let safe = match sink.checkpoint() {
            Ok(position) => position.map_or(Lsn(0), |position| Lsn(position.0)),
            // It is asked when it is back.
            Err(_) => return,
        };
        if let Err(error) = self.made_safe(safe) {
            tracing::debug!(error = %chain(&error), "the spill is opened again");
            self.spill = None;
        }
    }

    /// Whether the log keeps what the database lacks.
    fn holds(&self) -> bool {
        !self.needs_copy && self.outbox.memory.lock().now().held
    }

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

    /// Opens the database, determines its position, and brings it to where the log takes over.
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
        self.is_audited = false;
        self.is_counted = false;
        if !is_known {
            self.release_all()?;
        }
        match from {
            Some(position) => self.go_on(position, spilled)?,
            None => self.copy(identity)?,
        }
        self.retry.backoff.reset();
        let now_ms = self.now_ms();
        if self.outbox.set_state(DatabaseState::Following, None, now_ms) {
            tracing::info!(
                database = database.name(),
                position = self.next.0,
                "forwarding documents to the database"
            );
        }
        Ok(())
    }

    /// Continues from the database's position: with the spill, then with the log.
    fn go_on(&mut self, position: Lsn, spilled: Option<(Lsn, Lsn)>) -> Result<(), ForwardError> {
        let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
        let safe = sink.checkpoint()?.map_or(Lsn(0), |position| Lsn(position.0));
        self.next = position;
        self.safe = match spilled {
            Some((after, end)) if after <= position => end.max(safe),
            _ => {
                // The spill starts after the database's position; the log has all of it.
                self.clear_spill()?;
                safe
            }
        };
        self.tail = self.safe;
        self.outbox.follow_from(self.safe);
        self.count_waiting(position)
    }

    pub(super) fn now_ms(&self) -> i64 {
        i64::try_from(self.parts.clock.now_ms()).unwrap_or(i64::MAX)
    }

    /// Records that the database has everything up to `position`, and that the log keeps what
    /// follows.
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
