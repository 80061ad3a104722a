//! A segmented append-only log with group commit and torn-write recovery, the authoritative record
//! of every write.
//!
//! Entries are opaque bytes. They are appended to a buffer, which is written and synced for all
//! waiting callers at once; acknowledged entries are found again, whole and in order, after any
//! crash. `docs/formats/log.md` describes every byte.
//!
//! Invariants:
//! - Positions ([`Lsn`]) grow, and no acknowledged one is ever used again.
//! - An acknowledged entry survives a crash to the extent its [`Durability`] promises; an entry is
//!   either complete or absent, and present only with all entries before it.
//! - Recovery cuts a torn tail and nothing else: damage to what was synced is reported, never
//!   skipped.
//! - After a failed write or sync the log accepts no entries until it is opened again.
//!
//! Memory limits: the buffer and the one being written ([`Options::buffer_size_max`] each, or one
//! entry), one chunk or entry per reader, [`Options::entry_size_max`]; waiting futures belong to
//! the callers.
//!
//! [`Durability`]: forebay_base::Durability
#![deny(missing_docs, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

mod buffer;
mod committer;
mod cursor;
mod erase;
pub mod error;
mod format;
mod image;
mod log;
mod lsn;
mod maintain;
mod options;
mod reader;
mod recovery;
mod scan;
mod segment;
mod stats;
mod verify;
mod wait;
mod writer;

pub use committer::Committer;
pub use erase::Erased;
pub use error::{
    AppendError, CommitError, Corrupt, DiskError, EraseError, Fault, LogImageError, OpenError,
    ReadError, TruncateError,
};
pub use log::{Appended, Log, SegmentInfo};
pub use lsn::Lsn;
pub use options::{ENTRY_SIZE_CAP, Options, SEGMENT_SIZE_CAP, SEGMENT_SIZE_MIN};
pub use reader::{Entry, ErasedEntries, Reader};
pub use recovery::{Cut, Recovery};
pub use stats::Stats;
pub use verify::{CheckedEntry, Damage, Verified, check, check_entries};
pub use wait::{Committed, Room};
