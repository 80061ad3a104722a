//! Memory of clients: what their connections hold in total, and which are closed above the limit.
//!
//! One account covers the buffers of every connection, the contents of its mailbox, and the state
//! of its session (a queued transaction, watched keys, subscriptions, a blocked command). Its limit
//! is separate from the limit for data: no client can push out a key.
//!
//! Invariants: what is added to the account is subtracted exactly; above the limit the clients that
//! hold most are closed until a part of it is free, before any data is evicted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::session::{ClientInfo, Via};
use super::{Engine, Session};
use crate::seldom::Seldom;

/// The part of the limit that is free after clients were closed: one byte in this many.
const FREED_PART: usize = 8;

/// Size from which a reply is counted before it is built. It is more than a connection may leave
/// uncounted within a turn, so that what the connection reports afterwards always replaces this
/// amount.
const REPLY_LONG: usize = 1 << 20;

/// Bytes held by all clients.
#[derive(Debug, Default)]
pub(crate) struct Account {
    bytes: AtomicUsize,
}

impl Account {
    /// Records that the memory of a client has changed.
    pub(crate) fn change(&self, before: usize, now: usize) {
        match now.checked_sub(before) {
            Some(0) => {}
            Some(more) => _ = self.bytes.fetch_add(more, Ordering::Relaxed),
            None => _ = self.bytes.fetch_sub(before - now, Ordering::Relaxed),
        }
    }

    /// Returns the bytes held now.
    pub(crate) fn bytes(&self) -> usize {
        // Briefly negative if one thread has subtracted before another has added.
        usize::try_from(self.bytes.load(Ordering::Relaxed).cast_signed()).unwrap_or(0)
    }
}

/// Limit of the output that may wait for a connection of one class, as in Redis
/// (`client-output-buffer-limit`). A limit of 0 means no limit.
#[derive(Debug, Default)]
pub struct OutputLimit {
    hard: AtomicUsize,
    soft: AtomicUsize,
    soft_seconds: AtomicU64,
}

/// The values of an [`OutputLimit`] at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputBound {
    /// Bytes above which the connection is closed immediately.
    pub hard: usize,
    /// Bytes above which it is closed if it stays there for `soft_seconds`.
    pub soft: usize,
    /// Time in seconds that belongs to `soft`.
    pub soft_seconds: u64,
}

impl OutputLimit {
    /// Returns a limit with these values.
    #[must_use]
    pub const fn new(bound: OutputBound) -> Self {
        Self {
            hard: AtomicUsize::new(bound.hard),
            soft: AtomicUsize::new(bound.soft),
            soft_seconds: AtomicU64::new(bound.soft_seconds),
        }
    }

    /// Sets the values.
    pub fn set(&self, bound: OutputBound) {
        self.hard.store(bound.hard, Ordering::Relaxed);
        self.soft.store(bound.soft, Ordering::Relaxed);
        self.soft_seconds.store(bound.soft_seconds, Ordering::Relaxed);
    }

    /// Returns the current values.
    #[must_use]
    pub fn get(&self) -> OutputBound {
        OutputBound {
            hard: self.hard.load(Ordering::Relaxed),
            soft: self.soft.load(Ordering::Relaxed),
            soft_seconds: self.soft_seconds.load(Ordering::Relaxed),
        }
    }
}

impl OutputBound {
    /// Whether this many waiting bytes exceed the limit at `now`.
    ///
    /// * `soft_since`: the time since which the soft limit is exceeded; updated here.
    pub(crate) fn is_passed(
        &self,
        bytes: usize,
        now: Instant,
        soft_since: &mut Option<Instant>,
    ) -> bool {
        if self.hard > 0 && bytes > self.hard {
            return true;
        }
        if self.soft == 0 || bytes <= self.soft {
            *soft_since = None;
            return false;
        }
        let since = *soft_since.get_or_insert(now);
        now.duration_since(since) > Duration::from_secs(self.soft_seconds)
    }
}

/// State of closing clients, and the time of the last log message.
#[derive(Debug)]
pub(super) struct Evicting {
    one: parking_lot::Mutex<()>,
    warned: Seldom,
}

impl Evicting {
    pub(super) fn new() -> Self {
        Self { one: parking_lot::Mutex::new(()), warned: Seldom::new() }
    }
}

impl ClientInfo {
    /// Bytes held by its connection, session and mailbox.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.held.load(Ordering::Relaxed).saturating_add(self.mailbox.pending_bytes())
    }
}

impl Engine {
    /// Bytes held by all clients.
    #[must_use]
    pub fn clients_memory(&self) -> usize {
        self.account.bytes()
    }

    /// Records the bytes that a client's connection and session hold now. Called by the thread that
    /// serves it.
    ///
    /// May close clients, including this one.
    pub fn hold(&self, info: &ClientInfo, bytes: usize) {
        let before = info.held.swap(bytes, Ordering::Relaxed);
        self.account.change(before, bytes);
        if bytes > before {
            self.keep_clients_bound();
        }
    }

    /// Counts a long reply before it is written, while its key's lock is held: if many clients
    /// request it at once, those that get the lock later see that there is no room
    /// ([`super::Flow::HeldBack`]). The connection soon records what it really holds, and that
    /// amount counts from then on.
    #[inline]
    pub(crate) fn expect_reply(&self, session: &Session, bytes: usize) {
        if bytes >= REPLY_LONG && session.info.peer.via == Via::Resp {
            let held = session.info.held.load(Ordering::Relaxed);
            self.hold(&session.info, held.saturating_add(bytes));
        }
    }

    /// Maximum size in bytes of a reply whose size depends on the request, not on the stored data.
    pub(crate) fn reply_size_max(&self) -> usize {
        let bounds = [
            self.config.output_max.load(Ordering::Relaxed),
            self.config.normal_output.get().hard,
            self.config.clients_memory_max.load(Ordering::Relaxed),
        ];
        bounds.into_iter().filter(|&bound| bound > 0).min().unwrap_or(usize::MAX)
    }

    /// Sends a message to all subscribers; returns their number.
    pub(crate) fn publish(&self, scope: super::Scope, channel: &[u8], message: &[u8]) -> usize {
        let hard = self.config.pubsub_output.get().hard;
        self.pubsub.publish(scope, channel, message, &|mailbox, bytes| {
            mailbox.send(bytes, hard);
            // After each message: one message to many subscribers is that many copies.
            self.keep_clients_bound();
        })
    }

    /// Whether clients hold more than `max` (0: no limit), including those that are being closed:
    /// their memory is freed when their threads process them, and what needs more memory waits for
    /// that.
    #[inline]
    pub(crate) fn clients_hold_too_much(&self, max: usize) -> bool {
        max > 0 && self.account.bytes() > max
    }

    /// Closes clients if they hold too much in total.
    #[inline]
    pub(crate) fn keep_clients_bound(&self) {
        let max = self.config.clients_memory_max.load(Ordering::Relaxed);
        if max > 0 && self.account.bytes() > max {
            self.evict_clients(max);
        }
    }

    /// Closes the clients that hold most, until a part of the limit is free. Those that asked to be
    /// spared (`CLIENT NO-EVICT`) are closed last: the limit always holds.
    #[cold]
    fn evict_clients(&self, max: usize) {
        // A second thread checks for itself: the first may not have seen what the second holds, and
        // if nothing is closed for it, nothing more may run (`clients_hold_too_much`).
        let _one = self.evicting.one.lock();
        // Clients being closed hold their memory a moment longer, and are not counted.
        let mut clients: Vec<(bool, usize, Arc<ClientInfo>)> = self
            .clients()
            .into_iter()
            .map(|client| {
                let spared = client.said.lock().no_evict;
                (spared, client.memory(), client)
            })
            .collect();
        let mut held: usize = clients.iter().map(|(_, bytes, _)| bytes).sum();
        if held <= max {
            return;
        }
        clients.sort_unstable_by_key(|(spared, bytes, _)| (*spared, std::cmp::Reverse(*bytes)));
        let goal = max - max / FREED_PART;
        let mut closed = 0u64;
        for (_, bytes, client) in clients {
            if held <= goal || bytes == 0 {
                break;
            }
            client.mailbox.close();
            held -= bytes;
            closed += 1;
        }
        let closed_before = self.statistics.evicted_clients.fetch_add(closed, Ordering::Relaxed);
        if closed > 0 && self.evicting.warned.may(Instant::now()) {
            tracing::warn!(
                closed,
                closed_before,
                max,
                "connections exceeded their total memory limit: those that use the most are closed"
            );
        }
    }
}

impl Session {
    /// Bytes it holds besides its connection's buffers.
    pub(crate) fn held(&self) -> usize {
        let multi = self.multi.as_ref().map_or(0, |multi| multi.bytes);
        let waiter = self.waiter.as_ref().map_or(0, |waiter| waiter.bytes);
        multi + waiter + self.names_bytes
    }
}

#[cfg(test)]
mod tests;
