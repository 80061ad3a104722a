//! Changing the columns of a table that has rows.
//!
//! One `ALTER TABLE` changes all of them; then the documents are read page by page, and the values
//! that are derived from them are written back by an `UPDATE` from arrays. Where a whole number
//! becomes a wider number, the server converts it, and only rows without a value are read.
//!
//! Invariants: all of it belongs to the open transaction; names are quoted, types are those of
//! [`sql_type`](super::tuple::sql_type); memory is limited by a page.

use std::collections::HashMap;

use forebay_sink::schema::Plan;
use forebay_sink::server::job::Jobs as _;
use forebay_sink::{Column, ColumnType, Derive, Field, Position, SinkError, TableSchema, Written};

use super::PostgresSink;
use super::layout::SYSTEM_COLUMNS;
use super::tuple;
use crate::bulk::Encoded;

/// A page of documents: maximum number, and number of bytes after which it ends.
const PAGE_ROWS: u32 = 1_000;
const PAGE_SIZE: u32 = 8 << 20;

/// Whether the server itself turns every value of a column into one of the other type.
pub(super) fn is_cast(from: ColumnType, to: ColumnType) -> bool {
    from == ColumnType::Integer && matches!(to, ColumnType::Real | ColumnType::Decimal)
}

/// The columns whose values have to be derived, and the rows they are missing in.
#[derive(Debug)]
pub(super) struct Missing {
    /// Name and type.
    pub(super) columns: Vec<(String, ColumnType)>,
    /// Whether only rows in which one of them is NULL may lack a value.
    pub(super) is_partial: bool,
    /// For each of the write's fields the index in `columns`.
    fields: HashMap<usize, usize>,
}

impl Missing {
    /// What is missing after a change from `old` to `new`.
    fn between(old: &TableSchema, new: &TableSchema, plan: &Plan) -> Missing {
        let is_changed =
            |column: &Column| old.column(&column.path).is_none_or(|known| known.ty != column.ty);
        let is_converted = |column: &Column| {
            old.column(&column.path).is_some_and(|known| is_cast(known.ty, column.ty))
        };
        let changed: Vec<(usize, &Column)> =
            new.columns().iter().enumerate().filter(|(_, column)| is_changed(column)).collect();
        let is_partial = changed.iter().all(|(_, column)| is_converted(column));
        let fields = plan.slots.iter().enumerate().filter_map(|(field, slot)| {
            let index = changed.iter().position(|(ordinal, _)| Some(*ordinal) == *slot)?;
            Some((field, index))
        });
        let fields = fields.collect();
        let columns = changed.into_iter().map(|(_, it)| (it.name.clone(), it.ty)).collect();
        Missing { columns, is_partial, fields }
    }
}

impl PostgresSink {
    /// See [`RowSink::reshape`](forebay_sink::RowSink::reshape); the transaction is not abandoned
    /// yet.
    pub(super) fn reshape_table(
        &mut self,
        at: Position,
        name: &str,
        fields: &[Field<'_>],
        derive: &mut Derive<'_>,
    ) -> Result<Written, SinkError> {
        if self.book.find(name).is_none() {
            let Some(job) = self.prepare(at, name, fields)? else { return Ok(Written::replay()) };
            return self.finish_job(job);
        }
        if !self.book.admits(at, name)? {
            return Ok(Written::replay());
        }
        self.begin()?;
        self.book.note(at);
        // A connection that was lost has been replaced, and the book with it.
        let Some(index) = self.book.find(name) else {
            return Err(self.session.contents("change columns", format!("{name} is gone")).into());
        };
        self.book.touch(index);
        self.load.flush(&mut self.session, &self.book, index)?;
        self.load.end_copy(&mut self.session)?;
        let Some(namespace) = self.book.namespaces.get_mut(index) else {
            return Ok(Written::default());
        };
        let (schema, plan) = namespace.schema.reshaped(fields, SYSTEM_COLUMNS);
        let missing = Missing::between(&namespace.schema, &schema, &plan);
        let sql = self.session.layout.reshape(namespace, &schema);
        self.session.ask(&format!("change the columns of {name}"), &sql)?;
        self.load.columns_changed(index);
        let has_rows = namespace.row_count > 0;
        namespace.schema = schema;
        if has_rows && !missing.columns.is_empty() {
            self.fill(index, &missing, derive)?;
        }
        Ok(Written { refused: plan.refused, ..Written::default() })
    }

    /// Writes the values that are missing into the rows that are there.
    fn fill(
        &mut self,
        index: usize,
        missing: &Missing,
        derive: &mut Derive<'_>,
    ) -> Result<(), SinkError> {
        let Some(namespace) = self.book.namespaces.get(index) else { return Ok(()) };
        let act = format!("fill the columns of {}", namespace.name);
        let read = self.session.layout.page(namespace, missing, (PAGE_ROWS, PAGE_SIZE));
        let write = self.session.layout.fill(namespace, missing);
        let client = self.session.connected(&act)?;
        let read = self.session.wait(&act, client.prepare(&read))?;
        let write = self.session.wait(&act, client.prepare(&write))?;
        // Ids are 0 or larger.
        let mut after = -1_i64;
        loop {
            let rows = self.session.wait(&act, client.query(&read, &[&after]))?;
            if rows.is_empty() {
                return Ok(());
            }
            let mut ids = Vec::new();
            let mut columns = vec![Vec::new(); missing.columns.len()];
            for row in &rows {
                let odd =
                    |error: tokio_postgres::Error| self.session.contents(&act, error.to_string());
                after = row.try_get(0).map_err(odd)?;
                tuple::put(&after.to_be_bytes(), &mut ids);
                let mut values: Vec<Vec<u8>> = vec![Vec::new(); missing.columns.len()];
                if let Some(document) = row.try_get::<_, Option<&[u8]>>(1).map_err(odd)? {
                    derive(document, &mut |field, value| {
                        let Some(index) = missing.fields.get(&field) else { return };
                        let column = missing.columns.get(*index);
                        if let Some(((_, ty), place)) = column.zip(values.get_mut(*index)) {
                            place.clear();
                            tuple::put_value(*ty, value, place);
                        }
                    });
                }
                for (column, value) in columns.iter_mut().zip(values) {
                    match value.is_empty() {
                        true => tuple::put_null(column),
                        false => column.extend_from_slice(&value),
                    }
                }
            }
            let count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
            let types = missing.columns.iter().map(|(_, ty)| tuple::type_oid(*ty));
            let arrays: Vec<Encoded<Vec<u8>>> = [20]
                .into_iter()
                .chain(types)
                .zip([ids].into_iter().chain(columns))
                .map(|(oid, elements)| {
                    let mut array = Vec::with_capacity(20 + elements.len());
                    tuple::begin_array(oid, count, &mut array);
                    array.extend_from_slice(&elements);
                    Encoded(Some(array))
                })
                .collect();
            self.session.wait(&act, client.execute_raw(&write, arrays))?;
        }
    }
}
