//! The keys of rows seen so far, in limited memory.
//!
//! A key is the XXH3-128 of its values: two different keys collide in one of 10^19 streams of a
//! billion rows. Each is stored with its position, so that a unit that is read again after a
//! failure finds its own rows and not duplicates.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Number of separately locked and growing partitions of the keys.
const SHARDS: usize = 64;
/// Size of a slot: key, position, and the byte that marks it as used.
const SLOT_SIZE: usize = size_of::<(Key, RowPosition)>() + 1;
/// Number of bits of a position that hold the row.
const ROW_BITS: u32 = 40;

/// The hash of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key(u64, u64);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

/// A hasher for values that are already hashes.
#[derive(Debug, Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// A row's position: the unit above [`ROW_BITS`], the row in it below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowPosition(u64);

impl RowPosition {
    /// The position of a row of a unit, both from 0; `None` beyond 2^40 rows or 2^24 units.
    pub(super) fn new(unit: usize, row: u64) -> Option<Self> {
        let unit = u64::try_from(unit).ok().filter(|unit| *unit < 1 << (u64::BITS - ROW_BITS))?;
        (row < 1 << ROW_BITS).then_some(Self(unit << ROW_BITS | row))
    }

    /// Its unit.
    pub(super) fn unit(self) -> usize {
        usize::try_from(self.0 >> ROW_BITS).unwrap_or(usize::MAX)
    }

    /// Its row in the unit.
    pub(super) fn row(self) -> u64 {
        self.0 & ((1 << ROW_BITS) - 1)
    }
}

type Shard = Mutex<HashMap<Key, RowPosition, BuildHasherDefault<AsItIs>>>;

/// The keys seen so far.
pub(super) struct Seen {
    shards: Vec<Shard>,
    /// Number of bytes used.
    size: AtomicUsize,
    size_max: usize,
}

/// The result of looking up a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// It is new, or the row's own.
    No,
    /// The row at this position has it.
    At(RowPosition),
    /// There is no memory for it.
    Full,
}

impl Seen {
    /// Creates an empty set with at most this many bytes.
    pub(super) fn new(size_max: usize) -> Self {
        let shards = std::iter::repeat_with(Shard::default).take(SHARDS).collect();
        Self { shards, size: AtomicUsize::new(0), size_max }
    }

    /// Looks up a key, and inserts it if it is new.
    pub(super) fn see(&self, key: u128, place: RowPosition) -> Known {
        let [low, high] = [key, key >> 64]
            .map(|half| u64::try_from(half & u128::from(u64::MAX)).unwrap_or(u64::MAX));
        // The map uses bits of the low half, the shard of the high one.
        let Some(shard) =
            usize::try_from(high % SHARDS as u64).ok().and_then(|n| self.shards.get(n))
        else {
            unreachable!("a remainder is below its divisor")
        };
        let mut seen = shard.lock();
        if seen.len() == seen.capacity() && !seen.contains_key(&Key(low, high)) {
            let grown = slots(seen.capacity()).saturating_sub(slots_now(seen.capacity()));
            let size = grown * SLOT_SIZE;
            if self.size.fetch_add(size, Ordering::Relaxed) + size > self.size_max {
                self.size.fetch_sub(size, Ordering::Relaxed);
                return Known::Full;
            }
        }
        match seen.entry(Key(low, high)) {
            Entry::Occupied(entry) if *entry.get() == place => Known::No,
            Entry::Occupied(entry) => Known::At(*entry.get()),
            Entry::Vacant(entry) => {
                entry.insert(place);
                Known::No
            }
        }
    }

    /// Maximum number of bytes.
    pub(super) fn size_max(&self) -> usize {
        self.size_max
    }
}

/// Number of slots of a map with this capacity: a power of two, of which seven eighths are used.
fn slots_now(capacity: usize) -> usize {
    if capacity == 0 { 0 } else { (capacity * 8).div_ceil(7).next_power_of_two() }
}

/// Number of its slots after it has grown.
fn slots(capacity: usize) -> usize {
    (slots_now(capacity) * 2).max(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(unit: usize, row: u64) -> RowPosition {
        RowPosition::new(unit, row).unwrap()
    }

    fn key(number: u64) -> u128 {
        xxhash_rust::xxh3::xxh3_128(&number.to_le_bytes())
    }

    #[test]
    fn a_key_is_known_by_the_row_that_had_it_first() {
        let seen = Seen::new(1 << 20);
        assert_eq!(seen.see(key(1), place(3, 7)), Known::No);
        assert_eq!(seen.see(key(1), place(4, 7)), Known::At(place(3, 7)));
        assert_eq!(seen.see(key(1), place(3, 7)), Known::No, "the same row, read again");
        assert_eq!((place(3, 7).unit(), place(3, 7).row()), (3, 7));
    }

    #[test]
    fn keys_take_no_more_memory_than_they_may() {
        let size_max = 1 << 20;
        let seen = Seen::new(size_max);
        let count = (0..1 << 20)
            .position(|number| seen.see(key(number), place(0, number)) == Known::Full)
            .expect("a million keys do not fit into a mebibyte");
        assert!(count * SLOT_SIZE <= size_max, "{count}");
        assert!(count >= size_max / 64, "{count}");
        assert_eq!(seen.see(key(0), place(0, 0)), Known::No, "what is there is still found");
        assert_eq!(seen.see(key(0), place(1, 0)), Known::At(place(0, 0)));
    }

    #[test]
    fn places_beyond_their_bits_are_none() {
        assert_eq!(RowPosition::new(1 << 24, 0), None);
        assert_eq!(RowPosition::new(0, 1 << 40), None);
        assert!(RowPosition::new((1 << 24) - 1, (1 << 40) - 1).is_some());
    }
}
