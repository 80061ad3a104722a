//! Statements that give a destination's table the columns of its source, as `schema_evolution` allows.
//!
//! Invariant: a step that was done already, by the copy or before a failure, has no statements.

use forebay_pgcopy::TypeName;
use forebay_sdk::changes::feed::ColumnStep;
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::{NewColumn, RemovedColumn, SchemaEvolution, TypeChange};

use super::super::catalog::TableColumn;
use super::super::sql::{TableName, ident, literal};

/// A table whose columns change.
pub(super) struct Altering<'a> {
    pub(super) name: &'a TableName,
    /// Its columns as they are.
    pub(super) there: &'a [TableColumn],
    pub(super) policy: SchemaEvolution,
}

impl Altering<'_> {
    /// The statements of a step.
    ///
    /// # Errors
    /// `schema_evolution` forbids it, or the type is not the name of one.
    pub(super) fn statements(&self, step: &ColumnStep) -> Result<Vec<String>> {
        match step {
            ColumnStep::Rename { from, to } => self.rename(from, to),
            ColumnStep::Add { name, sql_type, existing } => {
                self.add(name, sql_type, existing.as_deref())
            }
            ColumnStep::Retype { name, sql_type } => self.retype(name, sql_type),
            ColumnStep::Drop { name } => self.drop(name),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<Vec<String>> {
        if self.known(to).is_some() && self.known(from).is_none() {
            return Ok(Vec::new());
        }
        if self.policy.new_column != NewColumn::Add {
            let what = format!("column {from:?} was renamed to {to:?}");
            return Err(self.forbidden(&what, "new_column: add"));
        }
        Ok(vec![format!("{} rename column {} to {}", self.alter(), ident(from), ident(to))])
    }

    fn add(&self, column: &str, sql_type: &str, existing: Option<&str>) -> Result<Vec<String>> {
        if self.has(column, sql_type) {
            return Ok(Vec::new());
        }
        if self.policy.new_column != NewColumn::Add {
            let what = format!("column {column:?} was added");
            return Err(self.forbidden(&what, "new_column: add"));
        }
        let (alter, quoted, of) =
            (self.alter(), ident(column), parsed(self.name, sql_type, column)?);
        Ok(match existing {
            None => vec![format!("{alter} add column {quoted} {of}")],
            Some(value) => vec![
                format!("{alter} add column {quoted} {of} default {}", literal(value)),
                format!("{alter} alter column {quoted} drop default"),
            ],
        })
    }

    fn retype(&self, column: &str, sql_type: &str) -> Result<Vec<String>> {
        if self.has(column, sql_type) {
            return Ok(Vec::new());
        }
        if self.policy.type_change != TypeChange::Alter {
            let what = format!("column {column:?} has the type {sql_type} now");
            return Err(self.forbidden(&what, "type_change: alter"));
        }
        let (alter, quoted, of) =
            (self.alter(), ident(column), parsed(self.name, sql_type, column)?);
        Ok(vec![format!("{alter} alter column {quoted} type {of} using {quoted}::{of}")])
    }

    fn drop(&self, column: &str) -> Result<Vec<String>> {
        if self.policy.removed_column == RemovedColumn::Fail {
            let what = format!("column {column:?} was dropped");
            return Err(self.forbidden(&what, "removed_column: ignore"));
        }
        // Later rows have no value of it.
        let is_needed = self.known(column).is_some_and(|known| !known.nullable);
        let relax = || format!("{} alter column {} drop not null", self.alter(), ident(column));
        Ok(is_needed.then(relax).into_iter().collect())
    }

    fn alter(&self) -> String {
        format!("alter table {}", self.name.sql())
    }

    fn known(&self, column: &str) -> Option<&TableColumn> {
        self.there.iter().find(|known| known.name == column)
    }

    fn has(&self, column: &str, sql_type: &str) -> bool {
        self.known(column).is_some_and(|known| known.pg_type.name == sql_type)
    }

    fn forbidden(&self, what: &str, setting: &str) -> ConnectorError {
        ConnectorError::unsupported(
            format!("{}: {what} at the source", self.name),
            format!("change the table likewise, or set `schema_evolution.{setting}`"),
        )
    }
}

/// The type of a column, in SQL. It comes from the source.
///
/// # Errors
/// It is not the name of a type.
pub(super) fn parsed(table: &TableName, sql_type: &str, column: &str) -> Result<String> {
    TypeName::parse(sql_type).map(|of| of.sql().to_owned()).ok_or_else(|| {
        ConnectorError::data(
            table.to_string(),
            format!("{sql_type:?}, the type of column {column:?}, is not the name of a type"),
        )
    })
}
