//! Persistence: the command log, snapshots, and recovery from both.
//!
//! The log is authoritative: the changes of a command are appended to it as operations on single
//! keys ([`Ops`]) while the locks of those keys are held, and acknowledged when the log allows it
//! ([`Journal`]). A snapshot is a view of the log, taken range by range of the keys' hashes without
//! blocking commands ([`snapshot()`]); it shortens recovery ([`open`]) and lets the log be trimmed.
//!
//! Invariants:
//! - Operations are in the log in the order in which they changed their key.
//! - Every range of a snapshot holds its keys as of a known position of the log. Recovery applies
//!   to it the operations from that position on, and no others.
//! - A snapshot gets its final name only after the log is on stable storage up to every position at
//!   which a range was taken: a snapshot is never ahead of the log.
//! - The log is trimmed only below the second newest snapshot, so recovery can use either of the
//!   two.
//!
//! `docs/formats/cache-log.md` and `docs/formats/cache-snapshot.md` describe every byte.

mod check;
mod directory;
mod error;
mod format;
mod front;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod image;
mod join;
mod journal;
mod ops;
mod ranges;
mod recover;
mod snapshot;

use forebay_base::Durability;

use crate::store::Keyspace;

pub use check::{Checked, Judge, check};
pub use error::{
    Disk, JournalError, LogFault, OpenError, SnapshotDamage, SnapshotError, SnapshotReadError,
};
pub use format::EntryFault;
pub use image::CacheImageError;
pub use journal::Journal;
pub(crate) use journal::Touched;
pub use ops::{Decoded, FLUSH, Ops, OpsFault, Words};
pub use recover::{Opened, Phase, Progress, Recovered, Restore, open};
pub use snapshot::format::SnapshotFault;
pub use snapshot::{SnapshotInfo, SnapshotProgress, SnapshotReport, snapshot};

/// Options of persistence. None of them is stored: each opening may use others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistOptions {
    /// When a change is acknowledged. Default: `interval:50ms`.
    pub durability: Durability,
    /// Size in bytes of a segment file of the log, the unit in which it is trimmed. Default: 64
    /// MiB.
    pub segment_size: u64,
    /// Maximum size in bytes of a log entry. Larger operations are split. Default: 16 MiB.
    pub entry_size_max: u32,
    /// Maximum size in bytes of appended data that is not yet written. Default: 8 MiB.
    pub buffer_size_max: usize,
    /// Minimum size in bytes of the log between automatic snapshots. Default: 64 MiB.
    pub snapshot_log_min: u64,
    /// Size in bytes of what a snapshot copies under one lock. Default: 256 KiB.
    pub piece_size: usize,
    /// Size in bytes from which a snapshot copies a value in pieces. Default: 1 MiB.
    pub large_size: usize,
    /// Seed of the keys' hash if there is no snapshot yet. Default: random.
    pub seed: Option<u64>,
}

impl AsRef<Self> for Keyspace {
    fn as_ref(&self) -> &Self {
        self
    }
}
