//! The view of readers: segments, then memory tables, in order of sequence.
//!
//! A view never changes; the store replaces it. A reader holds the view it began with, whose
//! segments stay readable even after compaction has removed their names.

use std::sync::Arc;

use super::manifest::SegmentEntry;
use crate::memory::Table;
use crate::segment::Segment;

/// A segment and its entry in the manifest.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) entry: SegmentEntry,
    pub(crate) segment: Segment,
}

/// The store at one moment.
#[derive(Debug)]
pub(crate) struct View {
    /// In order of sequence, without gaps, from position 0.
    pub(crate) segments: Vec<Arc<Stored>>,
    /// Tables that wait to become segments, then the current one.
    pub(crate) tables: Vec<Arc<Table>>,
}

impl View {
    /// The segment that covers a position.
    pub(crate) fn segment_at(&self, seq: u64) -> Option<&Arc<Stored>> {
        let after = self.segments.partition_point(|stored| stored.entry.first_seq <= seq);
        let stored = self.segments.get(after.checked_sub(1)?)?;
        (seq < stored.entry.end_seq).then_some(stored)
    }

    /// The memory table that covers a position.
    pub(crate) fn table_at(&self, seq: u64) -> Option<&Arc<Table>> {
        let after = self.tables.partition_point(|table| table.first_seq <= seq);
        self.tables.get(after.checked_sub(1)?)
    }
}
