//! The collections that keys can hold: pure data without locks, clocks or randomness.
//!
//! Invariants:
//! - A small collection is one allocation of packed bytes; a large one is indexed. The conversion
//!   to large is automatic, and only a list is converted back.
//! - Reading clones nothing: iterators borrow the stored data.
//! - `bytes()` is O(1): the heap memory of the contents, without the size of the type itself.
//! - `nth()` of an index drawn uniformly below `len()` is a uniform pick ([`sample`] draws
//!   several).
//! - `scan()` iterates over a collection by a cursor. A member present from its first call to its
//!   last is visited at least once, whatever is added and removed in between.
//!
//! A collection may hold up to 2^32 - 1 members.

mod dict;
mod hash;
mod list;
mod pack;
pub mod packing;
mod set;
mod zset;

pub use hash::{Hash, HashIter};
pub use list::{Items, List};
pub use set::{Member, Set, SetIter};
pub use zset::{LexBound, ScoreBound, Upsert, ZSet, ZSetIter};

/// Draws `count` distinct indices below `len`, or all of them if there are fewer, in no particular
/// order. `random(n)` returns a number below `n`, which is not 0.
pub fn sample(len: usize, count: usize, mut random: impl FnMut(usize) -> usize) -> Vec<usize> {
    if count >= len {
        return (0..len).collect();
    }
    if count > len / 3 {
        // Many: shuffle as far as needed.
        let mut all: Vec<usize> = (0..len).collect();
        for at in 0..count {
            let other = at + random(len - at).min(len - at - 1);
            all.swap(at, other);
        }
        all.truncate(count);
        return all;
    }
    // Few: Floyd's algorithm (Bentley and Floyd, "A sample of brilliance", CACM 1987).
    let mut drawn =
        hashbrown::HashSet::with_capacity_and_hasher(count, foldhash::fast::RandomState::default());
    for top in len - count..len {
        let pick = random(top + 1).min(top);
        if !drawn.insert(pick) {
            drawn.insert(top);
        }
    }
    drawn.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_different_and_as_many_as_asked() {
        let mut state = 7usize;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for (len, count, expected) in [(0, 5, 0), (5, 9, 5), (100, 3, 3), (100, 90, 90), (9, 0, 0)]
        {
            let mut drawn = sample(len, count, &mut random);
            drawn.sort_unstable();
            drawn.dedup();
            assert_eq!(drawn.len(), expected);
            assert!(drawn.iter().all(|&index| index < len));
        }
    }
}
