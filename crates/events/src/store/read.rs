//! Reading: by id, by position, and in order of time.

use std::sync::Arc;
use std::time::Duration;

use quick_cache::sync::Cache;

use super::error::ReadError;
use super::view::{Stored, View};
use super::{Inner, Store};
use crate::event::{Event, EventId};
use crate::format::leaf;
use crate::segment::Block;

/// A stored event: its position and its canonical bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    seq: u64,
    leaf: Vec<u8>,
}

impl Record {
    /// Returns a record of checked bytes; `None` if they are not an event.
    pub(crate) fn new(seq: u64, leaf: Vec<u8>) -> Option<Self> {
        leaf::decode(&leaf).is_ok().then_some(Self { seq, leaf })
    }

    /// Its position in the sequence of all events: its index in the tree.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The bytes over which its leaf hash is computed.
    #[must_use]
    pub fn leaf(&self) -> &[u8] {
        &self.leaf
    }

    /// Decodes the event.
    ///
    /// # Panics
    /// Never: the bytes were checked when the record was created.
    #[must_use]
    pub fn event(&self) -> Event<'_> {
        match leaf::decode(&self.leaf) {
            Ok(event) => event,
            Err(error) => unreachable!("a record's bytes are checked: {error}"),
        }
    }
}

/// The key of a block in the cache.
type BlockKey = (u64, u32);

/// Weighs a block by its memory in bytes.
#[derive(Debug, Clone)]
struct ByBytes;

impl quick_cache::Weighter<BlockKey, Arc<Block>> for ByBytes {
    fn weight(&self, _key: &BlockKey, block: &Arc<Block>) -> u64 {
        block.size() as u64
    }
}

/// Cache of recently read blocks.
#[derive(Debug)]
pub(crate) struct Blocks {
    cache: Cache<BlockKey, Arc<Block>, ByBytes>,
}

impl Blocks {
    /// A cache of at most `size` bytes, for blocks of about `block_size`.
    pub(crate) fn new(size: usize, block_size: usize) -> Self {
        let count = size / block_size.max(1);
        Self { cache: Cache::with_weighter(count.max(1), size as u64, ByBytes) }
    }

    /// A block of a segment from the cache, or as `read` returns it.
    fn get(
        &self,
        stored: &Stored,
        number: u32,
        read: impl FnOnce() -> Result<Arc<Block>, ReadError>,
    ) -> Result<Arc<Block>, ReadError> {
        let key = (stored.entry.number, number);
        if let Some(block) = self.cache.get(&key) {
            return Ok(block);
        }
        let block = read()?;
        self.cache.insert(key, Arc::clone(&block));
        Ok(block)
    }
}

impl Inner {
    /// Returns the first event that was accepted under an id, of one stream or of all.
    pub(crate) fn find(
        &self,
        id: EventId,
        stream: Option<&str>,
    ) -> Result<Option<Record>, ReadError> {
        let visible = self.visible();
        let view = self.view();
        let is_of = |tags: &[u8]| {
            // Tags that cannot be read are reported by the record that they belong to.
            stream.is_none_or(|stream| leaf::tags(tags).is_ok_and(|tags| tags.stream == stream))
        };
        for stored in &view.segments {
            let mut found: Option<Record> = None;
            for number in stored.segment.find_id(id).map_err(ReadError::Segment)? {
                let block = self.block(&view, stored, number)?;
                for row in block.rows_of(id) {
                    let first = found.as_ref().is_none_or(|found| block.seq(row) < found.seq);
                    if first && is_of(block.tags(row)) {
                        found = Some(self.record_of(stored, &block, row)?);
                    }
                }
            }
            if found.is_some() {
                return Ok(found);
            }
        }
        let mut wanted = |leaf: &[u8]| leaf::split(leaf).is_ok_and(|parts| is_of(parts.tags));
        for table in &view.tables {
            if let Some((run, index)) = table.find(id, visible, &mut wanted) {
                return self.logged(run.first_seq + index as u64, run.leaf(index));
            }
        }
        Ok(None)
    }

    /// A block of a segment, from the cache or the disk; its events are those of the tree.
    ///
    /// * `view`: the one that has the segment.
    pub(crate) fn block(
        &self,
        view: &View,
        stored: &Stored,
        number: u32,
    ) -> Result<Arc<Block>, ReadError> {
        self.blocks.get(stored, number, || self.read_checked(view, stored, number))
    }

    /// An event in memory as a record.
    fn logged(&self, seq: u64, leaf: &[u8]) -> Result<Option<Record>, ReadError> {
        let Some(record) = Record::new(seq, leaf.to_vec()) else { return Ok(None) };
        self.check_position(seq, record.event().tags.stream)?;
        Ok(Some(record))
    }

    /// A row of a block as a record.
    pub(crate) fn record_of(
        &self,
        stored: &Stored,
        block: &Block,
        row: usize,
    ) -> Result<Record, ReadError> {
        let mut leaf = Vec::new();
        block.leaf(row, &mut leaf);
        Record::new(block.seq(row), leaf)
            .ok_or_else(|| ReadError::Segment(stored.segment.no_event(block.seq(row))))
    }

    /// Returns the event at a position; `None` if it was pruned, or does not exist yet.
    pub(crate) fn at(&self, view: &View, seq: u64) -> Result<Option<Record>, ReadError> {
        if let Some(stored) = view.segment_at(seq) {
            for number in stored.segment.blocks_of_seq(seq..seq + 1) {
                let block = self.block(view, stored, number)?;
                if let Some(row) = (0..block.len()).find(|&row| block.seq(row) == seq) {
                    return self.record_of(stored, &block, row).map(Some);
                }
            }
            return Ok(None);
        }
        let found = view.table_at(seq).and_then(|table| table.at(seq));
        found.map_or(Ok(None), |(run, index)| self.logged(seq, run.leaf(index)))
    }
}

impl Store {
    /// Returns the event with an id: the first that was accepted under it.
    ///
    /// # Errors
    /// [`ReadError::Segment`]: it may be in a segment that is damaged. [`ReadError::Changed`]: it
    /// may be among events that are not those that were signed.
    pub fn get(&self, id: EventId) -> Result<Option<Record>, ReadError> {
        self.inner.find(id, None)
    }

    /// Returns the first event of a stream that was accepted under an id.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_in(&self, stream: &str, id: EventId) -> Result<Option<Record>, ReadError> {
        self.inner.find(id, Some(stream))
    }

    /// Returns the event at a position; `None` if it was pruned, or does not exist yet.
    ///
    /// # Errors
    /// [`ReadError::Segment`]: it is in a segment that is damaged. [`ReadError::Changed`]: it is
    /// among events that are not those that were signed.
    pub fn at(&self, seq: u64) -> Result<Option<Record>, ReadError> {
        if seq >= self.inner.visible() {
            return Ok(None);
        }
        self.inner.at(&self.inner.view(), seq)
    }

    /// Number of accepted events: the next position.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.inner.visible()
    }

    /// Whether no event was ever accepted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until the event at `seq` is visible, the store is closed, or `timeout` has passed, and
    /// returns the number of visible events.
    pub fn wait_for(&self, seq: u64, timeout: Duration) -> u64 {
        let seen = self.inner.shown.count();
        if self.len() <= seq {
            self.inner.shown.wait(seen, timeout);
        }
        self.len()
    }
}
