//! The id of an event: 128 bits, written as a ULID, read as a ULID or a UUID.

use std::fmt;
use std::str::FromStr;

/// Crockford's base 32, the digits of a ULID.
const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// Digits of a ULID.
const ULID_LENGTH: usize = 26;
/// Random bits of a ULID.
const RANDOM_BITS: u32 = 80;

/// An event's id. Ids of one producer should differ; generated ones do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EventId(pub u128);

/// A text that is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an event id must be a ULID (26 letters and digits) or a UUID, not {found:?}")]
pub struct IdError {
    /// The text, at most 64 bytes of it.
    pub found: String,
}

impl fmt::Display for EventId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0u8; ULID_LENGTH];
        let mut rest = self.0;
        for place in text.iter_mut().rev() {
            *place = DIGITS[usize::from((rest & 31) as u8)];
            rest >>= 5;
        }
        formatter.pad(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl FromStr for EventId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        ulid(text.as_bytes())
            .or_else(|| uuid::Uuid::try_parse(text).ok().map(|id| id.as_u128()))
            .map(Self)
            .ok_or_else(|| IdError { found: text.chars().take(64).collect() })
    }
}

/// Parses a ULID in either case; `I`, `L` and `O` are read as the digits they resemble, as
/// Crockford defines. `None`: another length, another letter, or more than 128 bits.
fn ulid(text: &[u8]) -> Option<u128> {
    if text.len() != ULID_LENGTH || text.first().is_some_and(|&first| first > b'7') {
        return None;
    }
    text.iter().try_fold(0u128, |sum, &letter| {
        let letter = match letter.to_ascii_uppercase() {
            b'I' | b'L' => b'1',
            b'O' => b'0',
            other => other,
        };
        let digit = DIGITS.iter().position(|&known| known == letter)?;
        Some((sum << 5) | digit as u128)
    })
}

/// Ids in ascending order from one point in time: a ULID with fresh random bits, and its
/// successors.
///
/// Two sequences overlap only if 80 random bits agree within one millisecond.
#[derive(Debug, Clone)]
pub struct IdSequence {
    next: u128,
}

impl IdSequence {
    /// Returns a sequence that begins at `now_ms`, milliseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn new(now_ms: u64) -> Self {
        let random = uuid::Uuid::new_v4().as_u128();
        // The version and variant bits of the UUID are constant: fold both halves over each other.
        let random = (random ^ (random >> 64) << 48) & ((1 << RANDOM_BITS) - 1);
        // The top bit stays clear so that counting up does not reach the next millisecond soon.
        let random = random & !(1 << (RANDOM_BITS - 1));
        Self { next: (u128::from(now_ms & 0xffff_ffff_ffff) << RANDOM_BITS) | random }
    }

    /// The next id.
    pub fn next_id(&mut self) -> EventId {
        let id = EventId(self.next);
        self.next = self.next.wrapping_add(1);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_ulid_and_uuid_are_read_and_printed() {
        let id: EventId = "01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
        assert_eq!(id.to_string(), "01ARZ3NDEKTSV4RRFFQ69G5FAV");
        assert_eq!("01arz3ndektsv4rrffq69g5fav".parse::<EventId>().unwrap(), id);
        let id: EventId = "0191e4a8-7c3b-7c52-9b3d-0f2a6c1d4e5f".parse().unwrap();
        assert_eq!(id.0, 0x0191_e4a8_7c3b_7c52_9b3d_0f2a_6c1d_4e5f);
        assert_eq!(id.to_string().parse::<EventId>().unwrap(), id);
    }

    #[test]
    fn texts_that_are_no_ids_are_refused() {
        let too_large = "8ZZZZZZZZZZZZZZZZZZZZZZZZZ";
        for text in ["", "01ARZ3NDEKTSV4RRFFQ69G5FA", "01ARZ3NDEKTSV4RRFFQ69G5FAU", too_large] {
            assert!(text.parse::<EventId>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_sequence_ascends_and_sequences_differ() {
        let mut first = IdSequence::new(1_700_000_000_000);
        let mut second = IdSequence::new(1_700_000_000_000);
        let (a, b) = (first.next_id(), first.next_id());
        assert!(a < b);
        assert_ne!(a, second.next_id());
        assert!(IdSequence::new(1_700_000_000_001).next_id() > b);
    }
}
