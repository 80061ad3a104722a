//! Errors, by the operation that was attempted.
//!
//! Four kinds are distinguished everywhere: the caller requested something impossible, the device
//! failed ([`DiskError`]), the disk has bytes that were never written ([`Corrupt`]), and the log
//! has closed itself after a failed write (`Poisoned`).

use std::{io, path::PathBuf, sync::Arc};

use forebay_base::image::ImageError;

use crate::Lsn;

/// The device failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {act} {}", path.display())]
pub struct DiskError {
    /// The operation that failed, such as `"write to"`.
    pub act: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The operating system's error.
    #[source]
    pub source: io::Error,
}

/// `ENFILE` and `EMFILE`, for which the standard library has no kind; the same on every Unix.
const NO_DESCRIPTORS: [i32; 2] = [23, 24];

impl DiskError {
    pub(crate) fn new(act: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self { act, path: path.into(), source }
    }

    /// Whether the condition is temporary and independent of the disk's contents: no space, no
    /// quota, no descriptors.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            || self.source.raw_os_error().is_some_and(|code| NO_DESCRIPTORS.contains(&code))
    }
}

/// The disk holds something other than what was written and synced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("log segment {} is damaged at byte {offset} (position {lsn}): {fault}", path.display())]
pub struct Corrupt {
    /// The segment file.
    pub path: PathBuf,
    /// Offset of the damage in the file.
    pub offset: u64,
    /// The position of the damage in the log.
    pub lsn: Lsn,
    /// The fault.
    pub fault: Fault,
}

/// A fault in bytes that should be a header or an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A segment does not start with this format's eight magic bytes.
    #[error("the file does not start with the magic number of a log segment")]
    Magic,
    /// A segment has a later format than this program supports.
    #[error("format version {found} is newer than the newest supported version, {known}")]
    Version {
        /// The version in the header.
        found: u16,
        /// The newest supported version.
        known: u16,
    },
    /// A segment header's checksum does not match.
    #[error("the segment header's checksum is {found:#010x}, but its bytes have {expected:#010x}")]
    HeaderChecksum {
        /// Computed from the bytes.
        expected: u32,
        /// Stored with them.
        found: u32,
    },
    /// A segment's header does not match its name or its neighbours.
    #[error("the segment's {field} is {found}, expected {expected}")]
    Chain {
        /// The field that does not match.
        field: &'static str,
        /// The value according to the name or the neighbouring segments.
        expected: u64,
        /// The value in the header.
        found: u64,
    },
    /// A segment was written by another log.
    #[error("the segment belongs to another log")]
    Foreign,
    /// The file is shorter than when it was created.
    #[error("the file has {found} bytes, expected at least {expected}")]
    Short {
        /// Minimum number of bytes.
        expected: u64,
        /// Actual number of bytes.
        found: u64,
    },
    /// Not an entry header: its checksum, which includes log and position, does not match.
    #[error("no valid entry header (checksum {found:#010x}, expected {expected:#010x})")]
    FrameHeader {
        /// Computed from the bytes, the log's identity and the position.
        expected: u32,
        /// Stored in the header.
        found: u32,
    },
    /// An entry header of a kind unknown to this format.
    #[error("entry kind {kind} is unknown")]
    Kind {
        /// The kind byte.
        kind: u8,
    },
    /// An entry extends beyond the end of its segment.
    #[error("an entry of {size} bytes does not fit into the {room} bytes that follow")]
    Length {
        /// Bytes of the whole frame.
        size: u64,
        /// Bytes up to the segment's end.
        room: u64,
    },
    /// An entry's payload does not have the checksum in its header.
    #[error("the payload's checksum is {found:#010x}, but its header has {expected:#010x}")]
    Payload {
        /// The checksum in the header.
        expected: u32,
        /// Computed from the payload.
        found: u32,
    },
    /// An entry of this kind must not have a payload.
    #[error("a closing mark has {len} bytes of payload")]
    Mark {
        /// The stated size of the payload in bytes.
        len: u32,
    },
    /// A run of erased entries is too short for its number of entries.
    #[error("{entries} erased entries do not fit into the {size} bytes of their run")]
    Run {
        /// The stated number of entries.
        entries: u64,
        /// Size of the run in bytes.
        size: u64,
    },
}

/// Why a log could not be opened or checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// An option is out of range; nothing was touched.
    #[error("log option {name} must be {min}..={max}, found {found}")]
    Option {
        /// The field of [`Options`](crate::Options).
        name: &'static str,
        /// Minimum value.
        min: u64,
        /// Maximum value.
        max: u64,
        /// Value given.
        found: u64,
    },
    /// Another process or handle has it open.
    #[error("log {} is already open in another process or handle", path.display())]
    Locked {
        /// The log's directory.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The device failed.
    #[error(transparent)]
    Io(DiskError),
    /// Synced data is damaged.
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
        /// Bytes the entry needs.
        needed: u64,
    },
    /// An earlier write or sync failed; the log accepts nothing until it is reopened.
    #[error("the log was closed by an earlier failure")]
    Poisoned {
        /// The failure.
        #[source]
        source: Arc<DiskError>,
    },
}

/// Why an acknowledgement failed. Whether the entries survive is known after reopening.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// A write or sync failed, now or earlier; the log accepts nothing until it is reopened.
    #[error("the log was closed by a failed write or sync")]
    Poisoned {
        /// The failure.
        #[source]
        source: Arc<DiskError>,
    },
    /// There is no space, or there are no descriptors: appended entries are held in memory and
    /// written by [`Log::retry`](crate::Log::retry) when there are. Nothing has been lost, and
    /// nothing more is acknowledged until then. Only under
    /// [`Options::hold_when_full`](crate::Options::hold_when_full).
    #[error("the log waits until it can be written again")]
    Stalled {
        /// What failed.
        #[source]
        source: Arc<DiskError>,
    },
    /// The position was never assigned.
    #[error("position {lsn} is beyond the log's end, {end}")]
    Beyond {
        /// Requested position.
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
    #[error("position {lsn} is before the log's start, {start}")]
    BelowStart {
        /// Requested position.
        lsn: Lsn,
        /// Where the log starts.
        start: Lsn,
    },
    /// Nothing has been written there yet.
    #[error("position {lsn} is beyond the written part of the log, which ends at {written}")]
    Beyond {
        /// Requested position.
        lsn: Lsn,
        /// How far the log is written.
        written: Lsn,
    },
    /// No entry starts at the position.
    #[error("position {lsn} is not the start of an entry")]
    NotAnEntry {
        /// Requested position.
        lsn: Lsn,
    },
    /// The entry was erased.
    #[error("the entry at position {lsn} was erased")]
    Erased {
        /// Requested position.
        lsn: Lsn,
    },
    /// The device failed.
    #[error(transparent)]
    Io(DiskError),
    /// The bytes there are not what was written.
    #[error(transparent)]
    Corrupt(Corrupt),
}

/// Why old segments were not removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TruncateError {
    /// The device failed; segments removed before that stay removed.
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
        /// Requested position.
        base: Lsn,
    },
    /// The segment is still being written.
    #[error("the segment at position {base} is not sealed")]
    NotSealed {
        /// Requested position.
        base: Lsn,
    },
    /// The device failed.
    #[error(transparent)]
    Io(DiskError),
    /// The segment is damaged and was left unchanged.
    #[error(transparent)]
    Corrupt(Corrupt),
}

/// Why a log cannot be part of an image.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogImageError {
    /// The log is closed by a failure.
    #[error("cannot put the log on stable storage")]
    Commit(#[source] CommitError),
    /// The size of a segment cannot be determined.
    #[error(transparent)]
    Disk(DiskError),
    /// A segment cannot be linked.
    #[error(transparent)]
    Image(ImageError),
}
