//! Writing into the database: from the queue, from the log, from the spill.
//!
//! Invariants: the database's own last id is checked before each commit, and a gap or an overlap is
//! an error; the size of a transaction is limited by commits, not by time; the spill and the log
//! are released only after the database confirmed that everything is on stable storage.

use std::time::Instant;

use forebay_log::{Log, Lsn};
use forebay_sink::{Position, RowSink, StoredDocument};

use super::super::flatten::Bounds;
use super::super::work::{Work, read_work, write_work};
use super::super::write::{reshape, write_documents, write_prepared};
use super::error::ForwardError;
use super::outbox::QueuedCommit;
use super::spill::{Item, Spilled};
use super::worker::{
    CHECKPOINT_EVERY, COMMITS_PER_STEP, DOCUMENTS_PER_TRANSACTION, Parts, Step, Worker,
};

impl Worker {
    /// Writes some of what waits.
    pub(super) fn forward(&mut self) -> Result<Step, ForwardError> {
        if self.isolate_to > Lsn(0) && self.next >= self.isolate_to {
            self.isolate_to = Lsn(0);
        }
        if self.isolate_to == Lsn(0) && self.replay_due()? {
            return Ok(Step::Some);
        }
        if let Some(spill) = &self.spill
            && spill.range().is_some_and(|(_, end)| end > self.next)
        {
            return self.replay_spill();
        }
        if self.next < self.outbox.applied() {
            match self.outbox.take(self.next, COMMITS_PER_STEP) {
                Ok(commits) if !commits.is_empty() => self.write_queued(&commits)?,
                Ok(_) => self.next = self.next.max(self.outbox.applied()),
                Err(until) => self.write_from_log(until)?,
            }
            self.checkpoint(false)?;
            return Ok(Step::Some);
        }
        self.checkpoint(false)?;
        self.outbox.all_written(self.next);
        if !self.dirty {
            self.count_quarantined()?;
            if !self.is_audited {
                self.audit()?;
            }
        }
        Ok(Step::Idle)
    }

    fn write_queued(&mut self, commits: &[QueuedCommit]) -> Result<(), ForwardError> {
        let mut batch = Batch::default();
        for queued in commits {
            let (lsn, end) = (queued.lsn, queued.end);
            match &queued.prepared {
                Some(prepared) => {
                    let namespace = prepared.namespace.as_str();
                    let of = Of { namespace, count: queued.count, end };
                    self.take(&mut batch, of, |sink, _, batch| {
                        let ids = (prepared.first_id, queued.count);
                        if batch.admits(sink, namespace, ids, queued.received_ms)? {
                            batch.conflicts += write_prepared(sink, end, prepared)?;
                        }
                        Ok(())
                    })?;
                }
                None => {
                    let log = self.parts.log.clone();
                    read_work(&log, lsn, |work| self.take_logged(&mut batch, lsn, end, work))?;
                }
            }
            if batch.is_large() {
                self.commit(std::mem::take(&mut batch))?;
            }
        }
        self.commit(batch)
    }

    /// Takes a commit, or a change, that the log has.
    fn take_logged(
        &mut self,
        batch: &mut Batch,
        lsn: Lsn,
        end: Lsn,
        work: &Work<'_>,
    ) -> Result<(), ForwardError> {
        let of = Of { namespace: work.namespace(), count: work.count(), end };
        self.take(batch, of, |sink, parts, batch| {
            batch.write(sink, &parts.log, &parts.bounds, (lsn, end), work)
        })
    }

    /// Adds a commit to a batch, or passes it if its namespace is quarantined.
    fn take(
        &mut self,
        batch: &mut Batch,
        of: Of<'_>,
        write: impl FnOnce(&mut dyn RowSink, &Parts, &mut Batch) -> Result<(), ForwardError>,
    ) -> Result<(), ForwardError> {
        if self.is_quarantined(of.namespace) {
            self.pass(of.namespace, of.count);
            batch.end = of.end;
            return Ok(());
        }
        let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
        let written = write(sink, &self.parts, batch);
        self.taken(batch, of, written)
    }

    /// Ends the writing of a commit. While it is to be seen which one is refused, each is committed
    /// alone, and a refusal quarantines its namespace.
    fn taken(
        &mut self,
        batch: &mut Batch,
        of: Of<'_>,
        written: Result<(), ForwardError>,
    ) -> Result<(), ForwardError> {
        if !self.is_isolating(of.end) {
            written?;
            batch.end = of.end;
            return Ok(());
        }
        let committed = written.and_then(|()| {
            let batch = std::mem::take(batch);
            self.commit(Batch { end: of.end, is_alone: true, ..batch })
        });
        match committed {
            Err(error) if error.is_refusal() => {
                *batch = Batch::default();
                self.isolate(of.namespace, of.count, of.end, error)
            }
            other => other,
        }
    }

    /// Writes what the log has from `next` on, up to about `until`.
    fn write_from_log(&mut self, until: Lsn) -> Result<(), ForwardError> {
        let mut batch = Batch::default();
        self.scan(self.next, until, &mut |worker, lsn, end, work| {
            let Some(work) = work else {
                batch.end = end;
                return Ok(true);
            };
            worker.take_logged(&mut batch, lsn, end, work)?;
            if batch.is_large() {
                worker.commit(std::mem::take(&mut batch))?;
            }
            Ok(true)
        })?;
        self.commit(batch)
    }

    /// Writes what was spilled after `next`, a segment at a time.
    fn replay_spill(&mut self) -> Result<Step, ForwardError> {
        let Some(spill) = &self.spill else { return Ok(Step::Idle) };
        let Some(mut reader) = spill.reader(self.next)? else { return Ok(Step::Idle) };
        let mut batch = Batch::default();
        let mut open: Option<OpenCommit> = None;
        while let Some(item) = reader.next()? {
            match item {
                Item::Commit(commit) => {
                    let (is_new, failed) = (false, None);
                    let mut next =
                        OpenCommit { commit, is_new, failed, documents: Vec::new(), size: 0 };
                    self.begin_spilled(&mut next, &mut batch)?;
                    open = Some(next);
                }
                Item::Document(document) => {
                    if let Some(open) = open.as_mut().filter(|open| open.is_new) {
                        open.size += document.raw.len();
                        open.documents.push(document);
                        if open.size >= OpenCommit::SIZE_MAX {
                            self.write_spilled(open, &mut batch)?;
                        }
                    }
                }
                Item::End(end) => {
                    if let Some(mut open) = open.take().filter(|open| open.is_new) {
                        self.write_spilled(&mut open, &mut batch)?;
                        let written = open.failed.take().map_or(Ok(()), Err);
                        let (namespace, count) = (&*open.commit.namespace, open.commit.count);
                        self.taken(&mut batch, Of { namespace, count, end }, written)?;
                    }
                    // A commit that the database had already is skipped all the same.
                    batch.end = batch.end.max(end);
                    if batch.is_large() {
                        self.commit(std::mem::take(&mut batch))?;
                    }
                    if self.outbox.stopping() {
                        break;
                    }
                }
            }
        }
        self.commit(batch)?;
        self.checkpoint(true)?;
        Ok(if self.outbox.stopping() { Step::Idle } else { Step::Some })
    }

    /// Begins a spilled commit: determines whether it is the next of its namespace, and gives that the
    /// columns it names.
    fn begin_spilled(
        &mut self,
        open: &mut OpenCommit,
        batch: &mut Batch,
    ) -> Result<(), ForwardError> {
        let commit = &open.commit;
        if commit.end <= self.next {
            return Ok(());
        }
        if self.is_quarantined(&commit.namespace) {
            self.pass(&commit.namespace, commit.count);
            return Ok(());
        }
        let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
        let ids = (commit.first_id, commit.count);
        open.is_new = batch.admits(sink, &commit.namespace, ids, commit.received_ms)?;
        if open.is_new {
            let reshaped = reshape(sink, &self.parts.bounds, &open.commit.head());
            open.failed = self.failed(open.commit.end, reshaped.map_err(ForwardError::from))?;
        }
        Ok(())
    }

    /// Writes what was gathered of a spilled commit, unless something of it was refused.
    fn write_spilled(
        &mut self,
        open: &mut OpenCommit,
        batch: &mut Batch,
    ) -> Result<(), ForwardError> {
        if open.failed.is_some() {
            open.documents.clear();
            open.size = 0;
            return Ok(());
        }
        let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
        let written = open.write(sink, &self.parts.bounds);
        let written = written.map(|conflicts| batch.conflicts += conflicts);
        open.failed = self.failed(open.commit.end, written)?;
        Ok(())
    }

    /// A refusal that is settled at the end of its commit; any other error is returned at once.
    fn failed(
        &self,
        end: Lsn,
        written: Result<(), ForwardError>,
    ) -> Result<Option<ForwardError>, ForwardError> {
        match written {
            Ok(()) => Ok(None),
            Err(error) if error.is_refusal() && self.is_isolating(end) => Ok(Some(error)),
            Err(error) => Err(error),
        }
    }

    /// Commits a batch unless it is empty.
    fn commit(&mut self, batch: Batch) -> Result<(), ForwardError> {
        if batch.end <= self.next {
            return Ok(());
        }
        if batch.documents > 0 || batch.is_alone {
            let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
            let started = Instant::now();
            sink.commit(Position(batch.end.0))?;
            let written = batch.documents - batch.skipped;
            crate::meters::forwarded(written, started.elapsed());
            let (passed, conflicts) = (batch.documents, batch.conflicts);
            self.outbox.count_written(passed, written, conflicts, batch.received_ms);
        }
        self.next = batch.end;
        self.dirty = true;
        Ok(())
    }

    /// Asks the database from time to time to put what it has onto stable storage.
    pub(super) fn checkpoint(&mut self, now: bool) -> Result<(), ForwardError> {
        let is_due = now || self.checkpointed.elapsed() >= CHECKPOINT_EVERY;
        if !self.dirty || !is_due {
            return Ok(());
        }
        let Some(sink) = self.sink.as_deref_mut() else { return Ok(()) };
        if sink.position().is_none_or(|position| position.0 < self.next.0) {
            // A position only: the entries concern no documents.
            sink.commit(Position(self.next.0))?;
        }
        let safe = sink.checkpoint()?.map_or(Lsn(0), |position| Lsn(position.0));
        self.checkpointed = Instant::now();
        self.dirty = safe < self.next;
        self.made_safe(safe)
    }

    /// Removes what the database has on stable storage from the spill, and lets go of the log before it.
    pub(super) fn made_safe(&mut self, safe: Lsn) -> Result<(), ForwardError> {
        if let Some(spill) = &mut self.spill {
            spill.remove_through(safe)?;
            self.spill_is_full = false;
            self.outbox.set_spill(spill.size(), false);
        }
        self.safe = self.safe.max(safe);
        self.tail = self.tail.max(self.safe);
        self.outbox.made_safe(self.safe);
        Ok(())
    }
}

/// What is written but not yet committed.
#[derive(Debug, Default)]
struct Batch {
    end: Lsn,
    documents: u64,
    /// Of these, the number that the database had already.
    skipped: u64,
    conflicts: u64,
    /// When the newest were received.
    received_ms: i64,
    /// Whether it is committed even if there are no documents in it.
    is_alone: bool,
}

/// A commit, as far as it matters to the order of things.
#[derive(Clone, Copy)]
struct Of<'a> {
    namespace: &'a str,
    count: u64,
    end: Lsn,
}

impl Batch {
    fn is_large(&self) -> bool {
        self.documents >= DOCUMENTS_PER_TRANSACTION
    }

    /// Returns whether these documents are the ones that come next, and counts them.
    ///
    /// * `ids`: the first id, and the count.
    fn admits(
        &mut self,
        sink: &mut dyn RowSink,
        namespace: &str,
        ids: (u64, u64),
        received_ms: i64,
    ) -> Result<bool, ForwardError> {
        let (first, count) = ids;
        let end = first.saturating_add(count.saturating_sub(1));
        let last = sink.last_id(namespace)?.unwrap_or(0);
        self.documents += count;
        self.received_ms = received_ms;
        if first == last.saturating_add(1) {
            return Ok(true);
        }
        let namespace = namespace.to_owned();
        if end <= last {
            self.skipped += count;
            Ok(false)
        } else if first > last {
            Err(ForwardError::Gap { namespace, last, first })
        } else {
            Err(ForwardError::Overlap { namespace, first, end, last })
        }
    }

    /// Returns whether the document that changes is one that the database has, and counts the change.
    fn admits_change(
        &mut self,
        sink: &mut dyn RowSink,
        namespace: &str,
        id: u64,
        changed_ms: i64,
    ) -> Result<(), ForwardError> {
        let last = sink.last_id(namespace)?.unwrap_or(0);
        if id > last {
            let namespace = namespace.to_owned();
            return Err(ForwardError::Gap { namespace, last, first: last.saturating_add(1) });
        }
        self.documents += 1;
        self.received_ms = changed_ms;
        Ok(())
    }

    fn write(
        &mut self,
        sink: &mut dyn RowSink,
        log: &Log,
        bounds: &Bounds,
        (lsn, end): (Lsn, Lsn),
        work: &Work<'_>,
    ) -> Result<(), ForwardError> {
        let (namespace, received_ms) = (work.namespace(), work.received_ms());
        match work {
            Work::Commit(commit) => {
                let ids = (commit.first_id, commit.count);
                if !self.admits(sink, namespace, ids, received_ms)? {
                    return Ok(());
                }
            }
            Work::Change(change) => self.admits_change(sink, namespace, change.id, received_ms)?,
            Work::Drop(dropped) => {
                self.admits_change(sink, namespace, dropped.last_id, received_ms)?;
            }
        }
        self.conflicts += write_work(sink, log, bounds, (lsn, end), work)?.conflicts;
        Ok(())
    }
}

/// A commit being read from the spill.
struct OpenCommit {
    commit: Spilled,
    /// Whether it is the next of its namespace, and written.
    is_new: bool,
    /// Why the database refuses it.
    failed: Option<ForwardError>,
    documents: Vec<StoredDocument>,
    size: usize,
}

impl OpenCommit {
    /// Bytes of documents gathered before they are written.
    const SIZE_MAX: usize = 1 << 20;

    fn write(&mut self, sink: &mut dyn RowSink, bounds: &Bounds) -> Result<u64, ForwardError> {
        let Some(first) = self.documents.first().map(|document| document.id) else { return Ok(0) };
        let mut raws = self.documents.iter().map(|document| document.raw.as_slice());
        let conflicts = write_documents(sink, bounds, &self.commit.head(), first, &mut raws)?;
        self.documents.clear();
        self.size = 0;
        Ok(conflicts)
    }
}
