//! The hashes of RFC 9162, section 2.1.1, one at a time and in bulk.
//!
//! A leaf's hash is `SHA-256(0x00 || leaf)`, a node's `SHA-256(0x01 || left || right)`. In bulk, if
//! the processor supports it, several messages are hashed at once: thirty-two in the lanes of wide
//! vectors, or two with the SHA extensions, where the instructions of one run while those of the
//! other wait for each other.

use sha2::{Digest as _, Sha256};

use super::Hash;

mod message;
#[cfg(target_arch = "x86_64")]
mod x86;

const LEAF_PREFIX: u8 = 0;
const NODE_PREFIX: u8 = 1;

/// The root of the tree without leaves: the hash of the empty string.
#[must_use]
pub fn empty_root() -> Hash {
    Hash(Sha256::digest([]).into())
}

/// The hash of one leaf.
#[must_use]
pub fn leaf_hash(leaf: &[u8]) -> Hash {
    let hasher = Sha256::new_with_prefix([LEAF_PREFIX]);
    Hash(hasher.chain_update(leaf).finalize().into())
}

/// The hash of the node above two.
#[must_use]
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    let hasher = Sha256::new_with_prefix([NODE_PREFIX]);
    Hash(hasher.chain_update(left.0).chain_update(right.0).finalize().into())
}

/// Appends the hash of each leaf to `out`.
pub fn leaf_hashes<'a>(leaves: impl IntoIterator<Item = &'a [u8]>, out: &mut Vec<Hash>) {
    let leaves = leaves.into_iter();
    out.reserve(leaves.size_hint().0);
    #[cfg(target_arch = "x86_64")]
    let leaves = match x86::leaf_hashes(leaves, out) {
        Ok(()) => return,
        Err(leaves) => leaves,
    };
    out.extend(leaves.map(leaf_hash));
}

/// Appends the hash of the node above each pair of neighbours to `out`; a last one without a
/// neighbour is left out.
pub fn node_hashes(children: &[Hash], out: &mut Vec<Hash>) {
    let (pairs, _) = children.as_chunks::<2>();
    out.reserve(pairs.len());
    #[cfg(target_arch = "x86_64")]
    if x86::node_hashes(pairs, out) {
        return;
    }
    out.extend(pairs.iter().map(|[left, right]| node_hash(left, right)));
}

#[cfg(test)]
mod tests;
