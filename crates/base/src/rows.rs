//! Checksums of rows of a database, and of sets of rows.
//!
//! A row's checksum covers every value and the place it belongs to (its table, its namespace), so a
//! row that was altered, or moved to where another belongs, does not match. A [`RowSet`] has the
//! number of rows and the sum of their checksums: it does not depend on the order of the rows, one
//! addition keeps it current, and a row that is missing or there twice changes it.
//!
//! ```text
//! checksum of a row   XXH3 (64 bits) of its values in order, each as
//!                     tag (1 byte: 0 null, 1 integer, 2 real, 3 text, 4 blob), then
//!                     integer and real: 8 bytes, little-endian; zero has no sign
//!                     text and blob: length (4 bytes), then the bytes, or of more than 4,096 their
//!                     XXH3 with 128 bits
//!                     an ordinal before a value has 4 bytes and no tag
//! set of rows         number of rows, sum of their checksums modulo 2^64
//! ```
//!
//! It detects accidents, not adversaries: who can write a row can write its checksum as well.
//! Changing anything here is a new version of every layout that stores such checksums.

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// Longer values are hashed apart instead of being copied.
const COPIED_MAX: usize = 4_096;
/// Most rows fit into this many bytes, so the buffer of one hasher is allocated once.
const ROOM: usize = 256;

const NULL: u8 = 0;
const INTEGER: u8 = 1;
const REAL: u8 = 2;
const TEXT: u8 = 3;
const BLOB: u8 = 4;

/// Computes the checksum of one row after the other.
///
/// ```
/// use forebay_base::rows::RowHasher;
/// let mut hasher = RowHasher::default();
/// let one = hasher.start().text(b"orders").integer(1).finish();
/// assert_ne!(one, hasher.start().text(b"orders").integer(2).finish());
/// ```
#[derive(Debug, Clone, Default)]
pub struct RowHasher {
    buffer: Vec<u8>,
}

impl RowHasher {
    /// Begins a row.
    #[inline]
    pub fn start(&mut self) -> &mut Self {
        self.buffer.clear();
        self.buffer.reserve(ROOM);
        self
    }

    /// Adds the number of the column whose value follows, where some columns are left out.
    #[inline]
    pub fn ordinal(&mut self, ordinal: u32) -> &mut Self {
        self.buffer.extend_from_slice(&ordinal.to_le_bytes());
        self
    }

    /// Adds NULL.
    #[inline]
    pub fn null(&mut self) -> &mut Self {
        self.buffer.push(NULL);
        self
    }

    /// Adds a whole number.
    #[inline]
    pub fn integer(&mut self, value: i64) -> &mut Self {
        self.fixed(INTEGER, value.to_le_bytes())
    }

    /// Adds a double. Databases do not keep the sign of zero.
    #[inline]
    pub fn real(&mut self, value: f64) -> &mut Self {
        self.fixed(REAL, (value + 0.0).to_le_bytes())
    }

    /// Adds text.
    #[inline]
    pub fn text(&mut self, value: &[u8]) -> &mut Self {
        self.counted(TEXT, value)
    }

    /// Adds bytes.
    #[inline]
    pub fn blob(&mut self, value: &[u8]) -> &mut Self {
        self.counted(BLOB, value)
    }

    /// Returns the checksum of the values since [`RowHasher::start`].
    #[must_use]
    pub fn finish(&self) -> u64 {
        xxh3_64(&self.buffer)
    }

    #[inline]
    fn fixed(&mut self, tag: u8, value: [u8; 8]) -> &mut Self {
        let [a, b, c, d, e, f, g, h] = value;
        self.buffer.extend_from_slice(&[tag, a, b, c, d, e, f, g, h]);
        self
    }

    #[inline]
    fn counted(&mut self, tag: u8, value: &[u8]) -> &mut Self {
        // Databases keep no value of 4 GiB.
        let size = u32::try_from(value.len()).unwrap_or(u32::MAX);
        let [a, b, c, d] = size.to_le_bytes();
        self.buffer.extend_from_slice(&[tag, a, b, c, d]);
        if value.len() > COPIED_MAX {
            self.buffer.extend_from_slice(&xxh3_128(value).to_le_bytes());
        } else {
            self.buffer.extend_from_slice(value);
        }
        self
    }
}

/// A set of rows: how many, and the sum of their checksums.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowSet {
    /// Number of rows.
    pub count: u64,
    /// Sum of the rows' checksums modulo 2^64.
    pub digest: u64,
}

impl RowSet {
    /// Adds a row with this checksum.
    pub fn insert(&mut self, checksum: u64) {
        self.count = self.count.wrapping_add(1);
        self.digest = self.digest.wrapping_add(checksum);
    }

    /// Removes a row with this checksum.
    pub fn remove(&mut self, checksum: u64) {
        self.count = self.count.wrapping_sub(1);
        self.digest = self.digest.wrapping_sub(checksum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_its_type_and_its_place_count() {
        let mut hasher = RowHasher::default();
        let long = [b'x'; 5_000];
        let mut other = long;
        other[4_999] ^= 1;
        let sums = [
            hasher.start().finish(),
            hasher.start().null().finish(),
            hasher.start().null().null().finish(),
            hasher.start().integer(0).finish(),
            hasher.start().real(0.0).finish(),
            hasher.start().text(b"").finish(),
            hasher.start().blob(b"").finish(),
            hasher.start().text(b"ab").text(b"c").finish(),
            hasher.start().text(b"a").text(b"bc").finish(),
            hasher.start().blob(&long).finish(),
            hasher.start().text(&long).finish(),
            hasher.start().text(&other).finish(),
            hasher.start().text(&long[..4_096]).finish(),
        ];
        for (at, sum) in sums.iter().enumerate() {
            assert!(!sums[..at].contains(sum), "{at}");
        }
        let signed = hasher.start().real(-0.0).finish();
        assert_eq!(signed, hasher.start().real(0.0).finish());
    }

    #[test]
    fn the_checksum_is_what_the_formats_say() {
        let mut hasher = RowHasher::default();
        let sum = hasher.start().text(b"t").integer(7).ordinal(258).null().finish();
        let bytes = b"\x03\x01\0\0\0t\x01\x07\0\0\0\0\0\0\0\x02\x01\0\0\0";
        assert_eq!(sum, xxh3_64(bytes));
        // Stored checksums depend on these values: they never change.
        assert_eq!(xxh3_64(b""), 0x2d06_8005_38d3_94c2);
    }

    #[test]
    fn a_set_forgets_order_and_nothing_else() {
        let (mut one, mut two) = (RowSet::default(), RowSet::default());
        for sum in [3, u64::MAX, 5] {
            one.insert(sum);
        }
        for sum in [5, 3, u64::MAX] {
            two.insert(sum);
        }
        assert_eq!(one, two);
        two.remove(3);
        assert_ne!(one, two);
        two.insert(4);
        assert_ne!(one, two);
    }
}
