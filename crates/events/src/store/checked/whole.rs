//! Segments whose events are scattered over many tiles: all blocks are checked at once.
//!
//! The hashes are gathered in windows of positions, so that memory is limited; a block that has
//! events of several windows is read for each, and must be the same each time.

#![deny(clippy::indexing_slicing)]

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::slots::Slots;
use super::{Hashed, MISPLACED, TILE, WINDOW, changed, changed_among};
use crate::merkle::subtree_root;
use crate::store::tree::TileHashes;
use crate::store::view::{Stored, View};
use crate::store::{Inner, ReadError};

/// Maximum number of tiles that are found to be wrong before the segment is given up.
const BAD_MAX: usize = 256;
const REPLACED: &str = "the block was replaced while the segment was checked";

/// A tile that is not as it was signed.
struct Bad {
    range: Range<u64>,
    reason: &'static str,
}

impl Bad {
    fn error(&self, stored: &Stored) -> ReadError {
        changed_among(stored, self.range.clone(), self.reason)
    }
}

impl Inner {
    /// Checks every block of a segment, and compares the fingerprint of one of them.
    pub(super) fn check_whole(
        &self,
        view: &View,
        stored: &Stored,
        number: u32,
        mark: u128,
    ) -> Result<(), ReadError> {
        let _whole = self.checks.whole.lock();
        let segment = stored.entry.number;
        // Another reader may have done it meanwhile.
        if self.checks.known.get(&(segment, number)) == Some(mark) {
            return Ok(());
        }
        let mut marks = HashMap::new();
        marks.insert(number, mark);
        let mut bad = BTreeMap::new();
        let (first, end) = (stored.entry.first_seq / TILE, stored.entry.end_seq.div_ceil(TILE));
        let mut tile = first;
        while tile < end {
            let to = end.min(tile + WINDOW / TILE);
            self.check_window(view, stored, tile..to, &mut marks, &mut bad)?;
            tile = to;
        }
        let mut found = None;
        for (at, mark) in marks {
            match self.first_bad(stored, at, mark, &bad)? {
                None => self.checks.known.insert((segment, at), mark),
                Some(tile) if at == number => found = bad.get(&tile),
                Some(_) => {}
            }
        }
        let Some(reason) = found else { return Ok(()) };
        Err(reason.error(stored))
    }

    /// The first tile that is not as it was signed and that has events of a block.
    fn first_bad(
        &self,
        stored: &Stored,
        number: u32,
        mark: u128,
        bad: &BTreeMap<u64, Bad>,
    ) -> Result<Option<u64>, ReadError> {
        if bad.is_empty() {
            return Ok(None);
        }
        let (block, again) = self.marked(stored, number)?;
        let tile = |row: usize| block.seq(row) / TILE;
        if again != mark {
            return Err(changed(stored, number, &block, block.seq(0)..block.seq(0) + 1, REPLACED));
        }
        Ok((0..block.len()).map(tile).find(|tile| bad.contains_key(tile)))
    }

    /// Checks the tiles of a window, and adds those to `bad` that are not as they were signed.
    ///
    /// * `marks`: the fingerprints of the blocks seen before.
    fn check_window(
        &self,
        view: &View,
        stored: &Stored,
        tiles: Range<u64>,
        marks: &mut HashMap<u32, u128>,
        bad: &mut BTreeMap<u64, Bad>,
    ) -> Result<(), ReadError> {
        // Before the events: those of a tile that the tree has can be found.
        let tree = self.tree.as_ref();
        let expected: Vec<_> =
            tiles.clone().map(|tile| tree.and_then(|tree| tree.tile(tile))).collect();
        let mut slots = Slots::new(tiles.start * TILE..tiles.end * TILE);
        self.gather(view, stored, &mut slots, &mut |segment, number| {
            if segment.entry.number != stored.entry.number {
                return self.hashed(segment, number);
            }
            let (block, mark) = self.marked(segment, number)?;
            if *marks.entry(number).or_insert(mark) != mark {
                let seq = block.seq(0);
                return Err(changed(segment, number, &block, seq..seq + 1, REPLACED));
            }
            if let Some(seq) = segment.segment.misplaced(number as usize, &block) {
                return Err(changed(segment, number, &block, seq..seq + 1, MISPLACED));
            }
            Ok(Arc::new(Hashed::new(Arc::new(block), mark)))
        })?;
        for (tile, expected) in tiles.zip(expected) {
            let range = tile * TILE..(tile + 1) * TILE;
            if slots.absent(range.clone()) {
                continue;
            }
            let wrong = match expected {
                Some(TileHashes::Root(root)) => match slots.complete(range.clone()) {
                    Ok(leaves) if subtree_root(&leaves) == root => None,
                    Ok(_) => Some("their hashes do not give the root of their tile in the tree"),
                    Err(reason) => Some(reason),
                },
                Some(TileHashes::Edge(leaves)) => {
                    // Later events of the tile may have been appended since.
                    let own = range.start..range.end.min(stored.entry.end_seq);
                    let mut known = slots.part(own).iter().zip(0..);
                    let other =
                        known.any(|(hash, at)| hash.is_some() && *hash != leaves.get(at).copied());
                    other.then_some("their hashes are not those in the tree")
                }
                None => Some("the tree does not have them"),
            };
            if let Some(reason) = wrong {
                let found = Bad { range, reason };
                if bad.len() == BAD_MAX {
                    return Err(found.error(stored));
                }
                bad.insert(tile, found);
            }
        }
        Ok(())
    }
}
