//! The load that benchmarks use for the store and, byte for byte the same, for other engines.

use std::borrow::Cow;

use crate::batch::{Batch, BatchError};
use crate::event::Draft;

/// Bytes of raw data in each event.
pub const RAW_SIZE: usize = 64;

/// The raw bytes of the `number`-th event: a line of text, different for each event.
#[must_use]
pub fn raw(number: u64) -> [u8; RAW_SIZE] {
    let mut line = *b"login id=0000000000000000 token=0000000000000000 port=0000 ok=1 ";
    // The finaliser of SplitMix64: bits as different as those of real tokens.
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let token = mixed ^ (mixed >> 31);
    let written = hex::encode_to_slice(number.to_be_bytes(), &mut line[9..25])
        .and_then(|()| hex::encode_to_slice(token.to_be_bytes(), &mut line[32..48]))
        .and_then(|()| hex::encode_to_slice(&mixed.to_be_bytes()[..2], &mut line[54..58]));
    debug_assert!(written.is_ok(), "a slice does not have two digits for each byte");
    line
}

/// Returns a batch of the events `first..first + count`, each with its own id.
///
/// # Errors
/// [`BatchError::Full`]: more than fits one batch.
pub fn batch(first: u64, count: usize, now_ns: i64) -> Result<Batch, BatchError> {
    let mut batch = Batch::with_capacity("bench", count, count * 128);
    for number in first..first + count as u64 {
        let raw = raw(number);
        let draft = Draft {
            kind: Cow::Borrowed("login"),
            host: Cow::Borrowed("gate-1"),
            raw: Cow::Borrowed(&raw),
            ..Draft::default()
        };
        batch.push(&draft, now_ns)?;
    }
    Ok(batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_of_the_load_is_another() {
        let batch = batch(0, 5_000, 1_000_000).unwrap();
        let mut leaves: Vec<_> = batch.leaves().collect();
        leaves.sort_unstable();
        leaves.dedup();
        assert_eq!(leaves.len(), 5_000);
        assert_eq!(&raw(0x1f)[..26], b"login id=000000000000001f ");
    }
}
