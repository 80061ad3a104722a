//! What can be wrong with a segment.

use std::io;
use std::path::{Path, PathBuf};

/// Why a segment could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The device failed.
    #[error("{act} {}", path.display())]
    Io {
        /// What was attempted.
        act: &'static str,
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The file is not what was written.
    #[error("segment {} is damaged at byte {offset}: {found}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        found: &'static str,
    },
    /// A block is not what was written.
    #[error("block {block} of segment {} is damaged, at byte {offset}: {found}", path.display())]
    Block {
        /// The file.
        path: PathBuf,
        /// Which block, from 0.
        block: usize,
        /// Where in the file.
        offset: u64,
        /// What is wrong there.
        found: &'static str,
    },
    /// An event is missing, or its bytes are no event.
    #[error("event {seq} of segment {} is missing or damaged", path.display())]
    Event {
        /// The file.
        path: PathBuf,
        /// The event's position.
        seq: u64,
    },
    /// What is to be written is not in order, or does not belong into this segment.
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
}
