//! Where events come from: logs that are read on from a position.
//!
//! Hooks that have read everything ask for the same batch at the same time, so the last ones are kept and shared.
//!
//! Invariants: a batch is what the log has, without gaps, whichever hook asks; at most [`KEPT`] are kept.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::event::{Item, Point};

/// Batches that are kept for other hooks.
const KEPT: usize = 8;

/// Why a source cannot be read. It is tried again.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the log of {name}")]
pub struct SourceError {
    /// The source.
    pub name: &'static str,
    /// The cause.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// What was read of a source.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The position from which it was read.
    pub from: u64,
    /// The position to continue from; `from` if there is nothing more.
    pub reached: u64,
    /// What happened there, in order.
    pub items: Vec<Item>,
}

/// A log whose entries are events.
pub trait Source: Send + Sync + 'static {
    /// Its name in positions and messages. Never changes.
    fn name(&self) -> &'static str;

    /// Identity of the log: a position is one of this log only.
    fn log_id(&self) -> [u8; 16];

    /// The position up to which it can be read now. What is before is never taken back.
    fn end(&self) -> u64;

    /// Completes when it can be read beyond a position.
    fn passed(&self, position: u64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Reads on from a position, a few megabytes at most. Blocks. What the log does not have any more is
    /// [`Item::Lost`]; so is a position that is none of the log, after which reading continues at its end.
    ///
    /// # Errors
    /// [`SourceError`].
    fn read(&self, from: u64) -> Result<Batch, SourceError>;
}

/// A source with the batches that were read last.
pub(crate) struct SharedSource {
    source: Arc<dyn Source>,
    kept: Mutex<VecDeque<Arc<Batch>>>,
}

impl SharedSource {
    pub(crate) fn new(source: Arc<dyn Source>) -> Self {
        Self { source, kept: Mutex::new(VecDeque::new()) }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.source.name()
    }

    pub(crate) fn log_id(&self) -> [u8; 16] {
        self.source.log_id()
    }

    pub(crate) fn end(&self) -> u64 {
        self.source.end()
    }

    pub(crate) async fn passed(&self, position: u64) {
        self.source.passed(position).await;
    }

    /// Reads on from a point: a batch that has items from there on. Blocks.
    pub(crate) fn read(&self, from: Point) -> Result<Arc<Batch>, SourceError> {
        let has =
            |batch: &&Arc<Batch>| batch.from <= from.position && from.position < batch.reached;
        if let Some(batch) = self.kept.lock().iter().find(has) {
            return Ok(Arc::clone(batch));
        }
        // Not under the lock: a hook far behind must not hold up those that have read everything.
        let batch = Arc::new(self.source.read(from.position)?);
        if batch.reached > batch.from {
            let mut kept = self.kept.lock();
            if kept.len() >= KEPT {
                kept.pop_front();
            }
            kept.push_back(Arc::clone(&batch));
        }
        Ok(batch)
    }
}
