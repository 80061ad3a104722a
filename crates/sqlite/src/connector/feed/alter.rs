//! A table gets the columns of its source, as `schema_evolution` allows.
//!
//! Invariant: a step that was done already, by the copy or before a failure, changes nothing.

use forebay_pgcopy::Column;
use forebay_sdk::changes::decoded::existing;
use forebay_sdk::changes::feed::{ColumnStep, FeedColumn};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::{NewColumn, RemovedColumn, TargetSettings};
use forebay_sdk::values::write::Cells;
use rusqlite::Connection;

use super::super::layout::{self, Declared};
use super::super::writer::bound;
use super::super::{Database, quoted, values};
use super::table::column;

/// A table whose columns change.
pub(super) struct Altering<'a> {
    pub(super) database: &'a Database,
    pub(super) connection: &'a Connection,
    pub(super) target: &'a TargetSettings,
}

impl Altering<'_> {
    /// Takes a step.
    ///
    /// * `now`: the columns of the stream after all steps.
    ///
    /// # Errors
    /// `schema_evolution` forbids it, or SQLite cannot do it.
    pub(super) fn take(&self, step: &ColumnStep, now: &[FeedColumn]) -> Result<()> {
        let there = layout::declared(self.connection, &self.target.into);
        let there = there.map_err(|error| self.database.failed("read the schema of", error))?;
        let known = |name: &str| there.iter().find(|known| known.name.eq_ignore_ascii_case(name));
        let evolution = self.target.schema_evolution;
        match step {
            ColumnStep::Rename { from, to } => {
                if known(to).is_some() && known(from).is_none() {
                    return Ok(());
                }
                if evolution.new_column != NewColumn::Add {
                    let what = format!("column {from:?} was renamed to {to:?}");
                    return Err(self.forbidden(&what, "set `schema_evolution.new_column: add`"));
                }
                let (from, to) = (quoted(from), quoted(to));
                self.alter(&format!("RENAME COLUMN {from} TO {to}"))
            }
            ColumnStep::Add { name, existing, .. } => {
                let column = self.column(name, now)?;
                if known(name).is_some_and(|known| is_same(known, &column)) {
                    return Ok(());
                }
                if evolution.new_column != NewColumn::Add {
                    let what = format!("column {name:?} was added");
                    return Err(self.forbidden(&what, "set `schema_evolution.new_column: add`"));
                }
                let declaration = values::declaration(&column);
                self.alter(&format!("ADD COLUMN {} {declaration}", quoted(name)))?;
                match existing {
                    Some(text) => self.fill(&column, text),
                    None => Ok(()),
                }
            }
            ColumnStep::Retype { name, sql_type } => {
                let column = self.column(name, now)?;
                // SQLite enforces neither a length nor the size of an integer.
                if known(name).is_some_and(|known| is_same(known, &column)) {
                    return Ok(());
                }
                let what = format!("column {name:?} has the type {sql_type} now");
                Err(self.forbidden(&what, "run with `--from-scratch`"))
            }
            ColumnStep::Drop { name } => match known(name) {
                _ if evolution.removed_column == RemovedColumn::Fail => {
                    let what = format!("column {name:?} was dropped");
                    Err(self.forbidden(&what, "set `schema_evolution.removed_column: ignore`"))
                }
                // Later rows have no value of it.
                Some(known) if !known.nullable => {
                    let what = format!("column {name:?}, which is NOT NULL, was dropped");
                    Err(self.forbidden(&what, "run with `--from-scratch`"))
                }
                _ => Ok(()),
            },
        }
    }

    fn column(&self, name: &str, now: &[FeedColumn]) -> Result<Column> {
        let found = now.iter().find(|column| column.name == name);
        let found = found.ok_or_else(|| {
            let found = format!("column {name:?} is not among those of the stream");
            ConnectorError::data(&*self.target.into, found)
        })?;
        column(&self.target.into, found)
    }

    fn alter(&self, step: &str) -> Result<()> {
        let alter = format!("ALTER TABLE {} {step}", quoted(&self.target.into));
        let done = self.connection.execute_batch(&alter);
        done.map_err(|error| self.database.failed("change the columns of a table of", error))
    }

    /// Gives a value to the rows that are there.
    fn fill(&self, column: &Column, value: &str) -> Result<()> {
        let array = existing(&self.target.into, column, value)?;
        let (cells, mut text) = (Cells::new(array.as_ref(), column)?, Vec::new());
        let (table, name) = (quoted(&self.target.into), quoted(&column.name));
        let update = format!("UPDATE {table} SET {name} = ?1");
        let done = self.connection.execute(&update, [bound(&cells, 0, &mut text)]);
        let failed = |error| self.database.failed("change the columns of a table of", error);
        done.map(drop).map_err(failed)
    }

    fn forbidden(&self, what: &str, way_out: &str) -> ConnectorError {
        ConnectorError::unsupported(
            format!("{}: {what} at the source", self.target.into),
            format!("change the table likewise, or {way_out}"),
        )
    }
}

/// Whether a column is declared as the copy declares it.
fn is_same(there: &Declared, column: &Column) -> bool {
    there.type_name.eq_ignore_ascii_case(&values::declared(column))
}
