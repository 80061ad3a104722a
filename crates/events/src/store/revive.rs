//! Recovery after the log failed, without opening the store again. A log that waits for space has
//! not failed: see `shortage`.
//!
//! The log is reopened, which determines its valid entries. Entries that did not survive were never
//! acknowledged: they are removed from memory and from the tree, and their positions are reused.

use std::collections::VecDeque;
use std::sync::Arc;

use forebay_log::Lsn;

use super::error::OpenError;
use super::open::open_log;
use super::proofs::Source;
use super::replay::{self, Limits, Replayed};
use super::sealing::Entries;
use super::{Inner, Sequencer};
use crate::merkle::{LeafHashes, TILE_WIDTH, Tree};

impl Inner {
    /// Reopens the log if it failed.
    ///
    /// # Errors
    /// It cannot be opened yet; memory is unchanged.
    pub(crate) fn revive(&self) -> Result<(), OpenError> {
        if !self.journal.failed() {
            return Ok(());
        }
        let _maintaining = self.maintaining.lock();
        let checkpoints = self.checkpoints.as_ref().map(|checkpoints| checkpoints.lock());
        let mut sequencer = self.sequencer.lock();
        if sequencer.closed.is_some() || !self.journal.failed() {
            return Ok(());
        }
        self.journal.take_down();
        let (log, _) = open_log(&self.fs, &self.dir, &self.options)?;
        let manifest = self.manifest.lock().clone();
        if log.id() != manifest.log_id {
            return Err(OpenError::Foreign { path: self.dir.clone() });
        }
        let from = Lsn(manifest.log_position);
        let latest = checkpoints.as_ref().and_then(|checkpoints| checkpoints.latest.as_ref());
        let signed = latest.map_or(0, |(latest, _)| latest.size);
        let entries = Entries::of(&manifest, self.file_key.as_ref(), signed);
        let (mut end_seq, mut log_end) = (manifest.flushed_seq, from);
        let mut read_end = from;
        let limits = Limits::of(&self.options, manifest.flushed_seq);
        replay::read(&log, from, (entries, limits), &mut |Replayed { lsns, run, .. }| {
            read_end = lsns.end;
            if run.end_seq() <= end_seq {
                return Ok(());
            }
            if run.first_seq != end_seq || run.end_seq() > sequencer.next_seq {
                let reason = "its events differ from those that were appended there";
                return Err(OpenError::Entry { lsn: lsns.start.0, reason });
            }
            (end_seq, log_end) = (run.end_seq(), lsns.end);
            Ok(())
        })?;
        let promised = signed.max(self.visible());
        if end_seq < promised {
            let error = OpenError::Truncated { found: end_seq, signed: promised };
            sequencer.closed = Some(error.to_string());
            return Err(error);
        }
        self.forget_behind(&mut sequencer, end_seq, log_end)?;
        let mut requests = self.requests.lock();
        requests.commit(read_end);
        requests.forget_pending();
        drop(requests);
        self.journal.put(log, !self.quiet);
        self.show(end_seq);
        drop(sequencer);
        self.room.notify_all();
        tracing::info!("the log of the event store was reopened");
        Ok(())
    }

    /// Removes everything from `end_seq` on from memory and from the tree.
    fn forget_behind(
        &self,
        sequencer: &mut Sequencer,
        end_seq: u64,
        log_end: Lsn,
    ) -> Result<(), OpenError> {
        let view = self.view();
        if let Some(tree) = &self.tree {
            let mut grown = tree.current();
            if grown.tree.size() > end_seq {
                grown.tree = beginning_of(&grown.tree, end_seq, &self.source(&view))?;
            }
            grown.log_end = log_end;
        }
        let mut tables = Vec::new();
        let mut frozen = VecDeque::new();
        for table in &view.tables {
            if table.end_seq() > end_seq {
                tables.push(Arc::new(table.beginning(end_seq)));
                break;
            }
            let waiting = sequencer.frozen.iter().find(|(waiting, _)| Arc::ptr_eq(waiting, table));
            frozen.extend(waiting.cloned());
            tables.push(Arc::clone(table));
        }
        let Some(active) = tables.last().map(Arc::clone) else { return Ok(()) };
        sequencer.active = active;
        sequencer.active_since = None;
        sequencer.frozen = frozen;
        sequencer.next_seq = end_seq;
        sequencer.log_end = log_end;
        sequencer.flush_failure = None;
        self.change_view(|view| view.tables = tables);
        Ok(())
    }
}

/// The tree as it was with `size` leaves.
fn beginning_of(tree: &Tree, size: u64, source: &Source<'_>) -> Result<Tree, OpenError> {
    let len = usize::try_from(size).unwrap_or(usize::MAX);
    let (tiles, rest) = (len / TILE_WIDTH, len % TILE_WIDTH);
    let edge = source
        .leaf_hashes(size - rest as u64, rest)
        .map_err(|reason| OpenError::Edge { reason })?;
    let roots = tree.tile_roots().get(..tiles).unwrap_or_default();
    Tree::from_parts(roots.to_vec(), edge).map_err(OpenError::Parts)
}
