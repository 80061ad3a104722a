//! Counters of the store.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Inner;

/// Counters since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) events: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) leaf_bytes: AtomicU64,
    pub(crate) waits: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) flushed_bytes: AtomicU64,
    pub(crate) flush_failures: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) anchored: AtomicU64,
    pub(crate) anchor_failures: AtomicU64,
    pub(crate) cosigned: AtomicU64,
    pub(crate) witness_failures: AtomicU64,
}

/// The store's current sizes, and its counters since it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Number of events ever accepted: the size of the tree.
    pub events: u64,
    /// Number of stored events, without pruned ones.
    pub events_kept: u64,
    /// Number of events in memory tables.
    pub events_in_memory: u64,
    /// Size of memory tables in bytes.
    pub memory_bytes: u64,
    /// Number of segments.
    pub segments: u64,
    /// Size of segments in bytes.
    pub segment_bytes: u64,
    /// Size of the log on the device in bytes.
    pub log_bytes: u64,
    /// Events appended since opening.
    pub appended_events: u64,
    /// Batches appended since opening.
    pub appended_batches: u64,
    /// Bytes of leaves appended since opening.
    pub appended_bytes: u64,
    /// Number of appends that waited for a memory table to become a segment.
    pub append_waits: u64,
    /// Number of memory tables that became segments.
    pub flushes: u64,
    /// Bytes of those segments.
    pub flushed_bytes: u64,
    /// Number of failed attempts to write these segments.
    pub flush_failures: u64,
    /// Number of segments written by joining others, or by removing expired events.
    pub compactions: u64,
    /// Checkpoints signed.
    pub checkpoints: u64,
    /// Checkpoints published outside the store.
    pub anchored: u64,
    /// Number of failed attempts to publish one.
    pub anchor_failures: u64,
    /// Cosignatures of witnesses.
    pub cosigned: u64,
    /// Number of failed attempts to have a checkpoint cosigned.
    pub witness_failures: u64,
    /// Write groups of the log.
    pub log_groups: u64,
    /// Syncs of the log.
    pub log_syncs: u64,
    /// Their total time, in nanoseconds.
    pub log_sync_ns: u64,
}

impl Inner {
    pub(crate) fn stats(&self) -> Stats {
        let view = self.view();
        // While the log is not available it does nothing, and its size is unknown.
        let log = self.journal.get().ok().map(|(log, _)| log);
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let in_memory: u64 = view.tables.iter().map(|table| table.len() as u64).sum();
        let rows: u64 = view.segments.iter().map(|stored| stored.entry.rows).sum();
        let segments = log.as_ref().and_then(|log| log.segments().ok()).unwrap_or_default();
        let log_bytes = segments.iter().map(|segment| segment.disk_bytes).sum();
        let log = log.map(|log| log.stats()).unwrap_or_default();
        Stats {
            events: self.visible(),
            events_kept: rows + in_memory,
            events_in_memory: in_memory,
            memory_bytes: view.tables.iter().map(|table| table.size() as u64).sum(),
            segments: view.segments.len() as u64,
            segment_bytes: view.segments.iter().map(|stored| stored.entry.file_size).sum(),
            log_bytes,
            appended_events: load(&self.counters.events),
            appended_batches: load(&self.counters.batches),
            appended_bytes: load(&self.counters.leaf_bytes),
            append_waits: load(&self.counters.waits),
            flushes: load(&self.counters.flushes),
            flushed_bytes: load(&self.counters.flushed_bytes),
            flush_failures: load(&self.counters.flush_failures),
            compactions: load(&self.counters.compactions),
            checkpoints: load(&self.counters.checkpoints),
            anchored: load(&self.counters.anchored),
            anchor_failures: load(&self.counters.anchor_failures),
            cosigned: load(&self.counters.cosigned),
            witness_failures: load(&self.counters.witness_failures),
            log_groups: log.groups,
            log_syncs: log.syncs,
            log_sync_ns: log.sync_ns_total,
        }
    }
}
