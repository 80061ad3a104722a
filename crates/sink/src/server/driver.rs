//! The network thread of a server's sink, and how calls wait for it.
//!
//! Invariant: every call ends. A call that takes too long is aborted, which its result
//! distinguishes from an answer.

use std::future::Future;
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::ServerError;

/// A thread that drives connections, and calls that wait for them.
#[derive(Debug)]
pub struct Driver {
    /// `None` while it is dropped only.
    runtime: Option<Runtime>,
}

impl Driver {
    /// Starts the thread.
    ///
    /// * `name`: the thread's.
    ///
    /// # Errors
    /// [`ServerError::Settings`] if the system has no thread or no file descriptor for it.
    pub fn new(name: &str) -> Result<Driver, ServerError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(name)
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| {
            ServerError::settings(
                format!("cannot start the thread of a sink: {error}"),
                "allow this process more threads or file descriptors",
            )
        })?;
        Ok(Driver { runtime: Some(runtime) })
    }

    /// Waits for `future`; `None` if it took too long.
    pub fn wait<T>(&self, within: Duration, future: impl Future<Output = T>) -> Option<T> {
        let runtime = self.runtime.as_ref()?;
        runtime.block_on(async { tokio::time::timeout(within, future).await }).ok()
    }
}

/// A runtime must not be waited for where its owner may be dropped, such as in a task of another
/// runtime.
impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
