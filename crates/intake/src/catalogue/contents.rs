//! Counts contents by their digests, in limited memory.
//!
//! Those that were seen are kept, for at most a given number at once. If there are more, the rows are read
//! again for the next part of all digests, as often as it takes.
//!
//! ```text
//! digests     0 ............ to ............................ 2^64    by their first eight bytes
//! pass 1      [   counted   )
//! pass 2                    [       counted       )  ...
//! ```
//!
//! Invariant: the parts of all passes together are all digests, and none is in two of them.

use std::ops::Range;

use foldhash::HashMap;
use forebay_base::rows::RowHasher;
use forebay_base::waiting::Gone;
use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::list::Take;
use super::rows::Checked;
use crate::digest::Digest;

/// The end of all digests.
const END: u128 = 1 << 64;

/// What was counted of a content.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted {
    /// Its size in bytes.
    pub(super) size: u64,
    /// Number of names and versions that refer to it.
    pub(super) names: u64,
}

/// Counts the contents whose digests are in a part of all.
pub(super) struct Contents<'s> {
    seen: HashMap<[u8; 32], Counted>,
    contents_max: usize,
    /// The part, by the first eight bytes of digests; the end is exclusive.
    part: Range<u128>,
    /// Ends the walk.
    gone: &'s Gone,
}

impl<'s> Contents<'s> {
    /// Begins with all digests; which part is counted depends on how many there are.
    ///
    /// * `contents_max`: how many are in memory at once.
    /// * `gone`: makes it take no more.
    pub(super) fn first(contents_max: usize, gone: &'s Gone) -> Self {
        Self { seen: HashMap::default(), contents_max, part: 0..END, gone }
    }

    /// The part after this one, once all rows were taken; `None` after the last.
    pub(super) fn next(&self) -> Option<Self> {
        let Range { start, end } = self.part;
        let width = end - start;
        let part = end..(end + width).min(END);
        (end < END).then(|| Self { seen: HashMap::default(), part, ..*self })
    }

    /// What was counted.
    pub(super) fn counted(&self) -> impl Iterator<Item = (Digest, Counted)> {
        self.seen.iter().map(|(digest, counted)| (Digest(*digest), *counted))
    }

    fn add(&mut self, digest: [u8; 32], size: u64) {
        if !self.part.contains(&head(&digest)) {
            return;
        }
        self.seen.entry(digest).or_insert(Counted { size, names: 0 }).names += 1;
        // Digests are spread evenly, so this halves them.
        while self.seen.len() > self.contents_max && self.part.end - self.part.start > 1 {
            self.part.end = self.part.start + (self.part.end - self.part.start) / 2;
            let part = self.part.clone();
            self.seen.retain(|digest, _| part.contains(&head(digest)));
        }
    }
}

fn head(digest: &[u8; 32]) -> u128 {
    digest.first_chunk().map_or(0, |first| u64::from_be_bytes(*first).into())
}

impl Take for Contents<'_> {
    fn is_full(&self) -> bool {
        self.gone.is_gone()
    }

    fn take(&mut self, _: &mut RowHasher, row: &Row<'_>) -> Checked<()> {
        // A version that is a deletion has none.
        if row.get_ref(3)? != ValueRef::Null {
            self.add(row.get(3)?, row.get::<_, i64>(4)?.cast_unsigned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_counted_once_whatever_the_number_in_memory() {
        let gone = Gone::default();
        for contents_max in [1, 2, 7, 100, 1_000] {
            let (mut found, mut names) = (Vec::new(), 0);
            let mut next = Some(Contents::first(contents_max, &gone));
            while let Some(mut part) = next {
                for n in (0..300_u64).chain(100..200) {
                    part.add(Digest::of(&n.to_le_bytes()).0, n);
                    assert!(part.seen.len() <= contents_max);
                }
                for (_, counted) in part.counted() {
                    found.push(counted.size);
                    names += counted.names;
                }
                next = part.next();
            }
            found.sort_unstable();
            assert!(found.into_iter().eq(0..300), "{contents_max}");
            assert_eq!(names, 400, "{contents_max}");
        }
    }
}
