//! Messages from other threads to the thread that owns a set of connections.
//!
//! Lists under one short lock: sockets and connections to take over, connections with mail, and, in the pooled
//! mode, connections that ended or wait for a time. The owner takes all of them at once per turn.
//! It is woken by a system call only if it sleeps, which the flag `awake` shows, so a burst of
//! messages costs one wake-up, and a message to a running thread costs none.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use mio::Waker;
use parking_lot::Mutex;

use super::Wire;
use super::connection::Connection;
use crate::engine::Notify;

/// An accepted socket on its way to its thread.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) socket: mio::net::TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) wire: Wire,
    pub(super) tls: Option<Arc<rustls::ServerConfig>>,
}

/// A connection on its way from one thread to another.
#[derive(Debug)]
pub(super) struct Moved {
    /// Non-blocking; no thread waits for its events.
    pub(super) socket: mio::net::TcpStream,
    pub(super) connection: Connection,
}

/// Everything that was left since the last turn.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) accepted: Vec<Accepted>,
    pub(super) moved: Vec<Moved>,
    pub(super) notified: Vec<u64>,
    /// Pooled mode: connections that a worker found to have ended.
    pub(super) ended: Vec<u64>,
    /// Pooled mode: connections that wait for a time.
    pub(super) waiting: Vec<(Instant, u64)>,
    /// Only a turn is requested.
    look: bool,
}

impl Left {
    fn is_empty(&self) -> bool {
        self.accepted.is_empty()
            && self.moved.is_empty()
            && self.notified.is_empty()
            && self.ended.is_empty()
            && self.waiting.is_empty()
            && !self.look
    }
}

/// The lists and the way to wake their owner.
#[derive(Debug)]
pub(super) struct Inbox {
    left: Mutex<Left>,
    /// Whether the owner will check the lists before it sleeps.
    awake: AtomicBool,
    waker: Waker,
}

impl Inbox {
    pub(super) fn new(waker: Waker) -> Self {
        Self { left: Mutex::default(), awake: AtomicBool::new(true), waker }
    }

    /// Adds something to the lists, and wakes the owner if it sleeps.
    pub(super) fn leave(&self, put: impl FnOnce(&mut Left)) {
        put(&mut self.left.lock());
        // The owner clears the flag before it checks the lists a last time and sleeps; this thread
        // adds to the lists before it checks the flag: one of the two sees what the other did.
        if !self.awake.swap(true, Ordering::SeqCst) {
            // An eventfd refuses a wake-up only if 2^64 - 2 of them are pending.
            self.waker.wake().unwrap_or_default();
        }
    }

    /// Requests a turn of the owner.
    pub(super) fn wake(&self) {
        self.leave(|left| left.look = true);
    }

    /// Prepares the owner for sleep. Returns whether it may sleep: nothing was left meanwhile.
    pub(super) fn doze(&self) -> bool {
        self.awake.store(false, Ordering::SeqCst);
        let quiet = self.left.lock().is_empty();
        if !quiet {
            self.awake.store(true, Ordering::SeqCst);
        }
        quiet
    }

    /// Records that the owner is awake.
    pub(super) fn rise(&self) {
        self.awake.store(true, Ordering::SeqCst);
    }

    /// Swaps the lists with the empty lists in `into`.
    pub(super) fn take(&self, into: &mut Left) {
        into.look = false;
        std::mem::swap(&mut *self.left.lock(), into);
    }
}

impl Notify for Inbox {
    fn notify(&self, connection: u64) {
        self.leave(|left| left.notified.push(connection));
    }
}
