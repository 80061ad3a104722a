//! From readers that block to the outlet of a unit.
//!
//! Files and SQLite are read by threads that may wait. What they read goes through a channel of one
//! batch, so that no more than the batch that is made, the one that waits and the one that is sent are
//! outside of the run's budget. When nobody takes the rows any more, the reader is told with its next
//! batch.

use std::time::Instant;

use arrow::array::RecordBatch;
use tokio::sync::mpsc;

use crate::batch::Rows;
use crate::error::ConnectorError;
use crate::run::{Outlet, Phase};

/// Takes the batches of a reader that blocks; an error tells it to stop.
pub(crate) type Give<'a> = dyn FnMut(RecordBatch) -> Result<(), ConnectorError> + 'a;

/// Runs `read` on a thread that may wait, and sends on what it gives.
pub(crate) async fn pump<F>(out: &mut Outlet, read: F) -> Result<(), ConnectorError>
where
    F: FnOnce(&mut Give<'_>) -> Result<(), ConnectorError> + Send + 'static,
{
    let (send, mut batches) = mpsc::channel(1);
    let reader = tokio::task::spawn_blocking(move || {
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

/// Runs what may wait for a disk on a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ConnectorError> + Send + 'static,
) -> Result<T, ConnectorError> {
    joined(tokio::task::spawn_blocking(work).await)?
}

/// What a thread gave; its panic goes on in the one that waits for it.
fn joined<T>(result: Result<T, tokio::task::JoinError>) -> Result<T, ConnectorError> {
    result.map_err(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        // The runtime is going away, and with it whoever waits.
        Err(_) => ConnectorError::Stopped,
    })
}
