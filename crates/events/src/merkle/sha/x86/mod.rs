//! SHA-256 in bulk on x86-64: thirty-two messages at once if the processor has 512-bit vectors and
//! there are enough messages of similar length, otherwise two at once with the SHA extensions.
//!
//! Contract of the unsafe parts: code compiled for an extension is called only after the processor
//! was checked for it.
#![expect(unsafe_code, reason = "instructions not every processor has; the contract is above")]

use super::message::{Leaves, Pairs};
use super::{LEAF_PREFIX, NODE_PREFIX};
use crate::merkle::Hash;

mod constants;
mod two;
mod wide;

use wide::WIDTH;

/// Number of occupied lanes at which thirty-two lanes are as fast as two.
const WORTH: usize = 12;

/// Hashes every leaf and appends the hashes in order; returns the leaves, untouched, if the
/// processor lacks the extensions.
#[inline]
pub(super) fn leaf_hashes<'a, I>(mut leaves: I, out: &mut Vec<Hash>) -> Result<(), I>
where
    I: Iterator<Item = &'a [u8]>,
{
    if !two::is_available() {
        return Err(leaves);
    }
    if !wide::is_available() {
        // SAFETY: the processor has every extension `run` is compiled for.
        unsafe { two::run(Leaves(leaves), out) };
        return Ok(());
    }
    let mut group: [&[u8]; WIDTH] = [&[]; WIDTH];
    loop {
        let mut count = 0;
        for (slot, leaf) in group.iter_mut().zip(&mut leaves) {
            *slot = leaf;
            count += 1;
        }
        group[count..].fill(&[]);
        if are_worth_it(&group[..count]) {
            // SAFETY: the processor has every extension `hash` is compiled for; no leaf is too
            // long; every hash is written.
            unsafe { append(count, out, |hashes| wide::hash(LEAF_PREFIX, &group, hashes)) };
        } else {
            let leaves = Leaves(group[..count].iter().copied());
            // SAFETY: the processor has every extension `run` is compiled for.
            unsafe { two::run(leaves, out) };
        }
        if count < WIDTH {
            return Ok(());
        }
    }
}

/// Appends the hash of the node above each pair; returns false if the processor lacks the
/// extensions.
#[inline]
pub(super) fn node_hashes(pairs: &[[Hash; 2]], out: &mut Vec<Hash>) -> bool {
    if !two::is_available() {
        return false;
    }
    let (groups, rest) = if wide::is_available() { pairs.as_chunks() } else { (&[][..], pairs) };
    for group in groups {
        // SAFETY: the processor has every extension `hash_pairs` is compiled for; every hash is
        // written.
        unsafe { append(WIDTH, out, |hashes| wide::hash_pairs(NODE_PREFIX, group, hashes)) };
    }
    if rest.len() >= WORTH && wide::is_available() {
        let mut group = [[Hash::default(); 2]; WIDTH];
        group[..rest.len()].copy_from_slice(rest);
        // SAFETY: as above.
        unsafe { append(rest.len(), out, |hashes| wide::hash_pairs(NODE_PREFIX, &group, hashes)) };
    } else {
        // SAFETY: the processor has every extension `run` is compiled for.
        unsafe { two::run(Pairs(rest.iter()), out) };
    }
    true
}

/// Appends the first `count` of the hashes `write` writes.
///
/// # Safety
/// It writes all of them, and `count` is not above [`WIDTH`].
#[inline]
unsafe fn append(count: usize, out: &mut Vec<Hash>, write: impl FnOnce(&mut wide::Hashes)) {
    out.reserve(WIDTH);
    let len = out.len();
    if let Some(hashes) = out.spare_capacity_mut().first_chunk_mut() {
        write(hashes);
        // SAFETY: they are within the capacity, and written.
        unsafe { out.set_len(len + count) };
    }
}

/// Whether thirty-two lanes are faster for these messages than two: not if few lanes are occupied,
/// or most of them wait for the longest message.
#[inline]
fn are_worth_it(leaves: &[&[u8]]) -> bool {
    let (mut sum, mut longest) = (0, 0);
    for leaf in leaves {
        if leaf.len() > wide::LEN_MAX {
            return false;
        }
        let blocks = wide::blocks(leaf.len());
        sum += blocks;
        longest = longest.max(blocks);
    }
    sum > longest * WORTH
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merkle::{leaf_hash, node_hash};

    fn leaf(len: usize) -> Vec<u8> {
        (0..len).map(|i| u8::try_from((i * 7 + len) % 256).unwrap()).collect()
    }

    fn leaves() -> Vec<Vec<u8>> {
        (0..300).map(leaf).collect()
    }

    /// The hashes of thirty-two leaves.
    fn wide(leaves: &[&[u8]]) -> Vec<Hash> {
        let group = leaves.try_into().unwrap();
        let mut out = Vec::new();
        // SAFETY: the processor has the extensions, and every hash is written.
        unsafe { append(WIDTH, &mut out, |hashes| wide::hash(LEAF_PREFIX, group, hashes)) };
        out
    }

    #[test]
    fn two_at_a_time_every_length_is_hashed_as_alone() {
        if !two::is_available() {
            return;
        }
        let leaves = leaves();
        let expected: Vec<Hash> = leaves.iter().map(|leaf| leaf_hash(leaf)).collect();
        let mut out = Vec::new();
        // SAFETY: the processor has the extensions.
        unsafe { two::run(Leaves(leaves.iter().map(Vec::as_slice)), &mut out) };
        assert_eq!(out, expected);
        let (pairs, _) = expected.as_chunks();
        let nodes: Vec<Hash> = pairs.iter().map(|[left, right]| node_hash(left, right)).collect();
        out.clear();
        // SAFETY: as above.
        unsafe { two::run(Pairs(pairs.iter()), &mut out) };
        assert_eq!(out, nodes);
    }

    #[test]
    fn thirty_two_at_a_time_any_mix_of_lengths_is_hashed_as_alone() {
        if !wide::is_available() {
            return;
        }
        let leaves = leaves();
        let expected: Vec<Hash> = leaves.iter().map(|leaf| leaf_hash(leaf)).collect();
        for step in [1, 3, 5, 7, 8] {
            for start in 0..300 - 31 * step {
                let group: Vec<&[u8]> = leaves
                    .iter()
                    .skip(start)
                    .step_by(step)
                    .take(WIDTH)
                    .map(Vec::as_slice)
                    .collect();
                let hashes = expected.iter().skip(start).step_by(step).take(WIDTH).copied();
                assert_eq!(wide(&group), hashes.collect::<Vec<_>>(), "from {start} by {step}");
            }
        }
    }

    #[test]
    fn thirty_two_at_a_time_a_long_one_among_short_ones_is_hashed_as_alone() {
        if !wide::is_available() {
            return;
        }
        for len in [0, 54, 55, 62, 63, 64, 118, 119, 127, 4096, 70_000] {
            let (long, short) = (leaf(len), leaf(len % 61));
            for lane in 0..WIDTH {
                let group: [&[u8]; WIDTH] =
                    std::array::from_fn(|at| if at == lane { &long[..] } else { &short });
                let expected = group.map(leaf_hash);
                assert_eq!(wide(&group), expected, "{len} bytes in {lane}");
            }
        }
    }

    #[test]
    fn nodes_thirty_two_at_a_time_are_hashed_as_alone() {
        if !wide::is_available() {
            return;
        }
        for salt in 0..256 {
            let pairs: [[Hash; 2]; WIDTH] = std::array::from_fn(|lane| {
                let mut right = leaf_hash(&leaf(salt + 31 * lane));
                right.0[31] = u8::try_from((salt + lane) % 256).unwrap();
                [leaf_hash(&leaf(salt + lane)), right]
            });
            let mut out = Vec::new();
            // SAFETY: the processor has the extensions, and every hash is written.
            unsafe {
                append(WIDTH, &mut out, |hashes| wide::hash_pairs(NODE_PREFIX, &pairs, hashes));
            };
            assert_eq!(out, pairs.map(|[left, right]| node_hash(&left, &right)));
        }
    }
}
