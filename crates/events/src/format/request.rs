//! How far a request with a key was stored: beside the events of the batch with which that became
//! true (`docs/formats/event-log.md`).
//!
//! ```text
//! key       16 bytes
//! time      i64, when it was appended
//! items     u64, records of the input that were stored or rejected so far
//! hash      16 bytes, over the input so far
//! accepted, rejected, mistimed, assumed   u64 each
//! first id, last id                       16 bytes each, big-endian
//! status    u16, of the answer; 0: the input has not ended
//! answer    to the end
//! ```

#![deny(clippy::indexing_slicing)]

use crate::event::EventId;

/// Bytes before the answer.
const FIXED_SIZE: usize = 16 + 8 + 8 + 16 + 4 * 8 + 2 * 16 + 2;
/// Maximum size of an answer, in bytes.
pub const ANSWER_SIZE_MAX: usize = 16 << 10;

/// Names a request, so that it is stored once however often it is sent: a digest of what its client
/// calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestKey(pub [u8; 16]);

impl RequestKey {
    /// The key of a request that its client names by these bytes.
    #[must_use]
    pub fn of(name: &[u8]) -> Self {
        Self(short(&blake3::hash(name)))
    }
}

/// The first half of a digest.
pub(crate) fn short(digest: &blake3::Hash) -> [u8; 16] {
    digest.as_bytes().first_chunk::<16>().copied().unwrap_or_default()
}

/// Events stored for a request, and others that were not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) accepted: u64,
    pub(crate) rejected: u64,
    pub(crate) mistimed: u64,
    pub(crate) assumed: u64,
    pub(crate) first_id: EventId,
    pub(crate) last_id: EventId,
}

/// How far a request was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestNote {
    pub(crate) key: RequestKey,
    pub(crate) time_ns: i64,
    pub(crate) items: u64,
    pub(crate) hash: [u8; 16],
    pub(crate) tally: Tally,
    /// Status and bytes of the answer, once everything is stored.
    pub(crate) answer: Option<(u16, Vec<u8>)>,
}

impl RequestNote {
    /// Its size as it is stored, in bytes.
    pub(crate) fn size(&self) -> usize {
        FIXED_SIZE + self.answer.as_ref().map_or(0, |(_, answer)| answer.len())
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.size());
        out.extend_from_slice(&self.key.0);
        out.extend_from_slice(&self.time_ns.to_le_bytes());
        out.extend_from_slice(&self.items.to_le_bytes());
        out.extend_from_slice(&self.hash);
        let Tally { accepted, rejected, mistimed, assumed, first_id, last_id } = self.tally;
        for count in [accepted, rejected, mistimed, assumed] {
            out.extend_from_slice(&count.to_le_bytes());
        }
        for id in [first_id, last_id] {
            out.extend_from_slice(&id.0.to_be_bytes());
        }
        let status = self.answer.as_ref().map_or(0, |(status, _)| *status);
        out.extend_from_slice(&status.to_le_bytes());
        out.extend(self.answer.iter().flat_map(|(_, answer)| answer));
        out
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut rest = bytes;
        let key = RequestKey(take(&mut rest)?);
        let time_ns = i64::from_le_bytes(take(&mut rest)?);
        let items = u64::from_le_bytes(take(&mut rest)?);
        let hash = take(&mut rest)?;
        let mut count = || take(&mut rest).map(u64::from_le_bytes);
        let (accepted, rejected, mistimed, assumed) = (count()?, count()?, count()?, count()?);
        let mut id = || take(&mut rest).map(|id| EventId(u128::from_be_bytes(id)));
        let (first_id, last_id) = (id()?, id()?);
        let status = u16::from_le_bytes(take(&mut rest)?);
        if rest.len() > ANSWER_SIZE_MAX || (status == 0 && !rest.is_empty()) {
            return Err("the answer of a request has a wrong size");
        }
        let answer = (status > 0).then(|| (status, rest.to_vec()));
        let tally = Tally { accepted, rejected, mistimed, assumed, first_id, last_id };
        Ok(Self { key, time_ns, items, hash, tally, answer })
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], &'static str> {
    let (found, rest) =
        bytes.split_first_chunk::<N>().ok_or("the note of a request is truncated")?;
    *bytes = rest;
    Ok(*found)
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a failed index is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn a_note_survives_and_no_cut_of_its_fields_passes() {
        let note = RequestNote {
            key: RequestKey::of(b"one"),
            time_ns: -5,
            items: 7,
            hash: [3; 16],
            tally: Tally { accepted: 6, rejected: 1, first_id: EventId(9), ..Tally::default() },
            answer: Some((207, b"{}".to_vec())),
        };
        let bytes = note.encode();
        assert_eq!(bytes.len(), note.size());
        assert_eq!(RequestNote::decode(&bytes), Ok(note.clone()));
        for cut in 0..FIXED_SIZE {
            assert!(RequestNote::decode(&bytes[..cut]).is_err(), "{cut}");
        }
        let open = RequestNote { answer: None, ..note };
        let mut bytes = open.encode();
        assert_eq!(RequestNote::decode(&bytes), Ok(open));
        bytes.push(b'x');
        assert!(RequestNote::decode(&bytes).is_err(), "an answer without a status");
        bytes.resize(FIXED_SIZE + ANSWER_SIZE_MAX + 1, b'x');
        assert!(RequestNote::decode(&bytes).is_err());
    }
}
