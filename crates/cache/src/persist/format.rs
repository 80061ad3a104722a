//! Entries of the command log; `docs/formats/cache-log.md` describes every byte.
//!
//! ```text
//! operations = 1 (1), version (1), time (8, ms), operations
//! part       = 2 (1), version (1), time (8, ms), first part's position (8; 0 in the first itself),
//!              bytes of all parts (8), bytes before this part (8), bytes
//! opened     = 3 (1), version (1)
//! ```
//!
//! The version is 1; 2 if the operations contain a reference from one key to another.
//!
//! Invariants: the parts of one append are in order, with entries of other appends in between; an
//! `opened` entry discards all incomplete appends before it.

use forebay_log::Lsn;

/// Size in bytes of what precedes the operations of an entry.
pub(crate) const OPS_HEADER_SIZE: usize = 10;
/// Size in bytes of what precedes the bytes of a part.
pub(crate) const PART_HEADER_SIZE: usize = 34;

const VERSION: u8 = 1;
/// Version of operations that contain a reference.
const VERSION_REFERENCES: u8 = 2;
const KIND_OPS: u8 = 1;
const KIND_PART: u8 = 2;
const KIND_OPENED: u8 = 3;

const fn version(refers: bool) -> u8 {
    if refers { VERSION_REFERENCES } else { VERSION }
}

/// Returns the header of operations that fit one entry.
///
/// * `refers`: whether one of them is a reference.
pub(crate) fn ops_header(now_ms: u64, refers: bool) -> [u8; OPS_HEADER_SIZE] {
    let mut header = [0; OPS_HEADER_SIZE];
    header[0] = KIND_OPS;
    header[1] = version(refers);
    header[2..].copy_from_slice(&now_ms.to_le_bytes());
    header
}

/// Returns the header of a part of operations that do not fit.
pub(crate) fn part_header(
    (now_ms, refers): (u64, bool),
    first: Lsn,
    total: u64,
    offset: u64,
) -> [u8; PART_HEADER_SIZE] {
    let mut header = [0; PART_HEADER_SIZE];
    header[0] = KIND_PART;
    header[1] = version(refers);
    let numbers = [now_ms, first.0, total, offset];
    for (slot, number) in header[2..].chunks_exact_mut(8).zip(numbers) {
        slot.copy_from_slice(&number.to_le_bytes());
    }
    header
}

/// Returns the entry that begins every use of the log.
pub(crate) fn opened() -> [u8; 2] {
    [KIND_OPENED, VERSION]
}

/// A decoded entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    /// Operations in a single entry.
    Ops {
        /// The time at which they ran.
        now_ms: u64,
        /// [`Ops::as_bytes`](super::Ops::as_bytes).
        bytes: &'a [u8],
    },
    /// A part of operations.
    Part {
        /// The time at which they ran.
        now_ms: u64,
        /// Position of their first part; `Lsn(0)` in the first part itself.
        first: Lsn,
        /// Size of all parts in bytes.
        total: u64,
        /// Size of the previous parts in bytes.
        offset: u64,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// The log was opened here.
    Opened,
}

/// What is wrong with an entry's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryFault {
    /// It is shorter than its header.
    #[error("the entry has {found} bytes, expected at least {expected}")]
    Short {
        /// Bytes of its header.
        expected: usize,
        /// Actual number of bytes.
        found: usize,
    },
    /// An unknown kind.
    #[error("entry kind {kind} is unknown")]
    Kind {
        /// The kind.
        kind: u8,
    },
    /// An unknown version.
    #[error(
        "entry version {found} is newer than the newest supported version, {VERSION_REFERENCES}"
    )]
    Version {
        /// The version.
        found: u8,
    },
    /// Bytes follow its contents.
    #[error("{bytes} bytes follow the entry")]
    Trailing {
        /// How many.
        bytes: usize,
    },
    /// A part that exceeds the total, or is empty.
    #[error("a part of {size} bytes at {offset} exceeds the total of {total} bytes")]
    Part {
        /// Size of the part in bytes.
        size: usize,
        /// Size of the previous parts in bytes.
        offset: u64,
        /// Size of all parts in bytes.
        total: u64,
    },
    /// A part that does not follow the previous one.
    #[error("a part starts at byte {found} of the operations, but {expected} bytes precede it")]
    Order {
        /// Size of the previous parts found, in bytes.
        expected: u64,
        /// Size of the previous parts stated in it, in bytes.
        found: u64,
    },
}

impl<'a> Entry<'a> {
    /// Decodes an entry.
    pub(crate) fn decode(payload: &'a [u8]) -> Result<Self, EntryFault> {
        let short = |expected| EntryFault::Short { expected, found: payload.len() };
        let [kind, version, rest @ ..] = payload else { return Err(short(2)) };
        if !(KIND_OPS..=KIND_OPENED).contains(kind) {
            return Err(EntryFault::Kind { kind: *kind });
        }
        let newest = if *kind == KIND_OPENED { VERSION } else { VERSION_REFERENCES };
        if !(VERSION..=newest).contains(version) {
            return Err(EntryFault::Version { found: *version });
        }
        match *kind {
            KIND_OPS => {
                let ([now_ms], bytes) = numbers::<1>(rest).ok_or(short(OPS_HEADER_SIZE))?;
                Ok(Self::Ops { now_ms, bytes })
            }
            KIND_PART => {
                let ([now_ms, first, total, offset], bytes) =
                    numbers::<4>(rest).ok_or(short(PART_HEADER_SIZE))?;
                let end = offset.checked_add(bytes.len() as u64);
                let begins = (offset == 0) == (first == 0);
                if bytes.is_empty() || !begins || end.is_none_or(|end| end > total) {
                    return Err(EntryFault::Part { size: bytes.len(), offset, total });
                }
                Ok(Self::Part { now_ms, first: Lsn(first), total, offset, bytes })
            }
            _ if rest.is_empty() => Ok(Self::Opened),
            _ => Err(EntryFault::Trailing { bytes: rest.len() }),
        }
    }
}

/// Returns the first `N` numbers of eight bytes each, and the remaining bytes.
fn numbers<const N: usize>(bytes: &[u8]) -> Option<([u64; N], &[u8])> {
    let (head, rest) = bytes.split_at_checked(N * 8)?;
    let mut numbers = [0; N];
    for (number, chunk) in numbers.iter_mut().zip(head.chunks_exact(8)) {
        *number = u64::from_le_bytes(chunk.try_into().ok()?);
    }
    Some((numbers, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_back() {
        let mut ops = ops_header(77, true).to_vec();
        ops.extend_from_slice(b"xyz");
        assert_eq!(Entry::decode(&ops), Ok(Entry::Ops { now_ms: 77, bytes: b"xyz" }));
        let mut part = part_header((1, false), Lsn(88), 10, 7).to_vec();
        part.extend_from_slice(b"abc");
        let expected =
            Entry::Part { now_ms: 1, first: Lsn(88), total: 10, offset: 7, bytes: b"abc" };
        assert_eq!(Entry::decode(&part), Ok(expected));
        assert_eq!(Entry::decode(&opened()), Ok(Entry::Opened));
    }

    #[test]
    fn what_is_no_entry_is_refused() {
        assert_eq!(Entry::decode(&[]), Err(EntryFault::Short { expected: 2, found: 0 }));
        assert_eq!(Entry::decode(&[9, 1]), Err(EntryFault::Kind { kind: 9 }));
        assert_eq!(Entry::decode(&[1, 3, 0]), Err(EntryFault::Version { found: 3 }));
        assert_eq!(Entry::decode(&[3, 2]), Err(EntryFault::Version { found: 2 }));
        assert_eq!(Entry::decode(&[3, 1, 0]), Err(EntryFault::Trailing { bytes: 1 }));
        assert!(matches!(Entry::decode(&[1, 1, 0]), Err(EntryFault::Short { .. })));
        let beyond = [&part_header((1, false), Lsn(8), 9, 7)[..], b"abc"].concat();
        assert!(matches!(Entry::decode(&beyond), Err(EntryFault::Part { .. })));
        let headless = [&part_header((1, false), Lsn(0), 90, 7)[..], b"abc"].concat();
        assert!(matches!(Entry::decode(&headless), Err(EntryFault::Part { .. })));
    }
}
