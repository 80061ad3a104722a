//! The content hash of rows: the same for the same rows in any order, however they were split.
//!
//! A row's hash is XXH3-128 of its tuple in binary COPY (the count of fields and, for each, length and
//! bytes); those of all rows are added modulo 2^128. So parts can be hashed apart and their sums added,
//! and a row that is missing, doubled or changed changes the sum. It finds faults, not forgeries.
//! `docs/formats/content-hash.md` has test values.

use std::fmt;

use xxhash_rust::xxh3::xxh3_128;

/// Rows, and the sum of their hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct ContentHash {
    /// How many rows.
    pub rows: u64,
    /// The sum of their hashes, modulo 2^128.
    pub sum: u128,
}

impl ContentHash {
    /// Adds a row, given as its tuple in binary COPY.
    #[inline]
    pub fn add(&mut self, tuple: &[u8]) {
        self.rows += 1;
        self.sum = self.sum.wrapping_add(xxh3_128(tuple));
    }

    /// Adds the rows of another.
    pub fn merge(&mut self, other: Self) {
        self.rows += other.rows;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

/// 32 hexadecimal digits of the sum.
impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &[u8] = b"\0\x02\0\0\0\x04\0\0\0\x01\0\0\0\x03one";
    const NULL: &[u8] = b"\0\x02\0\0\0\x04\0\0\0\x02\xff\xff\xff\xff";

    fn hash(tuples: &[&[u8]]) -> ContentHash {
        let mut hash = ContentHash::default();
        tuples.iter().for_each(|tuple| hash.add(tuple));
        hash
    }

    #[test]
    fn the_test_values_of_its_page_hold() {
        // Of another implementation: python-xxhash, by the script of the page.
        assert_eq!(hash(&[]).to_string(), "00000000000000000000000000000000");
        assert_eq!(hash(&[b"\0\0"]).to_string(), "4758ddac5f9ee9383325230e1f285505");
        assert_eq!(hash(&[ONE]).to_string(), "5eb8b58d756741df30a20c74ece52224");
        assert_eq!(hash(&[NULL]).to_string(), "063b0adb19adb9304faeb129ec4cc221");
        assert_eq!(hash(&[ONE, NULL]).to_string(), "64f3c0688f14fb0f8050bd9ed931e445");
        assert_eq!(hash(&[ONE, ONE]).to_string(), "bd716b1aeace83be614418e9d9ca4448");
    }

    #[test]
    fn neither_order_nor_parts_matter() {
        let mut parts = hash(&[NULL]);
        parts.merge(hash(&[ONE]));
        assert_eq!(parts, hash(&[ONE, NULL]));
        assert_eq!(parts.rows, 2);
        assert_ne!(parts, hash(&[ONE, NULL, NULL]));
    }
}
