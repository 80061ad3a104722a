//! Reads that may look at every file, or at many documents: few run at the same time, and others wait for
//! their turn.
//!
//! Without that, some hundred such requests would take every thread that reads for all others. Statistics
//! need up to 50 MB of memory each.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinError;

/// Reads that run at the same time.
const MAX: usize = 4;

/// The turns of such reads.
#[derive(Debug)]
pub(crate) struct LongReads(Arc<Semaphore>);

impl Default for LongReads {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX)))
    }
}

impl LongReads {
    /// Runs a read on a thread that may block, once it is its turn. A caller that leaves while it waits
    /// gives its place up; a read that has begun keeps its turn until it ends.
    ///
    /// # Errors
    /// The read panicked, or the runtime ended.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        // It is never closed.
        let turn = self.0.clone().acquire_owned().await.ok();
        let read = move || {
            let _turn = turn;
            read()
        };
        forebay_base::blocking::spawn(read).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Starts a read that lasts until something is sent.
    fn start(reads: &Arc<LongReads>) -> (tokio::task::JoinHandle<bool>, mpsc::Sender<()>) {
        let (reads, (end, ended)) = (reads.clone(), mpsc::channel());
        let read = async move { reads.run(move || ended.recv().is_ok()).await.unwrap() };
        (tokio::spawn(read), end)
    }

    #[tokio::test]
    async fn a_read_waits_while_as_many_run_as_may() {
        let reads = Arc::new(LongReads::default());
        let running: Vec<_> = (0..MAX).map(|_| start(&reads)).collect();
        while reads.0.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let (next, end) = start(&reads);
        tokio::task::yield_now().await;
        end.send(()).unwrap();
        tokio::task::yield_now().await;
        assert!(!next.is_finished(), "all turns are taken");
        for (read, end) in running {
            end.send(()).unwrap();
            assert!(read.await.unwrap());
        }
        assert!(next.await.unwrap());
        assert_eq!(reads.0.available_permits(), MAX);
    }

    #[tokio::test]
    async fn a_caller_that_leaves_gives_up_its_place_but_not_the_turn_of_its_read() {
        let reads = Arc::new(LongReads::default());
        let mut running: Vec<_> = (0..MAX).map(|_| start(&reads)).collect();
        while reads.0.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let (waiting, end) = start(&reads);
        tokio::task::yield_now().await;
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        assert!(end.send(()).is_err(), "its read was dropped before it began");
        let (left, end) = running.pop().unwrap();
        left.abort();
        assert!(left.await.unwrap_err().is_cancelled());
        assert_eq!(reads.0.available_permits(), 0);
        end.send(()).unwrap();
        drop(running);
        let all = u32::try_from(MAX).unwrap();
        assert!(reads.0.acquire_many(all).await.is_ok(), "every turn is given back in the end");
    }

    #[tokio::test]
    async fn a_read_that_panics_gives_its_turn_back() {
        let reads = LongReads::default();
        assert!(reads.run(|| panic!("as the test wants it")).await.is_err());
        assert_eq!(reads.0.available_permits(), MAX);
    }
}
