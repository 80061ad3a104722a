//! Timeouts and memory limits of a connection.

use std::sync::atomic::Ordering::Relaxed;

use super::Connection;
use crate::engine::Session;
use crate::server::request::Framing;
use crate::server::tls;
use crate::server::work::Work;

/// Unsent output in bytes above which an unauthenticated connection is closed.
const OUTPUT_UNAUTHENTICATED_MAX: usize = 64 << 10;
/// Size in bytes up to which output in flight does not count towards the memory limit.
const IN_FLIGHT_SHORT: usize = 4 << 10;
/// Size in bytes up to which the argument table of a request does not count either.
const ARGS_SHORT: usize = 32 << 10;
/// Growth of the buffers within a turn, in bytes, up to which it is counted when the turn ends;
/// more is counted immediately.
const GROWTH_UNTOLD: usize = 128 << 10;

impl Connection {
    /// Whether it was idle or left its replies unread for too long, or lost its rights while it was
    /// subscribed.
    pub(in crate::server) fn is_overdue(&mut self, work: &Work) -> bool {
        // A subscribed or blocked connection may have no other turn for a long time.
        if self.lost_rights(work) {
            return true;
        }
        if self.unsent() > 0 {
            if self.has_too_much_output(work) {
                self.count_slow(work);
                return true;
            }
            let stalled = work.now.duration_since(self.moved) > work.limits.own.write_stall;
            if stalled {
                self.count_slow(work);
            }
            return stalled;
        }
        let dallies = self.tls.as_ref().is_some_and(|it| {
            let since = work.now.duration_since(it.since);
            it.tls.is_handshaking() && since > tls::HANDSHAKE_LIMIT
        });
        // A connection that waits for others may be silent for as long as that takes.
        let waits = self.blocked || self.session.as_ref().is_some_and(|it| it.subscriptions() > 0);
        let limit = match self.framing {
            Framing::Resp(_) => work.engine.config().idle_timeout(),
            Framing::Text(_) => Some(work.limits.own.text_idle_timeout).filter(|it| !it.is_zero()),
        };
        let silent = limit.is_some_and(|it| work.now.duration_since(self.active) > it);
        let idle = dallies || (!waits && silent);
        if idle {
            work.counters.idle_closed.fetch_add(1, Relaxed);
        }
        idle
    }

    /// Whether more output waits than the limit of the session's class allows.
    pub(super) fn has_too_much_output(&mut self, work: &Work) -> bool {
        let unsent = self.unsent();
        let Some(session) = &self.session else { return false };
        let limits = &work.limits;
        let listens = session.subscriptions() > 0;
        let bound = if listens { limits.pubsub_output } else { limits.normal_output };
        unsent > limits.output_size_max
            || !session.authenticated && unsent > OUTPUT_UNAUTHENTICATED_MAX
            || bound.is_passed(unsent, work.now, &mut self.soft_since)
    }

    pub(super) fn count_slow(&self, work: &Work) {
        work.counters.slow_closed.fetch_add(1, Relaxed);
        work.engine.statistics().slow_consumers.fetch_add(1, Relaxed);
    }

    /// Bytes that its buffers and its session hold now.
    pub(super) fn held(&mut self) -> usize {
        let sealed = self.tls.as_ref().map_or(0, |it| it.sealed.capacity() + it.opened.capacity());
        let output = self.output.buffer_mut().capacity();
        // A short reply in flight has nearly always reached the kernel before this is called.
        let in_flight = if self.in_flight > IN_FLIGHT_SHORT { self.in_flight } else { 0 };
        let args = match &self.framing {
            Framing::Resp(args) => args.bytes(),
            Framing::Text(_) => 0,
        };
        // Buffers that every connection keeps between requests are not worth counting.
        let args = if args > ARGS_SHORT { args } else { 0 };
        let session = self.session.as_ref().map_or(0, Session::held);
        let lent = self.lent.map_or(0, |lent| lent.size);
        self.input.capacity() + lent + output + in_flight + sealed + args + session
    }

    /// Records how many bytes it holds now.
    pub(super) fn count_buffers(&mut self, work: &Work) {
        let now = self.held();
        let Some(session) = &self.session else { return };
        // Immediately, not with the turn's counts: another thread may serve the connection next,
        // and must not subtract what has not been added yet.
        if now != self.buffered {
            self.buffered = now;
            work.engine.hold(&session.info, now);
        }
    }

    /// Counts buffers that have changed much within a turn: the total of all connections of a turn
    /// is limited too, and none is closed because of a request that has run. A closed connection
    /// holds nothing from then on.
    pub(super) fn count_growth(&mut self, work: &Work) {
        if self.held().abs_diff(self.buffered) <= GROWTH_UNTOLD {
            return;
        }
        self.count_buffers(work);
        if self.mailbox.is_closing() {
            self.cut = true;
            self.let_go();
            self.count_buffers(work);
        }
    }

    /// Frees all input and output of a connection that is closed.
    pub(super) fn let_go(&mut self) {
        self.input = Vec::new();
        *self.output.buffer_mut() = Vec::new();
        (self.input_start, self.lent, self.sent) = (0, None, 0);
        if let Some(sealing) = &mut self.tls {
            (sealing.sealed, sealing.opened, sealing.sent) = (Vec::new(), Vec::new(), 0);
        }
    }
}
