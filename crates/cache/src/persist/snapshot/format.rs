//! The bytes of a snapshot; `docs/formats/cache-snapshot.md` describes them in full.
//!
//! ```text
//! file   = header (64), blocks; the last is the end
//! header = "FOREBSNP", version (2), zeros (2), checksum (4), log id (16), seed (8), number (8), time (8), zeros (8)
//! block  = size (4), kind (1), zeros (3), payload's checksum (4), checksum (4), payload
//! ```
//!
//! Invariants:
//! - A block's header checksum covers its offset and the file's own header, so a block of another
//!   file or offset is never mistaken for it; its length is trusted only after that check.
//! - Every byte of a file is covered by a checksum.
//!
//! Pure: nothing here reads or writes files.

use forebay_base::checksum::{crc32c, extend};
use forebay_log::Lsn;

use super::entry::{EntryReader, put_head};
use crate::store::{DATABASES, Kind, SHARDS};

/// Bytes of a file's header.
pub(crate) const HEADER_SIZE: usize = 64;
/// Bytes of a block's header.
pub(crate) const BLOCK_HEADER_SIZE: usize = 16;
/// Bytes of the end's payload.
pub(crate) const END_SIZE: usize = 40;

const MAGIC: [u8; 8] = *b"FOREBSNP";
const VERSION: u16 = 1;

/// What is wrong with the bytes of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotFault {
    /// The magic number is missing.
    #[error("the file does not start with the magic number of a snapshot")]
    Magic,
    /// A later format.
    #[error("format version {found} is newer than the newest supported version, {VERSION}")]
    Version {
        /// The version in its header.
        found: u16,
    },
    /// It ends too early.
    #[error("expected {expected} bytes, found {found}")]
    Short {
        /// Required number of bytes.
        expected: u64,
        /// Actual number of bytes.
        found: u64,
    },
    /// Some bytes differ from those that were written.
    #[error("the checksum of the {what} is {found:#010x}, but its bytes have {expected:#010x}")]
    Checksum {
        /// The part with the checksum.
        what: &'static str,
        /// Computed from the bytes.
        expected: u32,
        /// Stored beside them.
        found: u32,
    },
    /// A block of a kind unknown to this format.
    #[error("block kind {kind} is unknown")]
    Kind {
        /// The kind.
        kind: u8,
    },
    /// A block that does not have the form of its kind.
    #[error("a block's {what} is malformed")]
    Malformed {
        /// The malformed part.
        what: &'static str,
    },
    /// Blocks in an order that is never written, or keys outside their range.
    #[error("{what}")]
    Order {
        /// What is out of order.
        what: &'static str,
    },
    /// Bytes follow the end.
    #[error("{bytes} bytes follow the end block")]
    Trailing {
        /// How many.
        bytes: u64,
    },
}

pub(super) const fn malformed(what: &'static str) -> SnapshotFault {
    SnapshotFault::Malformed { what }
}

/// A file's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// The log to which the positions of the ranges refer.
    pub(crate) log_id: [u8; 16],
    /// The seed of the hash that defines the ranges.
    pub(crate) seed: u64,
    /// Numbers grow from snapshot to snapshot.
    pub(crate) number: u64,
    /// When it was begun.
    pub(crate) created_ms: u64,
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|part| part.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|part| part.try_into().ok()).map_or(0, u32::from_le_bytes)
}

impl Header {
    /// Encodes it.
    pub(crate) fn encode(&self) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.log_id);
        bytes[32..40].copy_from_slice(&self.seed.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.number.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.created_ms.to_le_bytes());
        let checksum = Self::checksum(&bytes);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes it.
    pub(crate) fn decode(bytes: &[u8; HEADER_SIZE]) -> Result<Self, SnapshotFault> {
        if bytes[..8] != MAGIC {
            return Err(SnapshotFault::Magic);
        }
        let (expected, found) = (Self::checksum(bytes), u32_at(bytes, 12));
        if expected != found {
            return Err(SnapshotFault::Checksum { what: "header", expected, found });
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version != VERSION {
            return Err(SnapshotFault::Version { found: version });
        }
        let mut log_id = [0; 16];
        log_id.copy_from_slice(&bytes[16..32]);
        let (seed, number) = (u64_at(bytes, 32), u64_at(bytes, 40));
        Ok(Self { log_id, seed, number, created_ms: u64_at(bytes, 48) })
    }

    /// The mark that distinguishes this file's blocks from those of others.
    pub(crate) fn checksum(bytes: &[u8; HEADER_SIZE]) -> u32 {
        extend(crc32c(&bytes[..12]), &bytes[16..])
    }
}

/// A block's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    /// Bytes of its payload.
    pub(crate) size: u32,
    kind: u8,
    payload_crc: u32,
}

fn block_crc(file: u32, offset: u64, bytes: &[u8]) -> u32 {
    extend(extend(crc32c(&file.to_le_bytes()), &offset.to_le_bytes()), bytes)
}

impl BlockHeader {
    /// Decodes it.
    ///
    /// * `file`: [`Header::checksum`]. `offset`: its offset in the file.
    pub(crate) fn decode(
        bytes: &[u8; BLOCK_HEADER_SIZE],
        file: u32,
        offset: u64,
    ) -> Result<Self, SnapshotFault> {
        let (expected, found) = (block_crc(file, offset, &bytes[..12]), u32_at(bytes, 12));
        if expected != found {
            return Err(SnapshotFault::Checksum { what: "block's header", expected, found });
        }
        Ok(Self { size: u32_at(bytes, 0), kind: bytes[4], payload_crc: u32_at(bytes, 8) })
    }

    /// Decodes the payload that follows it.
    pub(crate) fn payload<'a>(&self, payload: &'a [u8]) -> Result<Block<'a>, SnapshotFault> {
        let (expected, found) = (crc32c(payload), self.payload_crc);
        if expected != found {
            return Err(SnapshotFault::Checksum { what: "block", expected, found });
        }
        Block::decode(self.kind, payload)
    }
}

/// A block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Block<'a> {
    /// An unused database.
    Unused { database: usize, position: Lsn },
    /// Keys of a range of hashes; [`EntryReader`] reads the entries.
    Range { place: (usize, usize), hashes: (u64, u64), position: Lsn, entries: &'a [u8] },
    /// The beginning of a value that spans several blocks.
    Large { place: (usize, usize), kind: Kind, deadline_ms: Option<u64>, key: &'a [u8] },
    /// The next of its elements.
    Piece(&'a [u8]),
    /// Its end; `hash` is a separate range.
    LargeEnd { hash: u64, position: Lsn },
    /// The value was changed meanwhile: its blocks are to be ignored.
    Abandoned,
    /// The end of the snapshot.
    End(End),
}

/// Totals at the end of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct End {
    /// Blocks before it.
    pub(crate) blocks: u64,
    pub(crate) ranges: u64,
    pub(crate) keys: u64,
    /// The lowest and the highest position of the ranges.
    pub(crate) lowest: Lsn,
    pub(crate) highest: Lsn,
}

impl<'a> Block<'a> {
    fn kind(&self) -> u8 {
        match self {
            Self::Unused { .. } => 1,
            Self::Range { .. } => 2,
            Self::Large { .. } => 3,
            Self::Piece(_) => 4,
            Self::LargeEnd { .. } => 5,
            Self::Abandoned => 6,
            Self::End(_) => 7,
        }
    }

    /// Appends the encoded block, header and payload.
    ///
    /// * `file`: [`Header::checksum`]. `offset`: its future offset in the file.
    pub(crate) fn encode(&self, file: u32, offset: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; BLOCK_HEADER_SIZE]);
        self.encode_payload(out);
        let payload = &out[start + BLOCK_HEADER_SIZE..];
        let size = u32::try_from(payload.len()).expect("blocks are far smaller than 4 GiB");
        let mut header = [0; BLOCK_HEADER_SIZE];
        header[..4].copy_from_slice(&size.to_le_bytes());
        header[4] = self.kind();
        header[8..12].copy_from_slice(&crc32c(payload).to_le_bytes());
        let checksum = block_crc(file, offset, &header[..12]);
        header[12..].copy_from_slice(&checksum.to_le_bytes());
        out[start..start + BLOCK_HEADER_SIZE].copy_from_slice(&header);
    }

    fn encode_payload(&self, out: &mut Vec<u8>) {
        let small = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
        let numbers = |out: &mut Vec<u8>, numbers: &[u64]| {
            numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        };
        match self {
            Self::Unused { database, position } => {
                out.push(small(*database));
                numbers(out, &[position.0]);
            }
            Self::Range { place, hashes, position, entries } => {
                out.extend_from_slice(&[small(place.0), small(place.1)]);
                numbers(out, &[hashes.0, hashes.1, position.0]);
                out.extend_from_slice(entries);
            }
            Self::Large { place, kind, deadline_ms, key } => {
                out.extend_from_slice(&[small(place.0), small(place.1)]);
                put_head(out, *kind, *deadline_ms, key);
            }
            Self::Piece(elements) => out.extend_from_slice(elements),
            Self::LargeEnd { hash, position } => numbers(out, &[*hash, position.0]),
            Self::Abandoned => {}
            Self::End(end) => {
                let End { blocks, ranges, keys, lowest, highest } = *end;
                numbers(out, &[blocks, ranges, keys, lowest.0, highest.0]);
            }
        }
    }

    /// Decodes a payload.
    pub(crate) fn decode(kind: u8, payload: &'a [u8]) -> Result<Self, SnapshotFault> {
        let size = payload.len();
        Ok(match kind {
            1 if size == 9 => {
                let database = place(payload.first(), DATABASES)?;
                Self::Unused { database, position: Lsn(u64_at(payload, 1)) }
            }
            2 if size >= 26 => Self::Range {
                place: (place(payload.first(), DATABASES)?, place(payload.get(1), SHARDS)?),
                hashes: (u64_at(payload, 2), u64_at(payload, 10)),
                position: Lsn(u64_at(payload, 18)),
                entries: payload.get(26..).unwrap_or_default(),
            },
            3 if size >= 2 => {
                let place = (place(payload.first(), DATABASES)?, place(payload.get(1), SHARDS)?);
                let mut rest = EntryReader::new(payload.get(2..).unwrap_or_default());
                let (kind, deadline_ms, key) = rest.head()?;
                if !rest.bytes.is_empty() {
                    return Err(malformed("large value's key"));
                }
                Self::Large { place, kind, deadline_ms, key }
            }
            4 => Self::Piece(payload),
            5 if size == 16 => {
                Self::LargeEnd { hash: u64_at(payload, 0), position: Lsn(u64_at(payload, 8)) }
            }
            6 if size == 0 => Self::Abandoned,
            7 if size == END_SIZE => Self::End(End {
                blocks: u64_at(payload, 0),
                ranges: u64_at(payload, 8),
                keys: u64_at(payload, 16),
                lowest: Lsn(u64_at(payload, 24)),
                highest: Lsn(u64_at(payload, 32)),
            }),
            1..=7 => return Err(malformed("size")),
            _ => return Err(SnapshotFault::Kind { kind }),
        })
    }
}

fn place(byte: Option<&u8>, below: usize) -> Result<usize, SnapshotFault> {
    let number = byte.map(|&byte| usize::from(byte)).filter(|&number| number < below);
    number.ok_or(malformed("database or shard"))
}
