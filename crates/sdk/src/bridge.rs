//! From blocking readers to the outlet of a unit.
//!
//! Files and SQLite are read by threads that may block. What they read passes through a channel of
//! one batch, so that only the batch being built, the waiting one and the one being sent are
//! outside the run's budget. When the consumer has gone, the reader gets an error with its next
//! batch.

use std::time::Instant;

use arrow::array::RecordBatch;
use tokio::sync::mpsc;

use crate::batch::Rows;
use crate::error::ConnectorError;
use crate::run::{Outlet, Phase};

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

/// The result of a thread. Its panic continues in the waiting thread.
fn joined<T>(result: Result<T, tokio::task::JoinError>) -> Result<T, ConnectorError> {
    result.map_err(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        // The runtime is shutting down, and with it the waiting task.
        Err(_) => ConnectorError::Stopped,
    })
}
