//! What the tree has of an event: its entry (`docs/formats/event-leaf.md`).
//!
//! The entry is the leaf. The entry of a leaf that is marked as large is a digest:
//!
//! ```text
//! version  u8 = 2
//! id, time, tags with their length, as in the leaf
//! body     u32 little-endian: bytes of what follows the tags in the leaf
//! hash     SHA-256 of these bytes
//! ```
//! So every entry fits the 16 bits that C2SP tlog-tiles has for its size, and a digest is never the
//! entry of another event: leaves begin with 1. Large events of earlier versions have no mark, and
//! are their own entries.
//!
//! Invariant: an entry depends on the leaf alone, and two leaves with one entry have one SHA-256.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};

use super::{leaf, put_varint};
use crate::merkle::{self, Hash};

/// Maximum size of an entry in a bundle, in bytes.
pub const ENTRY_SIZE_MAX: usize = 65_535;
/// The first byte of a digest.
pub const DIGEST_VERSION: u8 = 2;

/// Whether a marked leaf would be larger than an entry may be without the mark: others have none.
///
/// * `mark_size`: 2 bytes, or 1 after the source of the time.
pub(super) fn is_large(leaf_size: usize, tags_size: usize, mark_size: usize) -> bool {
    let varint_size = |number: usize| {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, number as u64);
        bytes.len()
    };
    // It may have lengthened the number before the tags too.
    let longer = varint_size(tags_size) - varint_size(tags_size.saturating_sub(mark_size));
    leaf_size > ENTRY_SIZE_MAX + mark_size + longer
}

/// The entry of a leaf that is marked; `None` for all others.
fn digest(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() <= ENTRY_SIZE_MAX {
        return None;
    }
    let parts = leaf::split(bytes).ok()?;
    if !leaf::tags(parts.tags).is_ok_and(|tags| tags.digested) {
        return None;
    }
    let front = bytes.len() - parts.body.len();
    let mut entry = bytes.get(..front)?.to_vec();
    *entry.first_mut()? = DIGEST_VERSION;
    entry.extend_from_slice(&u32::try_from(parts.body.len()).ok()?.to_le_bytes());
    entry.extend_from_slice(&Sha256::digest(parts.body));
    Some(entry)
}

/// Returns the entry of a leaf in the tree: the bytes that its leaf hash is taken over.
#[must_use]
pub fn entry(leaf: &[u8]) -> Cow<'_, [u8]> {
    digest(leaf).map_or(Cow::Borrowed(leaf), Cow::Owned)
}

/// Returns the leaf hash of an event, from its leaf.
#[must_use]
pub fn hash(leaf: &[u8]) -> Hash {
    merkle::leaf_hash(&entry(leaf))
}

/// Appends the leaf hash of each event to `out`, from their leaves.
pub fn hashes<'a>(leaves: impl IntoIterator<Item = &'a [u8]>, out: &mut Vec<Hash>) {
    let start = out.len();
    let mut large = Vec::new();
    // Of those that have a digest the place is kept.
    let small = leaves.into_iter().enumerate().map(|(index, leaf)| match digest(leaf) {
        None => leaf,
        Some(entry) => {
            large.push((index, merkle::leaf_hash(&entry)));
            &[]
        }
    });
    merkle::leaf_hashes(small, out);
    for (index, hash) in large {
        if let Some(place) = out.get_mut(start + index) {
            *place = hash;
        }
    }
}
