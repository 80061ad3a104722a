//! Counters since the log was opened: plain atomics, read without blocking.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters since the log was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Entries appended.
    pub appended_entries: u64,
    /// Payload bytes appended.
    pub appended_bytes: u64,
    /// Groups written: batches of entries that shared one write.
    pub groups: u64,
    /// Bytes written to segments, headers and padding included.
    pub written_bytes: u64,
    /// Syncs of segment data.
    pub syncs: u64,
    /// Nanoseconds spent in those syncs.
    pub sync_ns_total: u64,
    /// Segments started because the previous one was full.
    pub rotations: u64,
    /// Times an append found the buffer full.
    pub full: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) appended_entries: AtomicU64,
    pub(crate) appended_bytes: AtomicU64,
    pub(crate) groups: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) sync_ns_total: AtomicU64,
    pub(crate) rotations: AtomicU64,
    pub(crate) full: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}

impl Counters {
    pub(crate) fn read(&self) -> Stats {
        Stats {
            appended_entries: self.appended_entries.load(Relaxed),
            appended_bytes: self.appended_bytes.load(Relaxed),
            groups: self.groups.load(Relaxed),
            written_bytes: self.written_bytes.load(Relaxed),
            syncs: self.syncs.load(Relaxed),
            sync_ns_total: self.sync_ns_total.load(Relaxed),
            rotations: self.rotations.load(Relaxed),
            full: self.full.load(Relaxed),
        }
    }
}
