//! What has to be done to a table so that rows of other columns go into it.

use forebay_pgcopy::{Column, Wire, catalog};

use super::catalog::Table;
use super::sql::{TableName, ident, idents};
use crate::config::{
    NewColumn, NullabilityChange, RemovedColumn, TargetSettings, TypeChange, WriteMode,
};
use crate::connector::Result;
use crate::error::ConnectorError;

/// What will be done, and what is written then.
#[derive(Debug)]
pub(super) struct Evolution {
    /// SQL, a statement each.
    pub(super) statements: Vec<String>,
    /// Which of the columns that come are written.
    pub(super) written: Vec<Column>,
    /// Whether what comes can be handed over as it is.
    pub(super) is_same: bool,
}

/// The CREATE TABLE for columns.
pub(super) fn create(name: &TableName, columns: &[Column], key: &[String]) -> String {
    let mut parts: Vec<String> = columns
        .iter()
        .map(|column| {
            let is_key = key.contains(&column.name);
            let not_null = if column.nullable && !is_key { "" } else { " not null" };
            format!("{} {}{not_null}", ident(&column.name), column.sql_type)
        })
        .collect();
    if !key.is_empty() {
        parts.push(format!("primary key ({})", idents(key.iter().map(String::as_str))));
    }
    format!("create table {} ({})", name.sql(), parts.join(", "))
}

/// What has to be done to `table`.
pub(super) fn evolve(
    table: &Table,
    columns: &[Column],
    target: &TargetSettings,
) -> Result<Evolution> {
    let mut evolution = Evolution { statements: Vec::new(), written: Vec::new(), is_same: true };
    let name = &table.name;
    for column in columns {
        match table.column(&column.name) {
            None => evolution.add(name, column, target)?,
            Some(there) if there.is_generated => evolution.is_same = false,
            Some(there) => {
                evolution.meet(name, column, there, target)?;
            }
        }
    }
    let is_removed = |there: &&super::catalog::TableColumn| {
        !there.is_generated && !columns.iter().any(|column| column.name == there.name)
    };
    if let Some(removed) = table.columns.iter().find(is_removed)
        && target.schema_evolution.removed_column == RemovedColumn::Fail
    {
        return Err(ConnectorError::unsupported(
            format!("{name} has a column {:?} that the source has not", removed.name),
            "drop it, or set schema_evolution.removed_column: ignore",
        ));
    }
    if target.write_mode == WriteMode::Upsert && !has_unique(table, &target.primary_key) {
        return Err(ConnectorError::unsupported(
            format!("{name} has no unique index on ({})", target.primary_key.join(", ")),
            "create one: an upsert needs it to find the rows that are there",
        ));
    }
    if evolution.written.is_empty() {
        return Err(ConnectorError::unsupported(
            format!("{name} has none of the source's columns"),
            "set schema_evolution.new_column: add",
        ));
    }
    Ok(evolution)
}

/// Whether no two rows can have the same values in these columns.
fn has_unique(table: &Table, key: &[String]) -> bool {
    table
        .unique
        .iter()
        .any(|unique| unique.len() == key.len() && unique.iter().all(|column| key.contains(column)))
}

impl Evolution {
    /// A column the table has not.
    fn add(&mut self, name: &TableName, column: &Column, target: &TargetSettings) -> Result<()> {
        match target.schema_evolution.new_column {
            NewColumn::Add => {
                // Rows that are there have nothing in it.
                let (quoted, of) = (ident(&column.name), &column.sql_type);
                self.statements
                    .push(format!("alter table {} add column {quoted} {of}", name.sql()));
                self.written.push(column.clone());
            }
            NewColumn::Ignore => self.is_same = false,
            NewColumn::Fail => {
                return Err(ConnectorError::unsupported(
                    format!("{name} has no column {:?}, which the source has", column.name),
                    "add it, or set schema_evolution.new_column: add or ignore",
                ));
            }
        }
        Ok(())
    }

    /// A column both have.
    fn meet(
        &mut self,
        name: &TableName,
        column: &Column,
        there: &super::catalog::TableColumn,
        target: &TargetSettings,
    ) -> Result<()> {
        let quoted = ident(&column.name);
        let mut written = column.clone();
        let here = catalog::wire(&there.pg_type, true);
        if let (Wire::Array { element, element_oid }, Wire::Array { element: of, .. }) =
            (&here, &column.wire)
            && element == of
            && here != column.wire
        {
            // Types of users have other numbers on every server; arrays carry those of their elements.
            tracing::debug!(column = column.name, element_oid, "elements are renumbered");
            written.wire = here.clone();
            self.is_same = false;
        }
        if there.pg_type.name != column.sql_type {
            let wire = here;
            match target.schema_evolution.type_change {
                // Its own type holds every value of the source's.
                _ if wire == written.wire && !narrows(&there.pg_type.name) => {}
                _ if widens(&column.wire, &wire) => {
                    written.wire = wire;
                    self.is_same = false;
                }
                TypeChange::Alter => {
                    let of = &column.sql_type;
                    self.statements.push(format!(
                        "alter table {} alter column {quoted} type {of} using {quoted}::{of}",
                        name.sql()
                    ));
                }
                TypeChange::Fail => {
                    let (here, from) = (&there.pg_type.name, &column.sql_type);
                    return Err(ConnectorError::unsupported(
                        format!(
                            "column {:?} of {name} is {here}, in the source it is {from}",
                            column.name
                        ),
                        "cast it in a transform, or set schema_evolution.type_change: alter",
                    ));
                }
            }
        }
        if column.nullable && !there.nullable && !target.primary_key.contains(&column.name) {
            match target.schema_evolution.nullability_change {
                NullabilityChange::Allow => self.statements.push(format!(
                    "alter table {} alter column {quoted} drop not null",
                    name.sql()
                )),
                NullabilityChange::Fail => {
                    return Err(ConnectorError::unsupported(
                        format!(
                            "column {:?} of {name} may not be NULL, in the source it may",
                            column.name
                        ),
                        "set schema_evolution.nullability_change: allow",
                    ));
                }
            }
        }
        self.written.push(written);
        Ok(())
    }
}

/// Whether a type of the same wire form may still refuse values: `varchar(5)`, `numeric(5,2)`, a domain.
fn narrows(name: &str) -> bool {
    // An array does what its elements do.
    let name = name.trim_end_matches("[]");
    let whole =
        ["text", "character varying", "numeric", "jsonb", "json", "bytea", "boolean", "smallint"];
    let more = ["integer", "bigint", "real", "double precision", "date", "uuid"];
    let times = ["timestamp without time zone", "timestamp with time zone"];
    !whole.iter().chain(&more).chain(&times).any(|of| *of == name)
}

/// Whether every value of one form is one of the other.
fn widens(from: &Wire, to: &Wire) -> bool {
    use Wire::{Float4, Float8, Int2, Int4, Int8, Jsonb, Text};
    matches!((from, to), (Int2, Int4 | Int8) | (Int4, Int8) | (Float4, Float8) | (Jsonb, Text))
}
