//! Memory tables become segments, in order, on a dedicated thread.
//!
//! The order of steps makes a crash harmless. The segment is written and synced under another name,
//! renamed, and its directory synced; the tree's file is extended and synced. Only then does the
//! manifest, replaced atomically, refer to both, and only then is the log truncated. A crash in
//! between leaves an unreferenced file, which opening removes.

#![expect(clippy::cast_possible_truncation, reason = "tiles are counted in memory")]

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_base::error_chain::chain;
use forebay_log::Lsn;

use super::arrivals::Arrivals;
use super::error::{AppendError, Disk};
use super::manifest::{SegmentEntry, remove, segment_path, segments_dir};
use super::view::Stored;
use super::{Inner, Shortage};
use crate::memory::{Merge, Table};
use crate::merkle::{TreeFile, TreeFileError};
use crate::segment::{Segment, SegmentError, SegmentInfo, SegmentWriter};

/// How long to wait before a failed flush is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Why a memory table did not become a segment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum FlushError {
    #[error("the log does not acknowledge the events to be flushed")]
    Log(#[source] forebay_log::CommitError),
    #[error("cannot write a segment")]
    Segment(#[source] SegmentError),
    #[error("cannot read what is to be rewritten")]
    Read(#[source] Box<super::ReadError>),
    #[error("cannot extend the tree's file")]
    Tree(#[source] TreeFileError),
    #[error("cannot add a segment to the manifest")]
    Disk(#[source] Disk),
    #[error("cannot record what is removed from the event store")]
    Record(#[source] AppendError),
    #[error("cannot sign the record of what is removed")]
    Sign(#[source] Box<super::ReadError>),
    #[error("cannot look up the signed checkpoint")]
    History(#[source] crate::checkpoint::HistoryError),
    #[error("the event store changes nothing: {reason}")]
    Suspended { reason: String },
    #[error("the tree has {found} complete tiles, but the segments have {expected}")]
    Roots { found: usize, expected: usize },
}

impl Inner {
    /// The thread: flushes frozen tables, freezes old ones, compacts regularly.
    pub(crate) fn maintain(&self) {
        let mut compacted = self.clock.monotonic();
        loop {
            let seen = self.maintenance.count();
            // Before the log, so that a flush frees the disk space that the log may need.
            let failed = self.flush_frozen().is_err();
            self.recover_log();
            if self.maintenance.is_stopped() {
                return;
            }
            self.freeze_aged();
            let now = self.clock.monotonic();
            if now.saturating_sub(compacted) >= self.options.compaction_interval {
                compacted = now;
                if let Err(error) = self.compact() {
                    tracing::warn!(
                        "cannot compact the segments of the event store: {}",
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

    /// Turns everything appended so far into a segment.
    pub(crate) fn flush_all(&self) -> Result<(), AppendError> {
        {
            let mut sequencer = self.sequencer.lock();
            self.freeze(&mut sequencer);
        }
        self.flush_frozen().map_err(AppendError::unflushed)
    }

    /// Flushes all frozen tables, and notifies threads that wait for room.
    pub(crate) fn flush_frozen(&self) -> Result<(), FlushError> {
        let _maintaining = self.maintaining.lock();
        loop {
            if self.sequencer.lock().frozen.is_empty() {
                return Ok(());
            }
            self.refuse_suspended()?;
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
                    tracing::error!(
                        "cannot flush events, which stay in memory and in the log: {reason}"
                    );
                    sequencer.flush_failure = Some((reason, Shortage::of(error)));
                    self.counters.flush_failures.fetch_add(1, Ordering::Relaxed);
                }
            }
            drop(sequencer);
            self.room.notify_all();
            result?;
        }
    }

    fn flush_table(&self, table: &Arc<Table>, log_end: Lsn) -> Result<(), FlushError> {
        // A segment must not contain anything that the log may still fail to store.
        let (first_seq, end_seq) = (table.first_seq, table.end_seq());
        if self.visible() < end_seq {
            let (log, _) = self.journal.get().map_err(FlushError::Log)?;
            log.commit(log_end).map_err(FlushError::Log)?;
            self.show(end_seq);
        }
        self.keep_requests(log_end)?;
        let number = self.take_number();
        // The hashes of what is in memory are in the tree.
        let (info, stored) = self.write_segment(number, first_seq..end_seq, true, |writer| {
            let merge = Merge::new(table.runs());
            merge.for_each(|seq, leaf| writer.push(seq, leaf)).map_err(FlushError::Segment)
        })?;
        self.extend_tree_file(end_seq)?;
        self.note_arrivals(end_seq, table.received_ns())?;
        let mut next = self.manifest.lock().clone();
        next.flushed_seq = end_seq;
        next.log_position = log_end.0;
        next.segments.push(stored.entry.clone());
        if next.sealed {
            self.note_tree(&mut next)?;
            next.requests = self.requests.lock().generation();
        }
        self.write_manifest(next).map_err(FlushError::Disk)?;
        self.change_view(|view| {
            view.segments.push(Arc::new(stored));
            view.tables.retain(|waiting| !Arc::ptr_eq(waiting, table));
        });
        self.counters.flushed_bytes.fetch_add(info.file_size, Ordering::Relaxed);
        // The flush is complete in any case: what is not freed now is freed with the next one.
        if let Ok((log, _)) = self.journal.get()
            && let Err(error) = log.truncate_before(log_end)
        {
            tracing::warn!("cannot truncate the log of the event store: {}", chain(&error));
        }
        Ok(())
    }

    /// Stores the notes of requests whose log entries end at or before `log_end`, which is
    /// committed: the log will be truncated there.
    fn keep_requests(&self, log_end: Lsn) -> Result<(), FlushError> {
        let mut requests = self.requests.lock();
        requests.commit(log_end);
        let now = (self.now_ns(), self.options.request_window);
        let manifest = self.manifest.lock().clone();
        let sealer = self.sealer(&manifest);
        requests.write(&*self.fs, &self.dir, now, sealer).map_err(FlushError::Disk)
    }

    /// Stores when the events below a position had arrived.
    fn note_arrivals(&self, end_seq: u64, received_ns: i64) -> Result<(), FlushError> {
        let mut next = Arrivals::clone(&self.arrivals.lock());
        next.add(end_seq, received_ns);
        let manifest = self.manifest.lock().clone();
        next.write(&*self.fs, &self.dir, self.sealer(&manifest)).map_err(FlushError::Disk)?;
        *self.arrivals.lock() = Arc::new(next);
        Ok(())
    }

    /// Returns the number of the next segment, which is never reused: an incomplete manifest write
    /// may still take effect, and the files it names must not change.
    pub(crate) fn take_number(&self) -> u64 {
        let mut manifest = self.manifest.lock();
        manifest.segment_next += 1;
        manifest.segment_next - 1
    }

    /// Writes a segment under its final name, durable, and opens it.
    ///
    /// * `in_tree`: whether the events are known to be those in the tree, so that the digests of
    ///   the blocks are signed.
    pub(crate) fn write_segment(
        &self,
        number: u64,
        positions: Range<u64>,
        in_tree: bool,
        fill: impl FnOnce(&mut SegmentWriter) -> Result<(), FlushError>,
    ) -> Result<(SegmentInfo, Stored), FlushError> {
        let path = segment_path(&self.dir, number);
        let new = path.with_extension("new");
        remove(&*self.fs, &new).map_err(FlushError::Disk)?;
        let written = self.fill_segment(&new, positions, in_tree, fill);
        let info = match written {
            Ok(info) => info,
            Err(error) => {
                // The next attempt needs the space; the error that counts is the first.
                if let Err(also) = remove(&*self.fs, &new) {
                    tracing::warn!("cannot remove an unfinished segment: {}", chain(&also));
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
        positions: Range<u64>,
        in_tree: bool,
        fill: impl FnOnce(&mut SegmentWriter) -> Result<(), FlushError>,
    ) -> Result<SegmentInfo, FlushError> {
        let options = self.options.segment.clone();
        let Range { start, end } = positions;
        let mut writer = SegmentWriter::create(&*self.fs, path, start, end, options)
            .map_err(FlushError::Segment)?;
        fill(&mut writer)?;
        let signs = in_tree && self.trust().refused.is_empty();
        let finished = match self.checkpoints.as_ref().filter(|_| signs) {
            Some(checkpoints) => {
                writer.finish_signed(Some(&|message| checkpoints.lock().key.sign(message)))
            }
            None => writer.finish(),
        };
        finished.map_err(FlushError::Segment)
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

/// A segment's entry in the manifest.
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
