//! Options of a store.

use std::time::Duration;

use forebay_base::Durability;

use super::anchor::AnchorPlace;
use super::cosigned::Witness;
use super::retention::Retention;
use crate::segment::{Compression, SegmentOptions};

/// Options of an open store. Only [`merkle`](Self::merkle) is fixed when the store is created.
#[derive(Debug, Clone)]
pub struct Options {
    /// When a batch is acknowledged.
    pub durability: Durability,
    /// Whether a Merkle tree over all events is kept, and checkpoints of it are signed.
    pub merkle: bool,
    /// The name under which checkpoints are signed, when the store creates its key.
    pub origin: String,
    /// How long a commit waits for others to share its sync. Zero: it does not wait.
    pub group_commit_delay: Duration,
    /// Maximum number of events that a command or a reader puts into one batch.
    pub batch_events: usize,
    /// Size in bytes of a file of the log.
    pub log_segment_size: u64,
    /// Maximum number of events in a memory table before it becomes a segment.
    pub memory_table_events: usize,
    /// Maximum size in bytes of a memory table before it becomes a segment.
    pub memory_table_size: usize,
    /// Maximum number of memory tables that wait to become segments; above it, appends wait.
    pub frozen_tables_max: usize,
    /// Options of writing segments.
    pub segment: SegmentOptions,
    /// Maximum number of events in a segment joined by compaction.
    pub segment_events_max: u64,
    /// Maximum age of events in memory before they become a segment, however few they are.
    pub flush_interval: Duration,
    /// Interval between searches for small segments that can be joined.
    pub compaction_interval: Duration,
    /// Retention rules; without rules events are kept forever.
    pub retention: Vec<Retention>,
    /// Maximum size of the segments in bytes; above it the events that arrived first are removed.
    pub retention_size: Option<u64>,
    /// How long a request with a key is remembered, so that it is not stored again.
    pub request_window: Duration,
    /// Interval at which checkpoints are signed while events are appended.
    pub checkpoint_interval: Duration,
    /// Places outside the store in which checkpoints are published.
    pub anchors: Vec<AnchorPlace>,
    /// Minimum time between two published checkpoints, unless publishing failed, and between two
    /// cosigned ones.
    pub anchor_interval: Duration,
    /// Witnesses that cosign checkpoints.
    pub witnesses: Vec<Witness>,
    /// Number of witnesses that must have cosigned a checkpoint before it is kept as cosigned.
    pub witness_quorum: usize,
    /// Size in bytes of the cache of blocks for readers.
    pub block_cache_size: usize,
    /// Whether what is read is compared with the tree, once for each block.
    pub verified_reads: bool,
}

impl Options {
    /// Everything synced, compressed and searchable, at a good throughput: the default.
    #[must_use]
    pub fn balanced() -> Self {
        Self {
            durability: Durability::Sync,
            merkle: true,
            origin: "forebay.local/events".to_owned(),
            group_commit_delay: Duration::ZERO,
            batch_events: 2_000,
            log_segment_size: 64 << 20,
            memory_table_events: 500_000,
            memory_table_size: 64 << 20,
            frozen_tables_max: 2,
            segment: SegmentOptions {
                compression: Compression::Zstd { level: 3 },
                block_size: 32 << 10,
                filter_bits_per_key: 10,
                text_filter: true,
            },
            segment_events_max: 16_000_000,
            flush_interval: Duration::from_secs(60),
            compaction_interval: Duration::from_secs(30),
            retention: Vec::new(),
            retention_size: None,
            request_window: Duration::from_secs(24 * 3_600),
            checkpoint_interval: Duration::from_secs(10),
            anchors: Vec::new(),
            anchor_interval: Duration::from_secs(60),
            witnesses: Vec::new(),
            witness_quorum: 1,
            block_cache_size: 32 << 20,
            verified_reads: true,
        }
    }

    /// Maximum throughput: acknowledged by the kernel, large tables, nothing compressed.
    #[must_use]
    pub fn max_throughput() -> Self {
        Self {
            durability: Durability::Os,
            group_commit_delay: Duration::from_micros(500),
            memory_table_events: 2_000_000,
            memory_table_size: 512 << 20,
            segment: SegmentOptions {
                compression: Compression::None,
                block_size: 32 << 10,
                filter_bits_per_key: 10,
                text_filter: false,
            },
            flush_interval: Duration::from_secs(120),
            compaction_interval: Duration::from_secs(600),
            ..Self::balanced()
        }
    }

    /// One event per commit, each synced; small tables, so that recovery is always short.
    #[must_use]
    pub fn max_durability() -> Self {
        Self {
            batch_events: 1,
            memory_table_events: 100_000,
            memory_table_size: 16 << 20,
            flush_interval: Duration::from_secs(10),
            checkpoint_interval: Duration::from_secs(1),
            ..Self::balanced()
        }
    }

    /// Maximum memory in bytes of the store while it is written to: memory tables, waiting ones and
    /// the current one; the log's buffers; waiting leaf hashes; blocks for readers.
    #[must_use]
    pub fn memory_bound(&self) -> usize {
        // An event needs at least its ids, times and ends besides its leaf; a table ends at
        // whichever limit is reached first, so its size is one.
        let tables = self.memory_table_size.saturating_mul(self.frozen_tables_max + 1);
        let log = 2 * forebay_log::Options::default().buffer_size_max;
        tables
            .saturating_add(log)
            .saturating_add(super::tree::QUEUED_SIZE_MAX)
            .saturating_add(self.block_cache_size)
            .saturating_add(super::checked::MEMORY)
    }

    /// Returns the preset with a name: `balanced`, `max-throughput` or `max-durability`.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        match name {
            "balanced" => Some(Self::balanced()),
            "max-throughput" => Some(Self::max_throughput()),
            "max-durability" => Some(Self::max_durability()),
            _ => None,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::balanced()
    }
}
