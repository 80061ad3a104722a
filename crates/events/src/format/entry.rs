//! A log entry of the event store: one batch (`docs/formats/event-log.md`).
//!
//! ```text
//! kind       u8 = 1
//! first_seq  u64   position of the first event
//! count      u32   events, at least 1
//! ends       count times u32: where each leaf ends, ascending
//! leaves     the canonical bytes, one after another
//! ```

/// The kind of an entry that holds a batch.
const KIND_BATCH: u8 = 1;
/// Bytes before the ends.
pub(crate) const HEADER_SIZE: usize = 13;

/// The bytes before the ends.
pub(crate) fn header(first_seq: u64, count: u32) -> [u8; HEADER_SIZE] {
    let mut out = [0; HEADER_SIZE];
    out[0] = KIND_BATCH;
    out[1..9].copy_from_slice(&first_seq.to_le_bytes());
    out[9..].copy_from_slice(&count.to_le_bytes());
    out
}

/// The ends as they are stored.
pub(crate) fn ends(ends: &[u32]) -> Vec<u8> {
    ends.iter().flat_map(|end| end.to_le_bytes()).collect()
}

/// A decoded entry: positions are checked, leaves are not decoded yet.
#[derive(Debug)]
pub(crate) struct BatchEntry<'a> {
    pub(crate) first_seq: u64,
    pub(crate) ends: Vec<u32>,
    pub(crate) leaves: &'a [u8],
}

/// Reads an entry.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn decode(payload: &[u8]) -> Result<BatchEntry<'_>, &'static str> {
    let (&kind, rest) = payload.split_first().ok_or("the entry is empty")?;
    if kind != KIND_BATCH {
        return Err("the entry's kind is unknown");
    }
    let (first_seq, rest) = rest.split_first_chunk::<8>().ok_or("the entry is truncated")?;
    let (count, rest) = rest.split_first_chunk::<4>().ok_or("the entry is truncated")?;
    let count = u32::from_le_bytes(*count) as usize;
    let size = count.checked_mul(4).ok_or("the entry's count is too large")?;
    let (stored, leaves) =
        rest.split_at_checked(size).ok_or("the entry's end offsets are truncated")?;
    let (words, _) = stored.as_chunks::<4>();
    let ends: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    if ends.first().is_none_or(|&first| first == 0) || !ends.is_sorted_by(|a, b| a < b) {
        return Err("the entry's end offsets do not ascend");
    }
    if ends.last().is_none_or(|&last| last as usize != leaves.len()) {
        return Err("the entry's leaves have the wrong total length");
    }
    let first_seq = u64::from_le_bytes(*first_seq);
    first_seq.checked_add(count as u64).ok_or("the entry's position is too large")?;
    Ok(BatchEntry { first_seq, ends, leaves })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_survives_and_no_cut_of_it_passes() {
        let leaves = b"onetwothree";
        let offsets = [3u32, 6, 11];
        let mut payload = header(77, 3).to_vec();
        payload.extend(ends(&offsets));
        payload.extend(leaves);
        let entry = decode(&payload).unwrap();
        assert_eq!((entry.first_seq, entry.leaves), (77, leaves.as_slice()));
        assert_eq!(entry.ends, offsets);
        for cut in 0..payload.len() {
            assert!(decode(&payload[..cut]).is_err(), "{cut}");
        }
        payload[0] = 2;
        assert!(decode(&payload).is_err());
    }

    #[test]
    fn ends_that_go_back_are_refused() {
        let mut payload = header(0, 2).to_vec();
        payload.extend(ends(&[3, 3]));
        payload.extend(b"abc");
        assert!(decode(&payload).is_err());
        assert!(decode(&header(u64::MAX, 0)).is_err());
    }
}
