//! Spilling documents that wait for an unavailable database.
//!
//! Invariants: commits are spilled in the order of the log; nothing counts as safe before the spill
//! was synced; a full spill stays unchanged until some of it was removed.

use forebay_base::error_chain::chain;
use forebay_log::Lsn;

use super::super::work::{Work, read_work};
use super::super::write::{Head, read_documents};
use super::error::ForwardError;
use super::spill::{Spill, Spilling};
use super::worker::{COMMITS_PER_STEP, Step, Worker};
use crate::format::DocumentCommit;

impl Worker {
    /// Spills some of what waits in the log.
    pub(super) fn spill_some(&mut self) -> Result<Step, ForwardError> {
        self.open_spill()?;
        if self.spill_is_full {
            return Ok(Step::Idle);
        }
        let from = self.tail;
        match self.outbox.take(self.tail, COMMITS_PER_STEP) {
            Ok(commits) => {
                for queued in &commits {
                    let log = self.parts.log.clone();
                    read_work(&log, queued.lsn, |work| {
                        self.spill_work(queued.lsn, queued.end, work)
                    })?;
                    if self.spill_is_full {
                        break;
                    }
                }
            }
            Err(until) => self.scan(self.tail, until, &mut |worker, lsn, end, work| {
                match work {
                    Some(work) => worker.spill_work(lsn, end, work)?,
                    None => worker.tail = end,
                }
                Ok(!worker.spill_is_full)
            })?,
        }
        if let Some(spill) = &mut self.spill {
            spill.sync()?;
            self.outbox.set_spill(spill.size(), self.spill_is_full);
            self.safe = spill.range().map_or(self.safe, |(_, end)| end.max(self.safe));
            self.outbox.made_safe(self.safe);
        }
        Ok(if self.tail == from { Step::Idle } else { Step::Some })
    }

    fn spill_work(&mut self, lsn: Lsn, end: Lsn, work: &Work<'_>) -> Result<(), ForwardError> {
        if let Work::Commit(commit) = work {
            return self.spill_commit(lsn, end, commit);
        }
        // Files of documents cannot say that one has changed. The log keeps this entry and what follows.
        self.spill_is_full = true;
        tracing::warn!("documents were changed: the log is kept until the database is back");
        Ok(())
    }

    fn spill_commit(
        &mut self,
        lsn: Lsn,
        end: Lsn,
        commit: &DocumentCommit<'_>,
    ) -> Result<(), ForwardError> {
        let Some(spill) = &mut self.spill else { return Ok(()) };
        let log = &self.parts.log;
        let head = Head::of(end, commit);
        let done = spill.append::<ForwardError>(self.tail, &head, |each| {
            read_documents(log, lsn, commit, each)
        })?;
        match done {
            Spilling::Done => self.tail = end,
            Spilling::Full => {
                self.spill_is_full = true;
                tracing::warn!(
                    size = spill.size(),
                    "the spill is full: the log is kept until the database is back"
                );
            }
        }
        Ok(())
    }

    /// Opens the spill unless it is open.
    pub(super) fn open_spill(&mut self) -> Result<(), ForwardError> {
        if self.spill.is_some() {
            return Ok(());
        }
        let (parts, max) = (&self.parts, self.outbox.options.spill_max);
        let spill = Spill::open(parts.fs.clone(), &parts.spill, parts.log.id(), max)?;
        if let Some((_, end)) = spill.range() {
            self.safe = self.safe.max(end);
            self.tail = self.tail.max(end);
        }
        self.outbox.set_spill(spill.size(), false);
        self.spill_is_full = false;
        self.spill = Some(spill);
        Ok(())
    }

    /// Removes everything spilled.
    pub(super) fn clear_spill(&mut self) -> Result<(), ForwardError> {
        self.open_spill()?;
        if let Some(spill) = &mut self.spill {
            spill.remove_through(Lsn(u64::MAX))?;
            self.spill_is_full = false;
            self.outbox.set_spill(0, false);
        }
        Ok(())
    }

    /// Keeps damaged files for inspection, and starts without any.
    pub(super) fn put_spill_aside(&mut self) {
        self.spill = None;
        let (parts, max) = (&self.parts, self.outbox.options.spill_max);
        match Spill::put_aside(parts.fs.clone(), &parts.spill, parts.log.id(), max) {
            Ok(spill) => self.spill = Some(spill),
            Err(error) => {
                tracing::warn!(error = %chain(&error), "could not put damaged spill files aside");
            }
        }
    }
}
