//! The bytes of an index, described in `docs/formats/inventory-index.md`.
//!
//! Invariants:
//! - Everything read is checked before it is used: every record, bucket and list has its own
//!   checksum.
//! - No length or position from a file is trusted before it is compared with the file.

pub mod cells;
pub mod histogram;
pub mod meta;
pub mod order;
pub mod record;
pub mod table;
pub mod varint;

/// The version of the format that is written.
pub const VERSION: u32 = 2;
/// The oldest version that is read.
pub const VERSION_MIN: u32 = 1;
/// Bytes of a checksum.
pub(crate) const CHECKSUM_SIZE: usize = 4;
/// Size of a position in `nodes` in bytes, where positions have a fixed size.
pub(crate) const POSITION_SIZE: usize = 5;
/// Beyond the largest position.
pub(crate) const POSITION_END: u64 = 1 << (8 * POSITION_SIZE);
/// A node with more children than this has lists of the largest of them.
pub const NARROW_MAX: u64 = 128;
/// Maximum number of a node's children in its lists.
pub const LISTED_MAX: usize = 4096;
/// Minimum number of a node's children in its lists.
const LISTED_MIN: u64 = 32;
/// The list of names has one of this many children, in the order of their names.
pub const NAMES_STRIDE: usize = 64;
/// Maximum length of a key in bytes.
pub const KEY_SIZE_MAX: usize = 4096;
/// Maximum number of delimiters in a key.
pub const DEPTH_MAX: usize = 1024;
/// Maximum number of storage classes of an index; those of noncurrent versions count separately.
pub const SLOTS_MAX: usize = 64;

/// The number of children in the lists of a node: an eighth, within limits. A query for more
/// examines every child.
#[must_use]
pub fn listed(children: u64) -> usize {
    let eighth = (children / 8).clamp(LISTED_MIN, LISTED_MAX as u64).min(children);
    usize::try_from(eighth).unwrap_or(LISTED_MAX)
}

/// A checksum in its stored form.
pub(crate) fn checksum(data: &[u8]) -> [u8; CHECKSUM_SIZE] {
    forebay_base::checksum::crc32c(data).to_le_bytes()
}

/// Splits the checksum off the front of `data` and compares it with the rest.
pub(crate) fn checked(data: &[u8]) -> Option<&[u8]> {
    let (stored, rest) = data.split_first_chunk::<CHECKSUM_SIZE>()?;
    (checksum(rest) == *stored).then_some(rest)
}

/// A position in `nodes` in its stored form.
pub(crate) fn position(bytes: [u8; POSITION_SIZE]) -> u64 {
    let mut wide = [0; 8];
    let [low @ .., _, _, _] = &mut wide;
    *low = bytes;
    u64::from_le_bytes(wide)
}

/// The bytes of a position, which is below [`POSITION_END`].
pub(crate) fn position_bytes(position: u64) -> [u8; POSITION_SIZE] {
    let [bytes @ .., _, _, _] = position.to_le_bytes();
    bytes
}
