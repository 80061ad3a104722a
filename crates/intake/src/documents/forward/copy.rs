//! Copying to a database what it lacks of the local one, namespace by namespace.
//!
//! Needed where neither the log nor the spill has what the database lacks: it is new, it was
//! restored from a backup, or forwarding was off for a while. Each namespace's last id on both
//! sides shows what is missing. Documents that the database has and that were changed or deleted since
//! are changed there first.
//!
//! Invariants: from before the first read on, the log keeps everything that is not read here; each
//! transaction of documents, and each namespace that is refused, advances the database's position by
//! one, and that position stays below the final one, since each has at least one document and a
//! document is more than one byte of log; an interrupted copy resumes after the last ids.

use std::time::Instant;

use forebay_log::Lsn;
use forebay_sink::{Document, Identity, NamespaceKind, Position, RowSink, TableSchema};
use forebay_sqlite::{Change, ChangeKind, NamespaceInfo, PageLimits, SqliteReader};

use super::super::work::replace;
use super::super::write::{fields_of, reshape_to, write_rows};
use super::error::ForwardError;
use super::worker::{DOCUMENTS_PER_TRANSACTION, Worker};
use super::{DatabaseState, Remembered};

/// Documents read in one query.
const PAGE: PageLimits = PageLimits { rows_max: 1_000, bytes_max: 8 << 20 };

/// Changes read in one query, and written in one transaction.
const CHANGES_PER_STEP: usize = 1_000;

/// Progress of a copy.
struct Copying {
    /// The database's position after the open transaction.
    at: Position,
    /// Where the copy ends.
    until: Position,
    /// Documents in the open transaction.
    pending: u64,
    conflicts: u64,
    received_ms: i64,
}

/// A page of documents that was written.
struct Page {
    /// Id of the last one.
    last: u64,
    documents: u64,
    conflicts: u64,
    /// When the last one was received.
    received_ms: i64,
}

impl Worker {
    /// Copies what the open database lacks, and sets the position from which the log takes over.
    pub(super) fn copy(&mut self, identity: Identity) -> Result<(), ForwardError> {
        // From here on nothing after `held` leaves the log, and the rest is in the local database
        // for good.
        let held = self.outbox.hold_from_here();
        let announced = self.outbox.announced();
        self.remember(Remembered { database: Some(identity), held: false, ..self.remembered() })?;
        self.clear_spill()?;
        let now_ms = self.now_ms();
        self.outbox.set_state(DatabaseState::Copying, None, now_ms);
        let reader = SqliteReader::open(&self.parts.documents).map_err(ForwardError::OpenLocal)?;
        let until = reader.position()?.map_or(held, |position| Lsn(position.0)).max(held);
        let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
        let lacking = lacking_of(&reader, sink)?;
        let documents: u64 = lacking.iter().map(|(info, last)| to(info) - last).sum();
        self.outbox.set_waiting(documents, announced, Some(now_ms));
        if documents > 0 {
            let database = self.outbox.options.database.name();
            tracing::info!(documents, %database, "copying what the database lacks");
        }
        let position = sink.position().map_or(0, |position| position.0);
        if position >= until.0
            && let Some((info, last)) = lacking.first()
        {
            // No position is left to write them at.
            let namespace = info.name.clone();
            return Err(ForwardError::Lost { namespace, last: *last, position });
        }
        let mut copying = Copying {
            at: Position(position + 1),
            until: Position(until.0),
            pending: 0,
            conflicts: 0,
            received_ms: now_ms,
        };
        for info in reader.namespaces()? {
            if !self.is_quarantined(&info.name) {
                let done = self.amend_namespace(&reader, &info.name, position);
                self.copied_one(&info.name, &mut copying, done)?;
            }
        }
        let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
        // Documents that were dropped are lacking no more.
        for (info, last) in &lacking_of(&reader, sink)? {
            if !self.is_quarantined(&info.name) {
                let done = self.copy_namespace(&reader, info, *last, &mut copying);
                self.copied_one(&info.name, &mut copying, done)?;
            }
        }
        self.finish_copy(&mut copying)?;
        self.copied(until);
        // Nothing is released between measuring the extent and recording it.
        let mut memory = self.outbox.memory.lock();
        let released = memory.now().released.max(self.outbox.released());
        let database = Some(identity);
        Ok(memory.keep(Remembered { database, held: true, durable: until, released })?)
    }

    /// Compares the last ids on both sides once all announced commits are written.
    ///
    /// The ids of a namespace are compared at each of its commits. This covers one that gets no
    /// more.
    pub(super) fn audit(&mut self) -> Result<(), ForwardError> {
        let reader = SqliteReader::open(&self.parts.documents).map_err(ForwardError::OpenLocal)?;
        let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
        let mut lacking = lacking_of(&reader, sink)?;
        lacking.retain(|(info, _)| !self.attempts.contains_key(&info.name));
        if reader.position()?.is_some_and(|position| position.0 > self.next.0) {
            // Some of it has arrived since and will be announced: later.
            return Ok(());
        }
        self.is_audited = true;
        match lacking.into_iter().next() {
            None => Ok(()),
            Some((info, last)) => {
                Err(ForwardError::Gap { namespace: info.name, last, first: last + 1 })
            }
        }
    }

    /// Ends the copying of a namespace, or of its columns. If it is to be seen which one is refused,
    /// it is committed alone, and a refusal quarantines it.
    fn copied_one(
        &mut self,
        namespace: &str,
        copying: &mut Copying,
        done: Result<(), ForwardError>,
    ) -> Result<(), ForwardError> {
        if self.isolate_to == Lsn(0) {
            return done;
        }
        let done = done.and_then(|()| match copying.pending {
            0 => Ok(()),
            _ => self.commit_copied(copying),
        });
        match done {
            Err(error) if error.is_refusal() && copying.at < copying.until => {
                (copying.pending, copying.conflicts) = (0, 0);
                self.quarantine(namespace, error, copying.at)?;
                copying.at = Position(copying.at.0 + 1);
                Ok(())
            }
            other => other,
        }
    }

    /// Gives a namespace the columns of the local one, and what it has of documents the changes since
    /// the position `after`, in transactions that leave the position.
    fn amend_namespace(
        &mut self,
        reader: &SqliteReader,
        namespace: &str,
        after: u64,
    ) -> Result<(), ForwardError> {
        let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
        // Without a position, there is nothing in it.
        let Some(at) = sink.position() else { return Ok(()) };
        sink.amend();
        self.copy_columns(reader, namespace, at)?;
        self.copy_changes(reader, namespace, after, at)?;
        let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
        sink.commit(at)?;
        Ok(())
    }

    /// Changes what the database has of a namespace's documents as the local one did after the position
    /// `after`. Some of it may be done already; done again it is the same. Ends within a transaction
    /// that amends.
    pub(super) fn copy_changes(
        &mut self,
        reader: &SqliteReader,
        namespace: &str,
        mut after: u64,
        at: Position,
    ) -> Result<(), ForwardError> {
        loop {
            if self.outbox.stopping() {
                return Err(ForwardError::Closing);
            }
            let page = reader.changes(namespace, after, CHANGES_PER_STEP)?;
            let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
            let Some(last) = sink.last_id(namespace)? else { return Ok(()) };
            if let Some(dropped) = page.dropped_id {
                sink.clear(at, namespace, dropped)?;
            }
            for change in page.changes.iter().filter(|change| change.id <= last) {
                self.copy_change(reader, namespace, *change, at)?;
            }
            let (true, Some(newest)) = (page.more, page.changes.last()) else { return Ok(()) };
            after = newest.at;
            let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
            sink.commit(at)?;
            sink.amend();
        }
    }

    fn copy_change(
        &mut self,
        reader: &SqliteReader,
        namespace: &str,
        change: Change,
        at: Position,
    ) -> Result<(), ForwardError> {
        let (bounds, id) = (self.parts.bounds, change.id);
        let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
        if change.kind == ChangeKind::Deleted {
            sink.remove(at, namespace, id)?;
            return Ok(());
        }
        // One that was deleted since comes with a later change.
        let Some(stored) = reader.document(namespace, id)? else { return Ok(()) };
        let schema = reader.schema(namespace)?.unwrap_or_default();
        let (received_ms, raw) = (stored.received_ms, &stored.raw[..]);
        let document = Document { id, received_ms, raw };
        replace(sink, &bounds, at, namespace, &fields_of(&schema), &document)?;
        Ok(())
    }

    /// Gives a namespace the last id of the local one, of which the newest documents may be gone.
    pub(super) fn copy_last_id(
        &mut self,
        info: &NamespaceInfo,
        at: Position,
    ) -> Result<(), ForwardError> {
        let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
        if sink.last_id(&info.name)?.unwrap_or(0) < to(info) {
            match info.is_dropped {
                true => sink.clear(at, &info.name, to(info))?,
                false => sink.remove(at, &info.name, to(info))?,
            };
        }
        Ok(())
    }

    /// Gives a namespace that the database has the columns of the local one, which may have changed
    /// meanwhile.
    pub(super) fn copy_columns(
        &mut self,
        reader: &SqliteReader,
        namespace: &str,
        at: Position,
    ) -> Result<(), ForwardError> {
        let bounds = self.parts.bounds;
        let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
        let Some(there) = sink.columns(namespace)? else { return Ok(()) };
        let here = reader.schema(namespace)?.unwrap_or_default();
        let is_same = here.columns().len() == there.columns().len()
            && here.columns().iter().all(|column| {
                there.column(&column.path).is_some_and(|there| there.ty == column.ty)
            });
        if !is_same {
            reshape_to(sink, &bounds, at, namespace, &fields_of(&here))?;
        }
        Ok(())
    }

    /// Writes a transaction's worth of a namespace's documents after the one with id `last`. Returns
    /// their number, and that of values that did not fit their columns.
    pub(super) fn copy_some(
        &mut self,
        reader: &SqliteReader,
        info: &NamespaceInfo,
        last: u64,
        at: Position,
    ) -> Result<(u64, u64), ForwardError> {
        let schema = reader.schema(&info.name)?.unwrap_or_default();
        let (mut after, mut written, mut conflicts) = (last, 0, 0);
        while after < to(info) && written < DOCUMENTS_PER_TRANSACTION {
            if self.outbox.stopping() {
                return Err(ForwardError::Closing);
            }
            let Some(page) = self.copy_page(reader, info, &schema, after, at)? else { break };
            after = page.last;
            written += page.documents;
            conflicts += page.conflicts;
        }
        Ok((written, conflicts))
    }

    /// Writes a page of a namespace's documents; `None` if there are no more.
    fn copy_page(
        &mut self,
        reader: &SqliteReader,
        info: &NamespaceInfo,
        schema: &TableSchema,
        after: u64,
        at: Position,
    ) -> Result<Option<Page>, ForwardError> {
        let page = reader.documents(&info.name, Some(after), PAGE)?;
        // Later commits are in the log, which is read afterwards.
        let documents = page.documents.iter().filter(|document| document.id <= to(info));
        let batch: Vec<Document<'_>> = documents
            .map(|document| Document {
                id: document.id,
                received_ms: document.received_ms,
                raw: &document.raw,
            })
            .collect();
        let Some(newest) = batch.last() else { return Ok(None) };
        let bounds = self.parts.bounds;
        let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
        let conflicts = write(sink, &bounds, at, info, schema, &batch)?;
        let received_ms = i64::try_from(newest.received_ms).unwrap_or(i64::MAX);
        let (last, documents) = (newest.id, batch.len() as u64);
        Ok(Some(Page { last, documents, conflicts, received_ms }))
    }

    fn copy_namespace(
        &mut self,
        reader: &SqliteReader,
        info: &NamespaceInfo,
        last: u64,
        copying: &mut Copying,
    ) -> Result<(), ForwardError> {
        let schema = reader.schema(&info.name)?.unwrap_or_default();
        let (mut after, until) = (last, to(info));
        while after < until {
            if self.outbox.stopping() {
                return Err(ForwardError::Closing);
            }
            let at = copying.at;
            let Some(page) = self.copy_page(reader, info, &schema, after, at)? else { break };
            after = page.last;
            copying.received_ms = page.received_ms;
            copying.pending += page.documents;
            copying.conflicts += page.conflicts;
            if copying.pending >= DOCUMENTS_PER_TRANSACTION {
                self.commit_copied(copying)?;
            }
        }
        self.copy_last_id(info, copying.at)
    }

    fn commit_copied(&mut self, copying: &mut Copying) -> Result<(), ForwardError> {
        if copying.at >= copying.until {
            let (position, end) = (copying.at.0, copying.until.0);
            return Err(ForwardError::Ahead { position, end });
        }
        let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
        let started = Instant::now();
        sink.commit(copying.at)?;
        self.count_copied(copying, started);
        copying.at = Position(copying.at.0 + 1);
        Ok(())
    }

    /// Commits the remainder, with the position from which the log is read.
    fn finish_copy(&mut self, copying: &mut Copying) -> Result<(), ForwardError> {
        let sink = self.sink.as_deref_mut().ok_or(ForwardError::Closing)?;
        let started = Instant::now();
        sink.commit(copying.until)?;
        sink.checkpoint()?;
        self.count_copied(copying, started);
        Ok(())
    }

    fn count_copied(&self, copying: &mut Copying, started: Instant) {
        let documents = std::mem::take(&mut copying.pending);
        let conflicts = std::mem::take(&mut copying.conflicts);
        crate::meters::forwarded(documents, started.elapsed());
        self.outbox.count_written(documents, documents, conflicts, copying.received_ms);
    }

    fn remembered(&self) -> Remembered {
        self.outbox.memory.lock().now()
    }

    fn remember(&self, next: Remembered) -> Result<(), ForwardError> {
        Ok(self.outbox.memory.lock().keep(next)?)
    }
}

/// The namespaces of which the database lacks something, with the last id it has of each.
fn lacking_of(
    reader: &SqliteReader,
    sink: &mut dyn RowSink,
) -> Result<Vec<(NamespaceInfo, u64)>, ForwardError> {
    let mut lacking = Vec::new();
    for info in reader.namespaces()? {
        let last = sink.last_id(&info.name)?.unwrap_or(0);
        let here = to(&info);
        if last > here {
            let namespace = info.name;
            return Err(ForwardError::Overlap { namespace, first: here, end: here, last });
        }
        if last < here {
            lacking.push((info, last));
        }
    }
    Ok(lacking)
}

/// The last id of a namespace.
fn to(info: &NamespaceInfo) -> u64 {
    info.last_id.unwrap_or(0)
}

fn write(
    sink: &mut dyn RowSink,
    bounds: &super::super::flatten::Bounds,
    at: Position,
    info: &NamespaceInfo,
    schema: &TableSchema,
    documents: &[Document<'_>],
) -> Result<u64, ForwardError> {
    if info.kind == NamespaceKind::Collection {
        sink.write_documents(at, &info.name, documents)?;
        return Ok(0);
    }
    let fields = fields_of(schema);
    let mut documents = documents.iter().copied();
    Ok(write_rows(sink, bounds, at, &info.name, &fields, &mut documents)?)
}
