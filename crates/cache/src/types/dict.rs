//! Entries found by key, stored densely: the base of large hashes, sets and sorted sets.
//!
//! Invariants:
//! - `entries` has no gaps and no order: removing one entry moves the last into its position. So a
//!   uniform index is a uniform pick, and iteration is sequential in memory.
//! - `index` has one slot per entry, with 32 bits of the key's hash: growing it reads no keys.
//! - The hash is seeded at random once per process, so that keys cannot be chosen to collide.

use std::hash::BuildHasher as _;
use std::sync::LazyLock;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

/// A type with a key.
pub(super) trait Keyed {
    /// The key, which must not change while the entry is in a [`Dict`].
    fn key(&self) -> &[u8];
}

impl Keyed for Box<[u8]> {
    fn key(&self) -> &[u8] {
        self
    }
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    hash: u32,
    at: u32,
}

impl Slot {
    /// The table takes the position from the low bits of a hash and the tag from the high ones.
    fn spread(self) -> u64 {
        spread(self.hash)
    }
}

fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

fn hash_of(key: &[u8]) -> u32 {
    static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::default);
    let hash = STATE.hash_one(key).to_le_bytes();
    u32::from_le_bytes([hash[0], hash[1], hash[2], hash[3]])
}

/// A set of entries with distinct keys.
#[derive(Debug, Clone)]
pub(super) struct Dict<E> {
    entries: Vec<E>,
    index: HashTable<Slot>,
}

impl<E: Keyed> Dict<E> {
    /// Room for `count` entries.
    pub(super) fn with_capacity(count: usize) -> Self {
        Self { entries: Vec::with_capacity(count), index: HashTable::with_capacity(count) }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Memory of entries and index, without what entries point to.
    pub(super) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<E>() + self.index.allocation_size()
    }

    /// The entries in order of position.
    pub(super) fn entries(&self) -> &[E] {
        &self.entries
    }

    /// Takes the entry at a position and leaves a gap. The dictionary can only be freed then.
    pub(super) fn take_out(&mut self, at: usize) -> E
    where
        E: Default,
    {
        std::mem::take(&mut self.entries[at])
    }

    /// The position of `key`'s entry.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> Option<usize> {
        let hash = hash_of(key);
        let same = |slot: &Slot| slot.hash == hash && self.entries[slot.at as usize].key() == key;
        self.index.find(spread(hash), same).map(|slot| slot.at as usize)
    }

    /// The entry of `key`.
    #[inline]
    pub(super) fn get(&self, key: &[u8]) -> Option<&E> {
        self.find(key).map(|at| &self.entries[at])
    }

    /// The entry at a position, for changes of everything except its key.
    pub(super) fn at_mut(&mut self, at: usize) -> &mut E {
        &mut self.entries[at]
    }

    /// Adds an entry with a new key, and returns its position.
    pub(super) fn push(&mut self, entry: E) -> u32 {
        let at = u32::try_from(self.entries.len()).expect("collections are below 2^32 members");
        let slot = Slot { hash: hash_of(entry.key()), at };
        self.index.insert_unique(slot.spread(), slot, |slot| slot.spread());
        self.entries.push(entry);
        at
    }

    /// Removes the entry at a position; the last entry, if it is another, moves there.
    pub(super) fn swap_remove(&mut self, at: usize) -> E {
        let last = self.entries.len() - 1;
        self.unlink(at);
        if at != last {
            let hash = hash_of(self.entries[last].key());
            let moved = self.index.find_mut(spread(hash), |slot| slot.at as usize == last);
            if let Some(slot) = moved {
                slot.at = u32::try_from(at).unwrap_or(slot.at);
            }
        }
        let entry = self.entries.swap_remove(at);
        self.shrink();
        entry
    }

    fn unlink(&mut self, at: usize) {
        let hash = hash_of(self.entries[at].key());
        let slot = self.index.find_entry(spread(hash), |slot| slot.at as usize == at);
        debug_assert!(slot.is_ok(), "every entry has a slot");
        if let Ok(slot) = slot {
            slot.remove();
        }
    }

    /// Frees room when three quarters of it are unused.
    fn shrink(&mut self) {
        let len = self.entries.len();
        if self.entries.capacity() > 64 && len < self.entries.capacity() / 4 {
            self.entries.shrink_to(len * 2);
            self.index.shrink_to(len * 2, |slot| slot.spread());
        }
    }

    /// Visits at least `count` entries from `cursor` (0: from the start) and returns where to
    /// continue (0: finished).
    ///
    /// The order is from the last position to the first. An entry that moves comes from the end,
    /// which has already been visited, and a new one is added there; so no remaining entry is
    /// missed.
    pub(super) fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(&E)) -> u64 {
        let len = self.entries.len();
        let from = match usize::try_from(cursor) {
            Ok(cursor @ 1..) => cursor.min(len),
            _ => len,
        };
        let to = from.saturating_sub(count.max(1));
        self.entries[to..from].iter().rev().for_each(&mut visit);
        to as u64
    }
}
