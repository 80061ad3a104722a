//! Reading a segment: its index in memory, its blocks from the file on request.

#![expect(clippy::cast_possible_truncation, reason = "blocks are numbered with 32 bits")]
#![deny(clippy::indexing_slicing)]

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use forebay_base::checksum::crc32c;
use forebay_base::fs::{Access, File, FileSystem};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::block::Block;
use super::compress;
use super::digests::{self, BlockDigest};
use super::error::SegmentError;
use super::filter::{self, Part, Term};
use super::format::{
    BLOCK_HEADER_SIZE, BLOCK_SIZE_MAX, BlockInfo, CHECKSUM_SIZE, FOOTER_SIZE, Footer, HEADER_SIZE,
    INDEX_ENTRY_SIZE, STUB_SIZE, Version,
};
use super::ids::{self, Directory, Ranges};
use super::writer::SegmentInfo;
use crate::event::EventId;
use crate::merkle::{HASH_SIZE, Hash};

/// Size of a read when computing a digest.
const READ_SIZE: usize = 1 << 20;

/// An open segment; its file stays readable after its name is removed.
#[derive(Debug)]
pub struct Segment {
    /// Its file; or why it cannot be read.
    pub(super) file: Result<Arc<dyn File>, String>,
    pub(super) path: PathBuf,
    pub(super) file_size: u64,
    pub(super) salt: u32,
    pub(super) footer: Footer,
    pub(super) blocks: Vec<BlockInfo>,
    pub(super) ranges: Ranges,
    pub(super) directory: Option<Directory>,
    /// The digests of the blocks, once read: `None` if they are not signed for.
    pub(super) digests: OnceLock<Option<Vec<BlockDigest>>>,
}

impl Segment {
    /// Opens a segment: checks header, footer and index, but reads no block.
    ///
    /// # Errors
    /// [`SegmentError::Damaged`], [`SegmentError::Io`].
    pub fn open(fs: &dyn FileSystem, path: &Path) -> Result<Self, SegmentError> {
        let io = |act| move |source| SegmentError::io(act, path, source);
        let file = fs.open(path, Access::Read).map_err(io("open"))?;
        let file_size = file.len().map_err(io("get the size of"))?;
        let damaged =
            |offset, found| SegmentError::Damaged { path: path.to_path_buf(), offset, found };
        let footer_offset = file_size
            .checked_sub(FOOTER_SIZE as u64)
            .filter(|&offset| offset >= HEADER_SIZE as u64)
            .ok_or_else(|| damaged(0, "it is shorter than its header and footer"))?;
        let mut bytes = [0; FOOTER_SIZE];
        file.read_exact_at(&mut bytes, footer_offset).map_err(io("read"))?;
        let footer = Footer::decode(&bytes).map_err(|found| damaged(footer_offset, found))?;
        let expected = footer.header();
        let mut found = [0; HEADER_SIZE];
        file.read_exact_at(&mut found, 0).map_err(io("read"))?;
        if found != expected {
            return Err(damaged(0, "its header does not match its footer"));
        }
        let mut segment = Self {
            file: Ok(file),
            path: path.to_path_buf(),
            file_size,
            salt: crc32c(&expected),
            footer,
            blocks: Vec::new(),
            ranges: Ranges::default(),
            directory: None,
            digests: OnceLock::new(),
        };
        segment.read_index(footer_offset)?;
        if segment.footer.id_pages > 0 {
            segment.read_directory()?;
        } else {
            segment.ranges = Ranges::new(&segment.blocks);
        }
        Ok(segment)
    }

    pub(super) fn damaged(&self, offset: u64, found: &'static str) -> SegmentError {
        SegmentError::Damaged { path: self.path.clone(), offset, found }
    }

    fn file(&self) -> Result<&dyn File, SegmentError> {
        let unreadable = |reason: &String| SegmentError::Unreadable {
            path: self.path.clone(),
            reason: reason.clone(),
        };
        self.file.as_deref().map_err(unreadable)
    }

    /// The error for a block, or its filter, that is damaged at `offset`.
    pub(super) fn bad_block(
        &self,
        info: &BlockInfo,
        block: usize,
        offset: u64,
        found: &'static str,
    ) -> SegmentError {
        let (rows, first, last) = (info.rows, info.seq_min, info.seq_max);
        SegmentError::Block { path: self.path.clone(), block, offset, rows, first, last, found }
    }

    /// Reads `size` bytes that must lie inside the file.
    pub(super) fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, SegmentError> {
        let end = offset.checked_add(size as u64);
        if end.is_none_or(|end| end > self.file_size) {
            return Err(self.damaged(offset, "an offset in it points beyond its end"));
        }
        let mut bytes = vec![0; size];
        self.file()?
            .read_exact_at(&mut bytes, offset)
            .map_err(|source| SegmentError::io("read", &self.path, source))?;
        Ok(bytes)
    }

    fn read_index(&mut self, footer_offset: u64) -> Result<(), SegmentError> {
        let (at, footer) = (self.footer.index_offset, &self.footer);
        let bad = |found| self.damaged(at, found);
        let size = footer
            .blocks
            .checked_mul(INDEX_ENTRY_SIZE as u64)
            .and_then(|size| size.checked_add(CHECKSUM_SIZE as u64))
            .filter(|&size| at.checked_add(size) == Some(footer_offset))
            .and_then(|size| usize::try_from(size).ok())
            .ok_or_else(|| bad("its index is not at the stated offset"))?;
        let bytes = self.read(at, size)?;
        let (bytes, stored) =
            bytes.split_last_chunk::<4>().ok_or_else(|| bad("it has no index"))?;
        if crc32c(bytes) ^ self.salt != u32::from_le_bytes(*stored) {
            return Err(bad("the checksum of its index does not match"));
        }
        let entries = bytes.as_chunks::<INDEX_ENTRY_SIZE>().0.iter();
        let blocks: Option<Vec<BlockInfo>> = entries.map(|e| BlockInfo::decode(e)).collect();
        let blocks = blocks.ok_or_else(|| bad("its index is truncated"))?;
        let rows: u64 = blocks.iter().map(|block| u64::from(block.rows)).sum();
        if rows != footer.rows || rows > footer.end_seq.saturating_sub(footer.first_seq) {
            return Err(bad("its index has the wrong number of events"));
        }
        self.blocks = blocks;
        Ok(())
    }

    fn read_directory(&mut self) -> Result<(), SegmentError> {
        let at = self.footer.id_directory_offset;
        let size = self
            .footer
            .id_pages
            .checked_mul(4)
            .and_then(|size| usize::try_from(size).ok()?.checked_add(CHECKSUM_SIZE))
            .ok_or_else(|| self.damaged(at, "its id directory is too large"))?;
        let bytes = self.read(at, size)?;
        let directory = Directory::decode(&bytes, self.footer.rows, self.salt)
            .map_err(|found| self.damaged(at, found))?;
        self.directory = Some(directory);
        Ok(())
    }

    /// Returns its contents; the digest is unknown without reading the whole file, and is zero.
    #[must_use]
    pub fn info(&self) -> SegmentInfo {
        SegmentInfo {
            first_seq: self.footer.first_seq,
            end_seq: self.footer.end_seq,
            rows: self.footer.rows,
            stubs: self.footer.stubs,
            leaf_bytes: self.footer.leaf_bytes,
            time_min_ns: self.footer.time_min_ns,
            time_max_ns: self.footer.time_max_ns,
            file_size: self.file_size,
            digest: [0; 32],
        }
    }

    /// Its blocks, by time.
    #[must_use]
    pub fn blocks(&self) -> &[BlockInfo] {
        &self.blocks
    }

    /// BLAKE3 of the whole file as it is now.
    ///
    /// # Errors
    /// [`SegmentError::Io`].
    pub fn digest(&self) -> Result<[u8; 32], SegmentError> {
        let mut digest = blake3::Hasher::new();
        let mut buffer = vec![0; READ_SIZE];
        let mut offset = 0;
        loop {
            let read = self.file()?.read_at(&mut buffer, offset);
            match read.map_err(|source| SegmentError::io("read", &self.path, source))? {
                0 => return Ok(*digest.finalize().as_bytes()),
                size => {
                    digest.update(buffer.get(..size).unwrap_or_default());
                    offset += size as u64;
                }
            }
        }
    }

    /// Reads, checks and decompresses a block.
    ///
    /// # Errors
    /// [`SegmentError::Block`]: it is damaged. [`SegmentError::Io`].
    pub fn read_block(&self, number: usize) -> Result<Block, SegmentError> {
        self.read_block_with(number, |_| ())
    }

    /// Reads a block as [`read_block`](Self::read_block) does, and returns a keyed fingerprint of
    /// its stored bytes too: without the key no one can make others with the same.
    ///
    /// # Errors
    /// As [`read_block`](Self::read_block).
    pub(crate) fn read_block_marked(
        &self,
        number: usize,
        key: u64,
    ) -> Result<(Block, u128), SegmentError> {
        let mut mark = 0;
        let block =
            self.read_block_with(number, |stored| mark = xxh3_128_with_seed(stored, key))?;
        Ok((block, mark))
    }

    /// Reads a block with its [fingerprint](Self::read_block_marked), if it has the digest that the
    /// store signed when it wrote the segment. `None`: it has not, or the segment has no digests
    /// with a valid signature.
    ///
    /// * `known`: the fingerprint that the block had when its digest was last compared.
    /// * `verifies`: whether a signature is the store's; the same for every call.
    ///
    /// # Errors
    /// As [`read_block`](Self::read_block).
    pub(crate) fn read_block_signed(
        &self,
        number: usize,
        (key, known): (u64, Option<u128>),
        verifies: &dyn Fn(&[u8], &[u8]) -> bool,
    ) -> Result<Option<(Block, u128)>, SegmentError> {
        let digests = self.digests.get_or_init(|| self.read_digests(verifies));
        let Some(expected) = digests.as_ref().and_then(|digests| digests.get(number)) else {
            return Ok(None);
        };
        let (mut mark, mut same) = (0, false);
        let block = self.read_block_with(number, |stored| {
            mark = xxh3_128_with_seed(stored, key);
            same = known == Some(mark) || blake3::hash(stored).as_bytes() == expected;
        })?;
        Ok(same.then_some((block, mark)))
    }

    /// The digests of the blocks, if they are there and signed for.
    fn read_digests(&self, verifies: &dyn Fn(&[u8], &[u8]) -> bool) -> Option<Vec<BlockDigest>> {
        let offset = Some(self.footer.digests_offset).filter(|&offset| offset > 0)?;
        // An unreadable device shows when the block is read.
        let bytes = self.read(offset, digests::size(self.blocks.len())?).ok()?;
        let header = self.footer.header();
        digests::decode(&bytes, &header, &self.blocks, self.salt, verifies)
    }

    fn read_block_with(
        &self,
        number: usize,
        look: impl FnOnce(&[u8]),
    ) -> Result<Block, SegmentError> {
        let Some(info) = self.blocks.get(number) else {
            return Err(self.damaged(self.footer.index_offset, "there is no such block"));
        };
        let bad = |found| self.bad_block(info, number, info.offset, found);
        let size = info.stored_size as usize;
        if !(BLOCK_HEADER_SIZE + CHECKSUM_SIZE..=2 * BLOCK_SIZE_MAX).contains(&size) {
            return Err(bad("its size is impossible"));
        }
        let mut bytes = self.read(info.offset, size)?;
        let (checked, stored) =
            bytes.split_last_chunk::<4>().ok_or_else(|| bad("it is truncated"))?;
        if crc32c(checked) ^ self.salt ^ number as u32 != u32::from_le_bytes(*stored) {
            return Err(bad("its checksum does not match"));
        }
        look(checked);
        let (kind, raw_size) = match checked {
            [kind, a, b, c, d, ..] => (*kind, u32::from_le_bytes([*a, *b, *c, *d]) as usize),
            _ => return Err(bad("it is truncated")),
        };
        if raw_size > BLOCK_SIZE_MAX {
            return Err(bad("its stated size exceeds the maximum size of a block"));
        }
        bytes.truncate(size - CHECKSUM_SIZE);
        let (raw, start) =
            compress::expand(kind, bytes, BLOCK_HEADER_SIZE, raw_size).map_err(bad)?;
        let block = Block::decode(raw, start).map_err(bad)?;
        if block.len() != info.rows as usize {
            return Err(bad("its number of events differs from the index"));
        }
        Ok(block)
    }

    /// The position of an event of a block that is out of order, or not within the ranges in the
    /// index for the block, or in the footer of the segment.
    #[must_use]
    pub fn misplaced(&self, number: usize, block: &Block) -> Option<u64> {
        let info = self.blocks.get(number)?;
        let fits = |row: usize| {
            let (time, seq, id) = (block.timestamp_ns(row), block.seq(row), block.id(row));
            (self.footer.first_seq..self.footer.end_seq).contains(&seq)
                && (info.seq_min..=info.seq_max).contains(&seq)
                && (self.footer.time_min_ns..=self.footer.time_max_ns).contains(&time)
                && (info.time_min_ns..=info.time_max_ns).contains(&time)
                && (info.id_min..=info.id_max).contains(&id)
        };
        let ordered = |row: usize| {
            row.checked_sub(1).is_none_or(|before| {
                (block.timestamp_ns(before), block.seq(before))
                    < (block.timestamp_ns(row), block.seq(row))
            })
        };
        (0..block.len()).find(|&row| !fits(row) || !ordered(row)).map(|row| block.seq(row))
    }

    /// Whether a block may contain all of these terms; words and addresses are ignored if its filter
    /// has none.
    ///
    /// # Errors
    /// [`SegmentError::Block`]: the filter is damaged.
    pub fn may_match(&self, number: u32, terms: &[Term]) -> Result<bool, SegmentError> {
        let mut asked = terms.iter().filter(|term| self.includes(term.part())).peekable();
        if number as usize >= self.blocks.len() {
            return Ok(false);
        }
        if asked.peek().is_none() {
            return Ok(true);
        }
        let filter = self.filter(number)?;
        Ok(asked.all(|term| filter::may_have(&filter, *term)))
    }

    /// The filter of a block.
    ///
    /// # Errors
    /// [`SegmentError::Block`]: the filter is damaged.
    pub(super) fn filter(&self, number: u32) -> Result<Vec<u8>, SegmentError> {
        let Some(info) = self.blocks.get(number as usize) else {
            return Err(self.damaged(self.footer.index_offset, "there is no such block"));
        };
        let bad = |found| self.bad_block(info, number as usize, info.filter_offset, found);
        let size = info.filter_size as usize;
        if size == 0 || size > 64 * BLOCK_SIZE_MAX {
            return Err(bad("the size of its filter is impossible"));
        }
        let mut bytes = self.read(info.filter_offset, size + CHECKSUM_SIZE)?;
        let (filter, stored) =
            bytes.split_last_chunk::<4>().ok_or_else(|| bad("it has no filter"))?;
        if crc32c(filter) ^ self.salt ^ number != u32::from_le_bytes(*stored) {
            return Err(bad("the checksum of its filter does not match"));
        }
        bytes.truncate(size);
        Ok(bytes)
    }

    /// Whether the filters have terms of a kind.
    pub(super) fn includes(&self, part: Part) -> bool {
        match part {
            Part::Tags => true,
            Part::Words => self.footer.words,
            Part::Addresses => self.footer.addresses(),
        }
    }

    /// Whether the filters have the address among the tags.
    pub(super) fn has_tag_ip(&self) -> bool {
        self.footer.version == Version::One
    }

    /// Its file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The mark included in its checksums.
    pub(super) fn salt(&self) -> u32 {
        self.salt
    }

    /// Number of id pages, if there are any.
    pub(crate) fn id_pages(&self) -> Option<u64> {
        self.directory.as_ref().map(Directory::pages)
    }

    /// Offset of an id page in the file, and its size with checksum.
    pub(super) fn id_page_at(&self, page: u64) -> Option<(u64, usize)> {
        let (offset, size) = self.directory.as_ref()?.page_at(page)?;
        Some((self.footer.id_pages_offset.saturating_add(offset), size))
    }

    /// The blocks that may contain an id; few, and mostly none for an id that does not exist.
    ///
    /// # Errors
    /// [`SegmentError::Damaged`]: the page of the id is damaged. [`SegmentError::Io`].
    pub fn find_id(&self, id: EventId) -> Result<Vec<u32>, SegmentError> {
        let Some(directory) = &self.directory else {
            return Ok(self.ranges.candidates(id).collect());
        };
        let Some((offset, size, fingerprint)) = directory.page(id) else { return Ok(Vec::new()) };
        let at = self.footer.id_pages_offset.saturating_add(offset);
        let page = self.read(at, size)?;
        ids::blocks_of(&page, fingerprint, self.salt).map_err(|found| self.damaged(at, found))
    }

    /// The blocks that may contain a position in `range`.
    #[must_use]
    pub fn blocks_of_seq(&self, range: Range<u64>) -> Vec<u32> {
        (0u32..)
            .zip(&self.blocks)
            .filter(|(_, block)| block.seq_min < range.end && block.seq_max >= range.start)
            .map(|(number, _)| number)
            .collect()
    }

    /// The hashes of removed events in `range`, by position.
    ///
    /// # Errors
    /// [`SegmentError::Damaged`], [`SegmentError::Io`].
    pub fn stubs(&self, range: Range<u64>) -> Result<Vec<(u64, Hash)>, SegmentError> {
        // The first stub at or after the range's start.
        let (mut low, mut high) = (0, self.footer.stubs);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.stub(middle)?.0 < range.start { low = middle + 1 } else { high = middle }
        }
        let mut found = Vec::new();
        while low < self.footer.stubs {
            let stub = self.stub(low)?;
            if stub.0 >= range.end {
                break;
            }
            found.push(stub);
            low += 1;
        }
        Ok(found)
    }

    fn stub(&self, number: u64) -> Result<(u64, Hash), SegmentError> {
        let at = number
            .checked_mul(STUB_SIZE as u64)
            .and_then(|offset| offset.checked_add(self.footer.stubs_offset))
            .ok_or_else(|| self.damaged(0, "it states more hashes than can fit"))?;
        let bytes = self.read(at, STUB_SIZE)?;
        let bad = || self.damaged(at, "the checksum of a hash does not match");
        let (bytes, stored) = bytes.split_last_chunk::<4>().ok_or_else(bad)?;
        if crc32c(bytes) ^ self.salt != u32::from_le_bytes(*stored) {
            return Err(bad());
        }
        let (seq, hash) = bytes.split_first_chunk::<8>().ok_or_else(bad)?;
        let hash = hash.first_chunk::<HASH_SIZE>().ok_or_else(bad)?;
        Ok((u64::from_le_bytes(*seq), Hash(*hash)))
    }

    /// The error for a missing event.
    #[must_use]
    pub fn no_event(&self, seq: u64) -> SegmentError {
        SegmentError::Event { path: self.path.clone(), seq }
    }
}
