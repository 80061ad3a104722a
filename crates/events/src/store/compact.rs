//! Rewriting of segments: neighbours are joined, expired events removed.
//!
//! A rewritten segment covers the positions of those it replaces. A removed event leaves its leaf
//! hash as long as an event of the same tile remains, so that the remaining events can be proven.
//! If no event of a tile remains, and no checkpoint ends inside it, the root in the tree's file is
//! sufficient.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_base::error_chain::chain;

use super::flush::FlushError;
use super::manifest::{remove, segment_path};
use super::retention::{self, Expiry, Recorded};
use super::view::Stored;
use super::{AppendError, Inner, Store};
use crate::checkpoint::{Checkpoint, SignedNote};
use crate::format::{leaf, tree};
use crate::merkle::{Hash, TILE_WIDTH};
use crate::segment::{Block, SegmentError, SegmentWriter};

/// Number of neighbours of similar size that are joined.
const JOINED: usize = 4;
/// Segments are not joined across this many nanoseconds of event time: one day.
const PARTITION_NS: i64 = 86_400_000_000_000;

/// The result of pruning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Number of removed events.
    pub events: u64,
    /// Number of rewritten segments.
    pub segments: u64,
    /// Bytes by which the store's segments shrank.
    pub bytes: u64,
}

/// What a pass over the segments did.
#[derive(Debug, Default)]
struct Maintained {
    pruned: Pruned,
    /// Why the first damaged segment could not be rewritten.
    damage: Option<FlushError>,
}

impl Inner {
    /// Joins neighbours while there are some of one size, and removes what the rules allow.
    pub(crate) fn compact(&self) -> Result<(), FlushError> {
        let Maintained { mut damage, .. } = self.prune(8)?;
        let _maintaining = self.maintaining.lock();
        while let Some(chosen) = self.choose() {
            if self.maintenance.is_stopped() {
                break;
            }
            self.rewrite_sound(&chosen, None, &mut damage)?;
        }
        damage.map_or(Ok(()), Err)
    }

    /// Neighbours that must be joined.
    fn choose(&self) -> Option<Vec<Arc<Stored>>> {
        let view = self.view();
        let level =
            |stored: &Stored| (stored.entry.end_seq - stored.entry.first_seq).max(1).ilog2() / 2;
        let day = |stored: &Stored| stored.entry.time_max_ns.div_euclid(PARTITION_NS);
        let joinable = |group: &&[Arc<Stored>]| {
            let same = group.iter().all(|stored| {
                level(stored) == level(&group[0])
                    && day(stored) == day(&group[0])
                    && !self.is_set_aside(stored)
            });
            let sum: u64 = group.iter().map(|stored| stored.entry.rows).sum();
            same && sum <= self.options.segment_events_max
        };
        view.segments.windows(JOINED).find(joinable).map(<[_]>::to_vec)
    }

    /// Removes expired events from segments of which at least one in `share` is expired, and what
    /// exceeds the maximum size.
    fn prune(&self, share: u64) -> Result<Maintained, FlushError> {
        self.refuse_suspended()?;
        self.begin_recording().map_err(|error| FlushError::Sign(Box::new(error)))?;
        let _maintaining = self.maintaining.lock();
        self.record_policy()?;
        let mut done = Maintained::default();
        if !self.options.retention.is_empty() {
            self.prune_by_age(share, &mut done)?;
        }
        if let Some(limit) = self.options.retention_size {
            self.prune_by_size(limit, &mut done)?;
        }
        Ok(done)
    }

    fn prune_by_age(&self, share: u64, done: &mut Maintained) -> Result<(), FlushError> {
        let now_ns = self.now_ns();
        let arrivals = Arc::clone(&self.arrivals.lock());
        for stored in &self.view().segments {
            // What was recorded is removed, and nothing else: one entry, however often this fails.
            let recorded = self.recorded.lock().get(&stored.entry.number).copied();
            let now_ns = match recorded {
                None => now_ns,
                Some(Recorded::ByAge { now_ns }) => now_ns,
                Some(Recorded::BySize { .. }) => continue,
            };
            let expiry = Expiry::by_age(&self.options.retention, now_ns, Arc::clone(&arrivals));
            let expired = expiry.expired_in(stored);
            if expired == 0 || expired.saturating_mul(share) < stored.entry.rows {
                continue;
            }
            self.remove(stored, &expiry, done)?;
        }
        Ok(())
    }

    /// Removes what exceeds the maximum size. Removed events may leave their hashes, so that once may
    /// not be enough.
    fn prune_by_size(&self, limit: u64, done: &mut Maintained) -> Result<(), FlushError> {
        loop {
            let before = done.pruned.events;
            self.remove_excess(limit, done)?;
            if done.pruned.events == before {
                return Ok(());
            }
        }
    }

    fn remove_excess(&self, limit: u64, done: &mut Maintained) -> Result<(), FlushError> {
        let now_ns = self.now_ns();
        let arrivals = Arc::clone(&self.arrivals.lock());
        let view = self.view();
        let end = retention::end_of_excess(&view.segments, limit);
        for stored in &view.segments {
            let recorded = self.recorded.lock().get(&stored.entry.number).copied();
            let end = match recorded {
                None => end,
                Some(Recorded::BySize { end }) => end,
                Some(Recorded::ByAge { .. }) => continue,
            };
            if stored.segment.blocks().iter().all(|block| block.seq_min >= end) {
                continue;
            }
            let expiry = Expiry::by_size(limit, end, now_ns, Arc::clone(&arrivals));
            self.remove(stored, &expiry, done)?;
        }
        Ok(())
    }

    /// Removes the expired events of a segment, unless it is damaged.
    fn remove(
        &self,
        stored: &Arc<Stored>,
        expiry: &Expiry<'_>,
        done: &mut Maintained,
    ) -> Result<(), FlushError> {
        if self.is_set_aside(stored) {
            return Ok(());
        }
        let Maintained { pruned, damage } = done;
        let replaced = self.rewrite_sound(std::slice::from_ref(stored), Some(expiry), damage)?;
        if let Some((rows, bytes)) = replaced {
            pruned.segments += 1;
            pruned.events += stored.entry.rows - rows;
            pruned.bytes += stored.entry.file_size.saturating_sub(bytes);
        }
        Ok(())
    }

    /// Writes one segment in place of the neighbours `old`; returns its rows and bytes, or `None`
    /// if there was nothing to remove.
    pub(super) fn rewrite(
        &self,
        old: &[Arc<Stored>],
        expiry: Option<&Expiry<'_>>,
    ) -> Result<Option<(u64, u64)>, FlushError> {
        let (Some(first), Some(last)) = (old.first(), old.last()) else { return Ok(None) };
        self.refuse_suspended()?;
        let (first_seq, end_seq) = (first.entry.first_seq, last.entry.end_seq);
        // Joining alone may also complete a tile of which only hashes remain.
        let hashes = old.iter().any(|stored| stored.segment.info().stubs > 0);
        let living = if expiry.is_some() || hashes {
            let mut living = Living::count(old, expiry).map_err(FlushError::Segment)?;
            living.signed = self.signed_tiles(first_seq, end_seq)?;
            Some(living)
        } else {
            None
        };
        if expiry.is_some() && living.as_ref().is_some_and(|living| !living.some_expired) {
            return Ok(None);
        }
        let number = self.take_number();
        let (_, stored) =
            self.write_segment(number, first_seq..end_seq, self.checks_reads(), |writer| {
                self.fill(writer, old, expiry, living.as_ref())
            })?;
        if let (Some(expiry), [one]) = (expiry, old)
            && let Err(error) = self.record_pruning(one, expiry)
        {
            if let Err(also) = remove(&*self.fs, &segment_path(&self.dir, number)) {
                tracing::warn!("cannot remove an unused segment: {}", chain(&also));
            }
            return Err(error);
        }
        let result = (stored.entry.rows, stored.entry.file_size);
        let mut next = self.manifest.lock().clone();
        let replaced = |number: u64| old.iter().any(|stored| stored.entry.number == number);
        let place = next.segments.iter().position(|entry| replaced(entry.number)).unwrap_or(0);
        next.segments.retain(|entry| !replaced(entry.number));
        next.segments.insert(place, stored.entry.clone());
        self.write_manifest(next).map_err(FlushError::Disk)?;
        let mut recorded = self.recorded.lock();
        recorded.retain(|number, _| !replaced(*number));
        drop(recorded);
        self.change_view(|view| {
            let place = view.segments.iter().position(|stored| replaced(stored.entry.number));
            view.segments.retain(|stored| !replaced(stored.entry.number));
            view.segments.insert(place.unwrap_or(0), Arc::new(stored));
        });
        self.counters.compactions.fetch_add(1, Ordering::Relaxed);
        for stored in old {
            // Readers have it open; otherwise the next opening of the store would remove it too.
            if let Err(error) = remove(&*self.fs, &segment_path(&self.dir, stored.entry.number)) {
                tracing::warn!("cannot remove a replaced segment: {}", chain(&error));
            }
        }
        Ok(Some(result))
    }
}

impl Inner {
    /// The tiles within `first_seq..end_seq` inside which a checkpoint ends. The holder of that
    /// checkpoint may request a proof from there on, so their hashes stay.
    fn signed_tiles(&self, first_seq: u64, end_seq: u64) -> Result<HashSet<u64>, FlushError> {
        let Some(checkpoints) = &self.checkpoints else { return Ok(HashSet::new()) };
        let notes = checkpoints.lock().history.notes();
        let mut tiles = HashSet::new();
        for note in notes {
            let note = note.map_err(FlushError::History)?;
            let size = SignedNote::parse(note.as_bytes())
                .ok()
                .and_then(|note| Checkpoint::parse(note.text()).ok())
                .map_or(0, |checkpoint| checkpoint.size);
            if (first_seq..end_seq).contains(&size) && !size.is_multiple_of(TILE_WIDTH as u64) {
                tiles.insert(size / TILE_WIDTH as u64);
            }
        }
        Ok(tiles)
    }
}

impl Store {
    /// Removes every event in a segment that the retention rules no longer keep.
    ///
    /// # Errors
    /// [`AppendError::Closed`]: a segment could not be rewritten; those before it were, and if the
    /// segment is damaged, those after it too.
    pub fn prune(&self) -> Result<Pruned, AppendError> {
        self.inner.damaged.lock().clear();
        let done = self.inner.prune(u64::MAX).map_err(AppendError::unflushed)?;
        done.damage.map_or(Ok(done.pruned), |error| Err(AppendError::unflushed(error)))
    }

    /// Joins neighbouring segments of one size until there are none, immediately.
    ///
    /// # Errors
    /// [`AppendError::Closed`]: a segment could not be written, or is damaged; nothing was lost.
    pub fn compact(&self) -> Result<(), AppendError> {
        self.inner.damaged.lock().clear();
        self.inner.compact().map_err(AppendError::unflushed)
    }
}

/// The tiles of which an event remains.
#[derive(Debug, Default)]
struct Living {
    tiles: HashMap<u64, u32>,
    /// Tiles inside which a checkpoint ends.
    signed: HashSet<u64>,
    some_expired: bool,
}

impl Living {
    fn count(old: &[Arc<Stored>], expiry: Option<&Expiry<'_>>) -> Result<Self, SegmentError> {
        let mut living = Self::default();
        for stored in old {
            for number in 0..stored.segment.blocks().len() {
                let block = stored.segment.read_block(number)?;
                for row in 0..block.len() {
                    let kept = match expiry {
                        Some(expiry) => keeps(expiry, stored, &block, row)?,
                        None => true,
                    };
                    if kept {
                        *living.tiles.entry(block.seq(row) / TILE_WIDTH as u64).or_default() += 1;
                    } else {
                        living.some_expired = true;
                    }
                }
            }
        }
        Ok(living)
    }

    /// Whether the hash of a removed event must stay: its tile has others, or extends beyond
    /// `first_seq..end_seq`, or a checkpoint ends inside it.
    fn needs(&self, seq: u64, first_seq: u64, end_seq: u64) -> bool {
        let width = TILE_WIDTH as u64;
        let tile = seq / width;
        self.tiles.contains_key(&tile)
            || self.signed.contains(&tile)
            || tile * width < first_seq
            || (tile + 1) * width > end_seq
    }
}

fn keeps(
    expiry: &Expiry<'_>,
    stored: &Stored,
    block: &Block,
    row: usize,
) -> Result<bool, SegmentError> {
    let tags = leaf::tags(block.tags(row)).map_err(|_| stored.segment.no_event(block.seq(row)))?;
    Ok(expiry.keeps(&tags, block.seq(row), block.timestamp_ns(row)))
}

impl Inner {
    /// Writes the events of `old` in order of time, without expired events, and the hashes. What is
    /// read is checked as for readers: a forged event is not written again and signed for.
    fn fill(
        &self,
        writer: &mut SegmentWriter,
        old: &[Arc<Stored>],
        expiry: Option<&Expiry<'_>>,
        living: Option<&Living>,
    ) -> Result<(), FlushError> {
        let (Some(first), Some(last)) = (old.first(), old.last()) else { return Ok(()) };
        let (first_seq, end_seq) = (first.entry.first_seq, last.entry.end_seq);
        let mut stubs: Vec<(u64, Hash)> = Vec::new();
        let view = self.view();
        let mut read = |stored: &Stored, number: u32| {
            let read = self.read_checked(&view, stored, number);
            read.map_err(|error| FlushError::Read(Box::new(error)))
        };
        let mut cursors: Vec<Cursor<'_>> = old.iter().map(|stored| Cursor::new(stored)).collect();
        let mut bytes = Vec::new();
        loop {
            let mut least: Option<((i64, u64), usize)> = None;
            for (slot, cursor) in cursors.iter_mut().enumerate() {
                if let Some(key) = cursor.peek(&mut read)?
                    && least.is_none_or(|(known, _)| key < known)
                {
                    least = Some((key, slot));
                }
            }
            let Some(((_, seq), slot)) = least else { break };
            let Some((stored, block, row)) = cursors.get_mut(slot).and_then(Cursor::take) else {
                break;
            };
            bytes.clear();
            block.leaf(row, &mut bytes);
            match expiry {
                Some(expiry)
                    if !keeps(expiry, stored, &block, row).map_err(FlushError::Segment)? =>
                {
                    if self.options.merkle
                        && living.is_some_and(|living| living.needs(seq, first_seq, end_seq))
                    {
                        stubs.push((seq, tree::hash(&bytes)));
                    }
                }
                _ => writer.push(seq, &bytes).map_err(FlushError::Segment)?,
            }
        }
        for stored in old {
            let (from, to) = (stored.entry.first_seq, stored.entry.end_seq);
            let before = stored.segment.stubs(from..to).map_err(FlushError::Segment)?;
            let needed =
                |seq: u64| living.is_none_or(|living| living.needs(seq, first_seq, end_seq));
            stubs.extend(before.into_iter().filter(|(seq, _)| needed(*seq)));
        }
        stubs.sort_unstable_by_key(|(seq, _)| *seq);
        let mut stubs = stubs.into_iter();
        stubs.try_for_each(|(seq, hash)| writer.push_stub(seq, hash)).map_err(FlushError::Segment)
    }
}

/// Reads a block of a segment, checked.
type ReadBlock<'a> = dyn FnMut(&Stored, u32) -> Result<Arc<Block>, FlushError> + 'a;

/// A position in a segment.
struct Cursor<'a> {
    stored: &'a Stored,
    next_block: u32,
    block: Option<Arc<Block>>,
    row: usize,
}

impl<'a> Cursor<'a> {
    fn new(stored: &'a Stored) -> Self {
        Self { stored, next_block: 0, block: None, row: 0 }
    }

    /// Time and position of the next event.
    fn peek(&mut self, read: &mut ReadBlock<'_>) -> Result<Option<(i64, u64)>, FlushError> {
        loop {
            if let Some(block) = &self.block
                && self.row < block.len()
            {
                return Ok(Some((block.timestamp_ns(self.row), block.seq(self.row))));
            }
            if self.next_block as usize >= self.stored.segment.blocks().len() {
                return Ok(None);
            }
            self.block = Some(read(self.stored, self.next_block)?);
            self.next_block += 1;
            self.row = 0;
        }
    }

    /// Skips the event that [`peek`](Self::peek) returned.
    fn take(&mut self) -> Option<(&'a Stored, Arc<Block>, usize)> {
        let block = self.block.clone()?;
        self.row += 1;
        Some((self.stored, block, self.row - 1))
    }
}
