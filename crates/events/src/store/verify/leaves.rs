//! Leaf hashes in any order, and the roots of the tiles they complete.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::merkle::{Hash, TILE_WIDTH, Tree};

const TILE: u64 = TILE_WIDTH as u64;

/// A set of places in a tile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Mask([u64; 4]);

impl Mask {
    /// Every place.
    pub(super) const ALL: Self = Self([u64::MAX; 4]);

    /// Whether there is none.
    pub(super) fn is_empty(self) -> bool {
        self.0 == [0; 4]
    }

    /// Whether it has a place, below 256.
    pub(super) fn has(self, place: u64) -> bool {
        self.0.get((place / 64) as usize).is_some_and(|word| word >> (place % 64) & 1 == 1)
    }

    /// Adds a place, below 256.
    pub(super) fn set(&mut self, place: u64) {
        if let Some(word) = self.0.get_mut((place / 64) as usize) {
            *word |= 1 << (place % 64);
        }
    }

    fn inverse(self) -> Self {
        Self(self.0.map(|word| !word))
    }

    fn join(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(word, more)| *word |= more);
    }
}

/// Leaves of one tile, of which some are known.
#[derive(Debug)]
struct Tile {
    number: u64,
    leaves: Box<[Hash]>,
    known: Mask,
}

impl Tile {
    fn new(number: u64) -> Self {
        let leaves = vec![Hash::default(); TILE_WIDTH].into_boxed_slice();
        Self { number, leaves, known: Mask::default() }
    }

    /// Adds a leaf; `false`: it is known already.
    fn put(&mut self, place: usize, hash: Hash) -> bool {
        if self.known.has(place as u64) {
            return false;
        }
        if let Some(leaf) = self.leaves.get_mut(place) {
            *leaf = hash;
        }
        self.known.set(place as u64);
        true
    }

    fn leaf(&self, place: usize) -> Option<Hash> {
        self.leaves.get(place).filter(|_| self.known.has(place as u64)).copied()
    }
}

/// Leaves and roots by tile.
#[derive(Debug, Default)]
pub(super) struct Leaves {
    roots: HashMap<u64, Hash, RandomState>,
    /// Of which leaves only the hash is left, by tile.
    stubs: HashMap<u64, Mask>,
    /// The tile of the last addition: the next leaf mostly belongs to it too.
    current: Option<Tile>,
    open: HashMap<u64, Tile, RandomState>,
    /// A position that was added more than once: one of its events may hide the other.
    twice: Option<u64>,
}

impl Leaves {
    /// Adds a leaf; the last leaf of a tile completes its root.
    pub(super) fn put(&mut self, seq: u64, hash: Hash) {
        let (number, place) = (seq / TILE, (seq % TILE) as usize);
        if self.current.as_ref().is_none_or(|tile| tile.number != number) {
            if let Some(left) = self.current.take() {
                self.open.insert(left.number, left);
            }
            if self.roots.contains_key(&number) {
                self.twice = Some(seq);
                return;
            }
        }
        let open = &mut self.open;
        let tile = self
            .current
            .get_or_insert_with(|| open.remove(&number).unwrap_or_else(|| Tile::new(number)));
        if !tile.put(place, hash) {
            self.twice = Some(seq);
        }
        if tile.known == Mask::ALL {
            let mut tree = Tree::new();
            tree.push(&tile.leaves);
            self.roots.insert(number, tree.root());
            self.current = None;
        }
    }

    /// Adds a leaf of which only the hash is left.
    pub(super) fn put_stub(&mut self, seq: u64, hash: Hash) {
        self.put(seq, hash);
        self.stubs.entry(seq / TILE).or_default().set(seq % TILE);
    }

    /// The places of a tile without an event, whether or not a hash is left.
    pub(super) fn absent(&self, number: u64) -> Mask {
        let mut absent = self.stubs.get(&number).copied().unwrap_or_default();
        if self.roots.contains_key(&number) {
            return absent;
        }
        let Some(tile) = self.tile(number) else { return Mask::ALL };
        absent.join(tile.known.inverse());
        absent
    }

    /// Adds the leaves of another collection.
    pub(super) fn absorb(&mut self, other: Self) {
        self.twice = self.twice.or(other.twice);
        for (number, mask) in other.stubs {
            self.stubs.entry(number).or_default().join(mask);
        }
        for (number, root) in other.roots {
            if self.tile(number).is_some() || self.roots.insert(number, root).is_some() {
                self.twice = Some(number * TILE);
            }
        }
        for tile in other.open.into_values().chain(other.current) {
            for place in 0..TILE_WIDTH {
                if let Some(hash) = tile.leaf(place) {
                    self.put(tile.number * TILE + place as u64, hash);
                }
            }
        }
    }

    /// A position with more than one event or hash.
    pub(super) fn twice(&self) -> Option<u64> {
        self.twice
    }

    /// Whether some but not all leaves of a tile were added.
    pub(super) fn is_open(&self, number: u64) -> bool {
        self.tile(number).is_some()
    }

    fn tile(&self, number: u64) -> Option<&Tile> {
        let current = self.current.as_ref().filter(|tile| tile.number == number);
        current.or_else(|| self.open.get(&number))
    }

    /// The root of a complete tile.
    pub(super) fn root(&self, number: u64) -> Option<Hash> {
        self.roots.get(&number).copied()
    }

    /// A leaf of a tile that is not complete.
    pub(super) fn leaf(&self, number: u64, place: usize) -> Option<Hash> {
        self.tile(number)?.leaf(place)
    }
}
