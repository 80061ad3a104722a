//! The index from a key's hash to its entry: an extendible hash table of cache-line buckets.
//!
//! The top bits of a hash choose a segment, the bottom bits a bucket in it, and eight bits between
//! them are kept with the reference as a tag. A bucket is one cache line of twelve slots; an entry
//! whose bucket is full is stored in the next one, or in one of the segment's few common buckets. A
//! full segment is split in two by one more bit of the hash: no resize ever touches more than one
//! segment, and a segment is always one contiguous range of hashes (snapshots and scans rely on
//! it). After Dash (Lu et al., VLDB 2020).
//!
//! Invariants: every entry is in its home bucket, the next one, or a common bucket; a bucket's
//! counters are the numbers of its own entries stored elsewhere.

use super::slab::Ref;

/// Buckets that hashes choose among.
pub(crate) const HOMES: usize = 64;
/// Buckets for entries that found no room in their own.
const COMMON: usize = 4;
const PLACES: usize = 12;
/// Bits of the hash that choose the bucket; the tag is above them.
const HOME_BITS: u32 = 6;
/// Maximum number of hash bits used to choose a segment.
pub(crate) const DEPTH_MAX: u32 = 24;

#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Bucket {
    refs: [u32; PLACES],
    tags: [u8; PLACES],
    /// One bit per used slot.
    used: u16,
    /// Own entries in the next bucket.
    next: u8,
    /// Own entries in the common buckets; 255 means "255 or more", permanently.
    common: u8,
}

const EMPTY: Bucket = Bucket { refs: [0; PLACES], tags: [0; PLACES], used: 0, next: 0, common: 0 };

#[derive(Debug, Clone)]
struct Segment {
    buckets: [Bucket; HOMES + COMMON],
    depth: u32,
    len: u32,
}

/// The table; it neither hashes nor compares keys itself.
#[derive(Debug)]
pub(crate) struct Table {
    /// Segment of every prefix of `depth` bits.
    directory: Vec<u32>,
    depth: u32,
    segments: Vec<Box<Segment>>,
    len: usize,
    grown: u32,
}

pub(crate) fn home_of(hash: u64) -> usize {
    usize::from(hash.to_le_bytes()[0]) & (HOMES - 1)
}

fn tag_of(hash: u64) -> u8 {
    (hash >> HOME_BITS).to_le_bytes()[0]
}

impl Bucket {
    /// The slots whose tag is `tag`, one bit each.
    #[inline]
    fn matches(&self, tag: u8) -> u16 {
        let mut found = 0;
        for (place, &held) in self.tags.iter().enumerate() {
            found |= u16::from(held == tag) << place;
        }
        found & self.used
    }

    fn insert(&mut self, tag: u8, at: Ref) -> bool {
        let place = (!self.used).trailing_zeros() as usize;
        if place >= PLACES {
            return false;
        }
        self.refs[place] = at.0;
        self.tags[place] = tag;
        self.used |= 1 << place;
        true
    }
}

/// Calls `visit` with the number of every bit set.
fn bits(mut set: u16, mut visit: impl FnMut(usize)) {
    while set != 0 {
        visit(set.trailing_zeros() as usize);
        set &= set - 1;
    }
}

impl Segment {
    fn new(depth: u32) -> Box<Self> {
        Box::new(Self { buckets: [EMPTY; HOMES + COMMON], depth, len: 0 })
    }

    /// Bucket and slot of the entry with this tag that `is` accepts.
    #[inline]
    fn find(&self, hash: u64, mut is: impl FnMut(Ref) -> bool) -> Option<(usize, usize)> {
        let (home, tag) = (home_of(hash), tag_of(hash));
        let mut look = |bucket: usize| {
            let held = &self.buckets[bucket];
            let mut set = held.matches(tag);
            while set != 0 {
                let place = set.trailing_zeros() as usize;
                if is(Ref(held.refs[place])) {
                    return Some((bucket, place));
                }
                set &= set - 1;
            }
            None
        };
        if let Some(found) = look(home) {
            return Some(found);
        }
        if self.buckets[home].next > 0
            && let Some(found) = look((home + 1) % HOMES)
        {
            return Some(found);
        }
        if self.buckets[home].common > 0 {
            return (HOMES..HOMES + COMMON).find_map(look);
        }
        None
    }

    fn insert(&mut self, hash: u64, at: Ref) -> bool {
        let (home, tag) = (home_of(hash), tag_of(hash));
        let next = (home + 1) % HOMES;
        let taken = |bucket: usize| self.buckets[bucket].used.count_ones();
        let inserted = if taken(home) <= taken(next) && self.buckets[home].insert(tag, at) {
            true
        } else if self.buckets[home].next < u8::MAX && self.buckets[next].insert(tag, at) {
            self.buckets[home].next += 1;
            true
        } else {
            let common = (HOMES..HOMES + COMMON).any(|common| self.buckets[common].insert(tag, at));
            if common {
                let count = &mut self.buckets[home].common;
                *count = count.saturating_add(1);
            }
            common
        };
        self.len += u32::from(inserted);
        inserted
    }

    fn remove(&mut self, hash: u64, (bucket, place): (usize, usize)) {
        let home = home_of(hash);
        self.buckets[bucket].used &= !(1 << place);
        self.len -= 1;
        let home = &mut self.buckets[home];
        if bucket >= HOMES {
            if home.common < u8::MAX {
                home.common -= 1;
            }
        } else if bucket != home_of(hash) {
            home.next -= 1;
        }
    }

    fn each(&self, mut visit: impl FnMut(Ref)) {
        for bucket in &self.buckets {
            bits(bucket.used, |place| visit(Ref(bucket.refs[place])));
        }
    }
}

impl Table {
    pub(crate) fn new() -> Self {
        Self { directory: Vec::new(), depth: 0, segments: Vec::new(), len: 0, grown: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How often the index grew.
    #[inline]
    pub(crate) fn revision(&self) -> u32 {
        self.grown
    }

    pub(crate) fn bytes(&self) -> usize {
        self.segments.len() * (size_of::<Segment>() + 64)
            + self.segments.capacity() * size_of::<Box<Segment>>()
            + self.directory.capacity() * size_of::<u32>()
    }

    /// The prefix of a hash that chooses its segment. `hash`'s top bits beyond those of the shard.
    fn prefix(&self, hash: u64) -> usize {
        if self.depth == 0 {
            return 0;
        }
        usize::try_from(hash >> (u64::BITS - self.depth)).unwrap_or(usize::MAX)
    }

    fn segment(&self, hash: u64) -> Option<&Segment> {
        let number = *self.directory.get(self.prefix(hash))?;
        self.segments.get(number as usize).map(|segment| &**segment)
    }

    /// The entry under `hash` that `is` accepts.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut is: impl FnMut(Ref) -> bool) -> Option<Ref> {
        let segment = self.segment(hash)?;
        let (bucket, place) = segment.find(hash, &mut is)?;
        Some(Ref(segment.buckets[bucket].refs[place]))
    }

    /// Adds a new entry; its key must not exist.
    ///
    /// * `hash_of`: the hash of an existing entry, called when a segment is split.
    pub(crate) fn insert(&mut self, hash: u64, at: Ref, hash_of: &dyn Fn(Ref) -> u64) {
        if self.segments.is_empty() {
            self.segments.push(Segment::new(0));
            self.directory.push(0);
            self.grown = self.grown.wrapping_add(1);
        }
        loop {
            let number = self.directory[self.prefix(hash)] as usize;
            if self.segments[number].insert(hash, at) {
                self.len += 1;
                return;
            }
            self.split(number, hash, hash_of);
        }
    }

    /// Splits a segment by the next bit of its entries' hashes.
    fn split(&mut self, number: usize, hash: u64, hash_of: &dyn Fn(Ref) -> u64) {
        self.grown = self.grown.wrapping_add(1);
        let depth = self.segments[number].depth;
        assert!(depth < DEPTH_MAX, "hashes spread over segments");
        if depth == self.depth {
            self.directory = self.directory.iter().flat_map(|&held| [held, held]).collect();
            self.depth += 1;
        }
        let bit = u64::BITS - 1 - depth;
        let (mut low, mut high) = (Segment::new(depth + 1), Segment::new(depth + 1));
        let mut left = Vec::new();
        self.segments[number].each(|at| {
            let hash = hash_of(at);
            let half = if hash >> bit & 1 == 1 { &mut high } else { &mut low };
            // Half of the entries fits again, except if many hashes have the same low bits.
            if !half.insert(hash, at) {
                left.push((hash, at));
            }
        });
        let added = u32::try_from(self.segments.len()).expect("far fewer than 2^32 segments");
        self.segments[number] = low;
        self.segments.push(high);
        // The directory's entries of this segment are adjacent; the upper half gets the new one.
        let span = 1usize << (self.depth - depth);
        let first = self.prefix(hash) & !(span - 1);
        for slot in &mut self.directory[first + span / 2..first + span] {
            *slot = added;
        }
        for (hash, at) in left {
            self.len -= 1;
            self.insert(hash, at, hash_of);
        }
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, hash: u64, at: Ref) -> bool {
        let prefix = self.prefix(hash);
        let Some(&number) = self.directory.get(prefix) else { return false };
        let segment = &mut self.segments[number as usize];
        let Some(found) = segment.find(hash, |held| held == at) else { return false };
        segment.remove(hash, found);
        self.len -= 1;
        true
    }

    /// Replaces a reference by another one.
    pub(crate) fn replace(&mut self, hash: u64, before: Ref, after: Ref) {
        let prefix = self.prefix(hash);
        let Some(&number) = self.directory.get(prefix) else { return };
        let segment = &mut self.segments[number as usize];
        if let Some((bucket, place)) = segment.find(hash, |held| held == before) {
            segment.buckets[bucket].refs[place] = after.0;
        }
    }

    /// Visits the entries whose hashes have `hash`'s segment and home bucket `home`; the caller
    /// must skip entries of other home buckets that are stored there.
    pub(crate) fn visit_home(&self, hash: u64, home: usize, mut visit: impl FnMut(Ref)) {
        let Some(segment) = self.segment(hash) else { return };
        let mut all = |bucket: usize| {
            let held = &segment.buckets[bucket];
            bits(held.used, |place| visit(Ref(held.refs[place])));
        };
        all(home);
        if segment.buckets[home].next > 0 {
            all((home + 1) % HOMES);
        }
        if segment.buckets[home].common > 0 {
            (HOMES..HOMES + COMMON).for_each(all);
        }
    }

    /// Visits every entry of the segment that holds `hash`, and returns where the next segment's
    /// hashes begin; `None` after the last.
    pub(crate) fn visit_segment(&self, hash: u64, visit: impl FnMut(Ref)) -> Option<u64> {
        let segment = self.segment(hash)?;
        segment.each(visit);
        next_range(hash, segment.depth)
    }

    /// Where the hashes of the segment after the one holding `hash` begin; `None` after the last.
    pub(crate) fn next_segment(&self, hash: u64) -> Option<u64> {
        next_range(hash, self.segment(hash)?.depth)
    }

    /// Returns some entry, chosen by `pick`; `None` if the table is empty.
    pub(crate) fn sample(&self, pick: u64) -> Option<Ref> {
        if self.len == 0 {
            return None;
        }
        // Segments are between a third full and full: a few tries find an entry.
        let below = |bits: u64, count: usize| usize::try_from(bits % count as u64).unwrap_or(0);
        let start = below(pick, self.segments.len());
        let mut at = below(pick >> 32, HOMES + COMMON);
        for step in 0..self.segments.len() {
            let segment = &self.segments[(start + step) % self.segments.len()];
            for _ in 0..HOMES + COMMON {
                let bucket = &segment.buckets[at];
                let count = bucket.used.count_ones();
                if count > 0 {
                    let nth = below(pick >> 16, count as usize);
                    let mut left = bucket.used;
                    for _ in 0..nth {
                        left &= left - 1;
                    }
                    return Some(Ref(bucket.refs[left.trailing_zeros() as usize]));
                }
                at = (at + 1) % (HOMES + COMMON);
            }
        }
        None
    }
}

/// Where the range of hashes that shares `depth` top bits with `hash` ends.
fn next_range(hash: u64, depth: u32) -> Option<u64> {
    if depth == 0 {
        return None;
    }
    let shift = u64::BITS - depth;
    ((hash >> shift) + 1).checked_shl(shift).filter(|&next| next != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn mix(n: u64) -> u64 {
        let n = (n ^ (n >> 31)).wrapping_mul(0x7FB5_D329_728E_A185);
        let n = (n ^ (n >> 27)).wrapping_mul(0x81DA_DEF4_BC2D_D44D);
        n ^ (n >> 33)
    }

    fn filled(count: u32) -> Table {
        let mut table = Table::new();
        for n in 0..count {
            table.insert(mix(n.into()), Ref(n), &|at| mix(at.0.into()));
        }
        table
    }

    #[test]
    fn everything_inserted_is_found_and_everything_removed_is_gone() {
        let mut table = filled(100_000);
        assert_eq!(table.len(), 100_000);
        for n in 0..100_000 {
            assert_eq!(table.find(mix(n.into()), |at| at.0 == n), Some(Ref(n)));
        }
        for n in (0..100_000).step_by(2) {
            assert!(table.remove(mix(n.into()), Ref(n)));
        }
        for n in 0..100_000 {
            let found = table.find(mix(n.into()), |at| at.0 == n);
            assert_eq!(found.is_some(), n % 2 == 1, "{n}");
        }
        assert_eq!(table.len(), 50_000);
    }

    #[test]
    fn a_place_costs_less_than_ten_bytes() {
        for count in [100_000, 150_000, 200_000, 300_000] {
            let table = filled(count);
            assert!(table.bytes() < 10 * count as usize, "{} for {count}", table.bytes());
        }
    }

    #[test]
    fn segments_are_contiguous_ranges_that_cover_everything_once() {
        let table = filled(20_000);
        let mut seen = HashMap::new();
        let (mut from, mut next) = (0, Some(0));
        while let Some(at) = next {
            from = at;
            next = table.visit_segment(at, |held| *seen.entry(held.0).or_insert(0) += 1);
            let end = next.unwrap_or(u64::MAX);
            assert!(end > from);
        }
        assert!(from > 0);
        assert!(seen.len() == 20_000 && seen.values().all(|&times| times == 1));
    }

    #[test]
    fn homes_of_all_segments_cover_everything() {
        let table = filled(5_000);
        let mut seen = std::collections::HashSet::new();
        let mut next = Some(0);
        while let Some(at) = next {
            for home in 0..HOMES {
                table.visit_home(at, home, |held| {
                    if home_of(mix(held.0.into())) == home {
                        seen.insert(held.0);
                    }
                });
            }
            next = table.next_segment(at);
        }
        assert_eq!(seen.len(), 5_000);
    }
}
