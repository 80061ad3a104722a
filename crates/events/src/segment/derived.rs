//! Checks of what a segment derives from its rows: the block index, filters, id pages, and times
//! and sizes in the footer.
//!
//! No hash covers these. A change of them, with corrected checksums, hides events from searches, so
//! verification computes them again.

#![expect(clippy::cast_possible_truncation, reason = "blocks are numbered with 32 bits")]
#![deny(clippy::indexing_slicing)]

use std::collections::HashSet;
use std::ops::Range;

use forebay_base::checksum::crc32c;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::block::Block;
use super::error::SegmentError;
use super::filter::{self, Field, Part, Term};
use super::format::BlockInfo;
use super::ids;
use super::reader::Segment;
use crate::event::addresses;
use crate::format::{leaf, take_varint};

/// Time and position of an event.
type Key = (i64, u64);

/// What the blocks of a segment add up to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Derived {
    /// First and last key (time, position) of each block seen, with its number.
    keys: Vec<(usize, Key, Key)>,
    leaf_bytes: u64,
    /// The sum over the keyed hashes of all entries that the id pages must have.
    ids: u128,
    /// The same sum over those that they have.
    listed: u128,
}

impl Derived {
    /// Adds the blocks of another part of the segment.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.keys.extend(other.keys);
        self.leaf_bytes += other.leaf_bytes;
        self.ids = self.ids.wrapping_add(other.ids);
        self.listed = self.listed.wrapping_add(other.listed);
    }
}

/// The keyed hash of an entry of an id page. Sums of these are equal only for the same entries: one
/// who does not know the key cannot choose others with the same sum.
fn entry_hash(page: u64, fingerprint: u16, block: u32, key: u64) -> u128 {
    // Written as the words that the hash reads: a processor waits where these differ.
    let low = u64::from(fingerprint) << 32 | u64::from(block);
    let words = u128::from(page) | u128::from(low) << 64;
    xxh3_128_with_seed(&words.to_le_bytes(), key)
}

impl Segment {
    /// Compares index entry and filter of a block with its rows, and adds the block to `derived`.
    ///
    /// * `leaf_bytes`: of all its rows.
    /// * `key`: random, the same for all blocks of the segment.
    ///
    /// # Errors
    /// [`SegmentError::Block`]: what differs.
    pub(crate) fn check_block(
        &self,
        number: usize,
        block: &Block,
        leaf_bytes: u64,
        key: u64,
        derived: &mut Derived,
    ) -> Result<(), SegmentError> {
        let Some(info) = self.blocks().get(number) else { return Ok(()) };
        let bad = |found| self.bad_block(info, number, info.offset, found);
        if !describes(info, block) {
            return Err(bad("its times, positions or ids differ from those in the index"));
        }
        let stored = self.filter(number as u32)?;
        if filter::build_sized(self.terms(block).into_iter(), stored.len()) != stored {
            return Err(bad("its filter is not that of its events"));
        }
        let last = block.len().saturating_sub(1);
        let row_key = |row| (block.timestamp_ns(row), block.seq(row));
        derived.keys.push((number, row_key(0), row_key(last)));
        if let Some(pages) = self.id_pages() {
            for row in 0..block.len() {
                let (page, fingerprint) = ids::place(block.id(row), pages);
                let hash = entry_hash(page, fingerprint, number as u32, key);
                derived.ids = derived.ids.wrapping_add(hash);
            }
        }
        derived.leaf_bytes += leaf_bytes;
        Ok(())
    }

    /// Adds a range of id pages to `derived`.
    ///
    /// * `key`: as for the blocks.
    ///
    /// # Errors
    /// [`SegmentError::Damaged`], [`SegmentError::Io`].
    pub(crate) fn add_id_pages(
        &self,
        pages: Range<u64>,
        key: u64,
        derived: &mut Derived,
    ) -> Result<(), SegmentError> {
        for page in pages {
            for (fingerprint, block) in self.id_page(page)? {
                let hash = entry_hash(page, fingerprint, block, key);
                derived.listed = derived.listed.wrapping_add(hash);
            }
        }
        Ok(())
    }

    /// Compares id pages and footer with what all blocks add up to.
    ///
    /// # Errors
    /// [`SegmentError::Damaged`]: what differs.
    pub(crate) fn check_derived(&self, mut derived: Derived) -> Result<(), SegmentError> {
        let info = self.info();
        derived.keys.sort_unstable();
        if !derived.keys.is_sorted_by(|before, next| before.2 < next.1) {
            return Err(self.damaged(0, "its blocks are not in order of time"));
        }
        let first = derived.keys.first().map_or(0, |block| block.1.0);
        let last = derived.keys.last().map_or(0, |block| block.2.0);
        if (info.time_min_ns, info.time_max_ns) != (first, last) {
            return Err(self.damaged(0, "the times in its footer are not those of its events"));
        }
        if info.leaf_bytes != derived.leaf_bytes {
            return Err(self.damaged(0, "the size in its footer is not that of its events"));
        }
        if derived.ids == derived.listed {
            return Ok(());
        }
        Err(self.damaged(0, "its id pages are not those of its events"))
    }

    /// The entries of an id page.
    fn id_page(&self, page: u64) -> Result<Vec<(u16, u32)>, SegmentError> {
        let Some((at, size)) = self.id_page_at(page) else {
            return Err(self.damaged(0, "there is no such id page"));
        };
        let bytes = self.read(at, size)?;
        let bad = || self.damaged(at, "the checksum of a page of ids does not fit");
        let (entries, stored) = bytes.split_last_chunk::<4>().ok_or_else(bad)?;
        if crc32c(entries) ^ self.salt() != u32::from_le_bytes(*stored) {
            return Err(bad());
        }
        Ok(ids::entries(entries).collect())
    }
}

/// Whether an entry of the index is the one that a writer makes for a block.
fn describes(info: &BlockInfo, block: &Block) -> bool {
    let row = |row| {
        let (time, seq, id) = (block.timestamp_ns(row), block.seq(row), block.id(row));
        ((time, time), (seq, seq), (id, id))
    };
    let ranges = (0..block.len()).map(row).reduce(|(times, seqs, ids), (time, seq, id)| {
        (join(times, time), join(seqs, seq), join(ids, id))
    });
    let (times, seqs, ids) = (
        (info.time_min_ns, info.time_max_ns),
        (info.seq_min, info.seq_max),
        (info.id_min, info.id_max),
    );
    ranges == Some((times, seqs, ids)) && info.rows as usize == block.len()
}

/// The range over two ranges.
fn join<T: Ord>(one: (T, T), other: (T, T)) -> (T, T) {
    (one.0.min(other.0), one.1.max(other.1))
}

impl Segment {
    /// The terms of a block's filter.
    fn terms(&self, block: &Block) -> HashSet<Term> {
        let (words, named) = (self.includes(Part::Words), self.includes(Part::Addresses));
        let mut terms = HashSet::new();
        let put = |terms: &mut HashSet<Term>, ip| {
            terms.extend(Term::of_address(ip));
            false
        };
        for tags in block.distinct_tags() {
            let Ok(tags) = leaf::tags(tags) else { continue };
            let texts =
                [(Field::Stream, tags.stream), (Field::Kind, tags.kind), (Field::Host, tags.host)];
            for (field, text) in texts {
                terms.insert(Term::of(field, text.as_bytes()));
            }
            if self.has_tag_ip() {
                terms.extend(tags.ip.map(Term::of_ip));
            }
            if named {
                addresses::any_of_tags(&tags, &mut |ip| put(&mut terms, ip));
            }
        }
        for row in (0..block.len()).take_while(|_| named || words) {
            let mut body = block.body(row);
            if named {
                addresses::any_of_body(body, &mut |ip| put(&mut terms, ip));
            }
            if words {
                let size = take_varint(&mut body).and_then(|size| usize::try_from(size).ok());
                let raw = size.and_then(|size| body.get(..size)).unwrap_or_default();
                Term::of_words(raw, |term| {
                    terms.insert(term);
                });
            }
        }
        terms
    }
}
