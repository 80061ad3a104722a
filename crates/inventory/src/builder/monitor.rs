//! Progress and cancellation of a build; shared with the code that shows it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use super::BuildError;

/// The phase of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Reading the source.
    Reading,
    /// Merging what was read and writing the index.
    Merging,
    /// Writing the table and waiting for the disk.
    Finishing,
}

/// Progress of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Its phase.
    pub stage: Stage,
    /// Rows read.
    pub rows: u64,
    /// Bytes of the source read, as far as its readers report it.
    pub bytes: u64,
    /// Size of the source in bytes, if known.
    pub bytes_total: Option<u64>,
    /// Rows merged.
    pub merged: u64,
}

/// Counts the progress of a build, and can stop it.
#[derive(Debug, Default)]
pub struct Monitor {
    stage: AtomicU8,
    rows: AtomicU64,
    bytes: AtomicU64,
    bytes_total: AtomicU64,
    merged: AtomicU64,
    cancelled: AtomicBool,
}

impl Monitor {
    /// The current progress.
    pub fn progress(&self) -> Progress {
        let stage = match self.stage.load(Ordering::Relaxed) {
            0 => Stage::Reading,
            1 => Stage::Merging,
            _ => Stage::Finishing,
        };
        let bytes_total = self.bytes_total.load(Ordering::Relaxed);
        Progress {
            stage,
            rows: self.rows.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            bytes_total: (bytes_total > 0).then_some(bytes_total),
            merged: self.merged.load(Ordering::Relaxed),
        }
    }

    /// Stops the build at the next opportunity. It fails with [`BuildError::Cancelled`] and leaves
    /// nothing.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether it was stopped.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    pub(crate) fn check(&self) -> Result<(), BuildError> {
        if self.is_cancelled() { Err(BuildError::Cancelled) } else { Ok(()) }
    }

    /// Starts the reading, perhaps again.
    pub(crate) fn begin(&self, bytes_total: u64) {
        self.stage.store(0, Ordering::Relaxed);
        for counter in [&self.rows, &self.bytes, &self.merged] {
            counter.store(0, Ordering::Relaxed);
        }
        self.bytes_total.store(bytes_total, Ordering::Relaxed);
    }

    pub(crate) fn stage(&self, stage: Stage) {
        let number = match stage {
            Stage::Reading => 0,
            Stage::Merging => 1,
            Stage::Finishing => 2,
        };
        self.stage.store(number, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }

    pub(crate) fn read_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn merged(&self, rows: u64) {
        self.merged.fetch_add(rows, Ordering::Relaxed);
    }
}
