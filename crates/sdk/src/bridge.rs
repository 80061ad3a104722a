//! Work on threads that may block: readers, encoders, and the last work of what is dropped.
//!
//! Files and SQLite are read by threads that may block. What they read passes through a channel of
//! one batch, so that only the batch being built, the waiting one and the one being sent are
//! outside the run's budget. When the consumer has gone, the reader gets an error with its next
//! batch.

use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::mpsc;

use crate::batch::Rows;
use crate::error::ConnectorError;
use crate::run::{Outlet, Phase, Phases};

/// Accepts the batches of a blocking reader. An error stops it.
pub type Give<'a> = dyn FnMut(RecordBatch) -> Result<(), ConnectorError> + 'a;

/// Runs `read` on a thread that may block, and forwards its batches.
///
/// # Errors
/// That of `read`, or [`ConnectorError::Stopped`] if the receiver of the batches has gone.
pub async fn pump<F>(out: &mut Outlet, read: F) -> Result<(), ConnectorError>
where
    F: FnOnce(&mut Give<'_>) -> Result<(), ConnectorError> + Send + 'static,
{
    let (send, mut batches) = mpsc::channel(1);
    let reader = forebay_base::blocking::spawn(move || {
        read(&mut |batch: RecordBatch| match batch.num_rows() {
            0 => Ok(()),
            _ => send.blocking_send(batch).map_err(|_| ConnectorError::Stopped),
        })
    });
    loop {
        let begun = Instant::now();
        let batch = batches.recv().await;
        out.context().phases.add(Phase::Fetch, begun);
        match batch {
            Some(batch) => out.send(Rows::Records(batch)).await?,
            None => break,
        }
    }
    joined(reader.await)?
}

/// Runs `work` on a separate thread that may block on a disk.
///
/// # Errors
/// That of `work`.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ConnectorError> + Send + 'static,
) -> Result<T, ConnectorError> {
    joined(forebay_base::blocking::spawn(work).await)?
}

/// Encodes the rows of a unit on threads that may block, to which its state is moved and back.
///
/// Invariant: after an error, or a call that was dropped before its end, the state is gone and the
/// unit cannot be written any more.
#[derive(Debug)]
pub struct Encoder<T>(Option<T>);

impl<T: Send + 'static> Encoder<T> {
    /// An encoder with this state.
    pub fn new(state: T) -> Self {
        Self(Some(state))
    }

    /// The state.
    ///
    /// # Errors
    /// [`ConnectorError::Stopped`] if it is gone.
    pub fn state(&self) -> Result<&T, ConnectorError> {
        self.0.as_ref().ok_or(ConnectorError::Stopped)
    }

    /// The state, to be changed.
    ///
    /// # Errors
    /// [`ConnectorError::Stopped`] if it is gone.
    pub fn state_mut(&mut self) -> Result<&mut T, ConnectorError> {
        self.0.as_mut().ok_or(ConnectorError::Stopped)
    }

    /// Runs `work` with the state, and adds the time to `phases`.
    ///
    /// # Errors
    /// That of `work`, or [`ConnectorError::Stopped`] if the state is gone.
    pub async fn run<R: Send + 'static>(
        &mut self,
        phases: &Phases,
        work: impl FnOnce(&mut T) -> Result<R, ConnectorError> + Send + 'static,
    ) -> Result<R, ConnectorError> {
        let begun = Instant::now();
        let mut state = self.0.take().ok_or(ConnectorError::Stopped)?;
        let (state, result) = blocking(move || {
            let result = work(&mut state)?;
            Ok((state, result))
        })
        .await?;
        self.0 = Some(state);
        phases.add(Phase::Encode, begun);
        Ok(result)
    }
}

/// Starts the last work of a value that is being dropped, and waits for it as long as `within`.
///
/// Without a runtime nothing is done. On a runtime of one thread the work is started and not waited
/// for, since nothing else could run meanwhile.
pub fn run_in_drop(within: Duration, work: impl Future<Output = ()> + Send + 'static) {
    let Ok(runtime) = Handle::try_current() else { return };
    let (send, done) = std::sync::mpsc::channel();
    runtime.spawn(async move {
        work.await;
        // If nothing waits any more, the result is not needed.
        send.send(()).unwrap_or_default();
    });
    if runtime.runtime_flavor() == RuntimeFlavor::MultiThread {
        done.recv_timeout(within).unwrap_or_default();
    }
}

/// The result of a thread. Its panic continues in the waiting thread.
fn joined<T>(result: Result<T, tokio::task::JoinError>) -> Result<T, ConnectorError> {
    result.map_err(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        // The runtime is shutting down, and with it the waiting task.
        Err(_) => ConnectorError::Stopped,
    })
}
