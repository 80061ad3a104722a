//! Memory tables become segments, in order, on a thread of their own.
//!
//! The order of steps is what makes a crash harmless: the segment is written and synced under another
//! name, renamed, its directory synced; the tree's file is extended and synced; only then does the
//! manifest, replaced in one step, say that both are true; and only then is the log cut. A crash
//! between leaves a file nobody names, which opening removes.

#![expect(clippy::cast_possible_truncation, reason = "tiles are counted in memory")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_base::error_chain::chain;
use forebay_log::Lsn;

use super::Inner;
use super::error::{AppendError, Disk};
use super::manifest::{SegmentEntry, remove, segment_path, segments_dir};
use super::view::Stored;
use crate::memory::{Merge, Table};
use crate::merkle::{TreeFile, TreeFileError};
use crate::segment::{Segment, SegmentError, SegmentInfo, SegmentWriter};

/// How long to wait before a failed flush is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Why a memory table did not become a segment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum FlushError {
    #[error("the log does not acknowledge what is to be flushed")]
    Log(#[source] forebay_log::CommitError),
    #[error("a segment cannot be written")]
    Segment(#[source] SegmentError),
    #[error("the tree's file cannot be extended")]
    Tree(#[source] TreeFileError),
    #[error("a segment cannot be put in its place")]
    Disk(#[source] Disk),
    #[error("what was signed cannot be looked up")]
    History(#[source] crate::checkpoint::HistoryError),
    #[error("the tree has {found} complete tiles, the segments {expected}")]
    Roots { found: usize, expected: usize },
}

impl Inner {
    /// The thread: flushes what is frozen, freezes what has waited long, compacts now and then.
    pub(crate) fn maintain(&self) {
        let mut compacted = self.clock.monotonic();
        loop {
            let seen = self.maintenance.count();
            // Before the log, so that a flush makes the room on the disk the log may need.
            let failed = self.flush_frozen().is_err();
            if let Err(error) = self.revive() {
                tracing::warn!("the log of the event store stays closed: {}", chain(&error));
            }
            if self.maintenance.is_stopped() {
                return;
            }
            self.freeze_aged();
            let now = self.clock.monotonic();
            if now.saturating_sub(compacted) >= self.options.compaction_interval {
                compacted = now;
                if let Err(error) = self.compact() {
                    tracing::warn!(
                        "segments of the event store were not joined: {}",
                        chain(&error)
                    );
                }
            }
            let pause = self.options.flush_interval.min(self.options.compaction_interval);
            let pause = if failed { RETRY } else { pause.min(RETRY) };
            self.maintenance.wait(seen, pause);
        }
    }

    /// Freezes the table that is appended to if its first event has waited for the flush interval.
    fn freeze_aged(&self) {
        let mut sequencer = self.sequencer.lock();
        if sequencer.active.len() == 0 {
            return;
        }
        let now = self.clock.monotonic();
        let since = *sequencer.active_since.get_or_insert(now);
        if now.saturating_sub(since) >= self.options.flush_interval {
            self.freeze(&mut sequencer);
        }
    }

    /// Makes everything appended so far a segment.
    pub(crate) fn flush_all(&self) -> Result<(), AppendError> {
        {
            let mut sequencer = self.sequencer.lock();
            self.freeze(&mut sequencer);
        }
        self.flush_frozen()
            .map_err(|error| AppendError::Closed { reason: chain(&error).to_string() })
    }

    /// Flushes all frozen tables, and tells those who wait for room.
    pub(crate) fn flush_frozen(&self) -> Result<(), FlushError> {
        let _maintaining = self.maintaining.lock();
        loop {
            let Some((table, log_end)) = self.sequencer.lock().frozen.front().cloned() else {
                return Ok(());
            };
            let result = self.flush_table(&table, log_end);
            let mut sequencer = self.sequencer.lock();
            match &result {
                Ok(()) => {
                    sequencer.frozen.pop_front();
                    sequencer.flush_failure = None;
                    self.counters.flushes.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    let reason = chain(error).to_string();
                    tracing::error!("events stay in memory and in the log: {reason}");
                    sequencer.flush_failure = Some(reason);
                    self.counters.flush_failures.fetch_add(1, Ordering::Relaxed);
                }
            }
            drop(sequencer);
            self.room.notify_all();
            result?;
        }
    }

    fn flush_table(&self, table: &Arc<Table>, log_end: Lsn) -> Result<(), FlushError> {
        // A segment must not hold what the log may yet fail to keep.
        let (first_seq, end_seq) = (table.first_seq, table.end_seq());
        if self.visible() < end_seq {
            let (log, _) = self.journal.get().map_err(FlushError::Log)?;
            log.commit(log_end).map_err(FlushError::Log)?;
            self.show(end_seq);
        }
        let number = self.take_number();
        let (info, stored) = self.write_segment(number, first_seq, end_seq, |writer| {
            Merge::new(table.runs()).for_each(|seq, leaf| writer.push(seq, leaf))
        })?;
        self.extend_tree_file(end_seq)?;
        let mut next = self.manifest.lock().clone();
        next.flushed_seq = end_seq;
        next.log_position = log_end.0;
        next.segments.push(stored.entry.clone());
        next.write(&*self.fs, &self.dir).map_err(FlushError::Disk)?;
        *self.manifest.lock() = next;
        self.change_view(|view| {
            view.segments.push(Arc::new(stored));
            view.tables.retain(|waiting| !Arc::ptr_eq(waiting, table));
        });
        self.counters.flushed_bytes.fetch_add(info.file_size, Ordering::Relaxed);
        // The flush is done, whatever becomes of this: what is not given back now is with the next one.
        if let Ok((log, _)) = self.journal.get()
            && let Err(error) = log.truncate_before(log_end)
        {
            tracing::warn!("the log of the event store was not cut: {}", chain(&error));
        }
        Ok(())
    }

    /// The number of the next segment, never given again: a manifest that could not be written whole
    /// may still be the one found on opening, and what it names must stay what it is.
    pub(crate) fn take_number(&self) -> u64 {
        let mut manifest = self.manifest.lock();
        manifest.segment_next += 1;
        manifest.segment_next - 1
    }

    /// Writes a segment under its final name, durable, and opens it.
    pub(crate) fn write_segment(
        &self,
        number: u64,
        first_seq: u64,
        end_seq: u64,
        fill: impl FnOnce(&mut SegmentWriter) -> Result<(), SegmentError>,
    ) -> Result<(SegmentInfo, Stored), FlushError> {
        let path = segment_path(&self.dir, number);
        let new = path.with_extension("new");
        remove(&*self.fs, &new).map_err(FlushError::Disk)?;
        let written = self.fill_segment(&new, first_seq, end_seq, fill);
        let info = match written {
            Ok(info) => info,
            Err(error) => {
                // The space is needed by whoever tries again; the error that counts is the first.
                if let Err(also) = remove(&*self.fs, &new) {
                    tracing::warn!("an unfinished segment stays behind: {}", chain(&also));
                }
                return Err(error);
            }
        };
        let disk = |act, path: &Path| {
            let path = path.to_path_buf();
            move |source| FlushError::Disk(Disk::new(act, path, source))
        };
        self.fs.rename(&new, &path).map_err(disk("rename", &new))?;
        let segments = segments_dir(&self.dir);
        self.fs.sync_dir(&segments).map_err(disk("sync", &segments))?;
        let segment = Segment::open(&*self.fs, &path).map_err(FlushError::Segment)?;
        let entry = entry_of(number, &info);
        Ok((info, Stored { entry, segment }))
    }

    fn fill_segment(
        &self,
        path: &Path,
        first_seq: u64,
        end_seq: u64,
        fill: impl FnOnce(&mut SegmentWriter) -> Result<(), SegmentError>,
    ) -> Result<SegmentInfo, FlushError> {
        let options = self.options.segment.clone();
        let mut writer = SegmentWriter::create(&*self.fs, path, first_seq, end_seq, options)
            .map_err(FlushError::Segment)?;
        fill(&mut writer).map_err(FlushError::Segment)?;
        writer.finish().map_err(FlushError::Segment)
    }

    /// Writes the roots of all complete tiles below `end_seq` that are not yet in the tree's file.
    fn extend_tree_file(&self, end_seq: u64) -> Result<(), FlushError> {
        let (Some(tree), Some(file)) = (&self.tree, &self.tree_file) else { return Ok(()) };
        let mut file = file.lock();
        if file.is_poisoned() {
            let manifest = self.manifest.lock();
            let count = manifest.flushed_seq / crate::merkle::TILE_WIDTH as u64;
            let path = self.dir.join("tree");
            let opened = TreeFile::open(&*self.fs, &path, manifest.log_id, count);
            *file = opened.map_err(FlushError::Tree)?.0;
        }
        let roots = {
            let grown = tree.current();
            let from = file.count() as usize;
            let to = (end_seq / crate::merkle::TILE_WIDTH as u64) as usize;
            let roots = grown.tree.tile_roots();
            let missing = || FlushError::Roots { found: roots.len(), expected: to };
            roots.get(from.min(to)..to).map(<[_]>::to_vec).ok_or_else(missing)?
        };
        file.append(&roots).map_err(FlushError::Tree)?;
        file.sync().map_err(FlushError::Tree)
    }
}

/// What the manifest says of a segment.
fn entry_of(number: u64, info: &SegmentInfo) -> SegmentEntry {
    SegmentEntry {
        number,
        first_seq: info.first_seq,
        end_seq: info.end_seq,
        rows: info.rows,
        time_min_ns: info.time_min_ns,
        time_max_ns: info.time_max_ns,
        file_size: info.file_size,
        digest: info.digest,
    }
}
