//! One connection without its socket: what has come in, what has to go out.
//!
//! A turn has two halves. Between [`Connection::begin`] and [`Connection::end_input`] it is given
//! what came, parses and executes it, and leaves replies in the output buffer; once the engine has
//! settled what the turn's commands appended to the log, whoever moves its bytes (`readiness`,
//! `uring`) sends [`Connection::outgoing`] and asks [`Connection::next`] what is left to do.
//!
//! Invariants: a reply goes out only after its turn was settled; commands run in the order they
//! came, replies leave in that order; nothing is parsed while the connection waits for a key or
//! while more than [`OUTPUT_PAUSE`] of its output is unsent; a connection with nothing in
//! progress holds no buffer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::Wire;
use super::request::{Framing, Step, step};
use super::tls::{self, Tls};
use super::work::Work;
use crate::engine::{Flow, Mailbox, Peer, Session, Via};
use crate::resp::{Args, Reply};
use crate::text::{self, Lines};

/// Unsent output beyond which a connection is neither read from nor its commands run.
const OUTPUT_PAUSE: usize = 1 << 20;
/// Output on its way that is not counted against the bound on memory.
const IN_FLIGHT_SHORT: usize = 4 << 10;
/// Input kept of a connection that waits for a key; the rest stays in the kernel.
const INPUT_BLOCKED_MAX: usize = 64 << 10;

/// A connection's TLS and what it has sealed.
#[derive(Debug)]
struct Sealing {
    tls: Tls,
    since: Instant,
    /// What has to go out, from `sent` on.
    sealed: Vec<u8>,
    sent: usize,
    /// What was opened, while it is run; kept for its capacity.
    opened: Vec<u8>,
}

/// A client's end.
#[derive(Debug)]
pub(super) struct Connection {
    session: Option<Session>,
    mailbox: Arc<Mailbox>,
    framing: Framing,
    tls: Option<Box<Sealing>>,
    /// What came and is not consumed, from `input_start` on.
    input: Vec<u8>,
    input_start: usize,
    /// Bytes of input the next request needs before another look at it is worth it.
    needed: usize,
    /// Commands stopped for another reason than the end of the input.
    paused: bool,
    /// What has to go out, from `sent` on.
    output: Reply,
    sent: usize,
    /// Bytes handed out by [`Connection::take_outgoing`] and not sent yet.
    in_flight: usize,
    /// Bytes of all these buffers, as last told.
    buffered: usize,
    /// Output that was there when the turn began: settled in an earlier one.
    settled: usize,
    /// The other end has closed its half and everything before that was given to us.
    ended_input: bool,
    /// Something lies in the mailbox.
    pub(super) mail: bool,
    blocked: bool,
    /// When a wait for a key ends.
    deadline: Option<Instant>,
    deadline_is_new: bool,
    /// No more commands; to be closed once the output is sent.
    closing: bool,
    /// To be closed now.
    cut: bool,
    /// When bytes last came in.
    active: Instant,
    /// When output last made progress, or began to wait.
    moved: Instant,
}

/// What is left to do for a connection after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing until the kernel or a mailbox says so.
    Wait,
    /// There is more at hand: another turn soon.
    Again,
    /// It is over.
    Close,
}

impl Connection {
    /// A connection between two addresses that was just accepted.
    pub(super) fn new(
        (peer, local): (SocketAddr, Option<SocketAddr>),
        wire: Wire,
        tls: Option<Tls>,
        mailbox: Arc<Mailbox>,
        work: &Work,
    ) -> Self {
        let local = local.map(|local| local.to_string()).unwrap_or_default();
        let (via, framing) = match wire {
            Wire::Resp => (Via::Resp, Framing::Resp(Args::default())),
            Wire::Text => (Via::Text, Framing::Text(Lines::new())),
        };
        let peer = Peer { address: peer.to_string(), local, via };
        let session = Some(work.engine.session(peer, Arc::clone(&mailbox)));
        Self {
            session,
            mailbox,
            framing,
            tls: tls.map(|tls| {
                let (sealed, opened) = (Vec::new(), Vec::new());
                Box::new(Sealing { tls, since: work.now, sealed, sent: 0, opened })
            }),
            input: Vec::new(),
            input_start: 0,
            needed: 0,
            paused: false,
            output: Reply::default(),
            sent: 0,
            in_flight: 0,
            buffered: 0,
            settled: 0,
            ended_input: false,
            mail: false,
            blocked: false,
            deadline: None,
            deadline_is_new: false,
            closing: false,
            cut: false,
            active: work.now,
            moved: work.now,
        }
    }

    fn wire(&self) -> Wire {
        match self.framing {
            Framing::Resp(_) => Wire::Resp,
            Framing::Text(_) => Wire::Text,
        }
    }

    /// The end of a wait for a key that began this turn.
    pub(super) fn new_deadline(&mut self) -> Option<Instant> {
        if std::mem::take(&mut self.deadline_is_new) { self.deadline() } else { None }
    }

    /// The end of its wait for a key, if it waits and the wait has one.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline.filter(|_| self.blocked)
    }

    /// Whether it was silent, or left its replies unread, for longer than it may.
    pub(super) fn is_overdue(&self, work: &Work) -> bool {
        if self.unsent() > 0 {
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
        // Who waits for somebody else's word may be silent for as long as that takes.
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

    fn count_slow(&self, work: &Work) {
        work.counters.slow_closed.fetch_add(1, Relaxed);
        work.engine.statistics().slow_consumers.fetch_add(1, Relaxed);
    }

    /// The server stops: no more commands. Returns whether nothing is left to be sent.
    pub(super) fn finish(&mut self) -> bool {
        self.closing = true;
        self.unsent() == 0
    }

    fn unsent(&self) -> usize {
        let sealed = self.tls.as_ref().map_or(0, |it| it.sealed.len() - it.sent);
        self.output.len() - self.sent + self.in_flight + sealed
    }

    fn may_run(&self) -> bool {
        !self.blocked && !self.closing && !self.cut && self.unsent() <= OUTPUT_PAUSE
    }

    /// Whether more input is welcome.
    pub(super) fn may_read(&self) -> bool {
        let waiting = self.input.len() - self.input_start;
        !(self.closing || self.cut || self.ended_input)
            && self.unsent() <= OUTPUT_PAUSE
            && (!self.blocked || waiting < INPUT_BLOCKED_MAX)
    }

    /// Begins a turn: mail, the end of a wait, and what was kept of the input.
    pub(super) fn begin(&mut self, work: &mut Work) {
        self.settled = self.output.len();
        if self.unsent() == 0 {
            self.moved = work.now;
        }
        if self.mail {
            self.collect_mail(work);
        }
        if self.blocked {
            self.time_out(work);
        }
        if self.input_start < self.input.len() && self.may_run() {
            self.run_kept(work);
        }
    }

    /// The other end has closed its half.
    pub(super) fn ended(&mut self) {
        self.ended_input = true;
    }

    /// The socket is broken: nothing more can come or go.
    pub(super) fn failed(&mut self) {
        self.cut = true;
    }

    /// Ends the half of the turn in which input was given.
    pub(super) fn end_input(&mut self, work: &mut Work) {
        if !self.ended_input {
            return;
        }
        self.end_last_line(work);
        if self.blocked || !self.paused {
            // Whoever hung up while waiting will not see the answer; let the key be for others.
            self.closing = true;
            self.cut |= self.blocked;
        }
    }

    /// A text client that hung up after a line without a line end meant that line too.
    fn end_last_line(&mut self, work: &mut Work) {
        let rest = self.input_start < self.input.len();
        if rest && !self.paused && self.wire() == Wire::Text {
            self.input.push(b'\n');
            self.run_kept(work);
        }
    }

    /// Runs what came from the socket.
    pub(super) fn received(&mut self, fresh: &[u8], work: &mut Work) {
        work.tally.bytes_in += fresh.len() as u64;
        self.active = work.now;
        let Some(sealing) = &mut self.tls else { return self.run_fresh(fresh, work) };
        let mut opened = std::mem::take(&mut sealing.opened);
        let ended = sealing.tls.open(fresh, &mut opened);
        if !opened.is_empty() {
            self.run_fresh(&opened, work);
        }
        match ended {
            Ok(ended) => self.ended_input |= ended,
            Err(error) => {
                let error = forebay_base::error_chain::chain(&error);
                tracing::debug!(%error, "a connection ends");
                work.counters.protocol_errors.fetch_add(1, Relaxed);
                // What the session has to say about it goes out first.
                self.closing = true;
            }
        }
        if let Some(sealing) = &mut self.tls {
            opened.clear();
            sealing.opened = opened;
        }
    }

    /// Runs plain bytes where they lie; only what is left of them is copied.
    fn run_fresh(&mut self, fresh: &[u8], work: &mut Work) {
        let mut consumed = 0;
        if self.input.is_empty() && self.may_run() {
            consumed = self.run(fresh, work);
        }
        if consumed < fresh.len() && !self.closing {
            if self.input.capacity() == 0 {
                self.input = work.spare();
            }
            self.input.extend_from_slice(&fresh[consumed..]);
            if consumed == 0 && self.may_run() {
                self.run_kept(work);
            }
        }
    }

    /// Runs what was kept, as far as it goes.
    fn run_kept(&mut self, work: &mut Work) {
        let waiting = self.input.len() - self.input_start;
        if waiting > work.limits.query_size_max {
            self.refuse("ERR Protocol error: too much input for one request");
        }
        if waiting < self.needed {
            return;
        }
        let input = std::mem::take(&mut self.input);
        let consumed = self.run(&input[self.input_start..], work);
        self.input = input;
        self.input_start += consumed;
        if self.input_start == self.input.len() || self.closing {
            work.recycle(std::mem::take(&mut self.input));
            self.input_start = 0;
        } else if self.input_start > self.input.len() / 2 {
            self.input.drain(..self.input_start);
            self.input_start = 0;
        }
        if self.needed > self.input.capacity() && self.input.len() > self.needed / 4 {
            // A large argument is really coming: make room once instead of by doubling.
            self.input.reserve_exact(self.needed - self.input.len());
        }
    }

    /// Parses and executes requests until the input ends or must wait; returns bytes consumed.
    fn run(&mut self, input: &[u8], work: &mut Work) -> usize {
        let Some(session) = &mut self.session else { return input.len() };
        if self.output.is_empty() {
            *self.output.buffer_mut() = work.spare_for_output();
        }
        let mut at = 0;
        self.needed = 0;
        // Unless the input ends first, what stops us is output that waits, or a key waited for.
        self.paused = true;
        while self.output.len() - self.sent + self.in_flight <= OUTPUT_PAUSE {
            match step(&mut self.framing, session, &mut self.output, &input[at..], work) {
                Step::Ran { consumed, flow } => {
                    at += consumed;
                    work.tally.commands += 1;
                    work.ran = true;
                    match flow {
                        Flow::Continue => {}
                        Flow::Close => {
                            self.closing = true;
                            return input.len();
                        }
                        Flow::Blocked { deadline } => {
                            self.blocked = true;
                            self.deadline = deadline;
                            self.deadline_is_new = true;
                            break;
                        }
                    }
                }
                Step::Nothing { consumed } => at += consumed,
                Step::Partial { needed } => {
                    self.needed = needed;
                    self.paused = false;
                    break;
                }
            }
        }
        at
    }

    /// Appends an error and ends the connection after it.
    pub(super) fn refuse(&mut self, text: &str) {
        match self.framing {
            Framing::Resp(_) => self.output.error(text),
            Framing::Text(_) => text::error(text, &mut self.output),
        }
        self.closing = true;
    }

    /// Takes what others left for this connection.
    fn collect_mail(&mut self, work: &mut Work) {
        self.mail = false;
        let drained = self.mailbox.drain(&mut self.output);
        if drained.unblocked {
            self.blocked = false;
            self.deadline = None;
            if let Some(session) = &mut self.session {
                work.engine.unblocked(session);
            }
        }
        // What the mail says has happened elsewhere, but perhaps not settled there yet.
        work.ran = true;
        self.cut |= drained.close;
    }

    /// Ends a wait for a key whose time has come.
    fn time_out(&mut self, work: &mut Work) {
        if self.blocked
            && self.deadline.is_some_and(|deadline| deadline <= work.now)
            && let Some(session) = &mut self.session
        {
            self.deadline = None;
            let before = self.output.len();
            work.engine.time_out(session, &mut self.output);
            // No reply means that somebody has served it this moment: the answer is in the mail.
            self.blocked = self.output.len() == before;
            work.ran = true;
        }
    }

    /// The log did not take what this turn's commands appended: their replies must not be sent.
    pub(super) fn unsettled(&mut self) {
        if self.output.len() > self.settled {
            self.output.truncate(self.settled);
            self.refuse("MISCONF the command log cannot be written: this is not on disk");
        }
    }

    /// Makes what is to be sent ready: of use, and to be called, once a turn is settled.
    pub(super) fn seal(&mut self, work: &mut Work) {
        let Some(Sealing { tls, sealed, .. }) = self.tls.as_deref_mut() else { return };
        tls.seal(&self.output.as_bytes()[self.sent..], sealed);
        if self.output.buffer_mut().capacity() > 0 {
            work.recycle(self.output.take());
            self.sent = 0;
        }
        if self.closing {
            tls.end(sealed);
        }
    }

    /// What is to be sent.
    pub(super) fn outgoing(&self) -> &[u8] {
        match &self.tls {
            _ if self.cut => &[],
            None => &self.output.as_bytes()[self.sent..],
            Some(sealing) => &sealing.sealed[sealing.sent..],
        }
    }

    /// Some of [`Connection::outgoing`] was sent.
    pub(super) fn sent(&mut self, count: usize, work: &mut Work) {
        work.tally.bytes_out += count as u64;
        self.moved = work.now;
        if let Some(sealing) = &mut self.tls {
            sealing.sent += count;
            if sealing.sent == sealing.sealed.len() {
                work.recycle(std::mem::take(&mut sealing.sealed));
                sealing.sent = 0;
            }
            return;
        }
        self.sent += count;
        if self.sent == self.output.len() {
            work.recycle(self.output.take());
            self.sent = 0;
        }
    }

    /// What is to be sent as a buffer of its own, for as long as it takes; to be told of by
    /// [`Connection::landed`].
    pub(super) fn take_outgoing(&mut self) -> Vec<u8> {
        debug_assert!(self.sent == 0 && self.in_flight == 0, "the output is taken whole, or sent");
        let bytes = match &mut self.tls {
            None => self.output.take(),
            Some(sealing) => std::mem::take(&mut sealing.sealed),
        };
        self.in_flight = bytes.len();
        bytes
    }

    /// Some of what was taken is sent.
    pub(super) fn landed(&mut self, count: usize, work: &mut Work) {
        work.tally.bytes_out += count as u64;
        self.in_flight = self.in_flight.saturating_sub(count);
        self.moved = work.now;
        if self.buffered > 0 {
            self.count_buffers(work);
        }
    }

    /// Whether it has something to do as soon as its output is sent.
    pub(super) fn is_held_up(&self) -> bool {
        self.closing || (self.paused && self.input_start < self.input.len())
    }

    /// Ends a turn and says what is left to do; `more` tells whether input is at hand.
    pub(super) fn next(&mut self, more: bool, work: &mut Work) -> Next {
        if self.unsent() > work.limits.output_size_max {
            self.count_slow(work);
            self.cut = true;
        }
        self.count_buffers(work);
        if self.cut || (self.closing && self.unsent() == 0) {
            return Next::Close;
        }
        let more = more && self.may_read();
        let kept = self.paused && self.input_start < self.input.len() && self.may_run();
        if more || kept { Next::Again } else { Next::Wait }
    }

    /// Tells how many bytes its buffers hold now.
    fn count_buffers(&mut self, work: &Work) {
        let sealed = self.tls.as_ref().map_or(0, |it| it.sealed.capacity() + it.opened.capacity());
        let output = self.output.buffer_mut().capacity();
        // A short reply on its way is nearly always with the kernel before this is asked for.
        let in_flight = if self.in_flight > IN_FLIGHT_SHORT { self.in_flight } else { 0 };
        let now = self.input.capacity() + output + in_flight + sealed;
        let before = std::mem::replace(&mut self.buffered, now);
        // At once, not with the turn's counts: whoever serves the connection next may be another
        // thread, and must not take away what is not there yet.
        let counted = &work.engine.statistics().buffer_bytes;
        match now.checked_sub(before) {
            Some(0) => {}
            Some(more) => _ = counted.fetch_add(more, Relaxed),
            None => _ = counted.fetch_sub(before - now, Relaxed),
        }
    }

    /// Leaves the engine. Returns whether the other end is to read what was sent before it learns
    /// of the end.
    pub(super) fn close(mut self, work: &mut Work) -> bool {
        if let Some(session) = self.session.take() {
            work.engine.close(session);
        }
        work.recycle(std::mem::take(&mut self.input));
        work.recycle(self.output.take());
        work.engine.statistics().buffer_bytes.fetch_sub(self.buffered, Relaxed);
        !self.cut
    }
}
