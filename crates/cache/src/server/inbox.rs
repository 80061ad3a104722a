//! What other threads leave for the thread that owns a set of connections.
//!
//! Lists under one short lock: sockets to take over, connections whose mailbox has something, and,
//! in the pooled mode, connections that ended or wait until a moment. The owner takes all of
//! them at once a turn. It is woken by a system call only when it sleeps: the flag `awake` says so,
//! so a burst of notices costs one wake, and a notice to a thread at work costs none.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use mio::Waker;
use parking_lot::Mutex;

use super::Wire;
use crate::engine::Notify;

/// A socket that was accepted, on its way to its thread.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) socket: mio::net::TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) wire: Wire,
    pub(super) tls: Option<Arc<rustls::ServerConfig>>,
}

/// Everything that was left since the last look.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) accepted: Vec<Accepted>,
    pub(super) notified: Vec<u64>,
    /// Pooled mode: connections a worker found to be over.
    pub(super) ended: Vec<u64>,
    /// Pooled mode: connections that wait until a moment.
    pub(super) waiting: Vec<(Instant, u64)>,
    /// Nothing but a look around is asked for.
    look: bool,
}

impl Left {
    fn is_empty(&self) -> bool {
        self.accepted.is_empty()
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
    /// Whether the owner is sure to look before it sleeps.
    awake: AtomicBool,
    waker: Waker,
}

impl Inbox {
    pub(super) fn new(waker: Waker) -> Self {
        Self { left: Mutex::default(), awake: AtomicBool::new(true), waker }
    }

    /// Leaves something, and wakes the owner if it sleeps.
    pub(super) fn leave(&self, put: impl FnOnce(&mut Left)) {
        put(&mut self.left.lock());
        // The owner clears the flag before it looks at the lists a last time and sleeps, we put
        // into the lists before we look at the flag: one of us sees what the other did.
        if !self.awake.swap(true, Ordering::SeqCst) {
            // An eventfd that cannot take a wake has 2^64 - 2 of them waiting.
            self.waker.wake().unwrap_or_default();
        }
    }

    /// Has the owner look around.
    pub(super) fn wake(&self) {
        self.leave(|left| left.look = true);
    }

    /// The owner is about to sleep. Returns whether it may: nothing was left meanwhile.
    pub(super) fn doze(&self) -> bool {
        self.awake.store(false, Ordering::SeqCst);
        let quiet = self.left.lock().is_empty();
        if !quiet {
            self.awake.store(true, Ordering::SeqCst);
        }
        quiet
    }

    /// The owner is up again.
    pub(super) fn rise(&self) {
        self.awake.store(true, Ordering::SeqCst);
    }

    /// Swaps everything that was left for the empty lists in `into`.
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
