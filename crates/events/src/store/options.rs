//! What whoever opens a store decides.

use std::time::Duration;

use forebay_base::Durability;

use super::compact::Retention;
use crate::segment::{Compression, SegmentOptions};

/// How a store is opened. Of these only [`merkle`](Self::merkle) is fixed when it is made.
#[derive(Debug, Clone)]
pub struct Options {
    /// When a batch is acknowledged.
    pub durability: Durability,
    /// Whether a Merkle tree is kept over all events, and checkpoints of it signed.
    pub merkle: bool,
    /// The name checkpoints are signed under, when the store makes its key.
    pub origin: String,
    /// How long a commit waits for others to share its sync. Zero: not at all.
    pub group_commit_delay: Duration,
    /// Events a command or a reader puts into one batch.
    pub batch_events: usize,
    /// Bytes of one file of the log.
    pub log_segment_size: u64,
    /// Events a memory table holds before it becomes a segment.
    pub memory_table_events: usize,
    /// Bytes a memory table takes before it becomes a segment.
    pub memory_table_size: usize,
    /// Memory tables that may wait to become segments; at more, appending waits.
    pub frozen_tables_max: usize,
    /// How segments are written.
    pub segment: SegmentOptions,
    /// Events compaction joins to one segment at most.
    pub segment_events_max: u64,
    /// How old events get in memory before they become a segment, however few they are.
    pub flush_interval: Duration,
    /// How often small segments are looked for, to be joined.
    pub compaction_interval: Duration,
    /// How long events are kept; without rules, for ever.
    pub retention: Vec<Retention>,
    /// How often a checkpoint is signed while events come.
    pub checkpoint_interval: Duration,
    /// Bytes of blocks kept for readers.
    pub block_cache_size: usize,
}

impl Options {
    /// Everything synced, compressed and searchable, at a good rate: the default.
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
            checkpoint_interval: Duration::from_secs(10),
            block_cache_size: 32 << 20,
        }
    }

    /// The most events a second: acknowledged by the kernel, large tables, nothing compressed.
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

    /// One event a commit, each synced; small tables, so that little is ever to be recovered.
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

    /// Bytes the store takes at most while it is written to, by these options: memory tables, those that
    /// wait and the one that is filled; the log's buffers; leaf hashes that wait; blocks for readers.
    #[must_use]
    pub fn memory_bound(&self) -> usize {
        // An event takes at least its ids, times and ends beside its leaf; a table ends at whichever
        // bound is met first, so its size is one.
        let tables = self.memory_table_size.saturating_mul(self.frozen_tables_max + 1);
        let log = 2 * forebay_log::Options::default().buffer_size_max;
        tables
            .saturating_add(log)
            .saturating_add(super::tree::QUEUED_SIZE_MAX)
            .saturating_add(self.block_cache_size)
    }

    /// The preset of a name: `balanced`, `max-throughput` or `max-durability`.
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
