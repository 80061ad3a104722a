//! Bundles of entries, as C2SP tlog-tiles has them: each entry after its size in 16 bits.
//!
//! Invariant: a bundle is whole, or an error: its entries hash to the leaf hashes of its tile.

use super::{ReadError, Store};
use crate::event::EventId;
use crate::format::tree;

/// Why a bundle does not exist, or cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// An event of it was removed; its hash may still be in the tile.
    #[error("event {seq} was removed by the retention rules")]
    Removed {
        /// Its position.
        seq: u64,
    },
    /// An event of an earlier version is larger than an entry may be: it has no digest.
    #[error(
        "event {seq} was stored by an earlier version and exceeds the {max} bytes of an entry in a \
         bundle; use GET /v1/events/{id}", max = tree::ENTRY_SIZE_MAX
    )]
    TooLarge {
        /// Its position.
        seq: u64,
        /// Its id.
        id: EventId,
    },
    /// An event cannot be read.
    #[error("an event of the bundle cannot be read")]
    Read(#[source] ReadError),
}

impl Store {
    /// Returns the entries of the `count` events from `first`, each after its size (u16,
    /// big-endian).
    ///
    /// # Errors
    /// [`BundleError`], for the first event that is not part of a bundle.
    pub fn bundle(&self, first: u64, count: usize) -> Result<Vec<u8>, BundleError> {
        let mut bytes = Vec::new();
        for seq in (first..).take(count) {
            let record = self.at(seq).map_err(BundleError::Read)?;
            let record = record.ok_or(BundleError::Removed { seq })?;
            let entry = tree::entry(record.leaf());
            let size = u16::try_from(entry.len())
                .map_err(|_| BundleError::TooLarge { seq, id: record.event().id })?;
            bytes.extend_from_slice(&size.to_be_bytes());
            bytes.extend_from_slice(&entry);
        }
        Ok(bytes)
    }
}
