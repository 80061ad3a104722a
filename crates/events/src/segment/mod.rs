//! Segments: events that were in memory, sorted by time, in files that never change.
//!
//! A segment covers a range of sequence positions. Its rows lie in blocks of columns, each checked and
//! compressed by itself; an index tells of every block which times, positions and ids it has, a filter
//! which streams, types, hosts, addresses and words. From the columns an event's canonical leaf is put
//! together again, byte for byte. `docs/formats/event-segment.md` describes every byte.
//!
//! Invariant: what is returned was checked: a damaged byte gives an error, never another event.

mod block;
mod columns;
mod compress;
mod error;
mod filter;
mod format;
mod ids;
mod reader;
mod writer;

pub use block::Block;
pub use compress::Compression;
pub use error::SegmentError;
pub use filter::{Field, Term};
pub use format::BlockInfo;
pub use reader::Segment;
pub use writer::{SegmentInfo, SegmentWriter};

/// How segments are written. What was written otherwise stays readable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentOptions {
    /// How blocks are compressed.
    pub compression: Compression,
    /// Bytes of a block before it is compressed, 4 KiB to 1 MiB.
    pub block_size: usize,
    /// Bits of a block's filter for each thing in it: more of them, fewer blocks read in vain.
    pub filter_bits_per_key: u32,
    /// Whether the words of the raw bytes are in the filter.
    pub text_filter: bool,
}

/// What fuzz targets need of the inside.
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing {
    use super::Block;
    pub(crate) use super::format::{FOOTER_SIZE, HEADER_SIZE};

    /// Any bytes as an expanded block.
    pub(crate) fn block(raw: Vec<u8>) -> Result<Block, &'static str> {
        Block::decode(raw)
    }
}

#[cfg(test)]
mod tests;
