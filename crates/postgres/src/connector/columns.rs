//! The columns of a table that are read, and the expressions that read them.

use forebay_pgcopy::{Column, Wire, catalog};
use forebay_sdk::connector::{Form, Result};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::{StreamSettings, SyncMode};

use super::catalog::{Table, TableColumn};
use super::sql::ident;

/// The columns to read, and their expressions.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) columns: Vec<Column>,
    /// The expressions of the SELECT list.
    pub(super) expressions: Vec<String>,
    /// Whether only a query can read them: they are cast, or generated.
    pub(super) needs_query: bool,
    pub(super) notes: Vec<String>,
}

impl Columns {
    /// The columns of a stream, in the form that is asked for.
    pub(super) fn choose(table: &Table, stream: &StreamSettings, form: Form) -> Result<Self> {
        let chosen: Vec<_> = if stream.columns.is_empty() {
            // Changes do not have generated columns, so the copy before them must not either.
            let is_read =
                |column: &&TableColumn| stream.sync_mode != SyncMode::Cdc || !column.is_generated;
            table.columns.iter().filter(is_read).collect()
        } else {
            let found = stream
                .columns
                .iter()
                .map(|name| table.column(name).ok_or_else(|| no_column(table, name)));
            found.collect::<Result<_>>()?
        };
        if chosen.is_empty() {
            return Err(ConnectorError::unsupported(
                format!("{} has no columns", table.name),
                "remove the stream",
            ));
        }
        let mut columns = Self {
            columns: Vec::with_capacity(chosen.len()),
            expressions: Vec::with_capacity(chosen.len()),
            needs_query: false,
            notes: Vec::new(),
        };
        for column in chosen {
            let is_text_wanted = form == Form::PlainRecords;
            let wire = match form {
                Form::PlainRecords if column.is_nested => Wire::Text,
                Form::Records if column.is_nested => Wire::Opaque,
                _ => catalog::wire(&column.pg_type, !is_text_wanted),
            };
            let is_known =
                !column.is_nested && catalog::wire(&column.pg_type, true) != Wire::Opaque;
            let name = ident(&column.name);
            let sql_type = if is_text_wanted && !is_known {
                columns.needs_query = true;
                let from = &column.pg_type.name;
                columns.notes.push(format!("{}: {from} is read as text", column.name));
                columns.expressions.push(format!("{name}::text"));
                "text".to_owned()
            } else {
                columns.expressions.push(name);
                column.pg_type.name.clone()
            };
            columns.needs_query |= column.is_generated;
            let (name, nullable) = (column.name.clone(), column.nullable);
            columns.columns.push(Column { name, sql_type, wire, nullable });
        }
        Ok(columns)
    }
}

/// An error for a missing column, which lists the existing ones.
pub(super) fn no_column(table: &Table, name: &str) -> ConnectorError {
    let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
    ConnectorError::unsupported(
        format!("{} has no column {name:?}", table.name),
        format!("its columns are {}", names.join(", ")),
    )
}
