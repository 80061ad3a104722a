//! Reading a snapshot's file.
//!
//! Invariants: no part of a block is used before its checksums are verified; blocks are accepted
//! only in the one order in which they form a snapshot of all keys.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_base::fs::{Access, File, FileSystem};

use super::entry::EntryReader;
use super::format::{
    BLOCK_HEADER_SIZE, Block, BlockHeader, END_SIZE, End, HEADER_SIZE, Header, SnapshotFault,
};
use super::value::Building;
use crate::persist::error::{Disk, SnapshotDamage, SnapshotReadError};
use crate::persist::ranges::Ranges;
use crate::store::{Key, Kind, Rules, Value, shard_of};

/// Size of a read in bytes; a larger block is read whole.
const READ_SIZE: usize = 1 << 20;

/// A file whose header and end were read.
#[derive(Debug)]
pub(crate) struct SnapshotFile {
    file: Arc<dyn File>,
    path: PathBuf,
    pub(crate) header: Header,
    mark: u32,
    pub(crate) len: u64,
    pub(crate) end: End,
}

/// A value from the file.
#[derive(Debug)]
pub(crate) enum ReadValue<'a> {
    /// A borrowed string.
    Text(&'a [u8]),
    /// An owned value of any type.
    Value(Value),
}

/// Receives the keys of a snapshot.
pub(crate) trait Sink {
    /// A key of a database.
    fn put(
        &mut self,
        database: usize,
        key: &Key<'_>,
        found: ReadValue<'_>,
        deadline_ms: Option<u64>,
    );

    /// Reports the bytes read and the keys found so far.
    fn progress(&mut self, _bytes: u64, _keys: u64) {}
}

impl SnapshotFile {
    /// Opens a file and reads its header and its end.
    pub(crate) fn open(fs: &dyn FileSystem, path: &Path) -> Result<Self, SnapshotReadError> {
        let io = |act| move |source| SnapshotReadError::Io(Disk::new(act, path, source));
        let file = fs.open(path, Access::Read).map_err(io("open"))?;
        let len = file.len().map_err(io("get the size of"))?;
        let damaged = |offset, fault| {
            SnapshotReadError::Damaged(SnapshotDamage { path: path.to_path_buf(), offset, fault })
        };
        let end_size = (BLOCK_HEADER_SIZE + END_SIZE) as u64;
        let expected = HEADER_SIZE as u64 + end_size;
        if len < expected {
            return Err(damaged(len, SnapshotFault::Short { expected, found: len }));
        }
        let mut bytes = [0; HEADER_SIZE];
        file.read_exact_at(&mut bytes, 0).map_err(io("read"))?;
        let header = Header::decode(&bytes).map_err(|fault| damaged(0, fault))?;
        let mark = Header::checksum(&bytes);
        let mut this =
            Self { file, path: path.to_path_buf(), header, mark, len, end: End::default() };
        let at = len - end_size;
        let mut last = Blocks { file: &this, offset: at, buffer: Vec::new(), at: 0, next: at };
        let end = match last.next()? {
            // Only an end block of this size ends with the file.
            Block::End(end) => end,
            _ => {
                let what = "the last block is not an end block";
                return Err(damaged(at, SnapshotFault::Order { what }));
            }
        };
        this.end = end;
        Ok(this)
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn damaged(&self, offset: u64, fault: SnapshotFault) -> SnapshotReadError {
        SnapshotReadError::Damaged(SnapshotDamage { path: self.path.clone(), offset, fault })
    }

    /// Reads everything and passes the keys to the sink; returns the position of each range.
    ///
    /// * `rules`: created with the header's seed.
    pub(crate) fn read(
        &self,
        rules: &Rules,
        sink: &mut dyn Sink,
    ) -> Result<Ranges, SnapshotReadError> {
        let offset = HEADER_SIZE as u64;
        let mut blocks = Blocks { file: self, offset, buffer: Vec::new(), at: 0, next: offset };
        let mut assembly = Assembly::default();
        loop {
            let at = blocks.next;
            let block = blocks.next()?;
            let going = assembly.take(block, rules, sink);
            let going = going.map_err(|fault| self.damaged(at, fault))?;
            sink.progress(blocks.next, assembly.keys);
            if !going {
                if blocks.next != self.len {
                    let fault = SnapshotFault::Trailing { bytes: self.len - blocks.next };
                    return Err(self.damaged(blocks.next, fault));
                }
                return Ok(assembly.ranges);
            }
        }
    }
}

/// Iterates over the blocks of a file.
struct Blocks<'f> {
    file: &'f SnapshotFile,
    /// Offset of the buffer in the file.
    offset: u64,
    buffer: Vec<u8>,
    /// Offset of the next block in the buffer.
    at: usize,
    /// Offset of the next block in the file.
    next: u64,
}

impl Blocks<'_> {
    fn next(&mut self) -> Result<Block<'_>, SnapshotReadError> {
        let start = self.next;
        self.fill(BLOCK_HEADER_SIZE)?;
        let mut bytes = [0; BLOCK_HEADER_SIZE];
        bytes.copy_from_slice(&self.buffer[self.at..self.at + BLOCK_HEADER_SIZE]);
        let header = BlockHeader::decode(&bytes, self.file.mark, start)
            .map_err(|fault| self.file.damaged(start, fault))?;
        let size = BLOCK_HEADER_SIZE + header.size as usize;
        self.fill(size)?;
        let from = self.at;
        self.at += size;
        self.next += size as u64;
        let payload = &self.buffer[from + BLOCK_HEADER_SIZE..from + size];
        header.payload(payload).map_err(|fault| self.file.damaged(start, fault))
    }

    /// Makes `size` bytes from the start of the next block available in the buffer.
    fn fill(&mut self, size: usize) -> Result<(), SnapshotReadError> {
        let there = self.buffer.len() - self.at;
        if there >= size {
            return Ok(());
        }
        let rest = self.file.len.saturating_sub(self.next);
        if (size as u64) > rest {
            let fault = SnapshotFault::Short { expected: size as u64, found: rest };
            return Err(self.file.damaged(self.next, fault));
        }
        self.buffer.drain(..self.at);
        self.offset += self.at as u64;
        self.at = 0;
        let rest = usize::try_from(rest).unwrap_or(usize::MAX);
        let wanted = size.max(READ_SIZE).min(rest);
        self.buffer.shrink_to(2 * READ_SIZE.max(wanted));
        self.buffer.resize(wanted, 0);
        let offset = self.offset + there as u64;
        self.file
            .file
            .read_exact_at(&mut self.buffer[there..], offset)
            .map_err(|source| SnapshotReadError::Io(Disk::new("read", &self.file.path, source)))
    }
}

/// A value whose pieces are being read.
#[derive(Debug)]
struct Open {
    place: (usize, usize),
    key: Vec<u8>,
    deadline_ms: Option<u64>,
    building: Building,
}

/// The result of the blocks so far.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    ranges: Ranges,
    keys: u64,
    blocks: u64,
    open: Option<Open>,
}

const fn order(what: &'static str) -> SnapshotFault {
    SnapshotFault::Order { what }
}

impl Assembly {
    /// Adds a block; `false` after the last.
    pub(crate) fn take(
        &mut self,
        block: Block<'_>,
        rules: &Rules,
        sink: &mut dyn Sink,
    ) -> Result<bool, SnapshotFault> {
        let inside = matches!(block, Block::Piece(_) | Block::LargeEnd { .. } | Block::Abandoned);
        if inside != self.open.is_some() {
            return Err(order("a block of a large value is misplaced or missing"));
        }
        match block {
            Block::Unused { database, position } => {
                if !self.ranges.add_unused(database, position) {
                    return Err(order("an unused database has ranges"));
                }
            }
            Block::Range { place, hashes, position, entries } => {
                self.add_range(place, hashes, position)?;
                self.take_entries(place, hashes, entries, rules, sink)?;
            }
            Block::Large { place, kind, deadline_ms, key } => {
                let (key, building) = (key.to_vec(), Building::new(kind));
                self.open = Some(Open { place, key, deadline_ms, building });
            }
            Block::Piece(elements) => {
                if let Some(open) = &mut self.open {
                    open.building.add(elements)?;
                }
            }
            Block::LargeEnd { hash, position } => {
                if let Some(open) = self.open.take() {
                    self.add_range(open.place, (hash, hash), position)?;
                    let key = checked(open.place, (hash, hash), &open.key, rules)?;
                    let value = open.building.finish();
                    let value = value.ok_or(order("a collection without elements"))?;
                    self.keys += 1;
                    sink.put(open.place.0, &key, ReadValue::Value(value), open.deadline_ms);
                }
            }
            Block::Abandoned => self.open = None,
            Block::End(end) => {
                self.judge(&end)?;
                return Ok(false);
            }
        }
        self.blocks += 1;
        Ok(true)
    }

    fn add_range(
        &mut self,
        place: (usize, usize),
        hashes: (u64, u64),
        position: forebay_log::Lsn,
    ) -> Result<(), SnapshotFault> {
        let follows = self.ranges.add(place, hashes, position);
        if follows { Ok(()) } else { Err(order("a range does not follow the previous one")) }
    }

    fn take_entries(
        &mut self,
        place: (usize, usize),
        hashes: (u64, u64),
        entries: &[u8],
        rules: &Rules,
        sink: &mut dyn Sink,
    ) -> Result<(), SnapshotFault> {
        let mut entries = EntryReader::new(entries);
        while let Some(entry) = entries.next()? {
            let key = checked(place, hashes, entry.key, rules)?;
            let found = if entry.kind == Kind::String {
                ReadValue::Text(entry.value)
            } else {
                let mut building = Building::new(entry.kind);
                building.add(entry.value)?;
                ReadValue::Value(building.finish().ok_or(order("a collection without elements"))?)
            };
            self.keys += 1;
            sink.put(place.0, &key, found, entry.deadline_ms);
        }
        Ok(())
    }

    /// Checks that everything listed in the end block has been read.
    fn judge(&self, end: &End) -> Result<(), SnapshotFault> {
        if !self.ranges.is_complete() {
            return Err(order("no range covers some hashes"));
        }
        let (lowest, highest) = self.ranges.bounds();
        let (blocks, keys, ranges) = (self.blocks, self.keys, self.ranges.len());
        if *end != (End { blocks, ranges, keys, lowest, highest }) {
            return Err(order("the end block does not match the blocks before it"));
        }
        Ok(())
    }
}

/// Returns a key with its hash, if it belongs to the current range.
fn checked<'k>(
    (_, shard): (usize, usize),
    (from, last): (u64, u64),
    bytes: &'k [u8],
    rules: &Rules,
) -> Result<Key<'k>, SnapshotFault> {
    let hash = rules.hash(bytes);
    if shard_of(hash) != shard || !(from..=last).contains(&hash) {
        return Err(order("a key is in the wrong range"));
    }
    Ok(Key { bytes, hash })
}
