//! Checks of what a segment derives from its rows: the block index, filters, id pages, and times
//! and sizes in the footer.
//!
//! No hash covers these. A change of them, with corrected checksums, hides events from searches, so
//! verification computes them again.

#![expect(clippy::cast_possible_truncation, reason = "blocks are numbered with 32 bits")]
#![deny(clippy::indexing_slicing)]

use std::collections::HashSet;

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
}

impl Derived {
    /// Adds the blocks of another part of the segment.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.keys.extend(other.keys);
        self.leaf_bytes += other.leaf_bytes;
        self.ids = self.ids.wrapping_add(other.ids);
    }
}

/// The keyed hash of an entry of an id page. Sums of these are equal only for the same entries: one
/// who does not know the key cannot choose others with the same sum.
fn entry_hash(page: u64, fingerprint: u16, block: u32, key: u64) -> u128 {
    let mut bytes = [0; 14];
    let fields = page.to_le_bytes().into_iter().chain(fingerprint.to_le_bytes());
    bytes.iter_mut().zip(fields.chain(block.to_le_bytes())).for_each(|(to, from)| *to = from);
    xxh3_128_with_seed(&bytes, key)
}

impl Segment {
    /// Compares index entry and filter of a block with its rows, and adds the block to `derived`.
    ///
    /// * `key`: random, the same for all blocks of the segment.
    ///
    /// # Errors
    /// [`SegmentError::Block`]: what differs.
    pub(crate) fn check_block(
        &self,
        number: usize,
        block: &Block,
        key: u64,
        derived: &mut Derived,
    ) -> Result<(), SegmentError> {
        let Some(info) = self.blocks().get(number) else { return Ok(()) };
        let bad = |found| SegmentError::Block {
            path: self.path().to_path_buf(),
            block: number,
            offset: info.offset,
            found,
        };
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
        let mut bytes = Vec::new();
        for row in 0..block.len() {
            bytes.clear();
            block.leaf(row, &mut bytes);
            derived.leaf_bytes += bytes.len() as u64;
        }
        Ok(())
    }

    /// Compares id pages and footer with what all blocks add up to.
    ///
    /// # Errors
    /// [`SegmentError::Damaged`]: what differs. [`SegmentError::Io`].
    pub(crate) fn check_derived(&self, mut derived: Derived, key: u64) -> Result<(), SegmentError> {
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
        let Some(pages) = self.id_pages() else { return Ok(()) };
        let mut sum = 0u128;
        for page in 0..pages {
            for (fingerprint, block) in self.id_page(page)? {
                sum = sum.wrapping_add(entry_hash(page, fingerprint, block, key));
            }
        }
        if sum == derived.ids {
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
    let rows = || 0..block.len();
    let times = || rows().map(|row| block.timestamp_ns(row));
    let (seqs, ids) = (|| rows().map(|row| block.seq(row)), || rows().map(|row| block.id(row)));
    (times().min(), times().max()) == (Some(info.time_min_ns), Some(info.time_max_ns))
        && (seqs().min(), seqs().max()) == (Some(info.seq_min), Some(info.seq_max))
        && (ids().min(), ids().max()) == (Some(info.id_min), Some(info.id_max))
        && info.rows as usize == block.len()
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
        let mut before: &[u8] = &[];
        for row in 0..block.len() {
            let mut body = block.body(row);
            if block.tags(row) != before {
                before = block.tags(row);
                let Ok(tags) = leaf::tags(before) else { continue };
                let texts = [
                    (Field::Stream, tags.stream),
                    (Field::Kind, tags.kind),
                    (Field::Host, tags.host),
                ];
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
