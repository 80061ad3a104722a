//! Threads that hash and write large uploads.
//!
//! They have a lower priority than the others: where processors are short, a large upload slows down
//! and small requests do not. Their number is limited, whatever the number of uploads.
//!
//! Invariant: steps run in the order in which each upload hands them over; it waits for one before it
//! hands over the next.

use std::io;

use forebay_base::blocking::{self, Task};
use tokio::runtime::{Builder, Runtime};

/// Minimum number of threads: one step waits for the disk while another hashes.
const THREADS_MIN: usize = 4;

/// Lets the calling thread work where others leave a processor free.
pub(crate) fn step_back() {
    if let Err(error) = forebay_base::priority::lower() {
        tracing::debug!(%error, "a thread in the background keeps the usual priority");
    }
}

/// The threads.
#[derive(Debug)]
pub(crate) struct Bulk(Option<Runtime>);

impl Bulk {
    /// Prepares threads, which are started when they are needed.
    ///
    /// # Errors
    /// The system refused.
    pub(crate) fn new() -> io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        // Only its threads for blocking work are used.
        let runtime = Builder::new_current_thread()
            .max_blocking_threads(THREADS_MIN.max(2 * cores))
            .thread_name("intake-bulk")
            .on_thread_start(step_back)
            .build()?;
        Ok(Self(Some(runtime)))
    }

    /// Runs a step on one of the threads.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        step: impl FnOnce() -> T + Send + 'static,
    ) -> Task<T> {
        match &self.0 {
            Some(runtime) => blocking::spawn_on(runtime.handle(), step),
            None => blocking::spawn(step),
        }
    }
}

impl Drop for Bulk {
    fn drop(&mut self) {
        // Steps have ended: a caller that waits for one holds the intake. Dropping would wait, where it must not.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
