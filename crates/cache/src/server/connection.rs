//! One connection without its socket: its input and output.
//!
//! A turn has two halves. Between [`Connection::begin`] and [`Connection::end_input`] it receives
//! input, parses and executes it, and puts replies into the output buffer. After the engine has
//! settled what the turn's commands appended to the log, the transport (`readiness`, `uring`) sends
//! [`Connection::outgoing`] and calls [`Connection::next`] for what is left to do.
//!
//! Invariants: a reply is sent only after its turn was settled; commands run, and replies are sent,
//! in the order of arrival; nothing is parsed while the connection is blocked on a key or while
//! more than [`OUTPUT_PAUSE`] bytes of its output are unsent; an idle connection holds no buffer.

mod input;
mod limits;
mod outgoing;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use super::Wire;
use super::request::Framing;
use super::tls::Tls;
use super::work::Work;
use crate::engine::{Engine, Mailbox, Notify, Peer, Session, Via};
use crate::resp::{Args, Reply};
use crate::text::{self, Lines};

/// Unsent output in bytes above which a connection is not read and its commands do not run.
const OUTPUT_PAUSE: usize = 1 << 20;
/// Input in bytes kept for a blocked connection; the rest stays in the kernel.
const INPUT_BLOCKED_MAX: usize = 64 << 10;

/// A connection's TLS state and sealed output.
#[derive(Debug)]
struct Sealing {
    tls: Tls,
    since: Instant,
    /// The data to send, from `sent` on.
    sealed: Vec<u8>,
    sent: usize,
    /// Decrypted input while it is run; kept for its capacity.
    opened: Vec<u8>,
}

/// The server's end of a client connection.
#[derive(Debug)]
pub(super) struct Connection {
    session: Option<Session>,
    mailbox: Arc<Mailbox>,
    framing: Framing,
    tls: Option<Box<Sealing>>,
    /// Received input that is not consumed, from `input_start` on.
    input: Vec<u8>,
    input_start: usize,
    /// Input that is lent to the engine while a command waits; `input` has what comes after it.
    lent: Option<Lent>,
    /// Minimum size in bytes of the input before it is parsed again.
    needed: usize,
    /// Commands stopped for another reason than the end of the input.
    paused: bool,
    /// No command runs while others are being closed because all connections hold too much memory.
    held_back: bool,
    /// The data to send, from `sent` on.
    output: Reply,
    sent: usize,
    /// Bytes returned by [`Connection::take_outgoing`] and not sent yet.
    in_flight: usize,
    /// Bytes of all these buffers and of the session, as last recorded.
    buffered: usize,
    /// The time since which the soft output limit is exceeded.
    soft_since: Option<Instant>,
    /// Output that existed when the turn began: settled in an earlier one.
    settled: usize,
    /// The client has closed its half, and all input before that was received.
    ended_input: bool,
    /// The mailbox is not empty.
    pub(super) mail: bool,
    blocked: bool,
    /// The blocked command runs again afterwards: it is still in the input.
    runs_again: bool,
    /// When a blocked command times out.
    deadline: Option<Instant>,
    deadline_is_new: bool,
    /// No more commands; closed once the output is sent.
    closing: bool,
    /// To be closed now.
    cut: bool,
    /// When bytes were last received.
    active: Instant,
    /// When output last made progress, or began to wait.
    moved: Instant,
}

/// Input that is lent to the engine.
#[derive(Clone, Copy, Debug)]
struct Lent {
    /// Size of its buffer in bytes.
    size: usize,
    /// Where the commands begin that have not run.
    start: usize,
}

/// What is left to do for a connection after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing until the kernel or a mailbox reports an event.
    Wait,
    /// There is more work: another turn soon.
    Again,
    /// It has ended.
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
        let mut session = work.engine.session(peer, Arc::clone(&mailbox));
        session.may_wait = via == Via::Resp;
        Self {
            session: Some(session),
            mailbox,
            framing,
            tls: tls.map(|tls| {
                let (sealed, opened) = (Vec::new(), Vec::new());
                Box::new(Sealing { tls, since: work.now, sealed, sent: 0, opened })
            }),
            input: Vec::new(),
            input_start: 0,
            lent: None,
            needed: 0,
            paused: false,
            held_back: false,
            output: Reply::default(),
            sent: 0,
            in_flight: 0,
            buffered: 0,
            soft_since: None,
            settled: 0,
            ended_input: false,
            mail: false,
            blocked: false,
            runs_again: false,
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

    /// The timeout of a command that was blocked in this turn.
    pub(super) fn new_deadline(&mut self) -> Option<Instant> {
        if std::mem::take(&mut self.deadline_is_new) { self.deadline() } else { None }
    }

    /// The timeout of its blocked command, if there is one.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline.filter(|_| self.blocked)
    }

    /// Checks the session's rights again if they may have changed; returns whether the connection
    /// must be closed because of it.
    fn lost_rights(&mut self, work: &Work) -> bool {
        match &mut self.session {
            Some(session) if session.generation != work.generation => work.engine.review(session),
            _ => false,
        }
    }

    /// Runs no more commands because the server stops. Returns whether nothing is left to send.
    pub(super) fn finish(&mut self) -> bool {
        self.closing = true;
        self.unsent() == 0
    }

    fn unsent(&self) -> usize {
        let sealed = self.tls.as_ref().map_or(0, |it| it.sealed.len() - it.sent);
        self.output.len() - self.sent + self.in_flight + sealed
    }

    /// Whether all of its output is sent.
    pub(super) fn is_sent(&self) -> bool {
        self.unsent() == 0
    }

    /// Records that another thread serves it from now on, under this number.
    pub(super) fn arrive(&mut self, notify: Arc<dyn Notify>, id: u64) {
        self.mailbox.move_to(notify, id);
        // What was put there meanwhile was reported to the previous thread.
        self.mail = true;
    }

    fn may_run(&self) -> bool {
        !self.blocked && !self.closing && !self.cut && self.unsent() <= OUTPUT_PAUSE
    }

    /// Whether more input can be read.
    pub(super) fn may_read(&self) -> bool {
        let waiting = self.input.len() - self.input_start;
        !(self.closing || self.cut || self.ended_input || self.held_back || self.lent.is_some())
            && self.unsent() <= OUTPUT_PAUSE
            && (!self.blocked || waiting < INPUT_BLOCKED_MAX)
    }

    /// Begins a turn: mail, timeouts, and the input that was kept.
    pub(super) fn begin(&mut self, work: &mut Work) {
        self.settled = self.output.len();
        if self.lost_rights(work) {
            self.refuse("NOAUTH Authentication required.");
        }
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
            self.count_growth(work);
        }
    }

    /// Records that the client has closed its half.
    pub(super) fn ended(&mut self) {
        self.ended_input = true;
    }

    /// Records that the socket failed: nothing more can be received or sent.
    pub(super) fn failed(&mut self) {
        self.cut = true;
    }

    /// Ends the half of the turn in which input was given.
    pub(super) fn end_input(&mut self, work: &mut Work) {
        if !self.ended_input {
            return;
        }
        self.end_last_line(work);
        let waits = self.blocked && !self.runs_again;
        if waits || !self.has_kept_input() {
            // A client that hung up while blocked will not read the reply; leave the element to
            // others.
            self.closing = true;
            self.cut |= waits;
        }
    }

    /// Appends an error and ends the connection after it.
    pub(super) fn refuse(&mut self, text: &str) {
        match self.framing {
            Framing::Resp(_) => self.output.error(text),
            Framing::Text(_) => text::error(text, &mut self.output),
        }
        self.closing = true;
    }

    /// Takes the contents of the mailbox.
    fn collect_mail(&mut self, work: &mut Work) {
        self.mail = false;
        let (drained, counted) = self.mailbox.hand_over(&mut self.output);
        // Counted here before the mailbox stops counting it, so that it is counted all the time.
        self.count_buffers(work);
        self.mailbox.uncount(counted);
        if drained.unblocked && self.has_input_back() {
            work.engine.rest_on_log();
            (self.blocked, self.runs_again) = (false, false);
            self.deadline = None;
            if let Some(session) = &mut self.session {
                work.engine.unblocked(session);
            }
        }
        // The changes behind the mail may have been made by another thread and not be settled yet.
        work.ran = true;
        self.cut |= drained.close;
    }

    /// Takes back the input that was lent. Returns whether none is lent any more: another reason to run the
    /// command may be reported first.
    fn has_input_back(&mut self) -> bool {
        let Some(lent) = self.lent else { return true };
        let Some(input) = self.session.as_ref().and_then(Engine::take_back) else { return false };
        // What had been read already.
        let later = std::mem::replace(&mut self.input, input);
        self.input.extend_from_slice(&later);
        (self.input_start, self.lent) = (lent.start, None);
        true
    }

    /// Times out a blocked command.
    fn time_out(&mut self, work: &mut Work) {
        if self.blocked
            && self.deadline.is_some_and(|deadline| deadline <= work.now)
            && let Some(session) = &mut self.session
        {
            self.deadline = None;
            let before = self.output.len();
            work.engine.time_out(session, &mut self.output);
            // No reply means that another thread has just served it: the reply is in the mailbox.
            self.blocked = self.output.len() == before;
            work.ran = true;
        }
    }

    /// Whether commands wait that were received completely, as far as is known.
    fn has_kept_input(&self) -> bool {
        self.paused && (self.input_start < self.input.len() || self.lent.is_some())
    }

    /// Whether it has work to do as soon as its output is sent.
    pub(super) fn is_held_up(&self) -> bool {
        self.closing || self.has_kept_input()
    }

    /// Ends a turn and returns what is left to do; `more` is whether input is available.
    pub(super) fn next(&mut self, more: bool, work: &mut Work) -> Next {
        if self.unsent() == 0 {
            self.soft_since = None;
        } else if self.has_too_much_output(work) {
            self.count_slow(work);
            self.cut = true;
        }
        self.count_buffers(work);
        if self.cut || (self.closing && self.unsent() == 0) {
            return Next::Close;
        }
        let more = more && self.may_read();
        let kept = self.has_kept_input() && self.may_run();
        if more || kept { Next::Again } else { Next::Wait }
    }

    /// Leaves the engine. Returns whether the client should read what was sent before it sees the
    /// end of the connection.
    pub(super) fn close(mut self, work: &mut Work) -> bool {
        work.recycle(std::mem::take(&mut self.input));
        work.recycle(self.output.take());
        self.let_go();
        // After its buffers, which are counted until then.
        if let Some(session) = self.session.take() {
            work.engine.close(session);
        }
        !self.cut
    }
}
