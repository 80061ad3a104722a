//! Writing a segment: rows in order of time, one block in memory.

#![expect(
    clippy::cast_possible_truncation,
    reason = "blocks are bounded in size, and segments in blocks"
)]

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_base::checksum::crc32c;
use forebay_base::fs::{File, FileSystem};
use hashbrown::HashSet;

use super::SegmentOptions;
use super::columns::Columns;
use super::compress::Compressor;
use super::digests::{self, BlockDigest, Sign};
use super::error::SegmentError;
use super::filter::{self, Field, Term};
use super::format::{BlockInfo, Footer};
use super::ids::IdsWriter;
use crate::event::addresses;
use crate::format::{leaf, take_varint};
use crate::merkle::Hash;

/// Bytes buffered before they are written.
const WRITE_SIZE: usize = 1 << 20;
/// Maximum size of a block whatever the options: with this many bytes or rows, plus the largest
/// leaf and the columns, it stays below the limit of the reader.
const BLOCK_ENDS: usize = 1 << 20;
const ROWS_END: usize = 1 << 14;

/// The result of writing a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Position of its first event.
    pub first_seq: u64,
    /// Position after its last event.
    pub end_seq: u64,
    /// Number of events.
    pub rows: u64,
    /// Number of hashes of removed events.
    pub stubs: u64,
    /// Bytes of the events' leaves.
    pub leaf_bytes: u64,
    /// Earliest time.
    pub time_min_ns: i64,
    /// Latest time.
    pub time_max_ns: i64,
    /// Bytes of the file.
    pub file_size: u64,
    /// BLAKE3 of the whole file.
    pub digest: [u8; 32],
}

/// Adds an address to those of a block, and asks for more.
fn put(to: &mut HashSet<IpAddr>, ip: IpAddr) -> bool {
    to.insert(ip);
    false
}

/// A segment being written.
pub struct SegmentWriter {
    file: Arc<dyn File>,
    path: PathBuf,
    options: SegmentOptions,
    /// The mark included in the checksums of this segment.
    salt: u32,
    footer: Footer,
    columns: Columns,
    compressor: Compressor,
    blocks: Vec<BlockInfo>,
    block_digests: Vec<BlockDigest>,
    filters: Vec<Vec<u8>>,
    ids: IdsWriter,
    stubs: Vec<(u64, Hash)>,
    last: Option<(i64, u64)>,
    terms: HashSet<Term>,
    /// The addresses that the events of a block name.
    addresses: HashSet<IpAddr>,
    raw: Vec<u8>,
    buffer: Vec<u8>,
    written: u64,
    digest: blake3::Hasher,
}

impl std::fmt::Debug for SegmentWriter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SegmentWriter")
            .field("path", &self.path)
            .field("blocks", &self.blocks.len())
            .finish_non_exhaustive()
    }
}

impl SegmentWriter {
    /// Creates the file of a segment for the positions `first_seq..end_seq`.
    ///
    /// # Errors
    /// [`SegmentError::Io`], also if the file exists.
    pub fn create(
        fs: &dyn FileSystem,
        path: &Path,
        first_seq: u64,
        end_seq: u64,
        options: SegmentOptions,
    ) -> Result<Self, SegmentError> {
        let file =
            fs.create_new(path).map_err(|source| SegmentError::io("create", path, source))?;
        let compressor = Compressor::new(options.compression)
            .map_err(|reason| SegmentError::Compress { path: path.to_path_buf(), reason })?;
        let footer = Footer {
            first_seq,
            end_seq,
            time_min_ns: i64::MAX,
            time_max_ns: i64::MIN,
            words: options.text_filter,
            ..Footer::default()
        };
        let header = footer.header();
        Ok(Self {
            file,
            path: path.to_path_buf(),
            salt: crc32c(&header),
            options,
            footer,
            columns: Columns::default(),
            compressor,
            blocks: Vec::new(),
            block_digests: Vec::new(),
            filters: Vec::new(),
            ids: IdsWriter::default(),
            stubs: Vec::new(),
            last: None,
            terms: HashSet::new(),
            addresses: HashSet::new(),
            raw: Vec::new(),
            buffer: header.to_vec(),
            written: 0,
            digest: blake3::Hasher::new(),
        })
    }

    fn refused(&self, seq: u64, reason: &'static str) -> SegmentError {
        SegmentError::Row { path: self.path.clone(), seq, reason }
    }

    /// Adds an event, in order of (time, position).
    ///
    /// # Errors
    /// [`SegmentError::Row`]: out of order, or not of this segment. [`SegmentError::Io`].
    pub fn push(&mut self, seq: u64, leaf: &[u8]) -> Result<(), SegmentError> {
        let parts = leaf::split(leaf).map_err(|error| self.refused(seq, error.reason))?;
        let key = (parts.timestamp_ns, seq);
        if self.last.is_some_and(|last| key <= last) {
            return Err(self.refused(seq, "it is out of order by time and position"));
        }
        if !(self.footer.first_seq..self.footer.end_seq).contains(&seq) {
            return Err(self.refused(seq, "its position belongs to another segment"));
        }
        self.last = Some(key);
        self.columns.push(seq, &parts);
        self.footer.rows += 1;
        self.footer.leaf_bytes += leaf.len() as u64;
        if self.columns.size() >= self.options.block_size.min(BLOCK_ENDS)
            || self.columns.len() >= ROWS_END
        {
            self.end_block()?;
        }
        Ok(())
    }

    /// Adds the hash of a removed event, in order of position, after all events.
    ///
    /// # Errors
    /// [`SegmentError::Row`]: out of order, or not of this segment.
    pub fn push_stub(&mut self, seq: u64, hash: Hash) -> Result<(), SegmentError> {
        if !(self.footer.first_seq..self.footer.end_seq).contains(&seq)
            || self.stubs.last().is_some_and(|(last, _)| seq <= *last)
        {
            return Err(
                self.refused(seq, "its position is out of order or belongs to another segment")
            );
        }
        self.stubs.push((seq, hash));
        Ok(())
    }

    fn end_block(&mut self) -> Result<(), SegmentError> {
        if self.columns.len() == 0 {
            return Ok(());
        }
        self.raw.clear();
        self.columns.encode(&mut self.raw);
        let start = self.buffer.len();
        self.buffer.push(0);
        self.buffer.extend_from_slice(&(self.raw.len() as u32).to_le_bytes());
        let stored = self.compressor.compress(&self.raw, &mut self.buffer);
        let stored =
            stored.map_err(|reason| SegmentError::Compress { path: self.path.clone(), reason })?;
        self.buffer[start] = stored;
        self.block_digests.push(*blake3::hash(&self.buffer[start..]).as_bytes());
        let checksum = crc32c(&self.buffer[start..]) ^ self.salt ^ self.blocks.len() as u32;
        self.buffer.extend_from_slice(&checksum.to_le_bytes());
        let columns = &self.columns;
        let least = |found: Option<u64>| found.unwrap_or(0);
        let ids = || columns.ids.iter().copied();
        let times = (columns.times_ns.first(), columns.times_ns.last());
        let info = BlockInfo {
            offset: self.written + start as u64,
            stored_size: (self.buffer.len() - start) as u32,
            rows: columns.len() as u32,
            time_min_ns: times.0.copied().unwrap_or(0),
            time_max_ns: times.1.copied().unwrap_or(0),
            seq_min: least(columns.seqs.iter().copied().min()),
            seq_max: least(columns.seqs.iter().copied().max()),
            id_min: ids().min().unwrap_or_default(),
            id_max: ids().max().unwrap_or_default(),
            filter_offset: 0,
            filter_size: 0,
        };
        self.footer.time_min_ns = self.footer.time_min_ns.min(info.time_min_ns);
        self.footer.time_max_ns = self.footer.time_max_ns.max(info.time_max_ns);
        self.ids.block(&self.columns.ids);
        self.blocks.push(info);
        let filter = self.filter();
        self.filters.push(filter);
        self.columns.clear();
        if self.buffer.len() >= WRITE_SIZE { self.write_out() } else { Ok(()) }
    }

    /// The filter of the block in `columns`.
    fn filter(&mut self) -> Vec<u8> {
        self.terms.clear();
        self.addresses.clear();
        for bytes in &self.columns.tags {
            let Ok(tags) = leaf::tags(bytes) else { continue };
            let texts =
                [(Field::Stream, tags.stream), (Field::Kind, tags.kind), (Field::Host, tags.host)];
            for (field, text) in texts {
                self.terms.insert(Term::of(field, text.as_bytes()));
            }
            if self.options.text_filter {
                addresses::any_of_tags(&tags, &mut |ip| put(&mut self.addresses, ip));
            }
        }
        if self.options.text_filter {
            for row in 0..self.columns.len() {
                let mut body = self.columns.body(row);
                addresses::any_of_body(body, &mut |ip| put(&mut self.addresses, ip));
                let size = take_varint(&mut body).and_then(|size| usize::try_from(size).ok());
                let raw = size.and_then(|size| body.get(..size)).unwrap_or_default();
                Term::of_words(raw, |term| {
                    self.terms.insert(term);
                });
            }
        }
        self.terms.extend(self.addresses.iter().copied().flat_map(Term::of_address));
        filter::build(self.terms.iter().copied(), self.options.filter_bits_per_key)
    }

    fn write_out(&mut self) -> Result<(), SegmentError> {
        self.digest.update(&self.buffer);
        self.file
            .write_all_at(&self.buffer, self.written)
            .map_err(|source| SegmentError::io("write", &self.path, source))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Appends bytes, and returns their offset in the file.
    fn append(&mut self, bytes: &[u8]) -> Result<u64, SegmentError> {
        if self.buffer.len() >= WRITE_SIZE {
            self.write_out()?;
        }
        let offset = self.written + self.buffer.len() as u64;
        self.buffer.extend_from_slice(bytes);
        Ok(offset)
    }

    /// Writes everything after the blocks, and puts all of it on stable storage.
    ///
    /// # Errors
    /// [`SegmentError::Io`].
    pub fn finish(self) -> Result<SegmentInfo, SegmentError> {
        self.finish_signed(None)
    }

    /// As [`finish`](Self::finish), with signed digests of the blocks.
    ///
    /// * `sign`: only if the events are known to be those in the tree.
    pub(crate) fn finish_signed(
        mut self,
        sign: Option<&Sign<'_>>,
    ) -> Result<SegmentInfo, SegmentError> {
        self.end_block()?;
        let salt = self.salt;
        let filters = std::mem::take(&mut self.filters);
        for (number, filter) in filters.iter().enumerate() {
            let offset = self.append(filter)?;
            self.append(&(crc32c(filter) ^ salt ^ number as u32).to_le_bytes())?;
            if let Some(block) = self.blocks.get_mut(number) {
                block.filter_offset = offset;
                block.filter_size = filter.len() as u32;
            }
        }
        let pages = std::mem::take(&mut self.ids).finish(&self.blocks, salt);
        self.footer.id_pages = pages.count;
        self.footer.id_pages_offset = self.append(&pages.pages)?;
        self.footer.id_directory_offset = self.append(&pages.directory)?;
        drop(pages);
        let stubs = std::mem::take(&mut self.stubs);
        self.footer.stubs = stubs.len() as u64;
        self.footer.stubs_offset = self.append(&[])?;
        for (seq, hash) in &stubs {
            let mut stub = seq.to_le_bytes().to_vec();
            stub.extend_from_slice(&hash.0);
            let checksum = crc32c(&stub) ^ salt;
            stub.extend_from_slice(&checksum.to_le_bytes());
            self.append(&stub)?;
        }
        if let Some(sign) = sign {
            let header = self.footer.header();
            let found = digests::encode(&header, &self.blocks, &self.block_digests, salt, sign);
            self.footer.digests_offset = self.append(&found)?;
        }
        let mut index = Vec::new();
        self.blocks.iter().for_each(|block| block.encode(&mut index));
        index.extend_from_slice(&(crc32c(&index) ^ salt).to_le_bytes());
        self.footer.blocks = self.blocks.len() as u64;
        self.footer.index_offset = self.append(&index)?;
        if self.footer.rows == 0 {
            (self.footer.time_min_ns, self.footer.time_max_ns) = (0, 0);
        }
        self.append(&self.footer.encode())?;
        self.write_out()?;
        self.file.sync_all().map_err(|source| SegmentError::io("sync", &self.path, source))?;
        Ok(SegmentInfo {
            first_seq: self.footer.first_seq,
            end_seq: self.footer.end_seq,
            rows: self.footer.rows,
            stubs: self.footer.stubs,
            leaf_bytes: self.footer.leaf_bytes,
            time_min_ns: self.footer.time_min_ns,
            time_max_ns: self.footer.time_max_ns,
            file_size: self.written,
            digest: *self.digest.finalize().as_bytes(),
        })
    }
}
