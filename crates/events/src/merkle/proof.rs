//! Proofs as documents: everything needed to verify a proof later, elsewhere, with only the log's
//! verifier key.
//!
//! Their JSON is stable; any verifier of RFC 9162 can use it. Unknown fields are ignored.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::{Hash, VerifyError, verify_consistency, verify_inclusion};
use crate::checkpoint::{Checkpoint, CheckpointError, VerifierKey};
use crate::format::tree;

/// A proof that an event is in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "api", derive(utoipa::ToSchema), schema(as = EventProof))]
pub struct InclusionProof {
    /// The event's position in the log.
    pub leaf_index: u64,
    /// Leaves in the tree it is proven in.
    pub tree_size: u64,
    /// The hash of its entry in the tree: the leaf, or a digest of a large one.
    #[cfg_attr(feature = "api", schema(value_type = String))]
    pub leaf_hash: Hash,
    /// Its canonical bytes, in base64.
    pub leaf_base64: String,
    /// The hashes along the path from the leaf to the root, from below.
    #[cfg_attr(feature = "api", schema(value_type = Vec<String>))]
    pub audit_path: Vec<Hash>,
    /// The signed note that contains the root.
    pub checkpoint: String,
}

/// A proof that the log still begins with an earlier state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "api", derive(utoipa::ToSchema), schema(as = EventConsistencyProof))]
pub struct ConsistencyProof {
    /// Leaves of the earlier tree.
    pub first: u64,
    /// Leaves of the later tree.
    pub second: u64,
    /// The hashes that lead to both roots.
    #[cfg_attr(feature = "api", schema(value_type = Vec<String>))]
    pub path: Vec<Hash>,
    /// The root of the earlier tree, as computed from the log now.
    #[cfg_attr(feature = "api", schema(value_type = String))]
    pub first_root: Hash,
    /// The root of the later tree.
    #[cfg_attr(feature = "api", schema(value_type = String))]
    pub second_root: Hash,
    /// The signed note with the later tree's root, if there is one for that size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "api", schema(nullable = false))]
    pub checkpoint: Option<String>,
}

/// The result of a verified proof of inclusion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Included {
    /// The event's canonical bytes.
    pub leaf: Vec<u8>,
    /// The signed checkpoint.
    pub checkpoint: Checkpoint,
}

/// The step at which verification failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProofError {
    /// The log did not sign the checkpoint.
    #[error("the proof's checkpoint is not valid")]
    Checkpoint(#[source] CheckpointError),
    /// There is no checkpoint to compare with.
    #[error("the proof has no checkpoint")]
    NoCheckpoint,
    /// The proof is for another size than the checkpoint.
    #[error("the proof is for a tree of {proof} leaves, but the checkpoint is for {checkpoint}")]
    Size {
        /// Number of leaves in the proof.
        proof: u64,
        /// Number of leaves in the checkpoint.
        checkpoint: u64,
    },
    /// The proof has another root than the checkpoint.
    #[error("the proof has the root {proof}, but the checkpoint has {checkpoint}")]
    Root {
        /// The root in the proof.
        proof: Hash,
        /// The root in the checkpoint.
        checkpoint: Hash,
    },
    /// The leaf's bytes cannot be decoded.
    #[error("the proof's leaf is not base64")]
    LeafText,
    /// The leaf's bytes have another hash.
    #[error("the proof's leaf has the hash {found}, but the proof states {expected}")]
    Leaf {
        /// The hash in the proof.
        expected: Hash,
        /// The hash of the bytes.
        found: Hash,
    },
    /// The path does not lead to the root.
    #[error("the proof's path does not lead to the checkpoint's root")]
    Path(#[source] VerifyError),
}

impl InclusionProof {
    /// Assembles a proof.
    ///
    /// * `leaf`: the event's canonical bytes.
    /// * `audit_path`: the result of [`super::Tree::inclusion_path`] for the checkpoint's size.
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
        let leaf_hash = tree::hash(leaf);
        Self { leaf_index, tree_size, leaf_hash, leaf_base64, audit_path, checkpoint }
    }

    /// Verifies the whole proof, offline.
    ///
    /// # Errors
    /// [`ProofError`], for the first step that fails.
    pub fn verify(&self, key: &VerifierKey) -> Result<Included, ProofError> {
        let checkpoint = Checkpoint::open(self.checkpoint.as_bytes(), key);
        let checkpoint = checkpoint.map_err(ProofError::Checkpoint)?;
        expect_size(self.tree_size, &checkpoint)?;
        let leaf = STANDARD.decode(&self.leaf_base64).map_err(|_| ProofError::LeafText)?;
        let (expected, found) = (self.leaf_hash, tree::hash(&leaf));
        if expected != found {
            return Err(ProofError::Leaf { expected, found });
        }
        let (index, size, root) = (self.leaf_index, self.tree_size, &checkpoint.root);
        verify_inclusion(index, size, &found, &self.audit_path, root).map_err(ProofError::Path)?;
        Ok(Included { leaf, checkpoint })
    }
}

impl ConsistencyProof {
    /// Verifies, offline, that the log of its later checkpoint begins with the log of `earlier`,
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
