//! Writing commits to a sink: from what was parsed at the request, or from the log.
//!
//! Used by the document view and by the forwarder alike, so an external database gets the rows of
//! the local one.
//!
//! Invariants: all documents of a commit are written at its end's position; a commit that lacks
//! documents it declares is an error, never half a commit; nothing is decided here: the columns are
//! those of the sink and those that the commit adds.

use std::collections::HashMap;

use forebay_log::{Log, Lsn};
use forebay_sink::{Document, Field, Position, RowSink, TableSchema, Value};

use super::flatten::{Bounds, Leaf, read};
use super::prepared::Prepared;
use super::{DocumentError, column_type};
use crate::error::ApplyError;
use crate::format::{AddedColumn, DecodeError, DocumentCommit, Entry, TargetCode};

/// A commit's metadata.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head<'a> {
    /// End of the commit in the log.
    pub(crate) end: Lsn,
    pub(crate) namespace: &'a str,
    pub(crate) target: TargetCode,
    /// Id of the first document; the others follow in order.
    pub(crate) first_id: u64,
    pub(crate) count: u64,
    pub(crate) received_ms: i64,
    /// Columns that the table gains; all that it has if the commit reshapes it.
    pub(crate) columns: &'a [AddedColumn],
    /// Whether the columns of the documents before are derived again.
    pub(crate) reshapes: bool,
}

impl<'a> Head<'a> {
    pub(crate) fn of(end: Lsn, commit: &'a DocumentCommit<'_>) -> Self {
        Self {
            end,
            namespace: commit.namespace.as_str(),
            target: commit.target,
            first_id: commit.first_id,
            count: commit.count,
            received_ms: commit.received_ms,
            columns: &commit.columns,
            reshapes: commit.flags.reshapes,
        }
    }

    /// The columns as fields.
    fn fields(&self) -> Result<Vec<Field<'a>>, ApplyError> {
        fields_in(self.columns, Position(self.end.0))
    }

    /// When the documents were received, in the unit of sinks.
    pub(crate) fn received(&self) -> u64 {
        self.received_ms.max(0).cast_unsigned()
    }
}

/// Called with a run of documents and the id of the first of them.
pub(crate) type Run<'r, E> = dyn FnMut(u64, &mut dyn Iterator<Item = &[u8]>) -> Result<(), E> + 'r;

/// Calls `each` with the documents of a commit in order, one run at a time, and the id of the first
/// document of each run.
///
/// # Errors
/// Those of the log and of `each`; or the commit's contents differ from what it declares.
pub(crate) fn read_documents<E: From<ApplyError>>(
    log: &Log,
    lsn: Lsn,
    commit: &DocumentCommit<'_>,
    each: &mut Run<'_, E>,
) -> Result<(), E> {
    let mut next_id = commit.first_id;
    for &chunk in &commit.chunks {
        let payload =
            log.read(Lsn(chunk)).map_err(|source| ApplyError::Read { lsn: chunk, source })?;
        match Entry::decode(&payload) {
            Ok(Entry::DocumentChunk(part)) if part.request == commit.request => {
                each(next_id, &mut part.documents.iter())?;
                next_id += part.documents.len() as u64;
            }
            Ok(_) => return Err(ApplyError::Chunk { lsn: lsn.0, chunk }.into()),
            Err(source) => return Err(ApplyError::Decode { lsn: chunk, source }.into()),
        }
    }
    each(next_id, &mut commit.documents.iter())?;
    let found = next_id + commit.documents.len() as u64 - commit.first_id;
    if found == commit.count {
        Ok(())
    } else {
        Err(ApplyError::Count { lsn: lsn.0, expected: commit.count, found }.into())
    }
}

/// Writes a commit from the log; returns the number of values that did not fit their columns.
pub(crate) fn write_commit(
    sink: &mut dyn RowSink,
    log: &Log,
    bounds: &Bounds,
    lsn: Lsn,
    end: Lsn,
    commit: &DocumentCommit<'_>,
) -> Result<u64, ApplyError> {
    let head = Head::of(end, commit);
    reshape(sink, bounds, &head)?;
    let mut conflicts = 0;
    read_documents::<ApplyError>(log, lsn, commit, &mut |first_id, documents| {
        conflicts += write_documents(sink, bounds, &head, first_id, documents)?;
        Ok(())
    })?;
    Ok(conflicts)
}

/// Writes a commit that was handed over parsed; returns the number of values that did not fit their
/// columns.
pub(crate) fn write_prepared(
    sink: &mut dyn RowSink,
    end: Lsn,
    commit: &Prepared,
) -> Result<u64, ApplyError> {
    let at = Position(end.0);
    let received_ms = commit.received_ms.max(0).cast_unsigned();
    let namespace = commit.namespace.as_str();
    let mut id = commit.first_id;
    let mut number = |raw| {
        id += 1;
        Document { id: id - 1, received_ms, raw }
    };
    if commit.target == TargetCode::Collection {
        for run in &commit.runs {
            let mut batch = Vec::with_capacity(to_size(run.count()));
            run.each(|raw, _| {
                batch.push(number(raw));
                Ok::<(), ApplyError>(())
            })?;
            sink.write_documents(at, namespace, &batch).map_err(ApplyError::Sink)?;
        }
        return Ok(0);
    }
    let fields: Vec<Field<'_>> =
        commit.fields.iter().filter_map(|(path, ty)| Some(Field { path, ty: (*ty)? })).collect();
    // Fields that were always null have no column, and so no index in a row.
    let mut columns = 0..;
    let slots: Vec<Option<usize>> =
        commit.fields.iter().map(|(_, ty)| ty.and_then(|_| columns.next())).collect();
    let mut writer = sink.row_writer(at, namespace, &fields).map_err(ApplyError::Sink)?;
    let mut values = vec![Value::Null; fields.len()];
    for run in &commit.runs {
        run.each(|raw, found| {
            values.fill(Value::Null);
            for (field, found) in found {
                let slot = slots.get(field).copied().flatten();
                if let Some(value) = slot.and_then(|slot| values.get_mut(slot)) {
                    *value = found;
                }
            }
            writer.write(&number(raw), &values).map_err(ApplyError::Sink)
        })?;
    }
    Ok(writer.finish().map_err(ApplyError::Sink)?.conflicts)
}

/// Writes documents of a commit, the first of which has the id `first_id`; returns the number of
/// values that did not fit their columns.
pub(crate) fn write_documents(
    sink: &mut dyn RowSink,
    bounds: &Bounds,
    head: &Head<'_>,
    first_id: u64,
    documents: &mut dyn Iterator<Item = &[u8]>,
) -> Result<u64, ApplyError> {
    let received_ms = head.received();
    let numbered = (first_id..).zip(documents).map(|(id, raw)| Document { id, received_ms, raw });
    let at = Position(head.end.0);
    if head.target == TargetCode::Collection {
        let batch: Vec<Document<'_>> = numbered.collect();
        sink.write_documents(at, head.namespace, &batch).map_err(ApplyError::Sink)?;
        return Ok(0);
    }
    let known = sink.columns(head.namespace).map_err(ApplyError::Sink)?;
    let known = known.cloned().unwrap_or_default();
    let mut fields = fields_of(&known);
    let added = head.fields()?;
    fields.extend(added.into_iter().filter(|field| known.column(field.path).is_none()));
    write_rows(sink, bounds, at, head.namespace, &fields, &mut numbered.into_iter())
}

/// Gives the namespace of a commit that says so its columns, and its rows their values. Comes before
/// the commit's documents.
pub(crate) fn reshape(
    sink: &mut dyn RowSink,
    bounds: &Bounds,
    head: &Head<'_>,
) -> Result<(), ApplyError> {
    if head.reshapes {
        let at = Position(head.end.0);
        reshape_to(sink, bounds, at, head.namespace, &head.fields()?)?;
    }
    Ok(())
}

/// Gives a namespace a column for each of `fields`, and its rows the values of their documents.
pub(crate) fn reshape_to(
    sink: &mut dyn RowSink,
    bounds: &Bounds,
    at: Position,
    namespace: &str,
    fields: &[Field<'_>],
) -> Result<(), ApplyError> {
    let slots = Slots::new(fields);
    let mut scratch = Scratch::default();
    let mut derive = |document: &[u8], put: &mut dyn FnMut(usize, Value<'_>)| {
        for (index, leaf) in slots.values(document, bounds, &mut scratch).iter().enumerate() {
            put(index, value_of(leaf));
        }
    };
    sink.reshape(at, namespace, fields, &mut derive).map_err(ApplyError::Sink)?;
    Ok(())
}

/// The columns that an entry names, as fields.
///
/// * `at`: its end.
pub(crate) fn fields_in(
    columns: &[AddedColumn],
    at: Position,
) -> Result<Vec<Field<'_>>, ApplyError> {
    let mut fields = Vec::with_capacity(columns.len());
    for AddedColumn { path, type_code } in columns {
        let ty = column_type(*type_code).ok_or_else(|| {
            let (field, found) = ("column type", (*type_code).into());
            let source = DecodeError::Value { field, offset: 0, found };
            ApplyError::Decode { lsn: at.0, source }
        })?;
        fields.push(Field { path, ty });
    }
    Ok(fields)
}

/// The fields of the existing columns.
pub(crate) fn fields_of(schema: &TableSchema) -> Vec<Field<'_>> {
    schema.columns().iter().map(|column| Field { path: &column.path, ty: column.ty }).collect()
}

/// Writes documents as rows with these fields; returns the number of values that did not fit their
/// columns.
pub(crate) fn write_rows<'d>(
    sink: &mut dyn RowSink,
    bounds: &Bounds,
    at: Position,
    namespace: &str,
    fields: &[Field<'_>],
    documents: &mut dyn Iterator<Item = Document<'d>>,
) -> Result<u64, ApplyError> {
    let slots = Slots::new(fields);
    let mut writer = sink.row_writer(at, namespace, fields).map_err(ApplyError::Sink)?;
    let mut scratch = Scratch::default();
    for document in documents {
        let values = slots.values(document.raw, bounds, &mut scratch);
        let values: Vec<Value<'_>> = values.iter().map(value_of).collect();
        writer.write(&document, &values).map_err(ApplyError::Sink)?;
    }
    Ok(writer.finish().map_err(ApplyError::Sink)?.conflicts)
}

/// Calls `with` with the values that a document has for these fields.
pub(crate) fn values_of<T>(
    bounds: &Bounds,
    fields: &[Field<'_>],
    raw: &[u8],
    with: impl FnOnce(&[Value<'_>]) -> T,
) -> T {
    let mut scratch = Scratch::default();
    let leaves = Slots::new(fields).values(raw, bounds, &mut scratch);
    let values: Vec<Value<'_>> = leaves.iter().map(value_of).collect();
    with(&values)
}

/// The index in a row of each field.
struct Slots<'a> {
    paths: Vec<&'a str>,
    by_path: HashMap<&'a str, usize>,
}

#[derive(Default)]
struct Scratch {
    path: String,
}

impl<'a> Slots<'a> {
    fn new(fields: &[Field<'a>]) -> Self {
        let paths: Vec<&'a str> = fields.iter().map(|field| field.path).collect();
        let by_path = paths.iter().enumerate().map(|(at, path)| (*path, at)).collect();
        Self { paths, by_path }
    }

    /// The leaves of one document in the order of the fields.
    ///
    /// The document passed the checks of the day when it was accepted. If it cannot be read now,
    /// its columns stay empty and the document itself is kept.
    fn values<'d>(&self, raw: &'d [u8], bounds: &Bounds, scratch: &mut Scratch) -> Vec<Leaf<'d>> {
        let mut values = vec![Leaf::Null; self.paths.len()];
        let bounds = &Bounds { depth_max: usize::MAX, key_size_max: usize::MAX, ..*bounds };
        let Ok(members) = read(raw, bounds) else { return values };
        let mut next = 0;
        let read =
            members.leaves::<DocumentError>(bounds, &mut scratch.path, &mut |path, leaf, _| {
                let at = match self.paths.get(next) {
                    Some(known) if *known == path => Some(next),
                    _ => self.by_path.get(path).copied(),
                };
                if let Some(at) = at {
                    next = at + 1;
                    if let Some(value) = values.get_mut(at) {
                        *value = leaf;
                    }
                }
                Ok(())
            });
        if read.is_err() {
            values.fill(Leaf::Null);
        }
        values
    }
}

fn to_size(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// A leaf as a value for a column.
pub(crate) fn value_of<'a>(leaf: &'a Leaf<'_>) -> Value<'a> {
    match leaf {
        Leaf::Null => Value::Null,
        Leaf::Boolean(value) => Value::Boolean(*value),
        Leaf::Integer(_, text) | Leaf::BigInteger(text) | Leaf::Real(text) => Value::Number(text),
        Leaf::Text(text) => Value::Text(text),
        Leaf::Unrepresentable(text) | Leaf::Array(text, _) | Leaf::Object(text) => {
            Value::Json(text)
        }
    }
}
