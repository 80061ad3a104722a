//! Errors of segments.

use std::io;
use std::path::{Path, PathBuf};

/// Why a segment could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The device failed.
    #[error("cannot {act} {}", path.display())]
    Io {
        /// The operation that failed.
        act: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The file is damaged.
    #[error("segment {} is damaged at byte {offset}: {found}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Offset of the damage.
        offset: u64,
        /// What is wrong there.
        found: &'static str,
    },
    /// A block is damaged.
    #[error(
        "block {block} of segment {}, with {rows} events between the indexes {first} and {last}, is \
         damaged at byte {offset}: {found}",
        path.display()
    )]
    Block {
        /// The file.
        path: PathBuf,
        /// Number of the block, from 0.
        block: usize,
        /// Its offset in the file.
        offset: u64,
        /// Number of its events.
        rows: u32,
        /// The lowest index of its events.
        first: u64,
        /// The highest.
        last: u64,
        /// What is wrong there.
        found: &'static str,
    },
    /// The segment could not be opened when the store was.
    #[error("segment {} could not be opened: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What was found then.
        reason: String,
    },
    /// An event is missing, or its bytes are not an event.
    #[error("event {seq} of segment {} is missing or damaged", path.display())]
    Event {
        /// The file.
        path: PathBuf,
        /// The event's position.
        seq: u64,
    },
    /// A row is out of order, or does not belong into this segment.
    #[error("event {seq} cannot be written to segment {}: {reason}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The event's position.
        seq: u64,
        /// Why.
        reason: &'static str,
    },
    /// A block could not be compressed.
    #[error("a block of segment {} cannot be compressed: {reason}", path.display())]
    Compress {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl SegmentError {
    pub(crate) fn io(act: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { act, path: path.to_path_buf(), source }
    }

    /// The file that is not what was written; `None` for errors of the device and of what is being
    /// written.
    pub(crate) fn damaged_file(&self) -> Option<&Path> {
        match self {
            Self::Damaged { path, .. }
            | Self::Block { path, .. }
            | Self::Unreadable { path, .. }
            | Self::Event { path, .. } => Some(path),
            Self::Io { .. } | Self::Row { .. } | Self::Compress { .. } => None,
        }
    }
}
