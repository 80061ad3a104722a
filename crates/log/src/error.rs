//! What can go wrong, by the operation that was attempted.
//!
//! Four kinds are told apart everywhere: the caller asked for something impossible, the device failed
//! ([`DiskError`]), the disk says something that was never written ([`Corrupt`]), and the log has closed
//! itself after a failed write (`Poisoned`).

use std::{io, path::PathBuf, sync::Arc};

use crate::Lsn;

/// The device failed.
#[derive(Debug, thiserror::Error)]
#[error("{act} {}", path.display())]
pub struct DiskError {
    /// What was attempted, such as `"write to"`.
    pub act: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// What the operating system said.
    #[source]
    pub source: io::Error,
}

impl DiskError {
    pub(crate) fn new(act: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self { act, path: path.into(), source }
    }
}

/// The disk holds something other than what was written and synced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("log segment {} is damaged at byte {offset} (position {lsn}): {fault}", path.display())]
pub struct Corrupt {
    /// The segment file.
    pub path: PathBuf,
    /// Where in the file the damaged thing begins.
    pub offset: u64,
    /// The same place as a position in the log.
    pub lsn: Lsn,
    /// What is wrong there.
    pub fault: Fault,
}

/// What is wrong with bytes that should be a header or an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A segment does not start with this format's eight magic bytes.
    #[error("the file does not start with the magic of a log segment")]
    Magic,
    /// A segment is of a later format than this program knows.
    #[error("format version {found} is newer than the newest known, {known}")]
    Version {
        /// What the header says.
        found: u16,
        /// The newest this program reads.
        known: u16,
    },
    /// A segment header's checksum does not fit it.
    #[error("the segment header's checksum is {found:#010x}, its bytes give {expected:#010x}")]
    HeaderChecksum {
        /// Computed from the bytes.
        expected: u32,
        /// Stored beside them.
        found: u32,
    },
    /// A segment's header says it belongs elsewhere.
    #[error("the segment's {field} is {found}, expected {expected}")]
    Chain {
        /// Which field disagrees.
        field: &'static str,
        /// What the name or the neighbouring segments say.
        expected: u64,
        /// What the header says.
        found: u64,
    },
    /// A segment was written by another log.
    #[error("the segment belongs to another log")]
    Foreign,
    /// The file is shorter than it was made.
    #[error("the file has {found} bytes, expected at least {expected}")]
    Short {
        /// Bytes that must be there.
        expected: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// No entry header: its checksum, bound to log and position, does not fit.
    #[error(
        "no entry header that belongs here (checksum {found:#010x}, expected {expected:#010x})"
    )]
    FrameHeader {
        /// Computed from the bytes, the log's identity and the position.
        expected: u32,
        /// Stored beside them.
        found: u32,
    },
    /// An entry header of a kind unknown to this format.
    #[error("entry kind {kind} is unknown")]
    Kind {
        /// The kind byte.
        kind: u8,
    },
    /// An entry reaches past what the segment holds.
    #[error("an entry of {size} bytes does not fit the {room} that follow")]
    Length {
        /// Bytes of the whole frame.
        size: u64,
        /// Bytes up to the segment's end.
        room: u64,
    },
    /// An entry's payload does not have the checksum its header names.
    #[error("the payload's checksum is {found:#010x}, its header says {expected:#010x}")]
    Payload {
        /// What the header says.
        expected: u32,
        /// Computed from the payload.
        found: u32,
    },
    /// An entry of this kind must not carry what this one does.
    #[error("a closing mark carries {len} bytes of payload")]
    Mark {
        /// Bytes it claims to carry.
        len: u32,
    },
    /// A run of erased entries is too short to have been so many.
    #[error("{entries} erased entries do not fit the {size} bytes of their run")]
    Run {
        /// Entries it claims to stand for.
        entries: u64,
        /// Bytes of the run.
        size: u64,
    },
}

/// Why a log could not be opened or checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// An option is out of bounds; nothing was touched.
    #[error("log option {name} must be {min}..={max}, found {found}")]
    Option {
        /// The field of [`Options`](crate::Options).
        name: &'static str,
        /// Least value.
        min: u64,
        /// Greatest value.
        max: u64,
        /// Value given.
        found: u64,
    },
    /// Another process or handle has it open.
    #[error("log {} is already open elsewhere", path.display())]
    Locked {
        /// The log's directory.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The device failed.
    #[error(transparent)]
    Io(DiskError),
    /// What was synced is not what is there.
    #[error(transparent)]
    Corrupt(Corrupt),
}

/// Why nothing was appended.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The payload exceeds the limit.
    #[error("an entry of {len} bytes exceeds entry_size_max, {max}")]
    TooLarge {
        /// Bytes given.
        len: u64,
        /// Bytes allowed.
        max: u32,
    },
    /// The buffer has no room now; see [`Log::room`](crate::Log::room).
    #[error("the log's buffer has no room for {needed} bytes")]
    Full {
        /// Bytes the entry would take.
        needed: u64,
    },
    /// An earlier write or sync failed; the log takes nothing more until it is reopened.
    #[error("the log is closed by an earlier failure")]
    Poisoned {
        /// The failure.
        #[source]
        source: Arc<DiskError>,
    },
}

/// Why an acknowledgement was not given. Whether the entries survive is known after reopening.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// A write or sync failed, now or earlier; the log takes nothing more until it is reopened.
    #[error("the log is closed by a failed write or sync")]
    Poisoned {
        /// The failure.
        #[source]
        source: Arc<DiskError>,
    },
    /// The position was never handed out.
    #[error("position {lsn} lies beyond the log's end, {end}")]
    Beyond {
        /// Position asked for.
        lsn: Lsn,
        /// The log's end.
        end: Lsn,
    },
}

/// Why an entry was not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The position was truncated away.
    #[error("position {lsn} lies before the log's start, {start}")]
    BelowStart {
        /// Position asked for.
        lsn: Lsn,
        /// Where the log starts.
        start: Lsn,
    },
    /// Nothing has been written there yet.
    #[error("position {lsn} lies beyond what is written, {written}")]
    Beyond {
        /// Position asked for.
        lsn: Lsn,
        /// How far the log is written.
        written: Lsn,
    },
    /// No entry starts at the position.
    #[error("position {lsn} is not the start of an entry")]
    NotAnEntry {
        /// Position asked for.
        lsn: Lsn,
    },
    /// The entry was erased.
    #[error("the entry at position {lsn} was erased")]
    Erased {
        /// Position asked for.
        lsn: Lsn,
    },
    /// The device failed.
    #[error(transparent)]
    Io(DiskError),
    /// The bytes there are not what was written.
    #[error(transparent)]
    Corrupt(Corrupt),
}

/// Why old segments were not dropped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TruncateError {
    /// The device failed; segments dropped before that stay dropped.
    #[error(transparent)]
    Io(DiskError),
}

/// Why a segment was not rewritten. It is then unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EraseError {
    /// No segment starts at the position.
    #[error("no segment starts at position {base}")]
    NoSegment {
        /// Position asked for.
        base: Lsn,
    },
    /// The segment is still being written.
    #[error("the segment at position {base} is not sealed")]
    NotSealed {
        /// Position asked for.
        base: Lsn,
    },
    /// The device failed.
    #[error(transparent)]
    Io(DiskError),
    /// The segment is damaged and was left as it is.
    #[error(transparent)]
    Corrupt(Corrupt),
}
