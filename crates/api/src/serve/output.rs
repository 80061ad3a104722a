//! Accounts for the memory of responses that clients have not read yet.
//!
//! Every piece of a response that the kernel does not take at once is counted until the kernel has
//! taken it. If all of them together exceed the limit, the connection that has waited longest for its
//! client is closed: the client that reads nothing is affected, not the others. Below the limit a
//! connection has a few pieces at most; above half of it, one.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::connection::ConnState;
use super::registry::Registry;

/// Minimum time without any read by a client before its connection may be closed.
const STALL_MS_MIN: u64 = 250;
/// Bytes a connection may hold before it is given more, while memory is plentiful.
const HELD_MAX: usize = 64 << 10;

/// The account of a server.
#[derive(Debug)]
pub(super) struct Output {
    held: AtomicUsize,
    /// Of that, the bytes held by connections that are being closed.
    leaving: AtomicUsize,
    limit: usize,
    connections: Arc<Registry>,
}

impl Output {
    pub(super) fn new(limit: usize, connections: Arc<Registry>) -> Self {
        let (held, leaving) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { held, leaving, limit, connections }
    }

    /// Returns the bytes held now.
    pub(super) fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// Counts what a connection holds, and closes a connection if the limit is exceeded.
    pub(super) fn count(&self, state: &ConnState, now_ms: u64) {
        let bytes = state.count_held();
        if bytes == 0 {
            return;
        }
        let held = self.held.fetch_add(bytes, Relaxed) + bytes;
        // Bytes that are being released need no further connection to be closed.
        if held.saturating_sub(self.leaving.load(Relaxed)) > self.limit {
            self.cut(now_ms);
        }
    }

    /// Removes released bytes from the count.
    pub(super) fn remove(&self, bytes: usize) {
        if bytes > 0 {
            self.held.fetch_sub(bytes, Relaxed);
        }
    }

    /// Returns whether a connection that holds `held` bytes may be given more.
    pub(super) fn has_room(&self, held: usize) -> bool {
        held == 0 || (held < HELD_MAX && self.held() < self.limit / 2)
    }

    /// Removes all bytes of a connection from the count.
    pub(super) fn forget(&self, state: &ConnState) {
        self.leaving.fetch_sub(state.take_leaving(), Relaxed);
        self.remove(state.take_held());
    }

    /// Closes the connection whose client has not read for the longest time.
    fn cut(&self, now_ms: u64) {
        // Another thread is already looking for the same connection.
        let mut longest: Option<(u64, Arc<ConnState>)> = None;
        self.connections.try_each(|state| {
            if state.held() > 0
                && !state.is_cut()
                && let Some(since) = state.stalled_since()
                && longest.as_ref().is_none_or(|(longest, _)| since < *longest)
            {
                longest = Some((since, state));
            }
        });
        if let Some((since, state)) = longest
            && now_ms.saturating_sub(since) >= STALL_MS_MIN
        {
            self.leaving.fetch_add(state.cut(), Relaxed);
        }
    }
}
