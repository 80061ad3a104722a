//! The Merkle tree over every event in sequence (RFC 9162, section 2.1): its hashes, its roots, its
//! proofs, and the verification of proofs.
//!
//! Nothing here knows where events are stored. Complete subtrees of 256 leaves are called *tiles*,
//! as in C2SP tlog-tiles; the tree keeps only their roots, and reads leaf hashes inside a tile from
//! a [`LeafHashes`] when a proof needs them.

mod file;
mod hash;
pub(crate) mod header;
mod path;
pub mod proof;
mod sha;
mod tree;
mod verify;

pub use file::{TreeFile, TreeFileError};
pub use hash::{HASH_SIZE, Hash, HashTextError};
pub use path::{LeafHashes, PathError};
pub use proof::{ConsistencyProof, InclusionProof};
pub use sha::{empty_root, leaf_hash, leaf_hashes, node_hash, node_hashes};
pub(crate) use tree::subtree_root;
pub use tree::{PartsError, TILE_HEIGHT, TILE_WIDTH, Tree};
pub use verify::{VerifyError, verify_consistency, verify_inclusion};
