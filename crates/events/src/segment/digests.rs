//! The digests of a segment's blocks, and the store's signature of them.
//!
//! ```text
//! BLAKE3 of each block's stored bytes, 32 bytes each
//! Ed25519 signature, 64 bytes
//! crc32c u32
//! ```
//! They let a reader check one block by one fast hash. The signature covers the positions of the
//! segment and the block index too, so that a block is only accepted where it belongs.
//!
//! Invariant: they are only ever a shortcut. Without them, or with another signature, a reader
//! compares the events with the tree.

#![deny(clippy::indexing_slicing)]

use forebay_base::checksum::crc32c;

use super::format::{BlockInfo, CHECKSUM_SIZE, HEADER_SIZE};

pub(crate) const DIGEST_SIZE: usize = 32;
pub(crate) const SIGNATURE_SIZE: usize = 64;

/// What every signed message begins with: the key signs checkpoints too.
const CONTEXT: &[u8] = b"forebay event segment, block digests 1\n";

/// BLAKE3 of the stored bytes of a block, without their checksum.
pub(crate) type BlockDigest = [u8; DIGEST_SIZE];

/// Signs the digests of a segment.
pub(crate) type Sign<'a> = dyn Fn(&[u8]) -> [u8; SIGNATURE_SIZE] + 'a;

/// Returns what is signed.
fn message(header: &[u8; HEADER_SIZE], blocks: &[BlockInfo], digests: &[u8]) -> Vec<u8> {
    let mut index = Vec::new();
    blocks.iter().for_each(|block| block.encode(&mut index));
    let sum = blake3::Hasher::new().update(digests).update(&index).finalize();
    [CONTEXT, header, sum.as_bytes()].concat()
}

/// Returns the digests of all blocks with their signature and checksum.
pub(crate) fn encode(
    header: &[u8; HEADER_SIZE],
    blocks: &[BlockInfo],
    digests: &[BlockDigest],
    salt: u32,
    sign: &Sign<'_>,
) -> Vec<u8> {
    let mut out = digests.as_flattened().to_vec();
    let signature = sign(&message(header, blocks, &out));
    out.extend_from_slice(&signature);
    let checksum = crc32c(&out) ^ salt;
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}

/// Size in bytes of what [`encode`] returns; `None` for an impossible number of blocks.
pub(crate) fn size(blocks: usize) -> Option<usize> {
    blocks.checked_mul(DIGEST_SIZE)?.checked_add(SIGNATURE_SIZE + CHECKSUM_SIZE)
}

/// Returns the digests, if checksum and signature are right.
pub(crate) fn decode(
    bytes: &[u8],
    header: &[u8; HEADER_SIZE],
    blocks: &[BlockInfo],
    salt: u32,
    verifies: &dyn Fn(&[u8], &[u8]) -> bool,
) -> Option<Vec<BlockDigest>> {
    let (bytes, stored) = bytes.split_last_chunk::<CHECKSUM_SIZE>()?;
    if crc32c(bytes) ^ salt != u32::from_le_bytes(*stored) {
        return None;
    }
    let (digests, signature) = bytes.split_last_chunk::<SIGNATURE_SIZE>()?;
    if !verifies(&message(header, blocks, digests), signature) {
        return None;
    }
    let (digests, rest) = digests.as_chunks::<DIGEST_SIZE>();
    (rest.is_empty() && digests.len() == blocks.len()).then(|| digests.to_vec())
}
