//! Reading the log: entries in, complete operations out, assembled from their parts.
//!
//! Invariant: operations are returned once, with all their parts, at the position of the last part.

use std::collections::BTreeMap;

use forebay_log::Lsn;

use super::error::LogFault;
use super::format::{Entry, EntryFault};

/// Maximum memory reserved for parts before they are read.
const RESERVED_MAX: usize = 16 << 20;

/// Operations of which some parts have been read.
#[derive(Debug)]
struct Incomplete {
    now_ms: u64,
    total: u64,
    bytes: Vec<u8>,
}

/// Joins parts.
#[derive(Debug)]
pub(crate) struct Joiner {
    /// Where reading began: parts whose first part is earlier belong to operations already known.
    from: Lsn,
    /// Keyed by the position of the first part.
    incomplete: BTreeMap<Lsn, Incomplete>,
    whole: Vec<u8>,
}

/// The changes of one command, or of one transaction.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Whole<'a> {
    /// Position in the log; that of the first part if there are several.
    pub(crate) lsn: Lsn,
    pub(crate) now_ms: u64,
    /// [`Ops::as_bytes`](super::Ops::as_bytes).
    pub(crate) bytes: &'a [u8],
}

impl Joiner {
    /// Returns a joiner for a reading that begins at `from`.
    pub(crate) fn new(from: Lsn) -> Self {
        Self { from, incomplete: BTreeMap::new(), whole: Vec::new() }
    }

    /// Adds an entry, and returns the operations it completes.
    pub(crate) fn take<'a>(
        &'a mut self,
        lsn: Lsn,
        payload: &'a [u8],
    ) -> Result<Option<Whole<'a>>, LogFault> {
        match Entry::decode(payload).map_err(LogFault::Entry)? {
            Entry::Ops { now_ms, bytes } => Ok(Some(Whole { lsn, now_ms, bytes })),
            Entry::Opened => {
                self.incomplete.clear();
                Ok(None)
            }
            Entry::Part { now_ms, first, total, offset, bytes } => {
                let first = if offset == 0 { lsn } else { first };
                self.part(first, (now_ms, total), offset, bytes)
            }
        }
    }

    fn part(
        &mut self,
        first: Lsn,
        (now_ms, total): (u64, u64),
        offset: u64,
        bytes: &[u8],
    ) -> Result<Option<Whole<'_>>, LogFault> {
        if first < self.from {
            return Ok(None);
        }
        let wrong = |expected| LogFault::Entry(EntryFault::Order { expected, found: offset });
        if offset == 0 {
            let reserved = usize::try_from(total).unwrap_or(usize::MAX).min(RESERVED_MAX);
            let begun = Incomplete { now_ms, total, bytes: Vec::with_capacity(reserved) };
            self.incomplete.insert(first, begun);
        }
        let held = self.incomplete.get_mut(&first).ok_or(wrong(0))?;
        let there = held.bytes.len() as u64;
        if there != offset || held.total != total || held.now_ms != now_ms {
            return Err(wrong(there));
        }
        held.bytes.extend_from_slice(bytes);
        if (held.bytes.len() as u64) < total {
            return Ok(None);
        }
        self.whole = self.incomplete.remove(&first).map(|held| held.bytes).unwrap_or_default();
        Ok(Some(Whole { lsn: first, now_ms, bytes: &self.whole }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::{opened, ops_header, part_header};
    use super::*;

    fn part(first: u64, total: u64, offset: u64, bytes: &[u8]) -> Vec<u8> {
        [&part_header((5, false), Lsn(first), total, offset)[..], bytes].concat()
    }

    #[test]
    fn parts_with_others_between_count_from_the_last() {
        let mut joiner = Joiner::new(Lsn(0));
        assert_eq!(joiner.take(Lsn(8), &part(0, 5, 0, b"ab")), Ok(None));
        assert_eq!(joiner.take(Lsn(16), &part(0, 2, 0, b"x")), Ok(None));
        let ops = [&ops_header(6, false)[..], b"q"].concat();
        let expected = Whole { lsn: Lsn(20), now_ms: 6, bytes: b"q" };
        assert_eq!(joiner.take(Lsn(20), &ops), Ok(Some(expected)));
        assert_eq!(joiner.take(Lsn(24), &part(8, 5, 2, b"cd")), Ok(None));
        let expected = Whole { lsn: Lsn(16), now_ms: 5, bytes: b"xy" };
        assert_eq!(joiner.take(Lsn(32), &part(16, 2, 1, b"y")), Ok(Some(expected)));
        let expected = Whole { lsn: Lsn(8), now_ms: 5, bytes: b"abcde" };
        assert_eq!(joiner.take(Lsn(40), &part(8, 5, 4, b"e")), Ok(Some(expected)));
    }

    #[test]
    fn parts_never_completed_mean_nothing() {
        let mut joiner = Joiner::new(Lsn(0));
        assert_eq!(joiner.take(Lsn(8), &part(0, 5, 0, b"ab")), Ok(None));
        assert_eq!(joiner.take(Lsn(16), &opened()), Ok(None));
        assert!(joiner.take(Lsn(24), &part(8, 5, 2, b"cde")).is_err());
    }

    #[test]
    fn parts_begun_before_the_reading_are_passed_over_and_others_must_be_in_order() {
        let mut joiner = Joiner::new(Lsn(100));
        assert_eq!(joiner.take(Lsn(108), &part(92, 5, 2, b"cde")), Ok(None));
        assert!(joiner.take(Lsn(116), &part(104, 5, 2, b"cde")).is_err(), "never begun");
        assert_eq!(joiner.take(Lsn(124), &part(0, 9, 0, b"ab")), Ok(None));
        assert!(joiner.take(Lsn(132), &part(124, 9, 3, b"d")).is_err(), "a part is missing");
        assert!(joiner.take(Lsn(132), &part(124, 8, 2, b"c")).is_err(), "of something else");
    }
}
