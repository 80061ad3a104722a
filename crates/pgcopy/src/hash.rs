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
