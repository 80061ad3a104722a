//! Reads are checked against the tree: what a reader gets has the hashes that were signed.
//!
//! Checksums find accidents. One who changes an event on purpose corrects them too. So when the
//! store writes a segment, it signs the digests of its blocks, and a block that has its digest is
//! what the store wrote from events in the tree. Any other block, and those of segments without
//! such a signature, are compared with the tree: the first read since the store was opened hashes
//! the events, gathers the other hashes of their tiles of 256, and compares the tiles' roots with
//! those of the tree, which were compared with the newest signed checkpoint. Repeated reads cost
//! only a keyed fingerprint of the stored bytes: a block that is replaced meanwhile has another one,
//! and is checked again.
//!
//! Invariants:
//! - The bytes that are checked are the bytes that are returned: nothing is read twice.
//! - Memory is limited: hashes and fingerprints are in caches, and a segment whose events are
//!   scattered over many tiles is checked as a whole, in windows of positions.

#![expect(clippy::cast_possible_truncation, reason = "blocks are numbered with 32 bits")]
#![deny(clippy::indexing_slicing)]

mod slots;
mod whole;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use uuid::Uuid;

use super::Inner;
use super::error::ReadError;
use super::tree::TileHashes;
use super::view::{Stored, View};
use crate::format::{leaf, tree};
use crate::merkle::{Hash, TILE_WIDTH, subtree_root};
use crate::segment::Block;
use slots::Slots;

const TILE: u64 = TILE_WIDTH as u64;
/// Number of blocks of which the fingerprint is kept: 4 GiB of events in blocks of 32 KiB.
const KNOWN_MAX: usize = 1 << 17;
/// Memory of blocks that were hashed for a neighbour, and are likely to be read next.
const HASHED_SIZE: u64 = 8 << 20;
/// Number of tiles of which the hashes are kept.
const TILES_MAX: usize = 512;
/// Number of blocks that are read to check one; above it the segment is checked as a whole.
const NEARBY_MAX: usize = 64;
/// Number of positions whose hashes are gathered at a time when a segment is checked as a whole.
const WINDOW: u64 = 1 << 19;
/// Memory of all of these in bytes, about.
pub(super) const MEMORY: usize =
    KNOWN_MAX * 64 + HASHED_SIZE as usize + TILES_MAX * TILE_WIDTH * 32 + WINDOW as usize * 33;

/// What is wrong with an event outside the ranges of its block.
const MISPLACED: &str = "it is not where the index of the segment has it";

/// Reads a block of a segment, with its hashes.
type ReadHashed<'a> = dyn FnMut(&Stored, u32) -> Result<Arc<Hashed>, ReadError> + 'a;

/// Number of a segment, and of a block in it.
type BlockKey = (u64, u32);

/// A block with the hashes of its rows, not yet compared with anything.
#[derive(Debug)]
pub(super) struct Hashed {
    pub(super) block: Arc<Block>,
    mark: u128,
    hashes: Vec<Hash>,
}

/// Weighs a hashed block by its memory in bytes.
#[derive(Debug, Clone)]
struct BySize;

impl quick_cache::Weighter<BlockKey, Arc<Hashed>> for BySize {
    fn weight(&self, _key: &BlockKey, hashed: &Arc<Hashed>) -> u64 {
        (hashed.block.size() + hashed.hashes.len() * size_of::<Hash>()) as u64
    }
}

/// What was checked since the store was opened.
#[derive(Debug)]
pub(crate) struct Checks {
    /// Key of the fingerprints, unknown to anyone who can write the files.
    seed: u64,
    /// Fingerprints of blocks whose events are those of the tree.
    known: Cache<BlockKey, u128>,
    hashed: Cache<BlockKey, Arc<Hashed>, BySize>,
    /// The leaf hashes of complete tiles, which have the tile's root.
    tiles: Cache<u64, Arc<Vec<Hash>>>,
    /// Held while a segment is checked as a whole.
    whole: Mutex<()>,
    trust: OnceLock<Trust>,
}

/// Up to where the tree is the one that was signed.
#[derive(Debug, Clone, Default)]
pub(super) struct Trust {
    /// Positions that a checkpoint covers, and that give another root than the signed one.
    pub(super) refused: Range<u64>,
    /// From where on only blocks with their signed digest are read, because the tree cannot be
    /// compared with what was signed.
    pub(super) unproven_from: Option<u64>,
    /// What differs, or why nothing can be compared.
    pub(super) reason: String,
}

impl Checks {
    pub(crate) fn new() -> Self {
        let count = (HASHED_SIZE >> 15) as usize;
        Self {
            seed: Uuid::new_v4().as_u64_pair().1,
            known: Cache::new(KNOWN_MAX),
            hashed: Cache::with_weighter(count, HASHED_SIZE, BySize),
            tiles: Cache::new(TILES_MAX),
            whole: Mutex::new(()),
            trust: OnceLock::new(),
        }
    }
}

impl Inner {
    /// Whether reads are checked.
    pub(super) fn checks_reads(&self) -> bool {
        self.options.verified_reads && self.tree.is_some()
    }

    /// The comparison of the tree, as it was opened, with what was signed; made once.
    pub(super) fn trust(&self) -> &Trust {
        self.checks.trust.get_or_init(|| self.compare_with_signed())
    }

    /// Refuses a position that a checkpoint covers, but whose tree is another.
    pub(crate) fn check_position(&self, seq: u64, stream: &str) -> Result<(), ReadError> {
        if !self.checks_reads() {
            return Ok(());
        }
        let trust = self.trust();
        if !trust.refused.contains(&seq) {
            return Ok(());
        }
        Err(ReadError::Changed {
            stream: stream.to_owned(),
            place: "the event from the log".to_owned(),
            first: seq,
            last: seq,
            reason: trust.reason.clone(),
        })
    }

    /// Reads a block, checked.
    pub(super) fn read_checked(
        &self,
        view: &View,
        stored: &Stored,
        number: u32,
    ) -> Result<Arc<Block>, ReadError> {
        if !self.checks_reads() {
            let block = stored.segment.read_block(number as usize).map_err(ReadError::Segment)?;
            return Ok(Arc::new(block));
        }
        if let Some(block) = self.read_signed(stored, number)? {
            return Ok(Arc::new(block));
        }
        let key = (stored.entry.number, number);
        let hashed = match self.checks.hashed.get(&key) {
            Some(hashed) => hashed,
            None => {
                let (block, mark) = self.marked(stored, number)?;
                let block = Arc::new(block);
                if self.checks.known.get(&key) == Some(mark) {
                    return Ok(block);
                }
                Arc::new(Hashed::new(block, mark))
            }
        };
        if self.checks.known.get(&key) != Some(hashed.mark) {
            self.check(view, stored, number, &hashed)?;
            self.checks.known.insert(key, hashed.mark);
        }
        // It will be found among the blocks for readers.
        self.checks.hashed.remove(&key);
        Ok(Arc::clone(&hashed.block))
    }

    /// Reads a block that has its signed digest.
    fn read_signed(&self, stored: &Stored, number: u32) -> Result<Option<Block>, ReadError> {
        if !self.trust().refused.is_empty() {
            return Ok(None);
        }
        let verifies = |message: &[u8], signature: &[u8]| {
            let key = self.checkpoints.as_ref().map(|checkpoints| checkpoints.lock());
            key.is_some_and(|held| held.key.verifier().verifies(message, signature))
        };
        let key = (stored.entry.number, number);
        let known = self.checks.known.get(&key);
        let marked = (self.checks.seed, known);
        let read = stored.segment.read_block_signed(number as usize, marked, &verifies);
        let Some((block, mark)) = read.map_err(ReadError::Segment)? else { return Ok(None) };
        if known != Some(mark) {
            self.checks.known.insert(key, mark);
        }
        Ok(Some(block))
    }

    fn marked(&self, stored: &Stored, number: u32) -> Result<(Block, u128), ReadError> {
        let read = stored.segment.read_block_marked(number as usize, self.checks.seed);
        read.map_err(ReadError::Segment)
    }

    /// Compares the hashes of a block with the tree.
    fn check(
        &self,
        view: &View,
        stored: &Stored,
        number: u32,
        hashed: &Arc<Hashed>,
    ) -> Result<(), ReadError> {
        let block = &hashed.block;
        let trust = self.trust();
        let refused =
            || (0..block.len()).map(|row| block.seq(row)).filter(|seq| trust.refused.contains(seq));
        if let (Some(first), Some(last)) = (refused().min(), refused().max()) {
            return Err(changed(stored, number, block, first..last + 1, &trust.reason));
        }
        if let Some(from) = trust.unproven_from
            && (0..block.len()).any(|row| block.seq(row) >= from)
        {
            let place = place_of(stored, number, block);
            return Err(ReadError::Unproven { place, reason: trust.reason.clone() });
        }
        if let Some(seq) = stored.segment.misplaced(number as usize, block) {
            return Err(changed(stored, number, block, seq..seq + 1, MISPLACED));
        }
        let tiles: BTreeSet<u64> = (0..block.len()).map(|row| block.seq(row) / TILE).collect();
        if self.blocks_near(stored, &tiles) > NEARBY_MAX {
            return self.check_whole(view, stored, number, hashed.mark);
        }
        self.checks.hashed.insert((stored.entry.number, number), Arc::clone(hashed));
        for &tile in &tiles {
            let range = tile * TILE..(tile + 1) * TILE;
            let bad = |reason: &str| changed(stored, number, block, range.clone(), reason);
            let leaves = self.leaves_of(view, stored, tile, &bad)?;
            let rows = (0..block.len()).zip(&hashed.hashes);
            for (row, hash) in rows.filter(|(row, _)| block.seq(*row) / TILE == tile) {
                let place = (block.seq(row) % TILE) as usize;
                if leaves.get(place) != Some(hash) {
                    let seq = block.seq(row);
                    let reason = "its bytes are not those in the tree";
                    return Err(changed(stored, number, block, seq..seq + 1, reason));
                }
            }
        }
        Ok(())
    }

    /// Number of blocks of the segment that have events of tiles which were not checked yet.
    fn blocks_near(&self, stored: &Stored, tiles: &BTreeSet<u64>) -> usize {
        let mut blocks = BTreeSet::new();
        for tile in tiles {
            if self.checks.tiles.get(tile).is_none() {
                blocks.extend(stored.segment.blocks_of_seq(tile * TILE..(tile + 1) * TILE));
            }
            if blocks.len() > NEARBY_MAX {
                break;
            }
        }
        blocks.len()
    }

    /// The leaf hashes of a tile, compared with the tree.
    ///
    /// * `bad`: makes the error.
    fn leaves_of(
        &self,
        view: &View,
        stored: &Stored,
        tile: u64,
        bad: &dyn Fn(&str) -> ReadError,
    ) -> Result<Arc<Vec<Hash>>, ReadError> {
        if let Some(leaves) = self.checks.tiles.get(&tile) {
            return Ok(leaves);
        }
        let root = match self.tree.as_ref().and_then(|tree| tree.tile(tile)) {
            Some(TileHashes::Root(root)) => root,
            // They were hashed when they were appended, or when the store was opened.
            Some(TileHashes::Edge(leaves)) => return Ok(Arc::new(leaves)),
            None => return Err(bad("the tree does not have them")),
        };
        let mut slots = Slots::new(tile * TILE..(tile + 1) * TILE);
        self.gather(view, stored, &mut slots, &mut |stored, number| self.hashed(stored, number))?;
        let leaves = slots.complete(slots.range.clone()).map_err(bad)?;
        if subtree_root(&leaves) != root {
            return Err(bad("their hashes do not give the root of their tile in the tree"));
        }
        let leaves = Arc::new(leaves);
        // Positions that are not acknowledged yet may be given to other events.
        if (tile + 1) * TILE <= self.visible() {
            self.checks.tiles.insert(tile, Arc::clone(&leaves));
        }
        Ok(leaves)
    }

    /// A block with its hashes, from the cache or the disk.
    fn hashed(&self, stored: &Stored, number: u32) -> Result<Arc<Hashed>, ReadError> {
        let key = (stored.entry.number, number);
        if let Some(hashed) = self.checks.hashed.get(&key) {
            return Ok(hashed);
        }
        let (block, mark) = self.marked(stored, number)?;
        let hashed = Arc::new(Hashed::new(Arc::new(block), mark));
        self.checks.hashed.insert(key, Arc::clone(&hashed));
        Ok(hashed)
    }

    /// Gathers the hashes of a range of positions: those of `stored` from that segment, the others
    /// from the view, or from the current one if the view ends before them.
    fn gather(
        &self,
        view: &View,
        stored: &Stored,
        slots: &mut Slots,
        read: &mut ReadHashed<'_>,
    ) -> Result<(), ReadError> {
        let Range { start, end } = slots.range;
        let current = self.view();
        let mut next = start;
        while next < end {
            let own = (stored.entry.first_seq..stored.entry.end_seq).contains(&next);
            let other = || view.segment_at(next).or_else(|| current.segment_at(next));
            let segment = if own { Some(stored) } else { other().map(|found| &**found) };
            if let Some(segment) = segment {
                let part = next..end.min(segment.entry.end_seq);
                for number in segment.segment.blocks_of_seq(part.clone()) {
                    slots.put_rows(&part, &*read(segment, number)?);
                }
                for (seq, hash) in
                    segment.segment.stubs(part.clone()).map_err(ReadError::Segment)?
                {
                    slots.put(seq, hash);
                }
                next = part.end;
                continue;
            }
            let table = view.table_at(next).and_then(|table| table.at(next));
            let found = table.or_else(|| current.table_at(next).and_then(|table| table.at(next)));
            if let Some((run, index)) = found {
                slots.put(next, tree::hash(run.leaf(index)));
            }
            next += 1;
        }
        Ok(())
    }
}

impl Hashed {
    fn new(block: Arc<Block>, mark: u128) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(block.len()));
        for row in 0..block.len() {
            block.leaf(row, &mut bytes);
            ends.push(bytes.len());
        }
        let leaves = ends.iter().scan(0, |start, &end| {
            let leaf = bytes.get(*start..end).unwrap_or_default();
            *start = end;
            Some(leaf)
        });
        let mut hashes = Vec::with_capacity(block.len());
        tree::hashes(leaves, &mut hashes);
        Self { block, mark, hashes }
    }
}

fn stream_of(block: &Block, row: usize) -> &str {
    leaf::tags(block.tags(row)).map_or("", |tags| tags.stream)
}

/// Names a block and its events.
fn place_of(stored: &Stored, number: u32, block: &Block) -> String {
    let seqs = || (0..block.len()).map(|row| block.seq(row));
    let (rows, first, last) = (block.len(), seqs().min().unwrap_or(0), seqs().max().unwrap_or(0));
    let path = stored.segment.path().display();
    format!(
        "block {number} of segment {path}, with {rows} events between the indexes {first} and {last}"
    )
}

/// The error for events of a block that differ from the tree.
fn changed(
    stored: &Stored,
    number: u32,
    block: &Block,
    range: Range<u64>,
    reason: &str,
) -> ReadError {
    let row = (0..block.len()).find(|&row| range.contains(&block.seq(row)));
    ReadError::Changed {
        stream: row.map_or("", |row| stream_of(block, row)).to_owned(),
        place: place_of(stored, number, block),
        first: range.start,
        last: range.end - 1,
        reason: reason.to_owned(),
    }
}

/// As [`changed`], with the first block that has one of the events.
fn changed_among(stored: &Stored, range: Range<u64>, reason: &str) -> ReadError {
    for number in stored.segment.blocks_of_seq(range.clone()) {
        match stored.segment.read_block(number as usize) {
            Ok(block) if (0..block.len()).any(|row| range.contains(&block.seq(row))) => {
                return changed(stored, number, &block, range, reason);
            }
            Ok(_) => {}
            Err(error) => return ReadError::Segment(error),
        }
    }
    ReadError::Segment(stored.segment.no_event(range.start))
}
