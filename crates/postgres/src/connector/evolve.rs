//! The changes to a table that are needed to store rows with other columns.
//!
//! Invariant: the types of statements are parsed ([`TypeName`]). A name from a file's metadata is
//! never part of a statement.

use forebay_pgcopy::{Column, TypeName, Wire, catalog};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::{
    NewColumn, NullabilityChange, RemovedColumn, TargetSettings, TypeChange, WriteMode,
};

use super::catalog::Table;
use super::sql::{TableName, ident, idents};

/// The planned changes, and what is written afterwards.
#[derive(Debug)]
pub(super) struct Evolution {
    /// SQL statements.
    pub(super) statements: Vec<String>,
    /// The incoming columns that are written.
    pub(super) written: Vec<Column>,
    /// The incoming columns that the table has afterwards: those that are written, and those that it
    /// generates itself.
    pub(super) compared: Vec<String>,
    /// Whether it generates any of them.
    pub(super) is_generated: bool,
    /// Whether the rows can be passed through unchanged.
    pub(super) is_same: bool,
}

/// The type of a column, for statements.
pub(super) fn type_of(column: &Column) -> Result<TypeName> {
    TypeName::parse(&column.sql_type).ok_or_else(|| {
        ConnectorError::unsupported(
            format!(
                "{:?}, the type of column {:?}, is not the name of a type",
                column.sql_type, column.name
            ),
            "exclude the column with `columns`, or cast it in a transform",
        )
    })
}

/// The CREATE TABLE for columns of these types.
pub(super) fn create(
    name: &TableName,
    columns: &[Column],
    types: &[TypeName],
    key: &[String],
) -> String {
    let mut parts: Vec<String> = columns
        .iter()
        .zip(types)
        .map(|(column, of)| {
            let is_key = key.contains(&column.name);
            let not_null = if column.nullable && !is_key { "" } else { " not null" };
            format!("{} {}{not_null}", ident(&column.name), of.sql())
        })
        .collect();
    if !key.is_empty() {
        parts.push(format!("primary key ({})", idents(key.iter().map(String::as_str))));
    }
    format!("create table {} ({})", name.sql(), parts.join(", "))
}

/// Determines the changes to `table`.
pub(super) fn evolve(
    table: &Table,
    columns: &[Column],
    target: &TargetSettings,
) -> Result<Evolution> {
    let mut evolution = Evolution::none(Vec::new());
    let name = &table.name;
    for column in columns {
        match table.column(&column.name) {
            None => evolution.add(name, column, target)?,
            Some(there) if there.is_generated => {
                evolution.is_same = false;
                evolution.is_generated = true;
                evolution.compared.push(column.name.clone());
            }
            Some(there) => {
                evolution.meet(table, column, there, target)?;
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
            format!("{name} has a column {:?} that the source lacks", removed.name),
            "drop it, or set `schema_evolution.removed_column: ignore`",
        ));
    }
    if target.write_mode == WriteMode::Upsert && !has_unique(table, &target.primary_key) {
        return Err(ConnectorError::unsupported(
            format!("{name} has no unique index on ({})", target.primary_key.join(", ")),
            "create one: an upsert needs it to find existing rows",
        ));
    }
    if evolution.written.is_empty() {
        return Err(ConnectorError::unsupported(
            format!("{name} has none of the source's columns"),
            "set `schema_evolution.new_column: add`",
        ));
    }
    Ok(evolution)
}

/// Whether these columns are unique.
fn has_unique(table: &Table, key: &[String]) -> bool {
    table
        .unique
        .iter()
        .any(|unique| unique.len() == key.len() && unique.iter().all(|column| key.contains(column)))
}

impl Evolution {
    /// No change: these columns are written.
    pub(super) fn none(written: Vec<Column>) -> Self {
        let compared = written.iter().map(|column| column.name.clone()).collect();
        Self { statements: Vec::new(), written, compared, is_generated: false, is_same: true }
    }

    fn write(&mut self, column: Column) {
        self.compared.push(column.name.clone());
        self.written.push(column);
    }

    /// A column that the table lacks.
    fn add(&mut self, name: &TableName, column: &Column, target: &TargetSettings) -> Result<()> {
        match target.schema_evolution.new_column {
            NewColumn::Add => {
                // Existing rows have no value for it.
                let (quoted, of) = (ident(&column.name), type_of(column)?);
                let of = of.sql();
                self.statements
                    .push(format!("alter table {} add column {quoted} {of}", name.sql()));
                self.write(column.clone());
            }
            NewColumn::Ignore => self.is_same = false,
            NewColumn::Fail => {
                return Err(ConnectorError::unsupported(
                    format!("{name} lacks the source's column {:?}", column.name),
                    "add it, or set `schema_evolution.new_column` to `add` or `ignore`",
                ));
            }
        }
        Ok(())
    }

    /// A column that both have.
    fn meet(
        &mut self,
        table: &Table,
        column: &Column,
        there: &super::catalog::TableColumn,
        target: &TargetSettings,
    ) -> Result<()> {
        let name = &table.name;
        let quoted = ident(&column.name);
        let mut written = column.clone();
        let here = catalog::wire(&there.pg_type, true);
        if let (Wire::Array { element, element_oid }, Wire::Array { element: of, .. }) =
            (&here, &column.wire)
            && element == of
            && here != column.wire
        {
            // User-defined types have other OIDs on every server; arrays contain those of their
            // elements.
            tracing::debug!(column = column.name, element_oid, "elements are renumbered");
            written.wire = here.clone();
            self.is_same = false;
        }
        if there.pg_type.name != column.sql_type {
            let wire = here;
            match target.schema_evolution.type_change {
                // The table's type can hold every value of the source's.
                _ if wire == written.wire && !narrows(&there.pg_type.name) => {}
                _ if widens(&column.wire, &wire) => {
                    written.wire = wire;
                    self.is_same = false;
                }
                TypeChange::Alter => {
                    let of = type_of(column)?;
                    let of = of.sql();
                    self.statements.push(format!(
                        "alter table {} alter column {quoted} type {of} using {quoted}::{of}",
                        name.sql()
                    ));
                }
                TypeChange::Fail => {
                    let (here, from) = (&there.pg_type.name, &column.sql_type);
                    return Err(ConnectorError::unsupported(
                        format!(
                            "column {:?} of {name} is {here}, but {from} in the source",
                            column.name
                        ),
                        "cast it in a transform, or set `schema_evolution.type_change: alter`",
                    ));
                }
            }
        }
        // A key stays: a row without a value of it is refused like any other that violates a constraint.
        let is_key = |key: &[String]| key.contains(&column.name);
        let is_key = is_key(&target.primary_key) || is_key(&table.primary_key);
        if column.nullable && !there.nullable && !is_key {
            match target.schema_evolution.nullability_change {
                NullabilityChange::Allow => self.statements.push(format!(
                    "alter table {} alter column {quoted} drop not null",
                    name.sql()
                )),
                NullabilityChange::Fail => {
                    return Err(ConnectorError::unsupported(
                        format!(
                            "column {:?} of {name} is NOT NULL, but nullable in the source",
                            column.name
                        ),
                        "set `schema_evolution.nullability_change: allow`",
                    ));
                }
            }
        }
        self.write(written);
        Ok(())
    }
}

/// Whether a type with the same wire format may still refuse values: `varchar(5)`, `numeric(5,2)`,
/// a domain.
fn narrows(name: &str) -> bool {
    // An array behaves like its elements.
    let name = name.trim_end_matches("[]");
    let whole =
        ["text", "character varying", "numeric", "jsonb", "json", "bytea", "boolean", "smallint"];
    let more = ["integer", "bigint", "real", "double precision", "date", "uuid"];
    let times = ["timestamp without time zone", "timestamp with time zone"];
    !whole.iter().chain(&more).chain(&times).any(|of| *of == name)
}

/// Whether every value of one type is valid for the other.
fn widens(from: &Wire, to: &Wire) -> bool {
    use Wire::{Float4, Float8, Int2, Int4, Int8, Jsonb, Text};
    matches!((from, to), (Int2, Int4 | Int8) | (Int4, Int8) | (Float4, Float8) | (Jsonb, Text))
}
