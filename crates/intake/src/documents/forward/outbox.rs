//! State shared by the view, the requests, the reclaiming of space and the forwarder.
//!
//! The view announces each commit it has applied; the forwarder takes them from here, or from the
//! log if there are too many. This module decides what may leave the log, from what the forwarder
//! has made safe elsewhere.
//!
//! Invariants: `commits` has every commit applied after `queued_from`; memory is limited by a
//! number of commits and by bytes, and what does not fit is read from the log; a position is
//! released only after that permission was recorded ([`Memory`]); the first chunk of a commit is
//! kept as long as the commit is.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_base::error_chain::chain;
use forebay_log::Lsn;
use parking_lot::{Condvar, Mutex};

use super::super::prepared::Prepared;
use super::memory::{Memory, MemoryError};
use super::quarantine::{Quarantine, Refused};
use super::{DatabaseState, DatabaseStatus, ForwardOptions, Remembered};
use crate::answer::time_text;
use crate::error::IntakeError;

/// Maximum number of queued commits. More are read from the log.
const COMMITS_MAX: usize = 4_096;
/// Maximum memory of queued commits with what was read of them.
const PREPARED_MAX: usize = 32 << 20;

/// A commit the view has applied.
#[derive(Debug, Clone)]
pub(crate) struct QueuedCommit {
    /// The first entry that belongs to it.
    pub(crate) first: Lsn,
    pub(crate) lsn: Lsn,
    pub(crate) end: Lsn,
    pub(crate) count: u64,
    pub(crate) received_ms: i64,
    pub(crate) prepared: Option<Arc<Prepared>>,
}

/// Which part of the log has to be kept for the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// None: what the database lacks will be copied from the local database.
    Nothing,
    /// Everything after this position: a copy is in progress.
    After(Lsn),
    /// Whatever is not safe elsewhere.
    Unsafe,
}

/// Shared by all parts that deal with forwarding.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(super) options: ForwardOptions,
    state: Mutex<State>,
    announced: Condvar,
    pub(super) memory: Mutex<Memory>,
}

#[derive(Debug)]
struct State {
    commits: VecDeque<QueuedCommit>,
    queued_from: Lsn,
    prepared_size: usize,
    /// First entry and end of commits of several entries that are not safe elsewhere.
    chunked: VecDeque<(Lsn, Lsn)>,
    /// Position up to which the view has applied commits.
    applied: Lsn,
    /// Number of documents in all commits announced.
    announced: u64,
    hold: Hold,
    /// Position up to which the database or the spill has everything on stable storage.
    durable: Lsn,
    /// Commits up to here were not announced: their chunks are not known.
    untold: Lsn,
    /// Position up to which the log was allowed to release documents.
    released: Lsn,
    stop: bool,
    status: Status,
}

/// The reported status.
#[derive(Debug, Clone)]
struct Status {
    state: DatabaseState,
    reason: Option<Arc<str>>,
    since_ms: i64,
    waiting: u64,
    oldest_ms: Option<i64>,
    written: u64,
    conflicts: u64,
    retries: u64,
    spill_bytes: u64,
    spill_is_full: bool,
    quarantine: Quarantine,
}

impl Outbox {
    /// * `applied`: position up to which the view has applied commits; nothing is being appended.
    pub(crate) fn new(options: ForwardOptions, memory: Memory, applied: Lsn, now_ms: i64) -> Self {
        let known = memory.now();
        // Without a record of the last run, anything may have been released.
        let released = if known.held { known.released } else { applied };
        let status = Status {
            state: DatabaseState::Connecting,
            reason: None,
            since_ms: now_ms,
            waiting: 0,
            oldest_ms: None,
            written: 0,
            conflicts: 0,
            retries: 0,
            spill_bytes: 0,
            spill_is_full: false,
            quarantine: Quarantine::new(memory.quarantined()),
        };
        let state = State {
            commits: VecDeque::new(),
            queued_from: applied,
            prepared_size: 0,
            chunked: VecDeque::new(),
            applied,
            announced: 0,
            hold: if known.held { Hold::Unsafe } else { Hold::Nothing },
            durable: known.durable,
            untold: applied,
            released,
            stop: false,
            status,
        };
        Self {
            options,
            state: Mutex::new(state),
            announced: Condvar::new(),
            memory: Mutex::new(memory),
        }
    }

    /// Announces applied commits, in order.
    pub(crate) fn announce(&self, commits: &[QueuedCommit]) {
        let mut state = self.state.lock();
        for queued in commits {
            state.applied = queued.end;
            state.announced += queued.count;
            if state.hold == Hold::Nothing {
                state.queued_from = queued.end;
                continue;
            }
            state.status.waiting += queued.count;
            state.status.oldest_ms.get_or_insert(queued.received_ms);
            if queued.first < queued.lsn {
                state.chunked.push_back((queued.first, queued.end));
            }
            if state.commits.len() >= COMMITS_MAX {
                state.commits.clear();
                state.prepared_size = 0;
                state.queued_from = queued.end;
                continue;
            }
            let mut queued = queued.clone();
            let size = queued.prepared.as_ref().map_or(0, |prepared| prepared.size());
            if state.prepared_size + size > PREPARED_MAX {
                queued.prepared = None;
            } else {
                state.prepared_size += size;
            }
            state.commits.push_back(queued);
        }
        drop(state);
        self.announced.notify_one();
    }

    /// Whether one more request with documents may be accepted.
    ///
    /// # Errors
    /// [`IntakeError::DatabaseBehind`].
    pub(crate) fn check_room(&self, log_end: Lsn) -> Result<(), IntakeError> {
        let state = self.state.lock();
        let kept = state.kept(log_end);
        if kept <= self.options.log_max {
            return Ok(());
        }
        Err(IntakeError::DatabaseBehind {
            state: state.status.state.name(),
            kept,
            kept_max: self.options.log_max,
        })
    }

    /// Position up to which documents may leave the log. `others` is the position up to which every
    /// other user of the log permits it.
    pub(crate) fn release(&self, others: Lsn) -> Lsn {
        let mut memory = self.memory.lock();
        let (safe, next) = {
            let mut state = self.state.lock();
            match state.hold {
                Hold::Nothing => {
                    state.released = state.released.max(others);
                    return others;
                }
                Hold::After(position) => {
                    let safe = others.min(position);
                    state.released = state.released.max(safe);
                    return safe;
                }
                Hold::Unsafe => {}
            }
            let safe = state.floor().min(others);
            let durable = state.durable;
            (safe, Remembered { durable, released: safe, ..memory.now() })
        };
        let known = memory.now();
        if safe <= known.released {
            return known.released.min(others);
        }
        match memory.keep(next) {
            Ok(()) => {
                self.state.lock().released = safe;
                safe
            }
            Err(error) => {
                tracing::warn!(
                    error = %chain(&error),
                    "could not record the database's position; the log is kept"
                );
                known.released.min(others)
            }
        }
    }

    /// Starts keeping everything that is applied for the database. Returns the position from which
    /// it is kept.
    pub(super) fn hold_from_here(&self) -> Lsn {
        let mut state = self.state.lock();
        let applied = state.applied;
        state.hold = Hold::After(applied);
        state.untold = applied;
        state.commits.clear();
        state.chunked.clear();
        state.prepared_size = 0;
        state.queued_from = applied;
        applied
    }

    /// Records that the database has everything up to `position` on stable storage. What follows is
    /// kept until it is safe.
    pub(super) fn follow_from(&self, position: Lsn) {
        let mut state = self.state.lock();
        if position < state.durable {
            // The chunks of what is no longer safe may have been forgotten.
            state.untold = state.applied;
        }
        state.durable = position;
        state.hold = Hold::Unsafe;
    }

    /// Records that everything up to `position` is on stable storage in the database or in the
    /// spill.
    pub(super) fn made_safe(&self, position: Lsn) {
        let mut state = self.state.lock();
        state.durable = state.durable.max(position);
        let durable = state.durable;
        while state.chunked.front().is_some_and(|(_, end)| *end <= durable) {
            state.chunked.pop_front();
        }
    }

    /// Position up to which the log was allowed to release documents.
    pub(super) fn released(&self) -> Lsn {
        self.state.lock().released
    }

    /// Position up to which the view has applied commits.
    pub(super) fn applied(&self) -> Lsn {
        self.state.lock().applied
    }

    pub(super) fn stopping(&self) -> bool {
        self.state.lock().stop
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.announced.notify_all();
    }

    /// The queued commits after `position`, at most `max`. `Err` holds the position up to which the
    /// log has to be read instead.
    pub(super) fn take(&self, position: Lsn, max: usize) -> Result<Vec<QueuedCommit>, Lsn> {
        let mut state = self.state.lock();
        if position < state.queued_from {
            return Err(state.queued_from);
        }
        while state.commits.front().is_some_and(|queued| queued.end <= position) {
            let queued = state.commits.pop_front();
            let size = queued.and_then(|queued| Some(queued.prepared?.size())).unwrap_or(0);
            state.prepared_size = state.prepared_size.saturating_sub(size);
        }
        state.queued_from = state.queued_from.max(position.min(state.applied));
        Ok(state.commits.iter().take(max).cloned().collect())
    }

    /// Waits until something is announced after `position`, or a quarantined namespace is to be
    /// tried, at most this long.
    pub(super) fn wait(&self, position: Lsn, limit: Duration) {
        let deadline = Instant::now() + limit;
        let mut state = self.state.lock();
        while !state.stop && state.applied <= position && !state.status.quarantine.is_wanted() {
            if self.announced.wait_until(&mut state, deadline).timed_out() {
                return;
            }
        }
    }

    /// Waits this long, or until the intake closes.
    pub(super) fn pause(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let mut state = self.state.lock();
        while !state.stop {
            if self.announced.wait_until(&mut state, deadline).timed_out() {
                return;
            }
        }
    }

    /// Sets the state of the database. Returns whether it changed.
    pub(super) fn set_state(&self, to: DatabaseState, reason: Option<String>, now_ms: i64) -> bool {
        let mut state = self.state.lock();
        let status = &mut state.status;
        let news = status.state != to || status.reason.as_deref() != reason.as_deref();
        if status.state != to {
            status.since_ms = now_ms;
        }
        status.state = to;
        status.reason = reason.map(Into::into);
        news
    }

    /// The thread has ended. What waits is kept.
    pub(super) fn stopped_by_panic(&self) {
        let status = &mut self.state.lock().status;
        status.state = DatabaseState::Stopped;
        status.reason =
            Some("the forwarder panicked; after a restart it resumes where it stopped".into());
    }

    /// Number of documents announced so far.
    pub(super) fn announced(&self) -> u64 {
        self.state.lock().announced
    }

    /// Records how many documents wait: those counted, and those announced meanwhile. Documents that
    /// are counted twice for it are corrected when everything is written.
    ///
    /// * `since`: what [`announced`](Self::announced) was before the count began.
    pub(super) fn set_waiting(&self, documents: u64, since: u64, oldest_ms: Option<i64>) {
        let mut state = self.state.lock();
        let waiting = documents.saturating_add(state.announced.saturating_sub(since));
        let oldest_ms = oldest_ms.or(state.status.oldest_ms);
        state.status.waiting = waiting;
        state.status.oldest_ms = oldest_ms.filter(|_| waiting > 0);
    }

    /// Records that the database has everything up to `position`.
    pub(super) fn all_written(&self, position: Lsn) {
        let mut state = self.state.lock();
        if state.applied <= position {
            state.status.waiting = 0;
            state.status.oldest_ms = None;
        }
    }

    pub(super) fn set_spill(&self, bytes: u64, is_full: bool) {
        let status = &mut self.state.lock().status;
        status.spill_bytes = bytes;
        status.spill_is_full = is_full;
    }

    /// Records on stable storage which namespaces are quarantined; the status follows with
    /// [`publish_quarantined`](Self::publish_quarantined).
    pub(super) fn record_quarantined(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, Refused>),
    ) -> Result<(), MemoryError> {
        let mut memory = self.memory.lock();
        let mut quarantined = memory.quarantined().clone();
        change(&mut quarantined);
        if quarantined == *memory.quarantined() {
            return Ok(());
        }
        memory.keep_quarantined(quarantined)
    }

    /// Reports what is recorded.
    pub(super) fn publish_quarantined(&self) {
        let memory = self.memory.lock();
        self.state.lock().status.quarantine.follow(memory.quarantined());
    }

    /// Counts an attempt to write the documents of a quarantined namespace.
    pub(super) fn count_attempt(&self, namespace: &str) {
        self.state.lock().status.quarantine.tried(namespace);
    }

    /// Counts documents of a quarantined namespace that the position has passed.
    pub(super) fn pass(&self, namespace: &str, count: u64) {
        let status = &mut self.state.lock().status;
        status.waiting = status.waiting.saturating_sub(count);
        status.quarantine.add_documents(namespace, count);
        if status.waiting == 0 {
            status.oldest_ms = None;
        }
    }

    /// Sets the number of documents that the database lacks of a quarantined namespace.
    pub(super) fn set_quarantined_documents(&self, namespace: &str, count: u64) {
        self.state.lock().status.quarantine.set_documents(namespace, count);
    }

    /// Counts documents that were written after the position had passed them.
    pub(super) fn count_replayed(&self, written: u64, conflicts: u64) {
        let status = &mut self.state.lock().status;
        status.written += written;
        status.conflicts += conflicts;
    }

    /// Asks for quarantined namespaces to be tried at once. Returns whether there is one.
    pub(crate) fn replay_now(&self, namespace: Option<&str>) -> bool {
        let any = self.state.lock().status.quarantine.want(namespace);
        self.announced.notify_all();
        any
    }

    /// A quarantined namespace that is to be tried at once; the caller tries it.
    pub(super) fn take_wanted(&self) -> Option<String> {
        self.state.lock().status.quarantine.take_wanted()
    }

    pub(super) fn count_retry(&self) {
        self.state.lock().status.retries += 1;
    }

    /// Counts documents that the database now has, including some it may have had before.
    pub(super) fn count_written(&self, passed: u64, written: u64, conflicts: u64, oldest_ms: i64) {
        let status = &mut self.state.lock().status;
        status.waiting = status.waiting.saturating_sub(passed);
        status.written += written;
        status.conflicts += conflicts;
        status.oldest_ms = (status.waiting > 0).then_some(oldest_ms);
    }

    /// Whether the database has not been reached, so that it may lack everything.
    pub(crate) fn lacks_all(&self) -> bool {
        self.state.lock().hold == Hold::Nothing
    }

    /// The state of forwarding, as far as the view has announced documents.
    pub(crate) fn status(&self, log_end: Lsn, now_ms: i64) -> DatabaseStatus {
        let state = self.state.lock();
        let status = &state.status;
        let oldest_ms = [status.oldest_ms, status.quarantine.oldest_ms()];
        let oldest_ms = oldest_ms.into_iter().flatten().min();
        let age_ms = oldest_ms.map_or(0, |oldest| now_ms.saturating_sub(oldest).max(0));
        DatabaseStatus {
            database: self.options.database.name(),
            state: status.state,
            reason: status.reason.as_deref().map(str::to_owned),
            since: time_text(status.since_ms),
            quarantined: status.quarantine.status(),
            documents_waiting: status.waiting.saturating_add(status.quarantine.documents()),
            lag_seconds: Duration::from_millis(age_ms.unsigned_abs()).as_secs_f64(),
            documents_written: status.written,
            column_conflicts: status.conflicts,
            retries: status.retries,
            spill_bytes: status.spill_bytes,
            spill_bytes_max: self.options.spill_max,
            spill_is_full: status.spill_is_full,
            log_bytes_kept: state.kept(log_end),
            log_bytes_max: self.options.log_max,
        }
    }
}

impl State {
    /// Below this position everything is safe elsewhere.
    fn floor(&self) -> Lsn {
        if self.durable < self.untold {
            return self.released;
        }
        let chunks = self.chunked.iter().filter(|(_, end)| *end > self.durable);
        chunks.map(|(first, _)| *first).min().map_or(self.durable, |first| first.min(self.durable))
    }

    /// Bytes of log kept for the database.
    fn kept(&self, log_end: Lsn) -> u64 {
        let from = match self.hold {
            Hold::Nothing => return 0,
            Hold::After(position) => position,
            Hold::Unsafe => self.durable.max(self.released),
        };
        log_end.0.saturating_sub(from.0)
    }
}
