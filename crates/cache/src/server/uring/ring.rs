//! A thread's io_uring: requests in, completions out, with the memory the kernel uses owned here.
//!
//! Input is received by one multishot request per socket, into buffers that the kernel takes when
//! there are bytes. Output is handed over with the request and returned when all of it is sent.
//! Nearly always the socket accepts it immediately, and then the kernel posts no completion, so
//! that a turn is one system call and a reply no completion. What a slow socket leaves is sent by a
//! request that waits.
//!
//! Contract of the unsafe parts: what a request points to, a buffer being sent or one of
//! [`Buffers`], is not moved or freed until the kernel has finished with it. The kernel reports
//! that by a completion, except for a prompt send (`MSG_DONTWAIT`, silent on success): the kernel
//! never keeps such a request, so it is finished when the call that took it has returned
//! ([`Ring::land`] runs only after all were taken). What cannot be waited for when the ring is
//! dropped is leaked.
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
use crate::server::work::LARGE_SPARE_SIZE_MAX;

/// Maximum number of requests between two system calls; more cause another call.
const REQUESTS: u32 = 1_024;
/// Size of the completion queue; the kernel stores further completions elsewhere, at a cost.
const COMPLETIONS: u32 = 8_192;
const GROUP: u16 = 0;
/// No completion unless the request fails; a partial send is a failure.
const SILENT: squeue::Flags = squeue::Flags::SKIP_SUCCESS;
/// Maximum number of buffers kept until the next turn takes them.
const DONE_MAX: usize = 64;
/// Maximum time that dropping waits for the kernel.
const LINGER: Duration = Duration::from_secs(1);

/// The kind of a request, in the upper two bits of its number.
const KIND: u64 = 3 << 62;
const RECEIVE: u64 = 0;
const SEND: u64 = 1 << 62;
const WATCH: u64 = 2 << 62;
const CANCEL: u64 = 3 << 62;

/// A result from the kernel.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) enum Completion {
    /// Bytes were received; whether the request continues.
    Received(Filled, bool),
    /// Receiving has stopped: 0 at the end of the input, or an error number.
    Stopped(i32),
    /// A whole buffer of this size was sent immediately.
    Landed(usize),
    /// A whole buffer of this size was sent after a wait.
    Sent(usize),
    /// It cannot be sent.
    Refused,
    /// The watched descriptor is readable.
    Watched,
}

/// Bytes being sent.
#[derive(Debug)]
struct Sending {
    id: u64,
    fd: RawFd,
    bytes: Vec<u8>,
    at: usize,
    /// The request does not wait, and posts a completion only if it fails.
    prompt: bool,
}

/// The ring.
pub(super) struct Ring {
    /// Dropped before the memory it uses.
    ring: ManuallyDrop<IoUring>,
    buffers: ManuallyDrop<Buffers>,
    sends: ManuallyDrop<Vec<Option<Sending>>>,
    free: Vec<usize>,
    /// Prompt requests since the kernel last took all requests.
    prompt: Vec<usize>,
    /// Buffers whose bytes have been sent.
    done: Vec<Vec<u8>>,
    /// Requests that did not fit the queue; the next call makes room.
    waiting: VecDeque<squeue::Entry>,
    /// Completions being processed.
    entries: Vec<cqueue::Entry>,
    /// Whether the kernel can wait for several completions with a short timeout.
    gathers: bool,
    /// Number of requests that have not ended.
    under_way: usize,
    /// Whether no further request is made.
    closing: bool,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Ring").field("under_way", &self.under_way).finish_non_exhaustive()
    }
}

impl Ring {
    /// Returns a ring of the calling thread; no other thread may use it.
    ///
    /// # Errors
    /// The kernel has none, is too old (6.1 is sufficient), or forbids it.
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

    /// Requests all input of a socket, as it arrives.
    pub(super) fn receive(&mut self, fd: RawFd, id: u64) {
        self.push(opcode::RecvMulti::new(Fd(fd), GROUP).build().user_data(RECEIVE | id));
    }

    /// Cancels that; the end is reported as [`Completion::Stopped`].
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
        // What exceeds 32 bits is sent by the next request.
        let len = u32::try_from(rest.len()).unwrap_or(u32::MAX / 2);
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let send = opcode::Send::new(Fd(*fd), rest.as_ptr(), len);
        let send = match prompt {
            true => send.flags(flags | libc::MSG_DONTWAIT).build().flags(SILENT),
            false => send.flags(flags).build(),
        };
        self.push(send.user_data(SEND | index as u64));
    }

    /// Reports once when a descriptor becomes readable.
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

    /// Submits the requests, waits at most for `timeout` until there are completions, and reports
    /// them.
    ///
    /// * `count`: number of completions to wait for until [`GATHER`] has passed; after that, one.
    pub(super) fn turn(
        &mut self,
        timeout: Option<Duration>,
        count: usize,
        mut report: impl FnMut(u64, Completion),
    ) {
        while let Some(entry) = self.waiting.pop_front() {
            // SAFETY: as in `push`.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                self.waiting.push_front(entry);
                let Ok(1..) = self.ring.submit() else { break };
            }
        }
        self.wait(timeout, count);
        // Before completions cause further requests. Completions that did not fit their queue may be
        // those of prompt requests.
        let submission = self.ring.submission();
        let taken = submission.is_empty() && !submission.cq_overflow() && self.waiting.is_empty();
        drop(submission);
        self.reap(&mut report);
        if taken {
            self.land(&mut report);
        }
    }

    /// Whether it is unknown, after [`Ring::turn`], what became of prompt requests.
    pub(super) fn is_behind(&self) -> bool {
        !self.prompt.is_empty()
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
            // EBUSY: completions wait to be read, which happens next; the requests stay for the
            // next call.
            let expected = [libc::ETIME, libc::EINTR, libc::EBUSY, libc::EAGAIN];
            debug_assert!(error.raw_os_error().is_some_and(|it| expected.contains(&it)), "{error}");
        }
    }

    /// Reports all completions.
    fn reap(&mut self, report: &mut impl FnMut(u64, Completion)) {
        let mut entries = std::mem::take(&mut self.entries);
        entries.extend(self.ring.completion());
        for entry in entries.drain(..) {
            if let Some((id, completion)) = self.completed(&entry) {
                report(id, completion);
            }
        }
        self.entries = entries;
    }

    /// Reports the prompt requests that have not failed: the kernel has taken them all.
    fn land(&mut self, report: &mut impl FnMut(u64, Completion)) {
        let mut prompt = std::mem::take(&mut self.prompt);
        for index in prompt.drain(..) {
            let Some(place) = self.sends.get_mut(index) else { continue };
            if let Some(Sending { id, bytes, .. }) = place.take_if(|it| it.prompt) {
                self.under_way = self.under_way.saturating_sub(1);
                report(id, Completion::Landed(bytes.len()));
                self.free.push(index);
                self.keep(bytes);
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
        self.keep(sending.bytes);
        let completion =
            if count == usize::MAX { Completion::Refused } else { Completion::Sent(len) };
        Some((id, completion))
    }

    /// Returns received input.
    pub(super) fn bytes(&self, filled: Filled) -> &[u8] {
        self.buffers.bytes(filled)
    }

    /// Returns a part that was read, so that its buffer can be used again.
    pub(super) fn give_back(&mut self, filled: Filled) {
        self.buffers.give_back(filled);
    }

    /// Keeps a buffer whose bytes have been sent, unless it is too large to be reused, or many are
    /// kept: no account includes these.
    fn keep(&mut self, bytes: Vec<u8>) {
        if self.done.len() < DONE_MAX && bytes.capacity() <= LARGE_SPARE_SIZE_MAX {
            self.done.push(bytes);
        }
    }

    /// Takes a buffer whose bytes have been sent.
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
        // SAFETY: none of them is used again. The ring is dropped first; memory that the kernel has
        // not released is leaked.
        unsafe {
            ManuallyDrop::drop(&mut self.ring);
            if self.under_way == 0 {
                ManuallyDrop::drop(&mut self.buffers);
                ManuallyDrop::drop(&mut self.sends);
            }
        }
    }
}
