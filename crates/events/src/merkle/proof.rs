//! Proofs as documents: what is needed to check one later, elsewhere, with nothing but the log's
//! verifier key.
//!
//! Their JSON is stable; any verifier of RFC 9162 can use it. Fields others add are passed over.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::{Hash, VerifyError, leaf_hash, verify_consistency, verify_inclusion};
use crate::checkpoint::{Checkpoint, CheckpointError, VerifierKey};

/// A proof that an event is in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InclusionProof {
    /// The event's place in the log.
    pub leaf_index: u64,
    /// Leaves in the tree it is proven in.
    pub tree_size: u64,
    /// The hash of its leaf.
    pub leaf_hash: Hash,
    /// Its canonical bytes, in base64.
    pub leaf_base64: String,
    /// The hashes beside the way from the leaf to the root, from below.
    pub audit_path: Vec<Hash>,
    /// The signed note that names the root.
    pub checkpoint: String,
}

/// A proof that the log still begins with what it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsistencyProof {
    /// Leaves of the earlier tree.
    pub first: u64,
    /// Leaves of the later tree.
    pub second: u64,
    /// The hashes that lead to both roots.
    pub path: Vec<Hash>,
    /// The root of the earlier tree, as the log has it now.
    pub first_root: Hash,
    /// The root of the later tree.
    pub second_root: Hash,
    /// The signed note that names the later tree's root, where there is one for that size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
}

/// What a proof of inclusion proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Included {
    /// The event's canonical bytes.
    pub leaf: Vec<u8>,
    /// What the log signed.
    pub checkpoint: Checkpoint,
}

/// The step at which a proof failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProofError {
    /// The checkpoint is not one the log signed.
    #[error("the proof's checkpoint does not stand")]
    Checkpoint(#[source] CheckpointError),
    /// There is no checkpoint to hold the proof against.
    #[error("the proof has no checkpoint")]
    NoCheckpoint,
    /// The proof is for another size than the checkpoint.
    #[error("the proof is for a tree of {proof} leaves, the checkpoint for one of {checkpoint}")]
    Size {
        /// Leaves the proof says.
        proof: u64,
        /// Leaves the checkpoint says.
        checkpoint: u64,
    },
    /// The proof says another root than a checkpoint of that size.
    #[error("the proof says the root {proof}, the checkpoint {checkpoint}")]
    Root {
        /// The root the proof says.
        proof: Hash,
        /// The root the checkpoint says.
        checkpoint: Hash,
    },
    /// The leaf's bytes cannot be read.
    #[error("the proof's leaf is not base64")]
    LeafText,
    /// The leaf's bytes have another hash.
    #[error("the proof's leaf has the hash {found}; the proof says {expected}")]
    Leaf {
        /// The hash the proof says.
        expected: Hash,
        /// The hash of the bytes.
        found: Hash,
    },
    /// The path does not lead to the root.
    #[error("the proof's path does not lead to the checkpoint's root")]
    Path(#[source] VerifyError),
}

impl InclusionProof {
    /// Puts a proof together.
    ///
    /// * `leaf`: the event's canonical bytes.
    /// * `audit_path`: as [`super::Tree::inclusion_path`] gives it for the checkpoint's size.
    /// * `checkpoint`: the signed note.
    #[must_use]
    pub fn new(
        leaf_index: u64,
        tree_size: u64,
        leaf: &[u8],
        audit_path: Vec<Hash>,
        checkpoint: String,
    ) -> Self {
        let leaf_base64 = STANDARD.encode(leaf);
        let leaf_hash = leaf_hash(leaf);
        Self { leaf_index, tree_size, leaf_hash, leaf_base64, audit_path, checkpoint }
    }

    /// Verifies everything the proof says, offline.
    ///
    /// # Errors
    /// [`ProofError`], for the first step that fails.
    pub fn verify(&self, key: &VerifierKey) -> Result<Included, ProofError> {
        let checkpoint = Checkpoint::open(self.checkpoint.as_bytes(), key);
        let checkpoint = checkpoint.map_err(ProofError::Checkpoint)?;
        expect_size(self.tree_size, &checkpoint)?;
        let leaf = STANDARD.decode(&self.leaf_base64).map_err(|_| ProofError::LeafText)?;
        let (expected, found) = (self.leaf_hash, leaf_hash(&leaf));
        if expected != found {
            return Err(ProofError::Leaf { expected, found });
        }
        let (index, size, root) = (self.leaf_index, self.tree_size, &checkpoint.root);
        verify_inclusion(index, size, &found, &self.audit_path, root).map_err(ProofError::Path)?;
        Ok(Included { leaf, checkpoint })
    }
}

impl ConsistencyProof {
    /// Verifies, offline, that the log as its later checkpoint has it begins with what `earlier` says,
    /// and returns the later checkpoint.
    ///
    /// * `earlier`: a checkpoint kept from then, already verified; [`Checkpoint::open`] does both.
    ///
    /// # Errors
    /// [`ProofError`], for the first step that fails.
    pub fn verify(
        &self,
        key: &VerifierKey,
        earlier: &Checkpoint,
    ) -> Result<Checkpoint, ProofError> {
        let note = self.checkpoint.as_ref().ok_or(ProofError::NoCheckpoint)?;
        let later = Checkpoint::open(note.as_bytes(), key).map_err(ProofError::Checkpoint)?;
        if earlier.origin != later.origin {
            let (expected, found) = (later.origin, earlier.origin.clone());
            return Err(ProofError::Checkpoint(CheckpointError::Origin { expected, found }));
        }
        expect_size(self.first, earlier)?;
        expect_size(self.second, &later)?;
        expect_root(self.first_root, earlier)?;
        expect_root(self.second_root, &later)?;
        let (first, second, path) = (self.first, self.second, &self.path);
        verify_consistency(first, second, path, &earlier.root, &later.root)
            .map_err(ProofError::Path)?;
        Ok(later)
    }
}

fn expect_size(proof: u64, checkpoint: &Checkpoint) -> Result<(), ProofError> {
    let checkpoint = checkpoint.size;
    if proof == checkpoint { Ok(()) } else { Err(ProofError::Size { proof, checkpoint }) }
}

fn expect_root(proof: Hash, checkpoint: &Checkpoint) -> Result<(), ProofError> {
    let checkpoint = checkpoint.root;
    if proof == checkpoint { Ok(()) } else { Err(ProofError::Root { proof, checkpoint }) }
}
