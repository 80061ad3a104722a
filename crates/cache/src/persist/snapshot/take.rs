//! Taking the keys, range by range, while commands run.
//!
//! A batch of keys is copied under a shard's lock (`capture`), together with the current position
//! of the log. All later changes of those keys are in the log after that position, so each range is
//! complete by itself. Large values are taken separately (`large`), and the snapshot pauses for as
//! long as it runs (`pace`).
//!
//! Invariant: one lock at a time, and none while anything is decompressed or written.

use std::sync::atomic::{AtomicBool, Ordering};

use forebay_log::{Log, Lsn};

use super::SnapshotProgress;
use super::capture::{Buffers, Sizes, capture};
use super::format::Block;
use super::large::LargeKey;
use super::pace::Pace;
use super::write::SnapshotWriter;
use crate::persist::error::SnapshotError;
use crate::persist::front::Front;
use crate::persist::ranges::Ranges;
use crate::store::{DATABASES, Keyspace, SHARDS};

/// The iteration over all keys.
pub(crate) struct Taking<'a> {
    pub(crate) keyspace: &'a Keyspace,
    pub(crate) log: &'a Log,
    pub(crate) front: &'a Front,
    pub(crate) now_ms: u64,
    pub(crate) sizes: Sizes,
    pub(crate) writer: SnapshotWriter,
    pub(crate) cancel: &'a AtomicBool,
    pub(crate) progress: &'a dyn Fn(&SnapshotProgress),
    pub(crate) so_far: SnapshotProgress,
    pub(crate) ranges: Ranges,
    pub(crate) pace: Pace,
    pub(crate) abandoned: u64,
    pub(crate) buffers: Buffers,
}

impl Taking<'_> {
    /// Takes everything.
    pub(crate) fn run(&mut self) -> Result<(), SnapshotError> {
        for database in 0..DATABASES {
            self.front.decide(database);
            // Read first: a command that creates the database afterwards appends after this
            // position.
            let position = self.log.end();
            if self.keyspace.is_made(database) {
                self.front.enter(database);
                for shard in 0..SHARDS {
                    self.shard((database, shard))?;
                }
            } else {
                self.ranges.add_unused(database, position);
                self.write(&Block::Unused { database, position })?;
            }
            self.so_far.databases += 1;
        }
        Ok(())
    }

    fn shard(&mut self, place: (usize, usize)) -> Result<(), SnapshotError> {
        let (mut from, mut whole) = (0, true);
        loop {
            self.check_cancel()?;
            self.pace.rest();
            let source = (self.keyspace, self.log, self.front, self.now_ms);
            let (sizes, buffers) = (self.sizes, &mut self.buffers);
            let captured = capture(source, place, (from, whole), sizes, buffers, &mut self.pace);
            let Some(mut last) = captured.last else {
                whole = false;
                continue;
            };
            // Nothing lies between the ranges of two large values that are neighbours.
            if captured.large.as_ref().is_none_or(|(hash, _)| *hash > from) {
                let (hashes, position) = ((from, last), captured.position);
                let entries = self.buffers.entries();
                let block = Block::Range { place, hashes, position, entries };
                self.writer.block(&block).map_err(SnapshotError::Io)?;
                self.note(place, hashes, position, captured.keys);
            }
            if let Some((hash, key)) = captured.large {
                self.large(LargeKey { place, hash, key: &key })?;
                last = hash;
            }
            let Some(next) = last.checked_add(1) else { return Ok(()) };
            (from, whole) = (next, captured.fresh);
        }
    }

    pub(super) fn check_cancel(&self) -> Result<(), SnapshotError> {
        if self.cancel.load(Ordering::Relaxed) { Err(SnapshotError::Cancelled) } else { Ok(()) }
    }

    pub(super) fn write(&mut self, block: &Block<'_>) -> Result<(), SnapshotError> {
        self.writer.block(block).map_err(SnapshotError::Io)
    }

    /// Records a range that was written.
    pub(super) fn note(
        &mut self,
        place: (usize, usize),
        hashes: (u64, u64),
        position: Lsn,
        keys: u64,
    ) {
        let follows = self.ranges.add(place, hashes, position);
        debug_assert!(follows, "ranges are taken one after another");
        self.so_far.keys += keys;
        self.so_far.bytes = self.writer.len();
        (self.progress)(&self.so_far);
    }
}
