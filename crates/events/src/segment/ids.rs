//! The lookup from an id to the blocks that may contain it.
//!
//! Increasing ids, such as generated ones, lie in few blocks by their range: the block index is
//! sufficient. For others there are pages: every row's id is hashed, the high bits choose a page,
//! and 16 more bits are stored there with the block's number. A lookup reads one page.
//!
//! ```text
//! pages      per row: fingerprint u16, block u24; then crc32c u32, one a page
//! directory  u32 a page: rows in this and all pages before; then crc32c u32
//! ```

#![expect(
    clippy::cast_possible_truncation,
    reason = "hashes are cut on purpose, and segments are bounded in rows"
)]

use forebay_base::checksum::crc32c;
use xxhash_rust::xxh3::xxh3_64;

use super::format::BlockInfo;
use crate::event::EventId;

/// Bytes of an entry.
pub(crate) const ENTRY_SIZE: usize = 5;
/// Average number of entries of a page.
const PAGE_ENTRIES: u64 = 256;
/// Maximum number of blocks that a page can refer to.
pub(crate) const BLOCKS_MAX: usize = 1 << 24;
/// Average number of blocks that a lookup by range may read before pages are worthwhile. Above it,
/// concurrent writers have mixed their ids, and single lookups read up to eight blocks.
const CANDIDATES_MAX: f64 = 1.25;
/// Number of ids looked up to compute that average, however many there are.
const ASKED: usize = 1024;
/// Number of blocks whose highest id is stored together.
const GROUP: usize = 64;

/// The page of an id among `pages`, and its fingerprint.
pub(crate) fn place(id: EventId, pages: u64) -> (u64, u16) {
    let hash = xxh3_64(&id.0.to_be_bytes());
    let page = ((u128::from(hash) * u128::from(pages)) >> 64) as u64;
    (page, hash as u16)
}

/// Ids and blocks of rows, as they are written.
#[derive(Debug, Default)]
pub(crate) struct IdsWriter {
    ids: Vec<EventId>,
    /// Where each block's ids end.
    ends: Vec<usize>,
}

/// Pages and directory, ready to be written.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    pub(crate) count: u64,
    pub(crate) pages: Vec<u8>,
    pub(crate) directory: Vec<u8>,
}

impl IdsWriter {
    /// Adds the ids of the next block.
    pub(crate) fn block(&mut self, ids: &[EventId]) {
        self.ids.extend_from_slice(ids);
        self.ends.push(self.ids.len());
    }

    /// Returns the pages, or none if the blocks' ranges are sufficient.
    pub(crate) fn finish(self, blocks: &[BlockInfo], salt: u32) -> Pages {
        let ranges = Ranges::new(blocks);
        let asked = self.ids.iter().step_by((self.ids.len() / ASKED).max(1));
        let count = asked.len().max(1);
        let sum: usize = asked.map(|&id| ranges.candidates(id).count()).sum();
        if sum as f64 / count as f64 <= CANDIDATES_MAX || blocks.len() > BLOCKS_MAX {
            return Pages::default();
        }
        let count = (self.ids.len() as u64 / PAGE_ENTRIES).max(1);
        let mut sizes = vec![0u32; count as usize];
        for &id in &self.ids {
            sizes[place(id, count).0 as usize] += 1;
        }
        let mut next = Vec::with_capacity(sizes.len());
        let mut directory = Vec::with_capacity(sizes.len() * 4 + 4);
        let mut sum = 0u32;
        for (page, size) in sizes.iter().enumerate() {
            next.push(offset_of(u64::from(sum), page as u64) as usize);
            sum += size;
            directory.extend_from_slice(&sum.to_le_bytes());
        }
        let mut pages = vec![0; offset_of(u64::from(sum), count) as usize];
        let mut block = 0u32;
        for (row, &id) in self.ids.iter().enumerate() {
            while self.ends.get(block as usize).is_some_and(|&end| row >= end) {
                block += 1;
            }
            let (page, fingerprint) = place(id, count);
            let at = &mut next[page as usize];
            pages[*at..*at + 2].copy_from_slice(&fingerprint.to_le_bytes());
            pages[*at + 2..*at + 5].copy_from_slice(&block.to_le_bytes()[..3]);
            *at += ENTRY_SIZE;
        }
        for (page, &end) in next.iter().enumerate() {
            let start = end - sizes[page] as usize * ENTRY_SIZE;
            let checksum = crc32c(&pages[start..end]) ^ salt;
            pages[end..end + 4].copy_from_slice(&checksum.to_le_bytes());
        }
        let checksum = crc32c(&directory) ^ salt;
        directory.extend_from_slice(&checksum.to_le_bytes());
        Pages { count, pages, directory }
    }
}

/// Where a page begins that has `rows` rows and `pages` pages before it.
fn offset_of(rows: u64, pages: u64) -> u64 {
    rows * ENTRY_SIZE as u64 + pages * 4
}

/// The decoded directory of pages.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    /// Number of rows in each page and all previous ones.
    sums: Vec<u32>,
}

impl Directory {
    /// Reads the directory of a segment of `rows` rows.
    pub(crate) fn decode(bytes: &[u8], rows: u64, salt: u32) -> Result<Self, &'static str> {
        let (bytes, stored) = bytes.split_last_chunk::<4>().ok_or("the id directory is cut")?;
        if crc32c(bytes) ^ salt != u32::from_le_bytes(*stored) {
            return Err("the id directory's checksum does not fit");
        }
        let sums: Vec<u32> =
            bytes.as_chunks::<4>().0.iter().map(|sum| u32::from_le_bytes(*sum)).collect();
        if !sums.is_sorted() || sums.last().is_none_or(|&last| u64::from(last) != rows) {
            return Err("the id directory does not add up");
        }
        Ok(Self { sums })
    }

    /// Returns the offset of an id's page from the first one, its size with checksum, and the
    /// fingerprint.
    pub(crate) fn page(&self, id: EventId) -> Option<(u64, usize, u16)> {
        let (page, fingerprint) = place(id, self.sums.len() as u64);
        let (offset, size) = self.page_at(page)?;
        Some((offset, size, fingerprint))
    }

    /// Number of pages.
    pub(crate) fn pages(&self) -> u64 {
        self.sums.len() as u64
    }

    /// Returns the offset of a page from the first one, and its size with checksum.
    pub(crate) fn page_at(&self, page: u64) -> Option<(u64, usize)> {
        let at = usize::try_from(page).ok()?;
        let before = at.checked_sub(1).and_then(|at| self.sums.get(at)).copied().unwrap_or(0);
        let rows = self.sums.get(at)?.checked_sub(before)?;
        Some((offset_of(before.into(), page), rows as usize * ENTRY_SIZE + 4))
    }
}

/// The blocks that a page lists for a fingerprint, in order.
pub(crate) fn blocks_of(
    page: &[u8],
    fingerprint: u16,
    salt: u32,
) -> Result<Vec<u32>, &'static str> {
    let (entries, stored) = page.split_last_chunk::<4>().ok_or("a page of ids is cut")?;
    if crc32c(entries) ^ salt != u32::from_le_bytes(*stored) {
        return Err("the checksum of a page of ids does not fit");
    }
    let entries = self::entries(entries);
    let mut found: Vec<u32> =
        entries.filter(|entry| entry.0 == fingerprint).map(|(_, block)| block).collect();
    found.dedup();
    Ok(found)
}

/// Fingerprint and block of each entry of a page, without its checksum.
pub(crate) fn entries(page: &[u8]) -> impl Iterator<Item = (u16, u32)> {
    page.as_chunks::<ENTRY_SIZE>().0.iter().map(|[low, high, a, b, c]| {
        (u16::from_le_bytes([*low, *high]), u32::from_le_bytes([*a, *b, *c, 0]))
    })
}

/// Blocks by the range of their ids.
///
/// One block with a wide range must not make every lookup scan all blocks: they are skipped in
/// groups.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    /// Lowest and highest id and number of a block, ascending by the lowest.
    ranges: Vec<(EventId, EventId, u32)>,
    /// Highest id of each [`GROUP`] of them.
    highest: Vec<EventId>,
}

impl Ranges {
    pub(crate) fn new(blocks: &[BlockInfo]) -> Self {
        let mut ranges: Vec<_> = (0u32..)
            .zip(blocks)
            .map(|(number, block)| (block.id_min, block.id_max, number))
            .collect();
        ranges.sort_unstable();
        let highest = ranges
            .chunks(GROUP)
            .map(|group| group.iter().map(|(_, highest, _)| *highest).max().unwrap_or_default())
            .collect();
        Self { ranges, highest }
    }

    /// The blocks whose range has an id.
    pub(crate) fn candidates(&self, id: EventId) -> impl Iterator<Item = u32> {
        let end = self.ranges.partition_point(|(least, ..)| *least <= id);
        let begun = self.ranges.get(..end).unwrap_or_default();
        begun
            .chunks(GROUP)
            .zip(&self.highest)
            .filter(move |(_, highest)| **highest >= id)
            .flat_map(|(group, _)| group)
            .filter(move |(_, highest, _)| *highest >= id)
            .map(|(.., number)| *number)
    }
}
