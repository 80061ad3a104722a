//! The bytes of an index, described in `docs/formats/inventory-index.md`.
//!
//! Invariants:
//! - What is read is checked before it is used: every record, bucket and list has its own checksum.
//! - Nothing read from a file is trusted as a length or position before it is held against the file.

pub mod cells;
pub mod histogram;
pub mod meta;
pub mod order;
pub mod record;
pub mod table;
pub mod varint;

/// The version of the format.
pub const VERSION: u32 = 1;
/// Bytes of a checksum.
pub(crate) const CHECKSUM_SIZE: usize = 4;
/// Bytes of a position in `nodes`, where positions are of one size.
pub(crate) const POSITION_SIZE: usize = 5;
/// Beyond the largest position.
pub(crate) const POSITION_END: u64 = 1 << (8 * POSITION_SIZE);
/// A node with more children than this has lists of the largest of them.
pub const NARROW_MAX: u64 = 128;
/// How many of a node's children its lists name, at most.
pub const LISTED_MAX: usize = 4096;
/// How many of a node's children its lists name, at least.
const LISTED_MIN: u64 = 32;
/// Every so many children, in the order of their names, the list of names has one.
pub const NAMES_STRIDE: usize = 64;
/// Bytes of a key.
pub const KEY_SIZE_MAX: usize = 4096;
/// Delimiters in a key.
pub const DEPTH_MAX: usize = 1024;
/// Storage classes an index tells apart, those of noncurrent versions counted by themselves.
pub const SLOTS_MAX: usize = 64;

/// How many of so many children the lists of a node name: an eighth, within bounds. Who wants more
/// looks at every child.
#[must_use]
pub fn listed(children: u64) -> usize {
    let eighth = (children / 8).clamp(LISTED_MIN, LISTED_MAX as u64).min(children);
    usize::try_from(eighth).unwrap_or(LISTED_MAX)
}

/// A checksum, as it is stored.
pub(crate) fn checksum(data: &[u8]) -> [u8; CHECKSUM_SIZE] {
    forebay_base::checksum::crc32c(data).to_le_bytes()
}

/// Splits the checksum off the front of `data` and holds the rest against it.
pub(crate) fn checked(data: &[u8]) -> Option<&[u8]> {
    let (stored, rest) = data.split_first_chunk::<CHECKSUM_SIZE>()?;
    (checksum(rest) == *stored).then_some(rest)
}

/// A position in `nodes`, as it is stored.
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
