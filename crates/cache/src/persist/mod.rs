//! Keeping the data: the command log, snapshots, and coming back from both.
//!
//! The log is the truth: what a command changed is appended to it as operations on single keys
//! ([`Ops`]) while the locks of those keys are held, and acknowledged when the log says so
//! ([`Journal`]). A snapshot is a view of it, taken range by range of the keys' hashes without
//! stopping anybody; it makes recovery short and lets the log be trimmed.
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

mod error;
mod format;
mod journal;
mod ops;

pub use error::JournalError;
pub use format::EntryFault;
pub use journal::Journal;
pub use ops::{FLUSH, Decoded, Ops, OpsFault, Words};
