//! The channel from a source to a destination, limited by the bytes in it.
//!
//! Invariants:
//! * The batches that were sent and not yet dropped have at most the budget's size, except for a
//!   single batch larger than the whole budget, which is then alone.
//! * Rows are counted as read when the source sends them, however many transforms they pass.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_pgcopy::ContentHash;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::context::{Context, Phase};
use super::packing::{Packed, Packer, Unpacker};
use crate::batch::{Batch, DeadRow, Rows};
use crate::error::ConnectorError;
use crate::platform::Instant;
use crate::settings::Compression;

/// Number of bytes per permit.
const GRAIN: usize = 1 << 10;
/// Maximum number of waiting batches in a channel, however small.
pub const QUEUED_MAX: usize = 64;

/// The memory budget of a run's batches, and how they wait.
#[derive(Debug, Clone)]
pub struct Budget {
    semaphore: Arc<Semaphore>,
    grains: u32,
    queued_max: usize,
    compression: Compression,
}

impl Budget {
    /// Creates a budget of this many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let grains = u32::try_from((bytes / GRAIN).max(1)).unwrap_or(u32::MAX);
        let grains = grains.min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        Self {
            semaphore: Arc::new(Semaphore::new(grains as usize)),
            grains,
            queued_max: QUEUED_MAX,
            compression: Compression::None,
        }
    }

    /// Sets the maximum number of batches that wait between two stages.
    #[must_use]
    pub fn queued(self, batches: usize) -> Self {
        Self { queued_max: batches.clamp(1, QUEUED_MAX), ..self }
    }

    /// Compresses batches while they wait.
    #[must_use]
    pub fn compressed(self, compression: Compression) -> Self {
        Self { compression, ..self }
    }
}

/// A message in the channel.
#[derive(Debug)]
enum Sent {
    Batch(Batch),
    Packed(Packed, Vec<DeadRow>, Option<ContentHash>, OwnedSemaphorePermit),
}

/// The receiving end for batches.
pub struct Inlet {
    batches: mpsc::Receiver<Sent>,
    unpacker: Option<Unpacker>,
}

impl Inlet {
    /// The next batch; `None` at the end.
    ///
    /// # Errors
    /// A compressed batch could not be restored.
    pub async fn recv(&mut self) -> Result<Option<Batch>, ConnectorError> {
        match (self.batches.recv().await, &mut self.unpacker) {
            (None, _) => Ok(None),
            (Some(Sent::Batch(batch)), _) => Ok(Some(batch)),
            (Some(Sent::Packed(packed, dead, hash, share)), Some(unpacker)) => {
                Ok(Some(Batch::sharing(unpacker.unpack(&packed)?, dead, hash, share)))
            }
            (Some(Sent::Packed(..)), None) => Err(ConnectorError::Stopped),
        }
    }
}

/// The sending end for a source's batches.
#[derive(Debug)]
pub struct Outlet {
    batches: mpsc::Sender<Sent>,
    packer: Option<Packer>,
    budget: Budget,
    context: Context,
    /// Whether a transform receives the batches: the time that others wait for it is its own.
    is_below: bool,
    /// Whether the receiver finds the rows of tuples itself.
    checks_later: bool,
}

impl Outlet {
    /// Creates a channel under a budget.
    ///
    /// # Errors
    /// There is no memory for compression.
    pub fn new(budget: Budget, context: Context) -> Result<(Self, Inlet), ConnectorError> {
        let packer = Packer::new(budget.compression)?;
        let unpacker = packer.as_ref().map(Unpacker::of).transpose()?;
        let (batches, receiver) = mpsc::channel(budget.queued_max);
        let outlet =
            Self { batches, packer, budget, context, is_below: false, checks_later: false };
        Ok((outlet, Inlet { batches: receiver, unpacker }))
    }

    /// Creates a channel from the stream below a transform to the transform, with at most `bytes`
    /// in batches.
    pub fn below(bytes: usize, context: Context) -> (Self, Inlet) {
        let budget = Budget::new(bytes);
        let (batches, receiver) = mpsc::channel(budget.queued_max);
        let outlet =
            Self { batches, packer: None, budget, context, is_below: true, checks_later: false };
        (outlet, Inlet { batches: receiver, unpacker: None })
    }

    /// Declares that the receiver checks tuples, counts them and computes their content hash.
    pub fn checked_by_receiver(&mut self) {
        self.checks_later = true;
    }

    /// Whether the receiver checks tuples. A source then need not look at them; their content hash is ignored.
    #[must_use]
    pub fn is_checked_by_receiver(&self) -> bool {
        self.checks_later
    }

    /// The run it belongs to.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Sends rows once there is room for them.
    ///
    /// # Errors
    /// [`ConnectorError::Stopped`] if the receiver has gone.
    pub async fn send(&mut self, rows: Rows) -> Result<(), ConnectorError> {
        self.send_with_dead(rows, Vec::new()).await
    }

    /// Sends rows, and with them dead letters.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub async fn send_with_dead(
        &mut self,
        rows: Rows,
        dead: Vec<DeadRow>,
    ) -> Result<(), ConnectorError> {
        self.count(&rows);
        self.forward(rows, dead).await
    }

    /// Sends rows whose content hash the source knows.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
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

    /// Sends rows that a transform made of others, which were counted when they were read.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub async fn forward(&mut self, rows: Rows, dead: Vec<DeadRow>) -> Result<(), ConnectorError> {
        self.put(rows, dead, None).await
    }

    async fn put(
        &mut self,
        rows: Rows,
        dead: Vec<DeadRow>,
        hash: Option<ContentHash>,
    ) -> Result<(), ConnectorError> {
        let begun = Instant::now();
        let packed = self.packer.as_mut().map(|packer| packer.pack(&rows)).transpose()?;
        if packed.is_some() {
            self.context.phases.add(Phase::Encode, begun);
        }
        let begun = Instant::now();
        let own = packed.as_ref().map_or_else(|| rows.size(), Packed::len);
        let size = dead.iter().fold(own, |size, row| size.saturating_add(row.size()));
        let grains = u32::try_from(size.div_ceil(GRAIN)).unwrap_or(u32::MAX);
        let grains = grains.min(self.budget.grains);
        let share = Arc::clone(&self.budget.semaphore).acquire_many_owned(grains).await;
        let share = share.map_err(|_| ConnectorError::Stopped)?;
        let sent = match packed {
            Some(packed) => Sent::Packed(packed, dead, hash, share),
            None => Sent::Batch(Batch::sharing(rows, dead, hash, share)),
        };
        let sent = self.batches.send(sent).await;
        if !self.is_below {
            self.context.phases.add(Phase::Wait, begun);
        }
        sent.map_err(|_| ConnectorError::Stopped)
    }
}
