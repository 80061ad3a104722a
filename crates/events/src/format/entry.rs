//! A log entry of the event store: one batch (`docs/formats/event-log.md`).
//!
//! ```text
//! kind       u8 = 1; or 2, then: size u32 and bytes of the note of a request (`request`); or 3, then:
//!            a code, 32 bytes, and size and note as in 2; or 4, then: a code
//! first_seq  u64   position of the first event
//! count      u32   events, at least 1; 0 only after a note
//! ends       count times u32: where each leaf ends, ascending
//! leaves     the canonical bytes, one after another
//! ```

use super::tree;
use crate::merkle::Hash;

/// The kind of an entry that holds a batch.
const KIND_BATCH: u8 = 1;
/// The kind of an entry that holds the note of a request, and a batch.
const KIND_NOTED: u8 = 2;
/// The same with a code.
const KIND_SEALED: u8 = 3;
/// The kind of an entry that holds a batch with a code.
const KIND_SEALED_BATCH: u8 = 4;
/// Bytes before the ends, without code and note.
const HEADER_SIZE: usize = 13;

/// What precedes the events of an entry: the header, the note of a request if there is one, and the
/// code of both if the store makes codes.
pub(crate) fn start(
    first_seq: u64,
    count: u32,
    note: Option<&[u8]>,
    code: Option<&[u8; 32]>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_SIZE + 36 + note.map_or(0, <[u8]>::len));
    out.push(match (note.is_some(), code.is_some()) {
        (false, false) => KIND_BATCH,
        (true, false) => KIND_NOTED,
        (true, true) => KIND_SEALED,
        (false, true) => KIND_SEALED_BATCH,
    });
    out.extend_from_slice(code.map_or(&[][..], <[u8; 32]>::as_slice));
    if let Some(note) = note {
        out.extend_from_slice(&u32::try_from(note.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(note);
    }
    out.extend_from_slice(&first_seq.to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
    out
}

/// The ends as they are stored.
pub(crate) fn ends(ends: &[u32]) -> Vec<u8> {
    ends.iter().flat_map(|end| end.to_le_bytes()).collect()
}

/// The digest of an entry's events, with which the code of an entry with a note is made.
///
/// * `ends`: as they are stored.
pub(crate) fn events_digest(ends: &[u8], leaves: &[u8]) -> [u8; 32] {
    *blake3::Hasher::new().update(ends).update(leaves).finalize().as_bytes()
}

/// The digest of an entry's events, with which the code of an entry without a note is made.
///
/// * `hashes`: of its leaves, which the tree needs anyway.
pub(crate) fn leaves_digest(hashes: &[Hash]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    // BLAKE3 is several times slower when its input comes in small pieces.
    for part in hashes.chunks(512) {
        let bytes: Vec<_> = part.iter().map(|hash| hash.0).collect();
        hasher.update(bytes.as_flattened());
    }
    *hasher.finalize().as_bytes()
}

/// What the code of an entry is made of: where its events stand, what they are, and the note.
///
/// * `events`: [`events_digest`] beside a note, otherwise [`leaves_digest`].
pub(crate) fn authenticated(first_seq: u64, count: u32, note: &[u8], events: &[u8; 32]) -> Vec<u8> {
    [&first_seq.to_le_bytes()[..], &count.to_le_bytes(), events, note].concat()
}

/// A decoded entry: positions are checked, leaves are not decoded yet.
#[derive(Debug)]
pub(crate) struct BatchEntry<'a> {
    /// The note of a request.
    pub(crate) note: Option<&'a [u8]>,
    /// The code of note and events.
    pub(crate) code: Option<&'a [u8; 32]>,
    pub(crate) first_seq: u64,
    pub(crate) ends: Vec<u32>,
    pub(crate) leaves: &'a [u8],
}

impl BatchEntry<'_> {
    /// What its code is made of.
    ///
    /// * `hashes`: returns those of its leaves; used only without a note.
    pub(crate) fn authenticated<'h>(&self, hashes: impl FnOnce() -> &'h [Hash]) -> Vec<u8> {
        let events = match self.note {
            Some(_) => events_digest(&ends(&self.ends), self.leaves),
            None => leaves_digest(hashes()),
        };
        let count = u32::try_from(self.ends.len()).unwrap_or(u32::MAX);
        authenticated(self.first_seq, count, self.note.unwrap_or_default(), &events)
    }

    /// The position after its last event.
    pub(crate) fn end_seq(&self) -> u64 {
        self.first_seq + self.ends.len() as u64
    }

    /// The hashes of its leaves.
    pub(crate) fn hashes(&self) -> Vec<Hash> {
        let mut start = 0;
        let leaves = self.ends.iter().map(|&end| {
            let leaf = self.leaves.get(start..end as usize).unwrap_or_default();
            start = end as usize;
            leaf
        });
        let mut hashes = Vec::with_capacity(self.ends.len());
        tree::hashes(leaves, &mut hashes);
        hashes
    }
}

/// Reads an entry.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn decode(payload: &[u8]) -> Result<BatchEntry<'_>, &'static str> {
    let (&kind, rest) = payload.split_first().ok_or("the entry is empty")?;
    let cut = "the entry's note is truncated";
    let (code, rest) = match kind {
        KIND_SEALED | KIND_SEALED_BATCH => {
            rest.split_first_chunk::<32>().map(|(code, rest)| (Some(code), rest))
        }
        _ => Some((None, rest)),
    }
    .ok_or(cut)?;
    let (note, rest) = match kind {
        KIND_BATCH | KIND_SEALED_BATCH => (None, rest),
        KIND_NOTED | KIND_SEALED => {
            let (size, rest) = rest.split_first_chunk::<4>().ok_or(cut)?;
            let (note, rest) =
                rest.split_at_checked(u32::from_le_bytes(*size) as usize).ok_or(cut)?;
            (Some(note), rest)
        }
        _ => return Err("the entry's kind is unknown"),
    };
    let (first_seq, rest) = rest.split_first_chunk::<8>().ok_or("the entry is truncated")?;
    let (count, rest) = rest.split_first_chunk::<4>().ok_or("the entry is truncated")?;
    let count = u32::from_le_bytes(*count) as usize;
    let size = count.checked_mul(4).ok_or("the entry's count is too large")?;
    let (stored, leaves) =
        rest.split_at_checked(size).ok_or("the entry's end offsets are truncated")?;
    let (words, _) = stored.as_chunks::<4>();
    let ends: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    if ends.is_empty() && note.is_none() {
        return Err("the entry has no events");
    }
    if ends.first() == Some(&0) || !ends.is_sorted_by(|a, b| a < b) {
        return Err("the entry's end offsets do not ascend");
    }
    if ends.last().map_or(0, |&last| last as usize) != leaves.len() {
        return Err("the entry's leaves have the wrong total length");
    }
    let first_seq = u64::from_le_bytes(*first_seq);
    first_seq.checked_add(count as u64).ok_or("the entry's position is too large")?;
    Ok(BatchEntry { note, code, first_seq, ends, leaves })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_survives_and_no_cut_of_it_passes() {
        let leaves = b"onetwothree";
        let offsets = [3u32, 6, 11];
        let mut payload = start(77, 3, None, None);
        payload.extend(ends(&offsets));
        payload.extend(leaves);
        let entry = decode(&payload).unwrap();
        assert_eq!((entry.first_seq, entry.leaves), (77, leaves.as_slice()));
        assert_eq!(entry.ends, offsets);
        for cut in 0..payload.len() {
            assert!(decode(&payload[..cut]).is_err(), "{cut}");
        }
        payload[0] = 5;
        assert!(decode(&payload).is_err());
    }

    #[test]
    fn an_entry_with_a_note_survives_also_without_events() {
        let events = [(&b"onetwo"[..], &[3u32, 6][..]), (b"", &[])];
        let code = [9; 32];
        for ((leaves, offsets), code) in
            events.into_iter().flat_map(|events| [(events, None), (events, Some(&code))])
        {
            let count = u32::try_from(offsets.len()).unwrap();
            let mut payload = start(77, count, Some(b"note"), code);
            payload.extend(ends(offsets));
            payload.extend(leaves);
            let entry = decode(&payload).unwrap();
            assert_eq!((entry.first_seq, entry.leaves), (77, leaves));
            assert_eq!((entry.note, entry.ends.as_slice()), (Some(&b"note"[..]), offsets));
            assert_eq!(entry.code, code);
            for cut in 0..payload.len() {
                assert!(decode(&payload[..cut]).is_err(), "{cut}");
            }
        }
        let mut sealed = start(77, 2, None, Some(&code));
        sealed.extend(ends(&[3, 6]));
        sealed.extend(b"onetwo");
        let entry = decode(&sealed).unwrap();
        assert_eq!((entry.note, entry.code, entry.leaves), (None, Some(&code), &b"onetwo"[..]));
        for cut in 0..sealed.len() {
            assert!(decode(&sealed[..cut]).is_err(), "{cut}");
        }
        assert!(decode(&start(77, 0, None, None)).is_err());
    }

    #[test]
    fn ends_that_go_back_are_refused() {
        let mut payload = start(0, 2, None, None);
        payload.extend(ends(&[3, 3]));
        payload.extend(b"abc");
        assert!(decode(&payload).is_err());
        assert!(decode(&start(u64::MAX, 0, None, None)).is_err());
    }
}
