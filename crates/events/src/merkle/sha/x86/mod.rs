//! SHA-256 in bulk on x86-64: sixteen messages at once where the processor has 512-bit vectors and the
//! messages are of about one length, else two at once with the SHA extensions.
//!
//! Contract of the unsafe parts: what is compiled for an extension is called only after the processor
//! was asked for it.
#![expect(unsafe_code, reason = "instructions not every processor has; the contract is above")]

use super::message::{Message, Messages};
use crate::merkle::Hash;

mod constants;
mod sixteen;
mod two;

use sixteen::LANES;

/// Hashes every message and appends the hashes in order; gives the messages back, untouched, when the
/// processor lacks the extensions.
#[inline]
pub(super) fn hash_all<'a, M: Messages<'a>>(messages: M, out: &mut Vec<Hash>) -> Result<(), M> {
    if !two::is_available() {
        return Err(messages);
    }
    if sixteen::is_available() {
        hash_groups(messages, out);
    } else {
        // SAFETY: the processor has every extension `run` is compiled for.
        unsafe { two::run(messages, out) };
    }
    Ok(())
}

/// Hashes sixteen at a time; those left over, and groups too uneven to be worth it, two at a time.
fn hash_groups<'a>(mut messages: impl Messages<'a>, out: &mut Vec<Hash>) {
    let mut group: [Message<'a>; LANES] = std::array::from_fn(|_| Message::default());
    loop {
        let begun = group.iter_mut().map_while(|message| messages.next(message).then_some(()));
        let begun = begun.count();
        if begun == LANES && is_even(&group) {
            // SAFETY: the processor has every extension `hash` is compiled for.
            out.extend_from_slice(&unsafe { sixteen::hash(&mut group) });
        } else {
            let begun = Begun(group[..begun].iter_mut());
            // SAFETY: the processor has every extension `run` is compiled for.
            unsafe { two::run(begun, out) };
        }
        if begun < LANES {
            return;
        }
    }
}

/// Whether the lanes are busy more than half of the time, as which sixteen are the faster way.
#[inline]
fn is_even(group: &[Message<'_>; LANES]) -> bool {
    let blocks = group.iter().map(Message::blocks);
    let longest = blocks.clone().max().unwrap_or(0);
    blocks.sum::<usize>() > longest.saturating_mul(LANES) / 2
}

/// Messages begun before.
struct Begun<'m, 'a>(std::slice::IterMut<'m, Message<'a>>);

impl<'a> Messages<'a> for Begun<'_, 'a> {
    #[inline]
    fn next(&mut self, message: &mut Message<'a>) -> bool {
        self.0.next().is_some_and(|begun| {
            std::mem::swap(message, begun);
            true
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::{Leaves, Pairs};
    use super::*;
    use crate::merkle::{leaf_hash, node_hash};

    fn leaves() -> Vec<Vec<u8>> {
        (0..300)
            .map(|len| (0..len).map(|i| u8::try_from((i * 7 + len) % 256).unwrap()).collect())
            .collect()
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
        let nodes: Vec<Hash> =
            expected.chunks(2).map(|pair| node_hash(&pair[0], &pair[1])).collect();
        out.clear();
        // SAFETY: as above.
        unsafe { two::run(Pairs(expected.chunks_exact(2)), &mut out) };
        assert_eq!(out, nodes);
    }

    #[test]
    fn sixteen_at_a_time_any_mix_of_lengths_is_hashed_as_alone() {
        if !sixteen::is_available() {
            return;
        }
        let leaves = leaves();
        for step in [1, 3, 7, 16] {
            for start in 0..40 {
                let mut messages =
                    Leaves(leaves.iter().skip(start).step_by(step).map(Vec::as_slice));
                let mut group = std::array::from_fn(|_| Message::default());
                assert!(group.iter_mut().all(|message| messages.next(message)));
                // SAFETY: the processor has the extensions.
                let hashes = unsafe { sixteen::hash(&mut group) };
                for (hash, leaf) in hashes.iter().zip(leaves.iter().skip(start).step_by(step)) {
                    assert_eq!(*hash, leaf_hash(leaf), "{}", leaf.len());
                }
            }
        }
    }
}
