//! Accepting connections on the one thread that owns the listening sockets; see `listen` for why
//! one.
//!
//! A connection is given to the thread in use with the fewest. Over the limit it gets an error and is
//! closed. When descriptors or memory run out, accepting pauses for a moment instead of spinning,
//! and open connections are not affected.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use mio::net::TcpListener;
use mio::{Interest, Registry, Token};

use super::inbox::Accepted;
use super::listen::{self, Accept};
use super::options::TlsSource;
use super::{Shared, Wire};

/// Maximum number of connections accepted before other work is done.
const BATCH: usize = 256;
/// Pause before accepting again when descriptors have run out.
const REST: Duration = Duration::from_millis(100);

/// A listening socket.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) socket: TcpListener,
    pub(super) wire: Wire,
    pub(super) tls: Option<TlsSource>,
    pub(super) token: Token,
}

/// Accepts connections.
#[derive(Debug)]
pub(super) struct Acceptor {
    listening: Vec<Listening>,
    /// Which listeners may have waiting connections.
    ready: Vec<bool>,
    shared: Arc<Shared>,
    rest_until: Option<Instant>,
}

impl Acceptor {
    pub(super) fn new(listening: Vec<Listening>, shared: Arc<Shared>) -> Self {
        let ready = vec![false; listening.len()];
        Self { listening, ready, shared, rest_until: None }
    }

    /// Registers the listeners for events.
    ///
    /// # Errors
    /// The kernel refused.
    pub(super) fn register(&mut self, registry: &Registry) -> std::io::Result<()> {
        for listening in &mut self.listening {
            registry.register(&mut listening.socket, listening.token, Interest::READABLE)?;
        }
        Ok(())
    }

    /// Records that a listener has connections. Returns whether the token belongs to a listener.
    pub(super) fn note(&mut self, token: Token) -> bool {
        let found = self.listening.iter().position(|listening| listening.token == token);
        if let Some(ready) = found.and_then(|index| self.ready.get_mut(index)) {
            *ready = true;
        }
        found.is_some()
    }

    /// Returns whether connections may be waiting, and when to accept them.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let any = self.ready.iter().any(|&ready| ready);
        any.then(|| self.rest_until.unwrap_or(now))
    }

    /// Accepts waiting connections and distributes them.
    pub(super) fn accept(&mut self, now: Instant) {
        if self.rest_until.is_some_and(|until| until > now) {
            return;
        }
        self.rest_until = None;
        for index in 0..self.listening.len() {
            let mut budget = BATCH;
            while self.ready.get(index) == Some(&true) && self.rest_until.is_none() && budget > 0 {
                budget -= 1;
                self.accept_one(index, now);
            }
        }
    }

    fn accept_one(&mut self, index: usize, now: Instant) {
        let (Some(listening), Some(ready)) = (self.listening.get(index), self.ready.get_mut(index))
        else {
            return;
        };
        match listen::accept(&listening.socket) {
            Accept::One(socket, peer) => {
                let tls = listening.tls.as_ref().map(TlsSource::config);
                let accepted = Accepted { socket, peer, wire: listening.wire, tls };
                self.hand_out(accepted);
            }
            Accept::Gone => {}
            Accept::None => *ready = false,
            Accept::Starved => {
                self.shared.counters.accept_errors.fetch_add(1, Relaxed);
                self.rest_until = Some(now + REST);
            }
        }
    }

    fn hand_out(&mut self, mut accepted: Accepted) {
        let statistics = self.shared.engine.statistics();
        let max = self.shared.engine.config().clients_max.load(Relaxed);
        if max > 0 && self.shared.counters.open.load(Relaxed) >= max {
            self.shared.counters.refused.fetch_add(1, Relaxed);
            statistics.connections_refused.fetch_add(1, Relaxed);
            let message: &[u8] = match accepted.wire {
                _ if accepted.tls.is_some() => b"",
                Wire::Resp => b"-ERR max number of clients reached\r\n",
                Wire::Text => b"ERROR max number of clients reached\n",
            };
            // A new socket accepts a line immediately, unless its client has already disconnected.
            accepted.socket.write(message).map(drop).unwrap_or_default();
            return;
        }
        self.shared.counters.open.fetch_add(1, Relaxed);
        statistics.connections.fetch_add(1, Relaxed);
        statistics.clients.fetch_add(1, Relaxed);
        let Some(at) = self.shared.fewest_connections() else { return };
        // Counted here and not on arrival, so that a burst is also distributed evenly.
        let counters = self.shared.counters.thread(at);
        counters.open.fetch_add(1, Relaxed);
        counters.taken.fetch_add(1, Relaxed);
        if let Some(inbox) = self.shared.inboxes.get(at) {
            inbox.leave(|left| left.accepted.push(accepted));
        }
    }
}
