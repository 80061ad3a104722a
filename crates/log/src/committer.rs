//! The threads that write and sync on behalf of all waiting callers.
//!
//! `forebay-log` sleeps until a caller waits for an acknowledgement or for room, then writes and
//! syncs for all of them at once. `forebay-log-aux` prepares the next segment in advance and, under
//! `interval`, syncs in time; neither delays acknowledgements.
//!
//! Invariant: while a committer runs, every registered waiter is woken, by success or by failure.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Instant,
};

use forebay_base::Durability;

use crate::{error::CommitError, segment, writer::Shared};

/// Serves waiting callers until it is stopped or dropped.
///
/// Dropping stops it too, but the error is lost; use [`Committer::stop`] for an orderly end.
#[derive(Debug)]
pub struct Committer {
    shared: Arc<Shared>,
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    stopped: bool,
}

impl Committer {
    pub(crate) fn start(shared: Arc<Shared>) -> Self {
        let stopping = Arc::new(AtomicBool::new(false));
        let spawn = |name: &str, run: fn(&Shared, &AtomicBool)| {
            let (shared, stopping) = (Arc::clone(&shared), Arc::clone(&stopping));
            let thread = std::thread::Builder::new().name(name.into());
            thread.spawn(move || run(&shared, &stopping)).expect("the system has a thread to spare")
        };
        let threads = vec![spawn("forebay-log", serve), spawn("forebay-log-aux", help)];
        shared.inner.lock().committers += 1;
        Self { shared, stopping, threads, stopped: false }
    }

    /// Writes and syncs everything appended, marks the log closed, and ends the threads.
    ///
    /// The log may be used afterwards; callers that wait then write themselves.
    ///
    /// # Errors
    /// [`CommitError::Poisoned`] when something could not be written; what was not acknowledged may
    /// be lost.
    pub fn stop(mut self) -> Result<(), CommitError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), CommitError> {
        self.stopped = true;
        {
            // Under the lock, so that a thread about to sleep sees the flag or gets the
            // notification.
            let mut inner = self.shared.inner.lock();
            self.stopping.store(true, Ordering::Release);
            inner.committers -= 1;
            self.shared.work.notify_all();
            self.shared.chores.notify_all();
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                // The panic has been reported by its hook; the log itself is still intact.
                continue;
            }
        }
        // Callers that registered while a committer existed must not wait for one that has ended.
        let closed = self.shared.close();
        self.shared.wake_everyone();
        closed
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        if !self.stopped {
            // Documented: a caller that wants the error calls `stop`.
            self.end().ok();
        }
    }
}

/// How often the committer yields to appenders before it writes.
const YIELDS_MAX: u32 = 1;

/// Writes on behalf of waiting callers.
fn serve(shared: &Shared, stopping: &AtomicBool) {
    let sync = matches!(shared.options.durability, Durability::Sync);
    loop {
        {
            let mut inner = shared.inner.lock();
            while inner.waiters.is_empty() && inner.room_waiters.is_empty() {
                if stopping.load(Ordering::Acquire) {
                    return;
                }
                inner.committer_parked = true;
                shared.work.wait(&mut inner);
                inner.committer_parked = false;
            }
        }
        let_others_append(shared);
        let driven = shared.drive(sync);
        if matches!(driven, Err(CommitError::Stalled { .. })) {
            // Every waiter was notified, and no caller registers until a retry has written what is
            // held.
            continue;
        }
        if driven.is_err() {
            // Every waiter was notified; later callers get the error directly and never register.
            let mut inner = shared.inner.lock();
            while !stopping.load(Ordering::Acquire) && inner.waiters.is_empty() {
                shared.work.wait(&mut inner);
            }
            if stopping.load(Ordering::Acquire) {
                return;
            }
        }
    }
}

/// Lets threads that are about to append do so first, as long as there are more of them: one write
/// and sync then serve them all. If no other thread needs the processor, this returns immediately.
fn let_others_append(shared: &Shared) {
    let mut seen = shared.inner.lock().next;
    for _ in 0..YIELDS_MAX {
        std::thread::yield_now();
        let next = shared.inner.lock().next;
        if next == seen {
            return;
        }
        seen = next;
    }
}

/// Prepares the next segment and, under `interval`, syncs in time.
fn help(shared: &Shared, stopping: &AtomicBool) {
    let interval = match shared.options.durability {
        Durability::Interval(interval) => Some(interval),
        Durability::Sync | Durability::Os => None,
    };
    let mut inner = shared.inner.lock();
    while !stopping.load(Ordering::Acquire) && inner.poison.is_none() {
        if std::mem::take(&mut inner.prepare_wanted) {
            drop(inner);
            prepare(shared);
            inner = shared.inner.lock();
            continue;
        }
        let due = interval.zip(inner.dirty_since).map(|(interval, since)| since + interval);
        match due {
            Some(due) if due <= Instant::now() => {
                // Cleared first: what is written during the sync may not be covered by it.
                inner.dirty_since = None;
                drop(inner);
                if shared.sync_written().is_err() {
                    shared.wake_everyone();
                    return;
                }
                inner = shared.inner.lock();
            }
            Some(due) => {
                shared.chores.wait_until(&mut inner, due);
            }
            None => shared.chores.wait(&mut inner),
        }
    }
}

/// Prepares the next segment if possible. If not, the rotation tries again and reports the error.
fn prepare(shared: &Shared) {
    let mut slot = shared.prepared.lock();
    if slot.is_none() {
        *slot = segment::prepare(&*shared.fs, &shared.dir, shared.options.segment_size).ok();
    }
}
