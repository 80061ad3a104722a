//! A batch: events in their canonical bytes, ready to be appended as one.
//!
//! The caller's thread does all work that does not depend on an event's position: encoding, and
//! hashing if the store keeps proofs.

use crate::event::{Draft, EventId, IdSequence, TimeSource};
use crate::format::leaf::{self, LeafError};
use crate::format::system::{SYSTEM_STREAM, is_reserved};

/// Maximum size of a batch, in bytes of leaves.
pub const BATCH_SIZE_MAX: usize = 8 * 1024 * 1024;
/// Maximum number of events in a batch.
pub const BATCH_EVENTS_MAX: usize = 65_000;

/// Events that are stored together, or not at all.
#[derive(Debug, Clone)]
pub struct Batch {
    pub(crate) bytes: Vec<u8>,
    /// Where each leaf ends in `bytes`.
    pub(crate) ends: Vec<u32>,
    pub(crate) ids: Vec<EventId>,
    pub(crate) timestamps_ns: Vec<i64>,
    stream: String,
    /// Whether it has entries of the store itself.
    system: bool,
    sequence: Option<IdSequence>,
}

/// Why a draft was not added to a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The draft itself is not valid.
    #[error("the event cannot be stored")]
    Event(#[source] LeafError),
    /// The batch is full: append it, and put the draft into the next one.
    #[error("the batch is full")]
    Full,
}

impl Batch {
    /// Returns an empty batch; drafts without a stream belong to `stream`.
    #[must_use]
    pub fn new(stream: &str) -> Self {
        Self {
            bytes: Vec::new(),
            ends: Vec::new(),
            ids: Vec::new(),
            timestamps_ns: Vec::new(),
            stream: stream.to_owned(),
            system: false,
            sequence: None,
        }
    }

    /// Returns an empty batch for entries of the store itself.
    pub(crate) fn system() -> Self {
        Self { system: true, ..Self::new(SYSTEM_STREAM) }
    }

    /// Whether it has entries of the store itself.
    pub(crate) fn is_system(&self) -> bool {
        self.system
    }

    /// Returns an empty batch with room for `count` events of `size` bytes in total.
    #[must_use]
    pub fn with_capacity(stream: &str, count: usize, size: usize) -> Self {
        let count = count.min(BATCH_EVENTS_MAX);
        let mut batch = Self::new(stream);
        batch.bytes.reserve(size.min(BATCH_SIZE_MAX));
        batch.ends.reserve(count);
        batch.ids.reserve(count);
        batch.timestamps_ns.reserve(count);
        batch
    }

    /// Adds an event and returns its id; on an error the batch is unchanged.
    ///
    /// * `now_ns`: the time of a draft without one, and the start of generated ids.
    ///
    /// # Errors
    /// [`BatchError::Full`]: the batch is full. [`BatchError::Event`]: the event can never be
    /// stored.
    pub fn push(&mut self, draft: &Draft<'_>, now_ns: i64) -> Result<EventId, BatchError> {
        if self.ends.len() >= BATCH_EVENTS_MAX {
            return Err(BatchError::Full);
        }
        let stream = if draft.stream.is_empty() { &self.stream } else { draft.stream.as_ref() };
        if is_reserved(stream) && !self.system {
            return Err(BatchError::Event(LeafError::ReservedStream));
        }
        let sequence = &mut self.sequence;
        let id = draft.id.unwrap_or_else(|| {
            let now_ms = u64::try_from(now_ns / 1_000_000).unwrap_or(0);
            sequence.get_or_insert_with(|| IdSequence::new(now_ms)).next_id()
        });
        let timestamp_ns = draft.timestamp_ns.unwrap_or(now_ns);
        let start = self.bytes.len();
        let source = match draft.timestamp_ns {
            None if !self.system => TimeSource::Received,
            _ => draft.time_source,
        };
        leaf::encode_as(draft, id, timestamp_ns, source, &self.stream, &mut self.bytes)
            .map_err(BatchError::Event)?;
        let end = self.bytes.len();
        if end > BATCH_SIZE_MAX && start > 0 {
            self.bytes.truncate(start);
            return Err(BatchError::Full);
        }
        self.ends.push(u32::try_from(end).map_err(|_| BatchError::Full)?);
        self.ids.push(id);
        self.timestamps_ns.push(timestamp_ns);
        Ok(id)
    }

    /// Number of events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of its leaves.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The ids, in order.
    #[must_use]
    pub fn ids(&self) -> &[EventId] {
        &self.ids
    }

    /// Each leaf, in order.
    pub fn leaves(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.ends.len()).map(|index| self.leaf(index))
    }

    /// One leaf. Panics past the end, as a slice does.
    pub(crate) fn leaf(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.bytes[start..self.ends[index] as usize]
    }
}
