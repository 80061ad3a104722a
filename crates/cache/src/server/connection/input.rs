//! Input: decrypted if necessary, parsed and executed in place.

use std::sync::atomic::Ordering::Relaxed;

use super::{Connection, Lent, OUTPUT_PAUSE};
use crate::engine::Flow;
use crate::server::Wire;
use crate::server::request::{Step, step};
use crate::server::work::Work;

impl Connection {
    /// The last line of a text client counts even without a line end.
    pub(super) fn end_last_line(&mut self, work: &mut Work) {
        let rest = self.input_start < self.input.len();
        if rest && !self.paused && self.wire() == Wire::Text {
            self.input.push(b'\n');
            self.run_kept(work);
        }
    }

    /// Runs the input received from the socket.
    pub(in crate::server) fn received(&mut self, fresh: &[u8], work: &mut Work) {
        work.tally.bytes_in += fresh.len() as u64;
        self.active = work.now;
        let Some(sealing) = &mut self.tls else {
            self.run_fresh(fresh, work);
            return self.count_growth(work);
        };
        let mut opened = std::mem::take(&mut sealing.opened);
        let ended = sealing.tls.open(fresh, &mut opened);
        if !opened.is_empty() {
            self.run_fresh(&opened, work);
        }
        match ended {
            Ok(ended) => self.ended_input |= ended,
            Err(error) => {
                let error = forebay_base::error_chain::chain(&error);
                tracing::debug!(%error, "connection closed after an error");
                work.counters.protocol_errors.fetch_add(1, Relaxed);
                // Replies to earlier input are sent first.
                self.closing = true;
            }
        }
        if let Some(sealing) = &mut self.tls {
            opened.clear();
            sealing.opened = opened;
        }
        self.count_growth(work);
    }

    /// Runs plain bytes in place; only the remainder is copied.
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

    /// Runs the input that was kept, up to the first incomplete request.
    pub(super) fn run_kept(&mut self, work: &mut Work) {
        let waiting = self.input.len() - self.input_start;
        if waiting > work.limits.query_size_max {
            self.refuse("ERR Protocol error: too much input for one request");
        }
        if waiting < self.needed {
            return self.reserve_input();
        }
        let input = std::mem::take(&mut self.input);
        let input = match self.run_or_lend(input, work) {
            Some(input) => input,
            None => return,
        };
        self.input = input;
        if self.input_start == self.input.len() || self.closing {
            work.recycle(std::mem::take(&mut self.input));
            self.input_start = 0;
        } else if self.input_start > self.input.len() / 2 {
            self.input.drain(..self.input_start);
            self.input_start = 0;
        }
        self.reserve_input();
    }

    /// Reserves memory for a large argument that is arriving once, instead of by doubling.
    fn reserve_input(&mut self) {
        let needed = self.input_start + self.needed;
        if needed > self.input.capacity() && self.input.len() > needed / 4 {
            self.input.reserve_exact(needed - self.input.len());
        }
    }

    /// Runs kept input, and counts what was consumed. Returns `None` if the input was lent to the engine, for
    /// a command that has long values: it is returned when the command runs again.
    fn run_or_lend(&mut self, input: Vec<u8>, work: &mut Work) -> Option<Vec<u8>> {
        self.let_lend(true);
        self.input_start += self.run(&input[self.input_start..], work);
        self.let_lend(false);
        let Some(session) = self.session.as_mut().filter(|session| session.lends()) else {
            return Some(input);
        };
        let size = input.capacity();
        match work.engine.lend(session, input) {
            Ok(()) => {
                self.lent = Some(Lent { size, start: std::mem::take(&mut self.input_start) });
                None
            }
            Err(input) => {
                (self.blocked, self.runs_again) = (false, false);
                self.input_start += self.run(&input[self.input_start..], work);
                Some(input)
            }
        }
    }

    fn let_lend(&mut self, may_lend: bool) {
        if let Some(session) = &mut self.session {
            session.may_lend = may_lend;
        }
    }

    /// Parses and executes requests until the input ends or must wait; returns the bytes consumed.
    fn run(&mut self, input: &[u8], work: &mut Work) -> usize {
        let Some(session) = &mut self.session else { return input.len() };
        let mut at = 0;
        self.needed = 0;
        // Unless the input ends first, the reason to stop is waiting output or a blocked command.
        self.paused = true;
        self.held_back = work.engine.clients_hold_too_much(work.limits.clients_memory_max);
        if self.held_back {
            // Connections that are being closed for it are closed within a turn of their threads.
            return 0;
        }
        if self.output.is_empty() {
            *self.output.buffer_mut() = work.spare_for_output();
        }
        while self.output.len() - self.sent + self.in_flight <= OUTPUT_PAUSE {
            match step(&mut self.framing, session, &mut self.output, &input[at..], work) {
                Step::Ran { flow: Flow::HeldBack, .. } => {
                    self.held_back = true;
                    break;
                }
                Step::Ran { flow: Flow::Aside, .. } => {
                    (self.blocked, self.runs_again, self.deadline) = (true, true, None);
                    break;
                }
                Step::Ran { consumed, flow } => {
                    at += consumed;
                    work.tally.commands += 1;
                    work.ran = true;
                    match flow {
                        Flow::Continue | Flow::HeldBack | Flow::Aside => {}
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
}
