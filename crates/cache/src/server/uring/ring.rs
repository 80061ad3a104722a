//! A thread's io_uring: requests in, completions out, with the memory the kernel uses owned here.
//!
//! Input comes by one standing request a socket, into buffers the kernel takes when bytes are there.
//! Output is given away with the request and comes back when all of it is sent: nearly always the
//! socket takes it at once, and then the kernel says nothing, so that a turn is one system call and
//! a reply is no completion. What a slow socket leaves over is sent by a request that waits.
//!
//! Contract of the unsafe parts: what a request points to, a buffer being sent or one of
//! [`Buffers`], stays where it is until the kernel is done with it. It tells so by a completion, but
//! for a prompt send (`MSG_DONTWAIT`, silent on success): the kernel never keeps one of those, so it
//! is done when the call that took it has returned ([`Ring::land`] runs only once all were taken).
//! What cannot be waited for when the ring is dropped is leaked.
#![expect(unsafe_code, reason = "requests point to memory; the contract is above")]

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use super::buffers::{Buffers, Filled};
use super::gather::{GATHER, GATHER_US};

/// Requests made between two calls of the kernel, at most; more make another call.
const REQUESTS: u32 = 1_024;
/// Completions the kernel keeps for us; beyond it keeps them aside, at a cost.
const COMPLETIONS: u32 = 8_192;
const GROUP: u16 = 0;
/// No completion unless the request fails; part of a buffer sent is a failure.
const SILENT: squeue::Flags = squeue::Flags::SKIP_SUCCESS;
/// How long dropping waits for the kernel to let go.
const LINGER: Duration = Duration::from_secs(1);

/// What a request was, in the upper two bits of its number.
const KIND: u64 = 3 << 62;
const RECEIVE: u64 = 0;
const SEND: u64 = 1 << 62;
const WATCH: u64 = 2 << 62;
const CANCEL: u64 = 3 << 62;

/// Something the kernel did.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) enum Completion {
    /// Bytes came; whether more may come without asking again.
    Received(Filled, bool),
    /// No more will come unless asked for again: 0 at the end of the input, or an error's number.
    Stopped(i32),
    /// All of a buffer, so many bytes, was sent at once.
    Landed(usize),
    /// All of a buffer, so many bytes, was sent after it had to wait.
    Sent(usize),
    /// It cannot be sent.
    Refused,
    /// The watched descriptor has something to read.
    Watched,
}

/// Bytes on their way out.
#[derive(Debug)]
struct Sending {
    id: u64,
    fd: RawFd,
    bytes: Vec<u8>,
    at: usize,
    /// The request does not wait, and is silent unless it fails.
    prompt: bool,
}

/// The ring.
pub(super) struct Ring {
    /// Dropped before the memory it uses.
    ring: ManuallyDrop<IoUring>,
    buffers: ManuallyDrop<Buffers>,
    sends: ManuallyDrop<Vec<Option<Sending>>>,
    free: Vec<usize>,
    /// Prompt requests made since the kernel last took all there were.
    prompt: Vec<usize>,
    /// Buffers whose bytes are sent.
    done: Vec<Vec<u8>>,
    /// Requests that had no place; the next call makes room.
    waiting: VecDeque<squeue::Entry>,
    /// Completions being looked at.
    entries: Vec<cqueue::Entry>,
    /// The kernel can wait for several completions, but not for long.
    gathers: bool,
    /// Requests not yet ended.
    under_way: usize,
    /// Nothing is asked for any more.
    closing: bool,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Ring").field("under_way", &self.under_way).finish_non_exhaustive()
    }
}

impl Ring {
    /// A ring of the calling thread; no other may use it.
    ///
    /// # Errors
    /// The kernel has none, is too old for what is asked of it (6.1 is not), or forbids it.
    pub(super) fn new() -> io::Result<Self> {
        let ring: IoUring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_cqsize(COMPLETIONS)
            .build(REQUESTS)?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let gathers = ring.params().is_feature_min_timeout();
        let buffers = Buffers::register(&ring.submitter(), GROUP)?;
        Ok(Self {
            ring: ManuallyDrop::new(ring),
            buffers: ManuallyDrop::new(buffers),
            sends: ManuallyDrop::new(Vec::new()),
            free: Vec::new(),
            prompt: Vec::new(),
            done: Vec::new(),
            waiting: VecDeque::new(),
            entries: Vec::new(),
            gathers,
            under_way: 0,
            closing: false,
        })
    }

    /// Asks for all input of a socket, as it comes.
    pub(super) fn receive(&mut self, fd: RawFd, id: u64) {
        self.push(opcode::RecvMulti::new(Fd(fd), GROUP).build().user_data(RECEIVE | id));
    }

    /// Asks for no more of it; the end is told as [`Completion::Stopped`].
    pub(super) fn stop_receiving(&mut self, id: u64) {
        self.push(opcode::AsyncCancel::new(RECEIVE | id).build().user_data(CANCEL));
    }

    /// Sends all of `bytes`.
    pub(super) fn send(&mut self, fd: RawFd, id: u64, bytes: Vec<u8>) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.sends.push(None);
            self.sends.len() - 1
        });
        if let Some(place) = self.sends.get_mut(index) {
            *place = Some(Sending { id, fd, bytes, at: 0, prompt: true });
            self.prompt.push(index);
            self.send_rest(index);
        }
    }

    fn send_rest(&mut self, index: usize) {
        let Some(Some(Sending { fd, bytes, at, prompt, .. })) = self.sends.get(index) else {
            return;
        };
        let rest = bytes.get(*at..).unwrap_or_default();
        // What does not fit 32 bits is sent by the next request.
        let len = u32::try_from(rest.len()).unwrap_or(u32::MAX / 2);
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let send = opcode::Send::new(Fd(*fd), rest.as_ptr(), len);
        let send = match prompt {
            true => send.flags(flags | libc::MSG_DONTWAIT).build().flags(SILENT),
            false => send.flags(flags).build(),
        };
        self.push(send.user_data(SEND | index as u64));
    }

    /// Tells once when a descriptor can be read.
    pub(super) fn watch(&mut self, fd: RawFd) {
        let poll = opcode::PollAdd::new(Fd(fd), libc::POLLIN as u32).build();
        self.push(poll.user_data(WATCH));
    }

    fn push(&mut self, entry: squeue::Entry) {
        self.under_way += 1;
        // SAFETY: the memory the request points to, if any, is owned by `self.sends` or
        // `self.buffers` until the request has ended.
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.waiting.push_back(entry);
        }
    }

    /// Hands over what was asked for, waits at most for `timeout` until something is done, and
    /// tells what was.
    ///
    /// * `count`: how much has to be done before [`GATHER`] is over; after that, anything.
    pub(super) fn turn(
        &mut self,
        timeout: Option<Duration>,
        count: usize,
        mut tell: impl FnMut(u64, Completion),
    ) {
        while let Some(entry) = self.waiting.pop_front() {
            // SAFETY: as in `push`.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                self.waiting.push_front(entry);
                let Ok(1..) = self.ring.submit() else { break };
            }
        }
        self.wait(timeout, count);
        self.reap(&mut tell);
        if self.waiting.is_empty() && self.ring.submission().is_empty() {
            self.land(&mut tell);
        }
    }

    fn wait(&mut self, timeout: Option<Duration>, count: usize) {
        let waited = match timeout {
            None => self.ring.submit_and_wait(1),
            Some(timeout) => {
                let timespec = Timespec::from(timeout);
                let args = SubmitArgs::new().timespec(&timespec);
                if self.gathers && count > 1 && timeout > GATHER {
                    let args = args.min_wait_usec(GATHER_US);
                    self.ring.submitter().submit_with_args(count, &args)
                } else {
                    self.ring.submitter().submit_with_args(1, &args)
                }
            }
        };
        if let Err(error) = waited {
            // EBUSY: completions wait to be read, which comes next; the requests stay for the next
            // call.
            let expected = [libc::ETIME, libc::EINTR, libc::EBUSY, libc::EAGAIN];
            debug_assert!(error.raw_os_error().is_some_and(|it| expected.contains(&it)), "{error}");
        }
    }

    /// Tells of everything the kernel says is done.
    fn reap(&mut self, tell: &mut impl FnMut(u64, Completion)) {
        let mut entries = std::mem::take(&mut self.entries);
        entries.extend(self.ring.completion());
        for entry in entries.drain(..) {
            if let Some((id, completion)) = self.completed(&entry) {
                tell(id, completion);
            }
        }
        self.entries = entries;
    }

    /// Tells of the prompt requests that have not failed: the kernel has taken them all.
    fn land(&mut self, tell: &mut impl FnMut(u64, Completion)) {
        let mut prompt = std::mem::take(&mut self.prompt);
        for index in prompt.drain(..) {
            let Some(place) = self.sends.get_mut(index) else { continue };
            if let Some(Sending { id, bytes, .. }) = place.take_if(|it| it.prompt) {
                self.under_way = self.under_way.saturating_sub(1);
                tell(id, Completion::Landed(bytes.len()));
                self.free.push(index);
                self.done.push(bytes);
            }
        }
        self.prompt = prompt;
    }

    fn completed(&mut self, entry: &cqueue::Entry) -> Option<(u64, Completion)> {
        if !cqueue::more(entry.flags()) {
            self.under_way = self.under_way.saturating_sub(1);
        }
        let (kind, id) = (entry.user_data() & KIND, entry.user_data() & !KIND);
        match kind {
            RECEIVE => {
                let goes_on = cqueue::buffer_more(entry.flags());
                let len = usize::try_from(entry.result()).unwrap_or(0);
                let filled = cqueue::buffer_select(entry.flags())
                    .map(|buffer| self.buffers.note(buffer, len, goes_on));
                match filled {
                    Some(filled) if len > 0 => {
                        Some((id, Completion::Received(filled, cqueue::more(entry.flags()))))
                    }
                    filled => {
                        if let Some(filled) = filled {
                            self.buffers.give_back(filled);
                        }
                        Some((id, Completion::Stopped(-entry.result())))
                    }
                }
            }
            SEND => self.sent(usize::try_from(id).ok()?, entry.result()),
            WATCH => Some((u64::MAX, Completion::Watched)),
            _ => None,
        }
    }

    fn sent(&mut self, index: usize, result: i32) -> Option<(u64, Completion)> {
        let sending = self.sends.get_mut(index)?.as_mut()?;
        let count = match usize::try_from(result) {
            Ok(count) => count,
            Err(_) if result == -libc::EINTR || result == -libc::EAGAIN => 0,
            Err(_) => usize::MAX,
        };
        let id = sending.id;
        sending.prompt = false;
        sending.at = sending.at.saturating_add(count);
        if count != usize::MAX && sending.at < sending.bytes.len() && !self.closing {
            self.send_rest(index);
            return None;
        }
        let len = sending.bytes.len();
        let sending = self.sends.get_mut(index)?.take()?;
        self.free.push(index);
        self.done.push(sending.bytes);
        let completion =
            if count == usize::MAX { Completion::Refused } else { Completion::Sent(len) };
        Some((id, completion))
    }

    /// What came in.
    pub(super) fn bytes(&self, filled: Filled) -> &[u8] {
        self.buffers.bytes(filled)
    }

    /// It is read, its buffer can be used again.
    pub(super) fn give_back(&mut self, filled: Filled) {
        self.buffers.give_back(filled);
    }

    /// Buffers whose bytes are sent.
    pub(super) fn done(&mut self) -> Option<Vec<u8>> {
        self.done.pop()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.closing = true;
        let deadline = Instant::now() + LINGER;
        let cancel = opcode::AsyncCancel2::new(io_uring::types::CancelBuilder::any()).build();
        if self.under_way > 0 {
            self.push(cancel.user_data(CANCEL));
        }
        while self.under_way > 0 && Instant::now() < deadline {
            self.turn(Some(Duration::from_millis(10)), 1, |_, _| {});
        }
        // SAFETY: none of them is used again. The ring goes first; memory the kernel has not let go
        // of stays.
        unsafe {
            ManuallyDrop::drop(&mut self.ring);
            if self.under_way == 0 {
                ManuallyDrop::drop(&mut self.buffers);
                ManuallyDrop::drop(&mut self.sends);
            }
        }
    }
}
