//! The fixed parts of a segment file (`docs/formats/event-segment.md`): header, block index,
//! footer.
//!
//! ```text
//! header       32 bytes
//! blocks       stored as u8, raw size u32, bytes, crc32c u32
//! filters      bytes, crc32c u32, one a block
//! id pages     see `ids`
//! stubs        position u64, hash 32 bytes, crc32c u32, by position
//! digests      see `digests`; may be missing
//! block index  104 bytes a block, then crc32c u32
//! footer       168 bytes
//! ```
//! Every checksum includes that of the header, so that bytes of another segment are never valid
//! here.

#![deny(clippy::indexing_slicing)]

use forebay_base::checksum::crc32c;

use crate::event::EventId;

const MAGIC: &[u8; 8] = b"FBEVSEG2";
/// Of version 1, whose filters have the address among the tags alone.
const MAGIC_1: &[u8; 8] = b"FBEVSEG1";
pub(crate) const HEADER_SIZE: usize = 32;
pub(crate) const FOOTER_SIZE: usize = 168;
pub(crate) const INDEX_ENTRY_SIZE: usize = 104;
/// Size of what precedes a block's bytes: compression method and raw size.
pub(crate) const BLOCK_HEADER_SIZE: usize = 5;
pub(crate) const CHECKSUM_SIZE: usize = 4;
/// A stub: position, hash, checksum.
pub(crate) const STUB_SIZE: usize = 44;
/// Maximum size of a block, before and after compression: the largest leaf alone, and overhead.
pub(crate) const BLOCK_SIZE_MAX: usize = 4 << 20;

/// A block's entry in the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockInfo {
    /// Where its bytes begin in the file.
    pub offset: u64,
    /// Its size in the file in bytes, including the checksum.
    pub stored_size: u32,
    /// Number of rows.
    pub rows: u32,
    /// Earliest time.
    pub time_min_ns: i64,
    /// Latest time.
    pub time_max_ns: i64,
    /// Lowest position.
    pub seq_min: u64,
    /// Highest position.
    pub seq_max: u64,
    /// Lowest id.
    pub id_min: EventId,
    /// Highest id.
    pub id_max: EventId,
    /// Where its filter begins in the file.
    pub filter_offset: u64,
    /// The filter's bytes, without checksum.
    pub filter_size: u32,
}

/// Removes fields from the front of bytes.
pub(crate) struct Fields<'a> {
    pub(crate) bytes: &'a [u8],
}

impl Fields<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (found, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        Some(*found)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.take().map(i64::from_le_bytes)
    }
}

impl BlockInfo {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.stored_size.to_le_bytes());
        out.extend_from_slice(&self.rows.to_le_bytes());
        out.extend_from_slice(&self.time_min_ns.to_le_bytes());
        out.extend_from_slice(&self.time_max_ns.to_le_bytes());
        out.extend_from_slice(&self.seq_min.to_le_bytes());
        out.extend_from_slice(&self.seq_max.to_le_bytes());
        out.extend_from_slice(&self.id_min.0.to_be_bytes());
        out.extend_from_slice(&self.id_max.0.to_be_bytes());
        out.extend_from_slice(&self.filter_offset.to_le_bytes());
        out.extend_from_slice(&self.filter_size.to_le_bytes());
        out.extend_from_slice(&[0; 12]);
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields { bytes };
        Some(Self {
            offset: fields.u64()?,
            stored_size: fields.u32()?,
            rows: fields.u32()?,
            time_min_ns: fields.i64()?,
            time_max_ns: fields.i64()?,
            seq_min: fields.u64()?,
            seq_max: fields.u64()?,
            id_min: EventId(u128::from_be_bytes(fields.take()?)),
            id_max: EventId(u128::from_be_bytes(fields.take()?)),
            filter_offset: fields.u64()?,
            filter_size: fields.u32()?,
        })
    }
}

/// The version of a segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Version {
    /// Filters have the address among the tags.
    One,
    /// Filters with words have all addresses that events name, and none has that of the tags.
    #[default]
    Two,
}

impl Version {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::One => MAGIC_1,
            Self::Two => MAGIC,
        }
    }
}

/// Returns the header of a segment, the same for all of a version that cover the same positions.
pub(crate) fn header(version: Version, first_seq: u64, end_seq: u64) -> [u8; HEADER_SIZE] {
    let mut out = Vec::with_capacity(HEADER_SIZE);
    out.extend_from_slice(version.magic());
    out.extend_from_slice(&first_seq.to_le_bytes());
    out.extend_from_slice(&end_seq.to_le_bytes());
    let checksum = crc32c(&out);
    out.extend_from_slice(&checksum.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.try_into().unwrap_or([0; HEADER_SIZE])
}

/// The offsets and sizes of all parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) version: Version,
    pub(crate) first_seq: u64,
    pub(crate) end_seq: u64,
    pub(crate) rows: u64,
    pub(crate) leaf_bytes: u64,
    pub(crate) time_min_ns: i64,
    pub(crate) time_max_ns: i64,
    pub(crate) blocks: u64,
    pub(crate) index_offset: u64,
    /// Whether the filters include words of raw bytes and, from version 2, addresses.
    pub(crate) words: bool,
    pub(crate) id_pages: u64,
    pub(crate) id_pages_offset: u64,
    pub(crate) id_directory_offset: u64,
    pub(crate) stubs: u64,
    pub(crate) stubs_offset: u64,
    /// Where the digests of the blocks begin; 0 if there are none.
    pub(crate) digests_offset: u64,
}

impl Footer {
    /// Whether the filters include the addresses that events name.
    pub(crate) fn addresses(&self) -> bool {
        self.words && self.version == Version::Two
    }

    /// The header of its segment.
    pub(crate) fn header(&self) -> [u8; HEADER_SIZE] {
        header(self.version, self.first_seq, self.end_seq)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_SIZE);
        for number in [
            self.first_seq,
            self.end_seq,
            self.rows,
            self.leaf_bytes,
            self.time_min_ns as u64,
            self.time_max_ns as u64,
            self.blocks,
            self.index_offset,
            u64::from(self.words),
            self.id_pages,
            self.id_pages_offset,
            self.id_directory_offset,
            self.stubs,
            self.stubs_offset,
            self.digests_offset,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.resize(FOOTER_SIZE - 8 - CHECKSUM_SIZE, 0);
        out.extend_from_slice(self.version.magic());
        let checksum = crc32c(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let (bytes, stored) = bytes.split_last_chunk::<4>().ok_or("it is too short")?;
        if crc32c(bytes) != u32::from_le_bytes(*stored) {
            return Err("the checksum of its footer does not match");
        }
        let version = match bytes.last_chunk::<8>() {
            Some(MAGIC) => Version::Two,
            Some(MAGIC_1) => Version::One,
            _ => return Err("it has another format or version"),
        };
        let mut fields = Fields { bytes };
        let mut next = || fields.u64().ok_or("its footer is truncated");
        Ok(Self {
            version,
            first_seq: next()?,
            end_seq: next()?,
            rows: next()?,
            leaf_bytes: next()?,
            time_min_ns: next()? as i64,
            time_max_ns: next()? as i64,
            blocks: next()?,
            index_offset: next()?,
            words: next()? != 0,
            id_pages: next()?,
            id_pages_offset: next()?,
            id_directory_offset: next()?,
            stubs: next()?,
            stubs_offset: next()?,
            digests_offset: next()?,
        })
    }
}
