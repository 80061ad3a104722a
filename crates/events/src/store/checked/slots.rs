//! Leaf hashes of a range of positions, gathered in any order.

#![expect(clippy::cast_possible_truncation, reason = "a range is limited to a window")]
#![deny(clippy::indexing_slicing)]

use std::ops::Range;

use super::Hashed;
use crate::merkle::Hash;

/// The hashes of a range of positions, as far as they are known.
pub(super) struct Slots {
    pub(super) range: Range<u64>,
    hashes: Vec<Option<Hash>>,
    /// A position with more than one event or hash.
    twice: Option<u64>,
}

impl Slots {
    pub(super) fn new(range: Range<u64>) -> Self {
        let count = (range.end - range.start) as usize;
        Self { range, hashes: vec![None; count], twice: None }
    }

    pub(super) fn put(&mut self, seq: u64, hash: Hash) {
        let at = seq.checked_sub(self.range.start).and_then(|at| usize::try_from(at).ok());
        if let Some(slot) = at.and_then(|at| self.hashes.get_mut(at))
            && slot.replace(hash).is_some()
        {
            self.twice = Some(seq);
        }
    }

    pub(super) fn put_rows(&mut self, part: &Range<u64>, hashed: &Hashed) {
        for (row, hash) in (0..hashed.block.len()).zip(&hashed.hashes) {
            let seq = hashed.block.seq(row);
            if part.contains(&seq) {
                self.put(seq, *hash);
            }
        }
    }

    pub(super) fn part(&self, range: Range<u64>) -> &[Option<Hash>] {
        let at = |seq: u64| seq.saturating_sub(self.range.start) as usize;
        self.hashes.get(at(range.start)..at(range.end)).unwrap_or_default()
    }

    /// Whether a range has no hash at all: all of it was removed.
    pub(super) fn absent(&self, range: Range<u64>) -> bool {
        self.part(range).iter().all(Option::is_none)
    }

    /// The hashes of a range, if all are known.
    pub(super) fn complete(&self, range: Range<u64>) -> Result<Vec<Hash>, &'static str> {
        if self.twice.is_some_and(|seq| range.contains(&seq)) {
            return Err("one of them is there twice");
        }
        let hashes: Option<Vec<Hash>> = self.part(range).iter().copied().collect();
        hashes.ok_or("one of them is missing, and so is its hash")
    }
}
