//! A segment that could not be opened because its file is damaged.
//!
//! Invariant: whatever asks for one of its events gets an error, never too few events. It has one block
//! that covers all positions, times and ids which it may have, and that cannot be read.

use std::path::PathBuf;
use std::sync::OnceLock;

use super::format::{BLOCK_HEADER_SIZE, BlockInfo, CHECKSUM_SIZE, Footer, Version};
use super::ids::Ranges;
use super::reader::Segment;
use crate::event::EventId;

/// What is known of a segment without its file.
#[derive(Debug, Clone)]
pub(crate) struct Unreadable {
    pub(crate) path: PathBuf,
    /// Its first position, and the one after its last.
    pub(crate) first_seq: u64,
    pub(crate) end_seq: u64,
    /// Number of its events.
    pub(crate) rows: u64,
    /// The times of its events.
    pub(crate) time_min_ns: i64,
    pub(crate) time_max_ns: i64,
    pub(crate) file_size: u64,
    /// Why it cannot be opened.
    pub(crate) reason: String,
}

impl Unreadable {
    /// A segment of which every read fails with the reason.
    pub(crate) fn into_segment(self) -> Segment {
        let block = BlockInfo {
            offset: 0,
            stored_size: u32::try_from(BLOCK_HEADER_SIZE + CHECKSUM_SIZE).unwrap_or(u32::MAX),
            rows: u32::try_from(self.rows).unwrap_or(u32::MAX),
            time_min_ns: self.time_min_ns,
            time_max_ns: self.time_max_ns,
            seq_min: self.first_seq,
            seq_max: self.end_seq.saturating_sub(1),
            id_min: EventId(0),
            id_max: EventId(u128::MAX),
            filter_offset: 0,
            filter_size: 1,
        };
        let footer = Footer {
            version: Version::Two,
            first_seq: self.first_seq,
            end_seq: self.end_seq,
            rows: self.rows,
            leaf_bytes: 0,
            time_min_ns: self.time_min_ns,
            time_max_ns: self.time_max_ns,
            blocks: 1,
            index_offset: 0,
            words: false,
            id_pages: 0,
            id_pages_offset: 0,
            id_directory_offset: 0,
            stubs: 0,
            stubs_offset: 0,
            digests_offset: 0,
        };
        let blocks = vec![block];
        Segment {
            file: Err(self.reason),
            path: self.path,
            // No offset is beyond the end: the reason is what every read reports.
            file_size: self.file_size.max(u64::from(u32::MAX)),
            salt: 0,
            footer,
            ranges: Ranges::new(&blocks),
            blocks,
            directory: None,
            digests: OnceLock::new(),
        }
    }
}
