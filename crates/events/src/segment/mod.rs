//! Segments: events that were in memory, sorted by time, in files that never change.
//!
//! A segment covers a range of positions. Its rows are stored in blocks of columns, each with its
//! own checksum and compression. For every block an index has its times, positions and ids, and a
//! filter its streams, types, hosts, addresses and words. From the columns an event's canonical
//! leaf is restored, byte for byte. `docs/formats/event-segment.md` describes every byte.
//!
//! Invariant: returned data has been checked: a damaged byte causes an error, never another event.

mod block;
mod columns;
mod compress;
mod derived;
mod digests;
mod error;
mod filter;
mod format;
mod ids;
mod reader;
mod unreadable;
mod writer;

pub use block::Block;
pub use compress::Compression;
pub(crate) use derived::Derived;
pub use error::SegmentError;
pub(crate) use filter::in_word;
pub use filter::{Field, Term};
pub use format::BlockInfo;
pub use reader::Segment;
pub(crate) use unreadable::Unreadable;
pub use writer::{SegmentInfo, SegmentWriter};

/// Options of writing segments. Segments with other options stay readable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentOptions {
    /// How blocks are compressed.
    pub compression: Compression,
    /// Size in bytes of a block before compression, 4 KiB to 1 MiB.
    pub block_size: usize,
    /// Bits of a block's filter per term: with more bits fewer blocks are read in vain.
    pub filter_bits_per_key: u32,
    /// Whether the words of the raw bytes, and the addresses that events name, are in the filter.
    pub text_filter: bool,
}

/// Entry points for fuzz targets.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing {
    use super::Block;
    pub(crate) use super::format::{FOOTER_SIZE, HEADER_SIZE};

    /// Decodes any bytes as a decompressed block.
    pub(crate) fn block(raw: Vec<u8>) -> Result<Block, &'static str> {
        Block::decode(raw, 0)
    }
}

#[cfg(test)]
mod tests;
