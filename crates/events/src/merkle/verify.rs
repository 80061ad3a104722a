//! Verifies proofs, given only the proof, the roots and the sizes: RFC 9162, sections 2.1.3.2
//! and 2.1.4.2. For any input the result is success or an error.

use super::{Hash, empty_root, node_hash};

/// Why a proof is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The tree has no such leaf.
    #[error("leaf {index} is beyond the end of a tree of {size} leaves")]
    Beyond {
        /// The leaf's index.
        index: u64,
        /// Leaves in the tree.
        size: u64,
    },
    /// A tree cannot have fewer leaves than an earlier one.
    #[error("the earlier tree has {first} leaves and the later one {second}")]
    Shrunk {
        /// Leaves of the earlier tree.
        first: u64,
        /// Leaves of the later tree.
        second: u64,
    },
    /// The path has a wrong number of hashes.
    #[error("the path of {found} hashes is too {}", if *.long { "long" } else { "short" })]
    PathLength {
        /// Actual number.
        found: usize,
        /// Whether there are too many.
        long: bool,
    },
    /// The path leads to another root.
    #[error("the path leads to the root {found}, not to {expected}")]
    Root {
        /// The root of the tree.
        expected: Hash,
        /// The root to which the path leads.
        found: Hash,
    },
    /// The path leads to another root of the earlier tree.
    #[error("the path leads to the earlier root {found}, not to {expected}")]
    FirstRoot {
        /// The root of the earlier tree.
        expected: Hash,
        /// The root to which the path leads.
        found: Hash,
    },
}

/// Verifies that the tree of `size` leaves with this `root` has `leaf_hash` at `index`.
///
/// # Errors
/// [`VerifyError`] if that is not proven.
pub fn verify_inclusion(
    index: u64,
    size: u64,
    leaf_hash: &Hash,
    path: &[Hash],
    root: &Hash,
) -> Result<(), VerifyError> {
    if index >= size {
        return Err(VerifyError::Beyond { index, size });
    }
    let (mut node, mut last) = (index, size - 1);
    let mut hash = *leaf_hash;
    for step in path {
        if last == 0 {
            return Err(VerifyError::PathLength { found: path.len(), long: true });
        }
        if node & 1 == 1 || node == last {
            hash = node_hash(step, &hash);
            // Levels at which the node has no neighbour are skipped.
            let up = if node & 1 == 1 { 0 } else { node.trailing_zeros().min(63) };
            (node, last) = (node >> up, last >> up);
        } else {
            hash = node_hash(&hash, step);
        }
        (node, last) = (node >> 1, last >> 1);
    }
    if last != 0 {
        return Err(VerifyError::PathLength { found: path.len(), long: false });
    }
    expect_root(root, hash)
}

/// Verifies that the tree of `second` leaves with `second_root` begins with the tree of `first`
/// leaves with `first_root`.
///
/// # Errors
/// [`VerifyError`] if that is not proven.
pub fn verify_consistency(
    first: u64,
    second: u64,
    path: &[Hash],
    first_root: &Hash,
    second_root: &Hash,
) -> Result<(), VerifyError> {
    if first > second {
        return Err(VerifyError::Shrunk { first, second });
    }
    if first == 0 {
        expect_first_root(first_root, empty_root())?;
    }
    if first == second {
        expect_root(second_root, *first_root)?;
    }
    if first == 0 || first == second {
        return match path.len() {
            0 => Ok(()),
            found => Err(VerifyError::PathLength { found, long: true }),
        };
    }
    let short = VerifyError::PathLength { found: path.len(), long: false };
    // An earlier tree that is a complete subtree of the later one is not repeated in the path.
    let (start, path_after) = match path {
        _ if first.is_power_of_two() => (first_root, path),
        [start, rest @ ..] => (start, rest),
        [] => return Err(short),
    };
    let (mut node, mut last) = (first - 1, second - 1);
    let up = node.trailing_ones();
    (node, last) = (node >> up, last >> up);
    let (mut old, mut new) = (*start, *start);
    for step in path_after {
        if last == 0 {
            return Err(VerifyError::PathLength { found: path.len(), long: true });
        }
        if node & 1 == 1 || node == last {
            old = node_hash(step, &old);
            new = node_hash(step, &new);
            let up = if node & 1 == 1 { 0 } else { node.trailing_zeros().min(63) };
            (node, last) = (node >> up, last >> up);
        } else {
            new = node_hash(&new, step);
        }
        (node, last) = (node >> 1, last >> 1);
    }
    if last != 0 {
        return Err(short);
    }
    expect_first_root(first_root, old)?;
    expect_root(second_root, new)
}

fn expect_root(expected: &Hash, found: Hash) -> Result<(), VerifyError> {
    let expected = *expected;
    if expected == found { Ok(()) } else { Err(VerifyError::Root { expected, found }) }
}

fn expect_first_root(expected: &Hash, found: Hash) -> Result<(), VerifyError> {
    let expected = *expected;
    if expected == found { Ok(()) } else { Err(VerifyError::FirstRoot { expected, found }) }
}
