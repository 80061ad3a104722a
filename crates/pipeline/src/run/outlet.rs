//! The way from a source to a destination: a channel that is bounded by the bytes in it.
//!
//! Invariants:
//! * The batches that were sent and not yet dropped have at most the budget's bytes, but for a single
//!   batch that is larger than the whole budget, which then is alone.
//! * Rows are counted as read where the source sends them, however many transforms they go through.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use forebay_pgcopy::ContentHash;
use tokio::sync::{Semaphore, mpsc};

use super::context::{Context, Phase};
use crate::batch::{Batch, DeadRow, Rows};
use crate::error::ConnectorError;

/// Bytes of one permit.
const GRAIN: usize = 1 << 10;
/// Batches that wait in a channel at most, however small.
const QUEUED_MAX: usize = 64;

/// Memory that the batches of a run may take together.
#[derive(Debug, Clone)]
pub struct Budget {
    semaphore: Arc<Semaphore>,
    grains: u32,
}

impl Budget {
    /// A budget of so many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let grains = u32::try_from((bytes / GRAIN).max(1)).unwrap_or(u32::MAX);
        let grains = grains.min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        Self { semaphore: Arc::new(Semaphore::new(grains as usize)), grains }
    }
}

/// Where a source puts its batches.
#[derive(Debug)]
pub struct Outlet {
    batches: mpsc::Sender<Batch>,
    budget: Budget,
    context: Context,
    /// Whether a transform takes the batches: the time that it makes others wait is its own.
    is_below: bool,
}

impl Outlet {
    /// A way for batches under a budget.
    #[must_use]
    pub fn new(budget: Budget, context: Context) -> (Self, mpsc::Receiver<Batch>) {
        let (batches, receiver) = mpsc::channel(QUEUED_MAX);
        (Self { batches, budget, context, is_below: false }, receiver)
    }

    /// A way from the stream below a transform to the transform, of no more than `bytes` in batches.
    pub(crate) fn below(bytes: usize, context: Context) -> (Self, mpsc::Receiver<Batch>) {
        let (batches, receiver) = mpsc::channel(QUEUED_MAX);
        (Self { batches, budget: Budget::new(bytes), context, is_below: true }, receiver)
    }

    /// The run it belongs to.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Sends rows on, once there is room for them.
    ///
    /// # Errors
    /// [`ConnectorError::Stopped`] when nobody takes them any more.
    pub async fn send(&mut self, rows: Rows) -> Result<(), ConnectorError> {
        self.send_with_dead(rows, Vec::new()).await
    }

    /// Sends rows on, and with them those that were put aside.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_with_dead(
        &mut self,
        rows: Rows,
        dead: Vec<DeadRow>,
    ) -> Result<(), ConnectorError> {
        self.count(&rows);
        self.forward(rows, dead).await
    }

    /// Sends rows on of which the source knows the content hash.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_hashed(
        &mut self,
        rows: Rows,
        hash: ContentHash,
    ) -> Result<(), ConnectorError> {
        self.count(&rows);
        self.put(rows, Vec::new(), Some(hash)).await
    }

    /// Counts rows that were read.
    fn count(&self, rows: &Rows) {
        self.context.moved.rows_read.fetch_add(rows.count(), Ordering::Relaxed);
        self.context.moved.bytes_read.fetch_add(rows.size() as u64, Ordering::Relaxed);
    }

    /// Sends on rows that a transform made of others, which were counted when they were read.
    pub(crate) async fn forward(
        &mut self,
        rows: Rows,
        dead: Vec<DeadRow>,
    ) -> Result<(), ConnectorError> {
        self.put(rows, dead, None).await
    }

    async fn put(
        &mut self,
        rows: Rows,
        dead: Vec<DeadRow>,
        hash: Option<ContentHash>,
    ) -> Result<(), ConnectorError> {
        let begun = Instant::now();
        let size = dead.iter().fold(rows.size(), |size, row| size.saturating_add(row.size()));
        let grains = u32::try_from(size.div_ceil(GRAIN)).unwrap_or(u32::MAX);
        let grains = grains.min(self.budget.grains);
        let share = Arc::clone(&self.budget.semaphore).acquire_many_owned(grains).await;
        let share = share.map_err(|_| ConnectorError::Stopped)?;
        let sent = self.batches.send(Batch::sharing(rows, dead, hash, share)).await;
        if !self.is_below {
            self.context.phases.add(Phase::Wait, begun);
        }
        sent.map_err(|_| ConnectorError::Stopped)
    }
}
