//! The header of the append-only files of the tree (`docs/formats/event-tree.md`).
//!
//! ```text
//! magic 8 | version u16 | 0 u16 | checksum u32 of everything else | store id 16
//! ```
//!
//! The checksum is also the file's *mark*: it is part of the checksum of every record, so that a
//! record of another store's file is never mistaken for one of this file.

use forebay_base::checksum::Crc32c;

/// Bytes of a header.
pub(crate) const HEADER_SIZE: usize = 32;

const CHECKSUM_AT: usize = 12;
const ID_AT: usize = 16;

/// The header of a file, and the file's mark.
pub(crate) fn encode(magic: [u8; 8], version: u16, id: [u8; 16]) -> ([u8; HEADER_SIZE], u32) {
    let mut header = [0; HEADER_SIZE];
    header[..8].copy_from_slice(&magic);
    header[8..10].copy_from_slice(&version.to_le_bytes());
    header[ID_AT..].copy_from_slice(&id);
    let mut mark = Crc32c::default();
    mark.update(&header[..CHECKSUM_AT]);
    mark.update(&header[ID_AT..]);
    header[CHECKSUM_AT..ID_AT].copy_from_slice(&mark.value().to_le_bytes());
    (header, mark.value())
}

/// The checksum of a record.
///
/// * `place`: its offset in the file; the same bytes elsewhere have another checksum.
pub(crate) fn checksum(mark: u32, place: u64, parts: &[&[u8]]) -> u32 {
    let mut crc = Crc32c::default();
    crc.update(&mark.to_le_bytes());
    crc.update(&place.to_le_bytes());
    parts.iter().for_each(|part| crc.update(part));
    crc.value()
}
