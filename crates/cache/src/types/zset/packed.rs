//! A small sorted set: one buffer of `length member score length ...` in order, with the length
//! (one byte) on both sides so that it can be iterated in both directions, and the score as 8
//! little-endian bytes.

use super::compare;
use crate::types::pack;

/// Overhead in bytes of an entry besides its member.
const AROUND: usize = 1 + 8 + 1;

#[derive(Debug, Clone)]
pub(super) struct Packed {
    buf: Vec<u8>,
    count: usize,
}

/// The location of a member.
pub(super) struct MemberSpan {
    pub(super) score: f64,
    pub(super) rank: usize,
    at: usize,
    end: usize,
}

impl Packed {
    pub(super) const fn new() -> Self {
        Self { buf: Vec::new(), count: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.count
    }

    pub(super) const fn bytes(&self) -> usize {
        self.buf.capacity()
    }

    /// The member and score that begin at `at`, and where the next do.
    #[inline]
    pub(super) fn entry_at(&self, at: usize) -> Option<(&[u8], f64, usize)> {
        let (&len, rest) = self.buf.get(at..)?.split_first()?;
        let (member, rest) = rest.split_at_checked(len.into())?;
        let score = f64::from_le_bytes(*rest.first_chunk()?);
        Some((member, score, at + member.len() + AROUND))
    }

    /// The member and score that end at `end`, and where they begin.
    #[inline]
    pub(super) fn entry_before(&self, end: usize) -> Option<(&[u8], f64, usize)> {
        let len = usize::from(*self.buf.get(end.checked_sub(1)?)?);
        let at = end.checked_sub(len + AROUND)?;
        let (member, score, _) = self.entry_at(at)?;
        Some((member, score, at))
    }

    pub(super) fn find(&self, member: &[u8]) -> Option<MemberSpan> {
        let (mut at, mut rank) = (0, 0);
        while let Some((other, score, end)) = self.entry_at(at) {
            if other == member {
                return Some(MemberSpan { score, rank, at, end });
            }
            (at, rank) = (end, rank + 1);
        }
        None
    }

    /// Adds a new member.
    pub(super) fn insert(&mut self, member: &[u8], score: f64) {
        let mut at = 0;
        // The end first: members added in order belong there.
        match self.entry_before(self.buf.len()) {
            Some((last, last_score, _)) if compare((last_score, last), (score, member)).is_lt() => {
                at = self.buf.len();
            }
            _ => {
                while let Some((other, other_score, next)) = self.entry_at(at)
                    && compare((other_score, other), (score, member)).is_lt()
                {
                    at = next;
                }
            }
        }
        let len = pack::prefix(member.len());
        pack::splice(&mut self.buf, at, 0, &[&len, member, &score.to_le_bytes(), &len]);
        self.count += 1;
    }

    pub(super) fn remove(&mut self, found: &MemberSpan) {
        pack::splice(&mut self.buf, found.at, found.end - found.at, &[]);
        self.count -= 1;
    }

    /// Removes `count` entries from rank `from` on, which must exist.
    pub(super) fn remove_range(&mut self, from: usize, count: usize) {
        let (start, end) = (self.offset(from), self.offset(from + count));
        pack::splice(&mut self.buf, start, end - start, &[]);
        self.count -= count;
        self.shrink();
    }

    pub(super) fn shrink(&mut self) {
        pack::shrink(&mut self.buf);
    }

    /// Where the entry of a rank begins; the end if there is none.
    pub(super) fn offset(&self, rank: usize) -> usize {
        let mut at = 0;
        for _ in 0..rank {
            let Some((_, _, next)) = self.entry_at(at) else { break };
            at = next;
        }
        at
    }

    /// How many entries, from the first on, are `before`.
    pub(super) fn count_while(&self, before: impl Fn(&[u8], f64) -> bool) -> usize {
        let (mut at, mut count) = (0, 0);
        while let Some((member, score, next)) = self.entry_at(at)
            && before(member, score)
        {
            (at, count) = (next, count + 1);
        }
        count
    }
}
