//! Which events are absent, and which entries of the tree say that they were removed
//! (`docs/formats/event-system.md`).
//!
//! Invariant: an absence is excused only by what a verified checkpoint covers.

use std::collections::HashMap;
use std::ops::Range;

use super::leaves::{Leaves, Mask};
use super::segments::Opened;
use super::signed::Signed;
use super::{Fault, TILE, Verified};
use crate::format::system::{PruneEntry, RecordingEntry, SystemEntry};
use crate::segment::Segment;
use crate::store::record::root_of;

/// Maximum number of ranges of absent events that are reported one by one.
const REPORTED_MAX: usize = 10_000;

/// Indexes named by entries.
#[derive(Debug, Default)]
struct Named {
    /// Tiles all of whose indexes are named.
    whole: Vec<Range<u64>>,
    parts: HashMap<u64, Mask>,
}

impl Named {
    fn add(&mut self, range: &Range<u64>) {
        let (first, end) = (range.start.div_ceil(TILE), range.end / TILE);
        if first < end {
            self.whole.push(first..end);
        }
        // At most one tile at each end is named in part.
        for tile in [range.start / TILE, range.end / TILE] {
            let from = range.start.max(tile * TILE);
            let to = range.end.min(tile.saturating_add(1).saturating_mul(TILE));
            if from < to && !(first..end).contains(&tile) {
                let mask = self.parts.entry(tile).or_default();
                (from..to).for_each(|seq| mask.set(seq % TILE));
            }
        }
    }

    /// Prepares for [`mask`](Self::mask).
    fn sort(&mut self) {
        self.whole.sort_unstable_by_key(|range| range.start);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for range in self.whole.drain(..) {
            match joined.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
        }
        self.whole = joined;
    }

    fn mask(&self, tile: u64) -> Mask {
        let after = self.whole.partition_point(|range| range.start <= tile);
        let range = after.checked_sub(1).and_then(|at| self.whole.get(at));
        if range.is_some_and(|range| range.contains(&tile)) {
            return Mask::ALL;
        }
        self.parts.get(&tile).copied().unwrap_or_default()
    }
}

/// What excuses an absence that no entry names.
enum Excuse {
    None,
    /// The store's version does not record anything.
    Old,
    /// Ranges, and how many of their events were absent when recording began.
    Counted(Vec<(Range<u64>, u64)>),
}

impl Excuse {
    fn new(entries: &[(u64, SystemEntry)], signed: &[Signed]) -> Self {
        if !signed.is_empty() && signed.iter().all(|note| !note.recorded) {
            return Self::Old;
        }
        let applies = |seq: u64| signed.iter().all(|note| note.recorded == (note.size > seq));
        let covered = covered_end(signed);
        let entry = entries.iter().find_map(|(seq, entry)| match entry {
            SystemEntry::Recording(entry) if *seq < covered && applies(*seq) => Some(entry),
            _ => None,
        });
        let ranges = |entry: &RecordingEntry| {
            entry.absent.iter().map(|(first, last, count)| (*first..last + 1, *count)).collect()
        };
        entry.map_or(Self::None, |entry| Self::Counted(ranges(entry)))
    }

    /// The range of a recording entry that has a position.
    fn range_of(&self, seq: u64) -> Option<usize> {
        let Self::Counted(ranges) = self else { return None };
        let at = ranges.partition_point(|(range, _)| range.start <= seq).checked_sub(1)?;
        ranges.get(at).is_some_and(|(range, _)| range.contains(&seq)).then_some(at)
    }
}

/// Entries below this position are covered by a verified checkpoint.
pub(super) fn covered_end(signed: &[Signed]) -> u64 {
    signed.iter().filter(|note| note.confirmed).map(|note| note.size).max().unwrap_or(0)
}

/// Adds a fault for every absent event that nothing excuses, and counts the others.
///
/// * `damaged`: positions about which nothing can be said.
pub(super) fn check(
    leaves: &Leaves,
    entries: &mut [(u64, SystemEntry)],
    signed: &[Signed],
    end_seq: u64,
    damaged: &[Range<u64>],
    verified: &mut Verified,
) {
    entries.sort_unstable_by_key(|(seq, _)| *seq);
    let covered = covered_end(signed);
    let mut named = Named::default();
    for (seq, entry) in entries.iter() {
        if let SystemEntry::Prune(entry) = entry
            && *seq < covered
            && entry.last < *seq
        {
            entry.ranges().for_each(|range| named.add(&range));
        }
    }
    named.sort();
    let excuse = Excuse::new(entries, signed);
    let mut used: HashMap<usize, u64> = HashMap::new();
    verified.pruned = 0;
    each(leaves, end_seq, damaged, |seq| {
        if named.mask(seq / TILE).has(seq % TILE) {
            verified.pruned += 1;
        } else if let Excuse::Old = excuse {
            verified.pruned += 1;
            verified.pruned_before_recording += 1;
        } else if let Some(at) = excuse.range_of(seq) {
            *used.entry(at).or_default() += 1;
        }
    });
    if let Excuse::Counted(ranges) = &excuse {
        used.retain(|at, used| {
            let more = ranges.get(*at).is_none_or(|(_, count)| *used > *count);
            if !more {
                verified.pruned += *used;
                verified.pruned_before_recording += *used;
            }
            more
        });
    }
    let mut faults = Absences::default();
    each(leaves, end_seq, damaged, |seq| {
        let excused = match &excuse {
            Excuse::None => false,
            Excuse::Old => true,
            Excuse::Counted(_) => excuse.range_of(seq).is_some_and(|at| !used.contains_key(&at)),
        };
        if !excused && !named.mask(seq / TILE).has(seq % TILE) {
            faults.add(seq);
        }
    });
    faults.finish(verified);
}

/// Calls `each` with every absent position below `end_seq`, in order.
fn each(leaves: &Leaves, end_seq: u64, damaged: &[Range<u64>], mut each: impl FnMut(u64)) {
    for tile in 0..end_seq.div_ceil(TILE) {
        let absent = leaves.absent(tile);
        if absent.is_empty() {
            continue;
        }
        for seq in (tile * TILE..(tile * TILE + TILE).min(end_seq)).filter(|s| absent.has(s % TILE))
        {
            if !damaged.iter().any(|range| range.contains(&seq)) {
                each(seq);
            }
        }
    }
}

/// Neighbouring positions as ranges.
#[derive(Default)]
struct Absences {
    ranges: Vec<(u64, u64)>,
    more: u64,
}

impl Absences {
    fn add(&mut self, seq: u64) {
        let full = self.ranges.len() == REPORTED_MAX;
        match self.ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(seq) => *last = seq,
            _ if !full => self.ranges.push((seq, seq)),
            _ => self.more += 1,
        }
    }

    fn finish(self, verified: &mut Verified) {
        let faults = self.ranges.into_iter().map(|(first, last)| Fault::Absent { first, last });
        verified.faults.extend(faults);
        if self.more > 0 {
            let found = format!("{} more events are absent without a signed entry", self.more);
            verified.faults.push(Fault::Tree { found });
        }
    }
}

/// Compares the root of each entry with the hashes that are left of its events, if all are.
pub(super) fn check_roots(
    opened: &[Opened<'_>],
    entries: &[(u64, SystemEntry)],
    verified: &mut Verified,
) {
    // Damaged segments are reported elsewhere.
    let segments: Vec<&Segment> = opened
        .iter()
        .map(|opened| &*opened.segment)
        .filter(|segment| segment.info().stubs > 0)
        .collect();
    for (seq, entry) in entries {
        let SystemEntry::Prune(entry) = entry else { continue };
        let hashes = hashes_of(&segments, entry);
        if hashes.len() as u64 == entry.count && root_of(hashes.into_iter()) != entry.root {
            let found =
                format!("the root in the entry at {seq} is not that of the events it names");
            verified.faults.push(Fault::Tree { found });
        }
    }
}

fn hashes_of(segments: &[&Segment], entry: &PruneEntry) -> Vec<crate::merkle::Hash> {
    let mut hashes = Vec::new();
    for range in entry.ranges() {
        for segment in segments {
            let info = segment.info();
            if info.first_seq < range.end && info.end_seq > range.start {
                let stubs = segment.stubs(range.clone()).unwrap_or_default();
                hashes.extend(stubs.into_iter().map(|(_, hash)| hash));
            }
        }
    }
    hashes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn exactly_the_named_indexes_are_named(
            ranges in proptest::collection::vec((0u64..3_000, 0u64..900), 0..8),
        ) {
            let mut named = Named::default();
            for (first, count) in &ranges {
                named.add(&(*first..first + count));
            }
            named.sort();
            for seq in 0..4_000 {
                let expected = ranges.iter().any(|(first, count)| (*first..first + count).contains(&seq));
                prop_assert_eq!(named.mask(seq / TILE).has(seq % TILE), expected, "{}", seq);
            }
        }
    }
}
