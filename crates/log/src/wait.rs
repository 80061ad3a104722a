//! Waiting without a thread: futures that the committer completes.
//!
//! A future checks an atomic first and registers only if it must wait. Dropping it unregisters it.
//! Without a committer a poll does the work itself, blocking, because no one else would.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::Thread,
};

use crate::{Lsn, error::CommitError, writer::Shared};

/// Completes when a position is acknowledged; see [`Log::committed`](crate::Log::committed).
#[derive(Debug)]
#[must_use = "nothing is known to be kept until this completes"]
pub struct Committed {
    shared: Arc<Shared>,
    end: u64,
    key: Option<u64>,
    /// Whether the task has already yielded once to other ready tasks before it writes for all of
    /// them.
    stepped_back: bool,
}

impl Committed {
    pub(crate) fn new(shared: Arc<Shared>, end: Lsn) -> Self {
        Self { shared, end: end.0, key: None, stepped_back: false }
    }

    fn register(&mut self, waker: &Waker) -> Poll<Result<(), CommitError>> {
        let mut inner = self.shared.inner.lock();
        if self.shared.acknowledged() >= self.end {
            return Poll::Ready(Ok(()));
        }
        if let Some(source) = &inner.poison {
            return Poll::Ready(Err(CommitError::Poisoned { source: Arc::clone(source) }));
        }
        if let Some(source) = &inner.stall {
            return Poll::Ready(Err(CommitError::Stalled { source: Arc::clone(source) }));
        }
        if self.end > inner.next {
            let (lsn, end) = (Lsn(self.end), Lsn(inner.next));
            return Poll::Ready(Err(CommitError::Beyond { lsn, end }));
        }
        if inner.committers == 0 {
            drop(inner);
            return Poll::Ready(self.shared.commit_here(self.end));
        }
        let key = match self.key {
            Some(key) => key,
            None => *self.key.insert(inner.fresh_key()),
        };
        inner.waiters.insert((self.end, key), waker.clone());
        if inner.committer_parked {
            self.shared.work.notify_one();
        }
        Poll::Pending
    }
}

impl Future for Committed {
    type Output = Result<(), CommitError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.shared.acknowledged() >= self.end {
            return Poll::Ready(Ok(()));
        }
        if self.key.is_none() {
            // Yield once: other tasks that are ready append first, and one write, or one call of
            // the committer, serves all of them.
            if !self.stepped_back {
                self.stepped_back = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.shared.write_here();
            if self.shared.acknowledged() >= self.end {
                return Poll::Ready(Ok(()));
            }
        }
        self.register(cx.waker())
    }
}

impl Drop for Committed {
    fn drop(&mut self) {
        if let Some(key) = self.key
            && self.shared.acknowledged() < self.end
        {
            self.shared.inner.lock().waiters.remove(&(self.end, key));
        }
    }
}

/// Completes when the buffer has room; see [`Log::room`](crate::Log::room).
#[derive(Debug)]
#[must_use = "a future does nothing until polled"]
pub struct Room {
    shared: Arc<Shared>,
    len: u64,
    key: Option<u64>,
}

impl Room {
    pub(crate) fn new(shared: Arc<Shared>, len: usize) -> Self {
        Self { shared, len: len as u64, key: None }
    }
}

impl Future for Room {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let mut inner = this.shared.inner.lock();
        if inner.poison.is_some() || inner.has_room(this.len, this.shared.bounds()) {
            return Poll::Ready(());
        }
        if inner.committers == 0 {
            drop(inner);
            // A failure has closed the log; the append that follows reports it.
            this.shared.drive(false).ok();
            return Poll::Ready(());
        }
        let key = match this.key {
            Some(key) => key,
            None => *this.key.insert(inner.fresh_key()),
        };
        inner.room_waiters.insert(key, cx.waker().clone());
        if inner.committer_parked {
            this.shared.work.notify_one();
        }
        Poll::Pending
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.shared.inner.lock().room_waiters.remove(&key);
        }
    }
}

/// Wakes a thread that blocks on a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks the thread until `future` completes.
pub(crate) fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match Pin::new(&mut future).poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
