//! A thread that does what commands need to have done without locks, if it takes long: the thread
//! of the connection serves others meanwhile.
//!
//! The connection waits ([`Flow::Aside`](super::Flow::Aside)) until its mailbox reports that the
//! work is done, then it runs the same command again, which finds the result in its session.
//!
//! Invariants: at most [`DONE_MAX`] results exist that no command has taken, since each may be as
//! large as a string; work that finds no thread, or no place for its result soon, is done by the
//! thread that needs it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::{Engine, Mailbox, Session};
use crate::command::Apart;
use crate::store::Preparation;

/// Size in bytes from which work is left to the thread: reading a megabyte takes some 0.3 ms.
const LONG: usize = 1 << 20;
/// Work that waits for the thread.
const WAITING_MAX: usize = 256;
/// Results that wait for their commands.
const DONE_MAX: usize = 2;
/// How long the thread waits for one of these places. A command may take its result late: it does not
/// run while its client reads no replies.
const PLACE_WAIT: Duration = Duration::from_millis(50);

/// The way to the thread, which is started by the first long work and ends with the engine.
#[derive(Debug, Default)]
pub(super) struct Aside {
    to: OnceLock<Option<SyncSender<Job>>>,
}

#[derive(Debug)]
struct Job {
    work: Box<Apart>,
    order: Arc<Order>,
    mailbox: Arc<Mailbox>,
}

/// Work of a session's command that the thread does, or has done.
#[derive(Debug)]
pub(super) struct Order {
    /// How often the command has had work done, with this one.
    pub(super) attempts: usize,
    done: Mutex<Option<Done>>,
}

#[derive(Debug)]
struct Done {
    work: Box<Apart>,
    /// `None`: there was none, and the work is yet to be done.
    place: Option<Place>,
}

/// Number of results.
#[derive(Debug, Default)]
struct Places {
    used: Mutex<usize>,
    freed: Condvar,
}

/// The place of a result.
#[derive(Debug)]
struct Place(Arc<Places>);

impl Places {
    fn wait(self: &Arc<Self>) -> Option<Place> {
        let mut used = self.used.lock();
        self.freed.wait_while_for(&mut used, |used| *used >= DONE_MAX, PLACE_WAIT);
        if *used >= DONE_MAX {
            return None;
        }
        *used += 1;
        Some(Place(Arc::clone(self)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.used.lock() -= 1;
        self.0.freed.notify_one();
    }
}

impl Order {
    /// Takes back the buffer that was lent for the work.
    pub(super) fn give_back(&self) -> Option<Vec<u8>> {
        match self.done.lock().as_mut()?.work.as_mut() {
            Apart::Prepare(preparation) => Some(preparation.give_back()),
            _ => None,
        }
    }

    /// Takes the work, and does it if the thread could not; `None` if it failed.
    pub(super) fn take(&self) -> Option<Box<Apart>> {
        let Done { mut work, place } = self.done.lock().take()?;
        if place.is_none() {
            work.run();
        }
        Some(work)
    }
}

impl Engine {
    /// Has the values of a session's command prepared that returned [`Flow::Aside`](super::Flow::Aside), if
    /// it asked for that.
    ///
    /// * `buffer`: what the command is in. The same command must run next, once the buffer was returned
    ///   ([`Engine::take_back`]).
    /// * Returns the buffer if it was not lent: then the command can run again at once.
    pub(crate) fn lend(&self, session: &mut Session, buffer: Vec<u8>) -> Result<(), Vec<u8>> {
        let values = std::mem::take(&mut session.to_prepare);
        let codec = self.keyspace().rules().codec();
        let work = Box::new(Apart::Prepare(Preparation::new(buffer, values, codec)));
        match self.aside.order(work, 1, &session.info.mailbox) {
            Ok(order) => {
                session.order = Some(order);
                Ok(())
            }
            Err(mut work) => match work.as_mut() {
                Apart::Prepare(preparation) => Err(preparation.give_back()),
                _ => Err(Vec::new()),
            },
        }
    }

    /// Returns the buffer that was lent, once the mailbox has reported that the work is done.
    pub(crate) fn take_back(session: &Session) -> Option<Vec<u8>> {
        session.order.as_ref()?.give_back()
    }
}

impl Session {
    /// Whether its command asked for its buffer to be lent.
    pub(crate) fn lends(&self) -> bool {
        !self.to_prepare.is_empty()
    }
}

impl Aside {
    /// Has long work done; gives back what the caller has to do itself.
    pub(super) fn order(
        &self,
        work: Box<Apart>,
        attempts: usize,
        mailbox: &Arc<Mailbox>,
    ) -> Result<Arc<Order>, Box<Apart>> {
        if work.size() < LONG {
            return Err(work);
        }
        let Some(to) = self.to.get_or_init(start) else { return Err(work) };
        let order = Arc::new(Order { attempts, done: Mutex::new(None) });
        let job = Job { work, order: Arc::clone(&order), mailbox: Arc::clone(mailbox) };
        match to.try_send(job) {
            Ok(()) => Ok(order),
            Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) => Err(job.work),
        }
    }
}

/// Starts the thread; `None` if the system has none left.
fn start() -> Option<SyncSender<Job>> {
    let (to, from) = sync_channel(WAITING_MAX);
    let thread = std::thread::Builder::new().name("cache-aside".to_owned());
    match thread.spawn(move || run(&from)) {
        Ok(_) => Some(to),
        Err(error) => {
            tracing::warn!(%error, "long strings are copied by the threads of their connections");
            None
        }
    }
}

fn run(from: &Receiver<Job>) {
    let places = Arc::new(Places::default());
    for Job { mut work, order, mailbox } in from {
        // Its connection has ended.
        if Arc::strong_count(&order) == 1 {
            continue;
        }
        let place = places.wait();
        // After a panic the command meets the same by itself, where only its connection ends. A buffer that
        // was lent is returned even then.
        let is_lent = matches!(*work, Apart::Prepare(_));
        let is_done = place.is_none() || catch_unwind(AssertUnwindSafe(|| work.run())).is_ok();
        if is_done || is_lent {
            *order.done.lock() = Some(Done { work, place });
        }
        drop(order);
        mailbox.unblock(&[]);
    }
}

#[cfg(test)]
mod tests;
