//! Words from one thread to a connection that another owns: published messages, replies to
//! commands that waited, orders to close.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::resp::Reply;

/// Wakes the thread that owns a connection.
pub trait Notify: Send + Sync + Debug {
    /// Something lies in the mailbox of `connection`.
    fn notify(&self, connection: u64);
}

/// Most bytes that lie in a mailbox; a connection that lets more come is closed.
const BYTES_MAX: usize = 32 << 20;

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
    notify: Arc<dyn Notify>,
    connection: u64,
    letters: Mutex<Letters>,
    /// Raised by [`Mailbox::close`], and never lowered.
    closing: AtomicBool,
}

/// What [`Mailbox::drain`] found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drained {
    /// The command the connection waited for has been answered.
    pub unblocked: bool,
    /// The connection is to be closed.
    pub close: bool,
}

impl Mailbox {
    /// A mailbox whose owner is woken by `notify`.
    #[must_use]
    pub fn new(notify: Arc<dyn Notify>, connection: u64) -> Self {
        Self { notify, connection, letters: Mutex::default(), closing: AtomicBool::new(false) }
    }

    /// Takes everything out; bytes are appended to `out`.
    pub fn drain(&self, out: &mut Reply) -> Drained {
        let letters = std::mem::take(&mut *self.letters.lock());
        out.raw(&letters.bytes);
        Drained { unblocked: letters.unblocked, close: letters.close }
    }

    /// Bytes that lie in it.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.letters.lock().bytes.len()
    }

    /// Puts encoded bytes in; too many close the connection instead.
    pub(crate) fn send(&self, bytes: &[u8]) {
        self.put(|letters| {
            if letters.bytes.len() + bytes.len() > BYTES_MAX && !letters.bytes.is_empty() {
                letters.bytes = Vec::new();
                letters.close = true;
            }
            if !letters.close {
                letters.bytes.extend_from_slice(bytes);
            }
        });
    }

    /// Answers the command the connection waits for.
    pub(crate) fn unblock(&self, reply: &[u8]) {
        self.put(|letters| {
            letters.bytes.extend_from_slice(reply);
            letters.unblocked = true;
        });
    }

    /// Has the connection closed.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.put(|letters| letters.close = true);
    }

    /// Whether it was told to: to others the client is gone, though its thread may not have seen it.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    fn put(&self, put: impl FnOnce(&mut Letters)) {
        let first = {
            let mut letters = self.letters.lock();
            let first = letters.bytes.is_empty() && !letters.unblocked && !letters.close;
            put(&mut letters);
            first
        };
        if first {
            self.notify.notify(self.connection);
        }
    }
}
