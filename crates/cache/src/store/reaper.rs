//! Frees large values on a separate thread, so that no client waits until a million allocations are
//! returned.
//!
//! Invariant: at most [`WAITING_MAX`] values wait; another one is freed by the thread that removed it,
//! so that memory is not removed faster than it is freed.

use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use super::kept::Garbage;

/// Garbage that waits to be freed.
const WAITING_MAX: usize = 64;
/// Size in bytes from which freeing is left to the thread.
const SLOW_SIZE: usize = 1 << 20;

/// The way to the thread, which is started by the first large value and ends with the store.
#[derive(Debug, Default)]
pub(super) struct Reaper {
    to: OnceLock<Option<SyncSender<Box<Garbage>>>>,
}

impl Reaper {
    /// Frees values: immediately if that is fast.
    fn free(&self, garbage: Box<Garbage>) {
        if garbage.bytes() < SLOW_SIZE {
            return drop(garbage);
        }
        match self.to.get_or_init(start) {
            Some(to) => match to.try_send(garbage) {
                Ok(()) => {}
                Err(TrySendError::Full(garbage) | TrySendError::Disconnected(garbage)) => {
                    drop(garbage);
                }
            },
            None => drop(garbage),
        }
    }
}

/// Starts the thread; `None` if the system has none left.
fn start() -> Option<SyncSender<Box<Garbage>>> {
    let (to, from): (_, Receiver<Box<Garbage>>) = sync_channel(WAITING_MAX);
    let thread = std::thread::Builder::new().name("cache-reaper".to_owned());
    match thread.spawn(move || from.into_iter().for_each(drop)) {
        Ok(_) => Some(to),
        Err(error) => {
            tracing::warn!(%error, "large values are freed by the threads that remove them");
            None
        }
    }
}

/// Values removed while a shard was locked; freed when this is dropped, after the lock.
#[derive(Debug)]
pub(super) struct Discarded<'k> {
    pub(super) garbage: Option<Box<Garbage>>,
    pub(super) reaper: &'k Reaper,
}

impl Drop for Discarded<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(garbage) = self.garbage.take() {
            self.reaper.free(garbage);
        }
    }
}
