//! Messages from one thread to a connection that another thread owns: published messages, replies
//! to blocked commands, requests to close.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::clients::Account;
use crate::resp::Reply;

/// Wakes the thread that owns a connection.
pub trait Notify: Send + Sync + Debug {
    /// Called when something has been put into the mailbox of `connection`.
    fn notify(&self, connection: u64);
}

/// Messages above this size are handed over with their buffer: copying them costs more than
/// allocating a new buffer.
const COPIED_MAX: usize = 64 << 10;

#[derive(Debug, Default)]
struct Letters {
    /// Replies and pushes, encoded for the connection's protocol, in order.
    bytes: Vec<u8>,
    unblocked: bool,
    close: bool,
}

/// A connection's mailbox.
#[derive(Debug)]
pub struct Mailbox {
    /// The thread that owns the connection, and the connection's number there.
    owner: Mutex<(Arc<dyn Notify>, u64)>,
    letters: Mutex<Letters>,
    /// Account that counts its bytes.
    account: OnceLock<Arc<Account>>,
    /// Raised by [`Mailbox::close`], and never lowered.
    closing: AtomicBool,
}

/// The result of [`Mailbox::drain`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drained {
    /// The connection's blocked command has been answered.
    pub unblocked: bool,
    /// The connection must be closed.
    pub close: bool,
}

impl Mailbox {
    /// A mailbox whose owner is woken by `notify`.
    #[must_use]
    pub fn new(notify: Arc<dyn Notify>, connection: u64) -> Self {
        let (letters, account) = (Mutex::default(), OnceLock::new());
        let owner = Mutex::new((notify, connection));
        Self { owner, letters, account, closing: AtomicBool::new(false) }
    }

    /// Has a new owner be woken from now on. The new owner must look into it once by itself: the
    /// previous one may have been woken last.
    pub(crate) fn move_to(&self, notify: Arc<dyn Notify>, connection: u64) {
        *self.owner.lock() = (notify, connection);
    }

    /// Counts its bytes in `account` from here on; it is still empty.
    pub(super) fn count_in(&self, account: &Arc<Account>) {
        self.account.get_or_init(|| Arc::clone(account));
    }

    fn count(&self, before: usize, now: usize) {
        if let Some(account) = self.account.get() {
            account.change(before, now);
        }
    }

    /// Removes all messages; their bytes are appended to `out`.
    pub fn drain(&self, out: &mut Reply) -> Drained {
        let (drained, counted) = self.hand_over(out);
        self.uncount(counted);
        drained
    }

    /// Removes all messages as [`Mailbox::drain`] does, but leaves them counted. Returns their
    /// size, for [`Mailbox::uncount`].
    pub(crate) fn hand_over(&self, out: &mut Reply) -> (Drained, usize) {
        let letters = std::mem::take(&mut *self.letters.lock());
        let counted = letters.bytes.capacity();
        if out.is_empty() && counted > COPIED_MAX {
            *out.buffer_mut() = letters.bytes;
        } else {
            out.raw(&letters.bytes);
        }
        (Drained { unblocked: letters.unblocked, close: letters.close }, counted)
    }

    /// Stops counting bytes that were handed over: they are counted elsewhere or have been freed.
    pub(crate) fn uncount(&self, bytes: usize) {
        self.count(bytes, 0);
    }

    /// Discards its contents permanently: no thread will read them.
    pub(super) fn empty(&self) {
        self.closing.store(true, Ordering::Release);
        let letters = std::mem::take(&mut *self.letters.lock());
        self.count(letters.bytes.capacity(), 0);
    }

    /// Bytes of memory it uses.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.letters.lock().bytes.capacity()
    }

    /// Adds encoded bytes. If more than `bytes_max` wait (0: no limit), the connection is closed
    /// instead.
    pub(crate) fn send(&self, bytes: &[u8], bytes_max: usize) {
        self.put(|letters| {
            if bytes_max > 0 && letters.bytes.len() + bytes.len() > bytes_max {
                letters.close = true;
            }
            letters.bytes.extend_from_slice(bytes);
        });
    }

    /// Answers the command on which the connection is blocked.
    pub(crate) fn unblock(&self, reply: &[u8]) {
        self.put(|letters| {
            letters.bytes.extend_from_slice(reply);
            letters.unblocked = true;
        });
    }

    /// Requests that the connection be closed.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.put(|letters| letters.close = true);
    }

    /// Whether that was requested: other clients no longer see this one, though its thread may
    /// still run.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    fn put(&self, put: impl FnOnce(&mut Letters)) {
        let first = {
            let mut letters = self.letters.lock();
            let first = letters.bytes.is_empty() && !letters.unblocked && !letters.close;
            let before = letters.bytes.capacity();
            put(&mut letters);
            if letters.close || self.is_closing() {
                // No thread will read it.
                letters.bytes = Vec::new();
            }
            self.count(before, letters.bytes.capacity());
            first
        };
        if first {
            let (notify, connection) = &*self.owner.lock();
            notify.notify(*connection);
        }
    }
}
