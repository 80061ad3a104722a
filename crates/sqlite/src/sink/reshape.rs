//! Changing the columns of a namespace that has rows.
//!
//! The table is made again beside the old one and takes its name, since SQLite keeps the type that a
//! column was declared with. Values are derived from the documents again; the checksum of each row,
//! and the namespace's digest, change with them.
//!
//! Invariants: all of it is one transaction with what is written beside it; a row that did not match
//! its checksum does not match it afterwards either, and one that was missing is still missed, since
//! the digest changes by the rows that are there; indexes and triggers of others are made again.

use forebay_base::rows::RowHasher;
use forebay_pgcopy::quote_identifier;
use forebay_sink::column::Fit;
use forebay_sink::schema::Plan;
use forebay_sink::{Column, Derive, Field, Position, SinkError, TableSchema, Written};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};

use super::fault::{Checked, Fault, sink_error};
use super::layout::{self, Namespace};
use super::rows::{self, at};
use super::{SqliteSink, abandon, history, state};

/// The new table until it takes the name of the old one. No namespace's table has this name.
const NEW_TABLE: &str = "_forebay_reshaped";

impl SqliteSink {
    /// See [`RowSink::reshape`](forebay_sink::RowSink::reshape).
    pub(super) fn reshape_namespace(
        &mut self,
        at: Position,
        name: &str,
        fields: &[Field<'_>],
        derive: &mut Derive<'_>,
    ) -> Result<Written, SinkError> {
        let reshaped = self.enter(at, name).and_then(|is_new| {
            if !is_new {
                return Ok(Written::replay());
            }
            let plan = self.reshape_table(at, name, fields, derive);
            let plan = plan.map_err(|fault| sink_error("change columns", &self.path, fault))?;
            Ok(Written { refused: plan.refused, ..Written::default() })
        });
        if reshaped.is_err() {
            abandon(&self.connection, &mut self.transaction);
        }
        reshaped
    }

    fn reshape_table(
        &mut self,
        at: Position,
        name: &str,
        fields: &[Field<'_>],
        derive: &mut Derive<'_>,
    ) -> Checked<Plan> {
        if !self.namespaces.contains_key(name) {
            return Ok(self.grow_columns(at, name, fields)?);
        }
        self.touch(name);
        let moment = self.moment(at);
        let Some(namespace) = self.namespaces.get_mut(name) else { return Ok(Plan::default()) };
        let (schema, plan) = super::reshaped(&namespace.schema, fields);
        if schema == namespace.schema && namespace.row.rows.count == 0 {
            return Ok(plan);
        }
        // The column of each field, for the values that are derived.
        let ordinals: Vec<Option<usize>> = plan.slots.clone();
        make_again(&self.connection, namespace, &schema, &ordinals, derive)?;
        state::replace_columns(&self.connection, name, &schema)?;
        history::record(&self.connection, &namespace.row, moment, &namespace.schema, &schema)?;
        namespace.schema = schema;
        namespace.row.rewritten_at = Some(at.0);
        namespace.reshaped = true;
        namespace.prepare_insert();
        Ok(plan)
    }
}

/// Makes the table of a namespace with the columns of `schema`, and changes the digest of its rows.
pub(super) fn make_again(
    connection: &Connection,
    namespace: &mut Namespace,
    schema: &TableSchema,
    ordinals: &[Option<usize>],
    derive: &mut Derive<'_>,
) -> Checked<()> {
    let table = namespace.row.table.clone();
    let dependents = dependents(connection, &table)?;
    connection.execute_batch(&layout::create_table(NEW_TABLE, schema.columns()))?;
    fill(connection, namespace, schema, ordinals, derive)?;
    connection.execute_batch(&format!("DROP TABLE {}", quote_identifier(&table)))?;
    // Views that name the table are left as they are instead of being checked without it.
    let setting = DbConfig::SQLITE_DBCONFIG_LEGACY_ALTER_TABLE;
    connection.set_db_config(setting, true)?;
    let renamed = connection
        .execute_batch(&format!("ALTER TABLE {NEW_TABLE} RENAME TO {}", quote_identifier(&table)));
    connection.set_db_config(setting, false)?;
    renamed?;
    for sql in dependents {
        connection.execute(&sql, [])?;
    }
    Ok(())
}

/// The SQL of indexes and triggers that others have made for a table.
fn dependents(connection: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(
        "SELECT sql FROM sqlite_schema
         WHERE tbl_name = ?1 AND type IN ('index', 'trigger') AND sql IS NOT NULL",
    )?;
    let found = statement.query_map([table], |row| row.get(0))?;
    found.collect()
}

/// Writes every row of a namespace into the new table.
fn fill(
    connection: &Connection,
    namespace: &mut Namespace,
    schema: &TableSchema,
    ordinals: &[Option<usize>],
    derive: &mut Derive<'_>,
) -> Checked<()> {
    let row = &mut namespace.row;
    let old = namespace.schema.columns();
    // The former columns of those that stay.
    let kept: Vec<Option<usize>> = schema
        .columns()
        .iter()
        .map(|column| old.iter().position(|known| known.path == column.path))
        .collect();
    let select = format!("{} ORDER BY _id", rows::select(&row.table, &namespace.schema));
    let mut select = connection.prepare(&select)?;
    let mut insert = connection.prepare(&layout::insert_into(NEW_TABLE, schema))?;
    let mut stored = select.query([])?;
    let mut hasher = RowHasher::default();
    while let Some(stored) = stored.next()? {
        let verified = match rows::verify(&mut hasher, &row.name, stored, old.len()) {
            Ok((_, checksum)) => Some(checksum),
            Err(Fault::Damaged(_)) => None,
            Err(fault) => return Err(fault),
        };
        let document = match stored.get_ref(at::DOCUMENT)? {
            ValueRef::Text(document) | ValueRef::Blob(document) => Some(document),
            _ => None,
        };
        let mut values = vec![Value::Null; schema.columns().len()];
        match document.filter(|_| verified.is_some()) {
            Some(document) => derive(document, &mut |field, value| {
                let Some(ordinal) = ordinals.get(field).copied().flatten() else { return };
                let column = schema.columns().get(ordinal);
                if let Some((Column { ty, .. }, place)) = column.zip(values.get_mut(ordinal)) {
                    *place = owned(&ty.fit(value));
                }
            }),
            // A damaged row stays as it is, and so does one without a document.
            None => {
                for (place, kept) in values.iter_mut().zip(&kept) {
                    if let Some(kept) = kept {
                        *place = stored.get(at::COLUMNS + kept)?;
                    }
                }
            }
        }
        let checksum = match verified {
            None => stored.get(at::CHECKSUM)?,
            Some(before) => {
                let (id, received) = (stored.get(at::ID)?, stored.get(at::RECEIVED)?);
                rows::start(&mut hasher, &row.name, id, received, stored.get_ref(at::DOCUMENT)?);
                for (ordinal, value) in values.iter().enumerate() {
                    rows::held(&mut hasher, ordinal, value.into());
                }
                row.rows.remove(before);
                row.rows.insert(hasher.finish());
                Value::Integer(hasher.finish().cast_signed())
            }
        };
        for (parameter, index) in [(1, at::ID), (2, at::RECEIVED), (3, at::DOCUMENT)] {
            insert.raw_bind_parameter(parameter, ToSqlOutput::Borrowed(stored.get_ref(index)?))?;
        }
        insert.raw_bind_parameter(4, checksum)?;
        for (parameter, value) in (5..).zip(values) {
            insert.raw_bind_parameter(parameter, value)?;
        }
        insert.raw_execute()?;
    }
    Ok(())
}

/// What a column stores.
fn owned(fit: &Fit<'_>) -> Value {
    match fit {
        Fit::Null | Fit::Conflict => Value::Null,
        Fit::Integer(value) => Value::Integer(*value),
        Fit::Real(value) => Value::Real(*value),
        Fit::Text(text) => Value::Text(text.clone().into_owned()),
        Fit::Bytes(bytes) => Value::Blob(bytes.to_vec()),
    }
}
