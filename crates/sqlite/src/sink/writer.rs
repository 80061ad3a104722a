//! Writing rows to the database: documents, and documents with values.
//!
//! Both use the same statement per namespace, prepared once and cached by the connection, and
//! bind borrowed values; nothing is allocated for a row. A row's checksum is computed from the values
//! as they are bound.

use std::path::Path;

use forebay_base::rows::RowHasher;
use forebay_sink::column::Fit;
use forebay_sink::name::{check_namespace, shown};
use forebay_sink::schema::Plan;
use forebay_sink::transaction::{Transaction, check_number};
use forebay_sink::{
    ColumnType, Derive, Document, DocumentSink, Field, Position, RefusedField, RowSink, RowWriter,
    SinkError, TableSchema, Value, Written,
};
use rusqlite::types::{Null, ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, ToSql};

use super::changes::{self, ChangeKind};
use super::fault::sink_error;
use super::layout::{self, Namespace};
use super::{SqliteSink, abandon, history, rows, state};

/// Parameters before the first column: id, time, document, checksum.
const FIXED_PARAMETERS: usize = 4;

/// The destination of a field's values.
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// The insert statement's parameter, counted from 1.
    parameter: usize,
    /// The column's index in the schema.
    ordinal: usize,
    ty: ColumnType,
}

/// The columns of a write's fields.
#[derive(Debug, Default)]
struct Prepared {
    /// Index of the field and its column, for the fields that have one, in the order of the columns.
    slots: Vec<(usize, Slot)>,
    /// Number of fields.
    fields: usize,
    refused: Vec<RefusedField>,
}

impl SqliteSink {
    /// Opens the transaction and ensures that the namespace and its columns exist. `None` if the
    /// position is committed already.
    fn inserter(
        &mut self,
        at: Position,
        namespace: &str,
        fields: &[Field<'_>],
    ) -> Result<Option<Inserter<'_>>, SinkError> {
        let prepared = self.prepare(at, namespace, fields);
        let SqliteSink { connection, path, namespaces, transaction, .. } = self;
        let prepared = prepared.and_then(|prepared| {
            let Some(prepared) = prepared else { return Ok(None) };
            let Some(namespace) = namespaces.get_mut(namespace) else { return Ok(None) };
            let statement = connection
                .prepare_cached(&namespace.insert)
                .map_err(|source| sink_error("prepare an insert", path, source))?;
            Ok(Some((prepared, namespace, statement)))
        });
        match prepared {
            Ok(None) => Ok(None),
            Ok(Some((Prepared { slots, fields, refused }, namespace, statement))) => {
                let written = Written { refused, ..Written::default() };
                let vacant = None;
                let target = Target { connection, path, namespace, transaction, vacant };
                let hasher = RowHasher::default();
                Ok(Some(Inserter { target, statement, slots, fields, hasher, written }))
            }
            Err(error) => {
                abandon(connection, transaction);
                Err(error)
            }
        }
    }

    fn prepare(
        &mut self,
        at: Position,
        namespace: &str,
        fields: &[Field<'_>],
    ) -> Result<Option<Prepared>, SinkError> {
        if !self.enter(at, namespace)? {
            return Ok(None);
        }
        let prepared = self.grow(at, namespace, fields);
        prepared.map(Some).map_err(|source| sink_error("add columns", &self.path, source))
    }

    /// Opens the transaction for a write of `at`; returns `false` if that is committed already.
    pub(super) fn enter(&mut self, at: Position, namespace: &str) -> Result<bool, SinkError> {
        if self.transaction == Transaction::Failed {
            return Err(SinkError::RolledBack);
        }
        check_number("position", at.0)?;
        check_namespace(namespace)
            .map_err(|reason| SinkError::Namespace { namespace: shown(namespace), reason })?;
        if self.is_committed(at) {
            return Ok(false);
        }
        self.begin()?;
        // Only now is it certain that no other process has moved the position.
        if self.is_committed(at) {
            return Ok(false);
        }
        if let Transaction::Open { written } = &mut self.transaction {
            *written = Some(written.map_or(at, |written| written.max(at)));
        }
        Ok(true)
    }

    /// Creates the namespace's table, or adds the columns that `fields` need.
    fn grow(
        &mut self,
        at: Position,
        name: &str,
        fields: &[Field<'_>],
    ) -> rusqlite::Result<Prepared> {
        let plan = self.grow_columns(at, name, fields)?;
        let Some(namespace) = self.namespaces.get(name) else { return Ok(Prepared::default()) };
        let columns = namespace.schema.columns();
        let slot = |(field, ordinal): (usize, Option<usize>)| {
            let (ordinal, column) = (ordinal?, columns.get(ordinal?)?);
            let parameter = FIXED_PARAMETERS + 1 + ordinal;
            Some((field, Slot { parameter, ordinal, ty: column.ty }))
        };
        let fields = plan.slots.len();
        let mut slots: Vec<_> = plan.slots.into_iter().enumerate().filter_map(slot).collect();
        // The checksum has the columns in their own order.
        slots.sort_unstable_by_key(|(_, slot)| slot.ordinal);
        Ok(Prepared { slots, fields, refused: plan.refused })
    }

    /// As [`grow`](Self::grow); returns the plan that was carried out.
    pub(super) fn grow_columns(
        &mut self,
        at: Position,
        name: &str,
        fields: &[Field<'_>],
    ) -> rusqlite::Result<Plan> {
        let known = self.namespaces.get(name).map(|found| &found.schema);
        let (statements, plan) = super::plan(name, known, fields);
        for statement in &statements {
            self.connection.execute_batch(statement)?;
        }
        if known.is_none() {
            let namespace = Namespace::new(name.to_owned(), layout::table_name(name));
            self.namespaces.insert(name.to_owned(), namespace);
        }
        self.touch(name);
        let moment = self.moment(at);
        let Some(namespace) = self.namespaces.get_mut(name) else { return Ok(plan) };
        if !plan.added.is_empty() {
            history::record_added(&self.connection, &namespace.row, moment, &plan.added)?;
            for column in &plan.added {
                let ordinal = namespace.schema.columns().len();
                state::insert_column(&self.connection, name, ordinal, column)?;
                namespace.schema.push(column.clone());
            }
            namespace.prepare_insert();
            namespace.reshaped = true;
        }
        Ok(plan)
    }
}

/// The target of a write.
struct Target<'s> {
    connection: &'s Connection,
    path: &'s Path,
    namespace: &'s mut Namespace,
    transaction: &'s mut Transaction,
    /// Id of a row that was taken out, for another one to take its place.
    vacant: Option<u64>,
}

impl Target<'_> {
    /// Checks a row's id and time.
    fn admit(&mut self, id: u64, received_ms: u64) -> Result<(), SinkError> {
        check_number("id", id)?;
        check_number("time", received_ms)?;
        let row = &mut self.namespace.row;
        let last = row.last_id.filter(|&last| id <= last);
        if let Some(last) = last.filter(|_| self.vacant != Some(id)) {
            return Err(SinkError::IdOrder { namespace: row.name.clone(), id, last });
        }
        self.vacant = None;
        row.first_id = row.first_id.or(Some(id));
        row.last_id = row.last_id.max(Some(id));
        Ok(())
    }
}

/// Binds and inserts rows.
struct Inserter<'s> {
    target: Target<'s>,
    statement: CachedStatement<'s>,
    slots: Vec<(usize, Slot)>,
    fields: usize,
    hasher: RowHasher,
    written: Written,
}

impl Inserter<'_> {
    /// Binds what every row has.
    fn begin_row(&mut self, document: &Document<'_>) -> Result<(), SinkError> {
        let Document { id, received_ms, raw } = *document;
        self.target.admit(id, received_ms)?;
        let raw = match std::str::from_utf8(raw) {
            // Text wherever it can be, so that SQL sees JSON; the bytes are the same either way.
            Ok(_) => ValueRef::Text(raw),
            Err(_) => ValueRef::Blob(raw),
        };
        let (number, time) = (id.cast_signed(), received_ms.cast_signed());
        rows::start(&mut self.hasher, &self.target.namespace.row.name, number, time, raw);
        let bound = self
            .statement
            .raw_bind_parameter(1, id)
            .and_then(|()| self.statement.raw_bind_parameter(2, received_ms))
            .and_then(|()| self.statement.raw_bind_parameter(3, ToSqlOutput::Borrowed(raw)));
        bound.map_err(|source| sink_error("bind a row", self.target.path, source))
    }

    fn bind(&mut self, slot: Slot, value: Value<'_>) -> Result<(), SinkError> {
        let fit = slot.ty.fit(value);
        if fit == Fit::Conflict {
            self.written.conflicts += 1;
        }
        rows::column(&mut self.hasher, slot.ordinal, &fit);
        self.statement
            .raw_bind_parameter(slot.parameter, Bound(fit))
            .map_err(|source| sink_error("bind a value", self.target.path, source))
    }

    fn end_row(&mut self) -> Result<(), SinkError> {
        let checksum = self.hasher.finish();
        self.statement
            .raw_bind_parameter(FIXED_PARAMETERS, checksum.cast_signed())
            .and_then(|()| self.statement.raw_execute())
            .map_err(|source| sink_error("insert a row", self.target.path, source))?;
        self.target.namespace.row.rows.insert(checksum);
        self.written.rows += 1;
        Ok(())
    }

    fn row(&mut self, document: &Document<'_>, values: &[Value<'_>]) -> Result<(), SinkError> {
        if values.len() != self.fields {
            return Err(self.value_count(values.len(), self.fields));
        }
        self.begin_row(document)?;
        for at in 0..self.slots.len() {
            if let Some((field, slot)) = self.slots.get(at).copied()
                && let Some(value) = values.get(field)
            {
                self.bind(slot, *value)?;
            }
        }
        self.end_row()
    }

    /// Puts a row in the place of the one with its id.
    fn replace(
        &mut self,
        at: Position,
        document: &Document<'_>,
        values: &[Value<'_>],
    ) -> Result<(), SinkError> {
        let Document { id, .. } = *document;
        let Target { connection, path, namespace, vacant, .. } = &mut self.target;
        let last = namespace.row.last_id.unwrap_or(0);
        if namespace.row.last_id.is_none_or(|last| id > last) {
            return Err(SinkError::NoRow { namespace: namespace.row.name.clone(), id, last });
        }
        let taken = changes::take_out(connection, namespace, id)
            .and_then(|rows| {
                changes::record(connection, &mut namespace.row, id, at.0, ChangeKind::Replaced)?;
                Ok(rows)
            })
            .map_err(|fault| sink_error("replace a row", path, fault))?;
        *vacant = Some(id);
        self.row(document, values)?;
        self.written.rows = taken;
        Ok(())
    }

    fn value_count(&self, found: usize, expected: usize) -> SinkError {
        let namespace = self.target.namespace.row.name.clone();
        SinkError::ValueCount { namespace, found, expected }
    }

    /// Passes `result` on; an error takes the transaction with it.
    fn settle<T>(&mut self, result: Result<T, SinkError>) -> Result<T, SinkError> {
        if result.is_err() {
            abandon(self.target.connection, self.target.transaction);
        }
        result
    }
}

/// What a column stores, as a parameter.
struct Bound<'a>(Fit<'a>);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match &self.0 {
            Fit::Null | Fit::Conflict => ToSqlOutput::from(Null),
            Fit::Integer(value) => ToSqlOutput::from(*value),
            Fit::Real(value) => ToSqlOutput::from(*value),
            Fit::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Fit::Bytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        })
    }
}

impl DocumentSink for SqliteSink {
    fn write_documents(
        &mut self,
        at: Position,
        namespace: &str,
        documents: &[Document<'_>],
    ) -> Result<Written, SinkError> {
        let Some(mut inserter) = self.inserter(at, namespace, &[])? else {
            return Ok(Written::replay());
        };
        let result = documents.iter().try_for_each(|document| inserter.row(document, &[]));
        inserter.settle(result)?;
        Ok(inserter.written)
    }

    fn last_id(&mut self, namespace: &str) -> Result<Option<u64>, SinkError> {
        Ok(self.namespaces.get(namespace).and_then(|found| found.row.last_id))
    }
}

impl RowSink for SqliteSink {
    fn row_writer<'s>(
        &'s mut self,
        at: Position,
        namespace: &str,
        fields: &[Field<'_>],
    ) -> Result<Box<dyn RowWriter + 's>, SinkError> {
        let inserter = self.inserter(at, namespace, fields)?;
        Ok(Box::new(SqliteRowWriter { inserter }))
    }

    fn reshape(
        &mut self,
        at: Position,
        namespace: &str,
        fields: &[Field<'_>],
        derive: &mut Derive<'_>,
    ) -> Result<Written, SinkError> {
        self.reshape_namespace(at, namespace, fields, derive)
    }

    fn replace(
        &mut self,
        at: Position,
        namespace: &str,
        fields: &[Field<'_>],
        document: &Document<'_>,
        values: &[Value<'_>],
    ) -> Result<Written, SinkError> {
        let Some(mut inserter) = self.inserter(at, namespace, fields)? else {
            return Ok(Written::replay());
        };
        let replaced = inserter.replace(at, document, values);
        inserter.settle(replaced)?;
        Ok(inserter.written)
    }

    fn remove(&mut self, at: Position, namespace: &str, id: u64) -> Result<Written, SinkError> {
        self.remove_row(at, namespace, id)
    }

    fn clear(&mut self, at: Position, namespace: &str, last_id: u64) -> Result<Written, SinkError> {
        self.clear_namespace(at, namespace, last_id)
    }

    fn amend(&mut self) {
        self.amends = true;
    }

    fn columns(&mut self, namespace: &str) -> Result<Option<&TableSchema>, SinkError> {
        Ok(self.schema(namespace))
    }
}

/// The row writer of [`SqliteSink`]; without an inserter it swallows a replay.
struct SqliteRowWriter<'s> {
    inserter: Option<Inserter<'s>>,
}

impl RowWriter for SqliteRowWriter<'_> {
    fn write(&mut self, document: &Document<'_>, values: &[Value<'_>]) -> Result<(), SinkError> {
        let Some(inserter) = &mut self.inserter else { return Ok(()) };
        if *inserter.target.transaction == Transaction::Failed {
            return Err(SinkError::RolledBack);
        }
        let result = inserter.row(document, values);
        inserter.settle(result)
    }

    fn finish(mut self: Box<Self>) -> Result<Written, SinkError> {
        let Some(mut inserter) = self.inserter.take() else { return Ok(Written::replay()) };
        if *inserter.target.transaction == Transaction::Failed {
            return Err(SinkError::RolledBack);
        }
        Ok(std::mem::take(&mut inserter.written))
    }
}

impl Drop for SqliteRowWriter<'_> {
    fn drop(&mut self) {
        if let Some(inserter) = &mut self.inserter {
            abandon(inserter.target.connection, inserter.target.transaction);
        }
    }
}
