//! Entries of the log that change what a sink holds: documents that come, change, and go.
//!
//! Used by the document view and by the forwarder alike, so an external database gets the same changes
//! as the local one.
//!
//! Invariants: an entry is written at its end's position, whole or not at all; nothing is decided here.

use forebay_log::{Log, Lsn};
use forebay_sink::{Document, Position, RowSink, Written};

use super::flatten::Bounds;
use super::write::{fields_in, fields_of, reshape_to, values_of, write_commit};
use crate::error::ApplyError;
use crate::format::{
    ChangeAction, DocumentChange, DocumentCommit, DocumentsDropped, Entry, TargetCode,
};

/// An entry that a sink has to follow.
#[derive(Debug)]
pub(crate) enum Work<'a> {
    /// Documents come.
    Commit(DocumentCommit<'a>),
    /// One is replaced or deleted.
    Change(DocumentChange<'a>),
    /// All of a namespace are dropped.
    Drop(DocumentsDropped),
}

impl<'a> Work<'a> {
    /// The work in an entry; `None` if no sink is concerned.
    pub(crate) fn of(entry: Entry<'a>) -> Option<Self> {
        match entry {
            Entry::DocumentCommit(commit) => Some(Self::Commit(commit)),
            Entry::DocumentChange(change) => Some(Self::Change(change)),
            Entry::DocumentsDropped(dropped) => Some(Self::Drop(dropped)),
            _ => None,
        }
    }

    pub(crate) fn namespace(&self) -> &str {
        match self {
            Self::Commit(commit) => commit.namespace.as_str(),
            Self::Change(change) => change.namespace.as_str(),
            Self::Drop(dropped) => dropped.namespace.as_str(),
        }
    }

    /// Number of documents; a change, and a drop, counts as one.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::Commit(commit) => commit.count,
            Self::Change(_) | Self::Drop(_) => 1,
        }
    }

    /// When it was received, in milliseconds since 1970.
    pub(crate) fn received_ms(&self) -> i64 {
        match self {
            Self::Commit(commit) => commit.received_ms,
            Self::Change(change) => change.changed_ms,
            Self::Drop(dropped) => dropped.dropped_ms,
        }
    }
}

/// Reads the entry at `lsn`, which must be one of documents, and passes it to `take`.
pub(crate) fn read_work<T, E: From<ApplyError>>(
    log: &Log,
    lsn: Lsn,
    take: impl FnOnce(&Work<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let payload = log.read(lsn).map_err(|source| ApplyError::Read { lsn: lsn.0, source })?;
    let entry =
        Entry::decode(&payload).map_err(|source| ApplyError::Decode { lsn: lsn.0, source })?;
    match Work::of(entry) {
        Some(work) => take(&work),
        None => Err(ApplyError::Chunk { lsn: lsn.0, chunk: lsn.0 }.into()),
    }
}

/// Writes an entry to a sink. Of a change, [`Written::rows`] says whether its document was there.
pub(crate) fn write_work(
    sink: &mut dyn RowSink,
    log: &Log,
    bounds: &Bounds,
    (lsn, end): (Lsn, Lsn),
    work: &Work<'_>,
) -> Result<Written, ApplyError> {
    let at = Position(end.0);
    match work {
        Work::Commit(commit) => {
            let conflicts = write_commit(sink, log, bounds, lsn, end, commit)?;
            Ok(Written { conflicts, rows: commit.count, ..Written::default() })
        }
        Work::Change(change) => write_change(sink, bounds, at, change),
        Work::Drop(dropped) => {
            let namespace = dropped.namespace.as_str();
            sink.clear(at, namespace, dropped.last_id).map_err(ApplyError::Sink)
        }
    }
}

fn write_change(
    sink: &mut dyn RowSink,
    bounds: &Bounds,
    at: Position,
    change: &DocumentChange<'_>,
) -> Result<Written, ApplyError> {
    let namespace = change.namespace.as_str();
    let ChangeAction::Replace { target, flags, columns, document } = &change.action else {
        return sink.remove(at, namespace, change.id).map_err(ApplyError::Sink);
    };
    let received_ms = change.changed_ms.max(0).cast_unsigned();
    let document = Document { id: change.id, received_ms, raw: document };
    let named = fields_in(columns, at)?;
    if flags.reshapes {
        reshape_to(sink, bounds, at, namespace, &named)?;
    }
    if *target == TargetCode::Collection {
        return sink.replace(at, namespace, &[], &document, &[]).map_err(ApplyError::Sink);
    }
    let known = sink.columns(namespace).map_err(ApplyError::Sink)?.cloned().unwrap_or_default();
    let mut fields = fields_of(&known);
    fields.extend(named.into_iter().filter(|field| known.column(field.path).is_none()));
    replace(sink, bounds, at, namespace, &fields, &document)
}

/// Puts a document, and its values for these fields, in the place of the one with its id.
pub(crate) fn replace(
    sink: &mut dyn RowSink,
    bounds: &Bounds,
    at: Position,
    namespace: &str,
    fields: &[forebay_sink::Field<'_>],
    document: &Document<'_>,
) -> Result<Written, ApplyError> {
    values_of(bounds, fields, document.raw, |values| {
        sink.replace(at, namespace, fields, document, values).map_err(ApplyError::Sink)
    })
}
