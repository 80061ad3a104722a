//! Keeping the data: the command log, snapshots, and coming back from both.
//!
//! The log is the truth: what a command changed is appended to it as operations on single keys
//! ([`Ops`]) while the locks of those keys are held, and acknowledged when the log says so
//! ([`Journal`]). A snapshot is a view of it, taken range by range of the keys' hashes without
//! stopping anybody ([`snapshot()`]); it makes recovery ([`open`]) short and lets the log be trimmed.
//!
//! Invariants:
//! - Operations are in the log in the order in which they changed their key.
//! - Every range of a snapshot holds what its keys were at a known position of the log. Recovery
//!   applies to it the operations from that position on, and no other.
//! - No snapshot bears its final name before the log is on stable storage up to every position it
//!   was taken at: it never knows of more than the log.
//! - The log is trimmed only below the snapshot before the newest, so either of the two will do.
//!
//! `docs/formats/cache-log.md` and `docs/formats/cache-snapshot.md` describe every byte.

mod check;
mod directory;
mod error;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
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
pub use journal::Journal;
pub use ops::{Decoded, FLUSH, Ops, OpsFault, Words};
pub use recover::{Opened, Phase, Progress, Recovered, Restore, open};
pub use snapshot::format::SnapshotFault;
pub use snapshot::{SnapshotInfo, SnapshotProgress, SnapshotReport, snapshot};

/// How the data is kept. Nothing here is stored: every opening may choose anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistOptions {
    /// When a change is acknowledged; `interval:50ms` by default.
    pub durability: Durability,
    /// Bytes of a segment file of the log, 64 MiB by default: the grain in which it is trimmed.
    pub segment_size: u64,
    /// Most bytes in one entry of the log, 16 MiB by default. Larger operations are split.
    pub entry_size_max: u32,
    /// Most bytes appended to the log and not yet written, 8 MiB by default.
    pub buffer_size_max: usize,
    /// Least bytes of log between snapshots taken of themselves, 64 MiB by default.
    pub snapshot_log_min: u64,
    /// Bytes a snapshot copies under one lock, 256 KiB by default.
    pub piece_size: usize,
    /// Bytes of memory from which on a snapshot copies a value in pieces, 1 MiB by default.
    pub large_size: usize,
    /// The seed of the keys' hash where there is no snapshot yet; drawn by default.
    pub seed: Option<u64>,
}

impl AsRef<Self> for Keyspace {
    fn as_ref(&self) -> &Self {
        self
    }
}
