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
use crate::quote::literal;

/// The planned changes, and what is written afterwards.
#[derive(Debug)]
pub(super) struct Evolution {
    /// SQL statements.
    pub(super) statements: Vec<String>,
    /// The incoming columns that are written.
    pub(super) written: Vec<Column>,
    /// The incoming columns that the table has afterwards: those that are written, and those that it
    /// generates itself.
    pub(super) compared: Vec<Column>,
    /// Whether it generates any of them.
    pub(super) is_generated: bool,
    /// Whether the rows can be passed through unchanged.
    pub(super) is_same: bool,
}

/// The type of a column, for statements.
pub(super) fn type_of(column: &Column) -> Result<TypeName> {
    parsed(&column.sql_type, &column.name)
}

fn parsed(sql_type: &str, column: &str) -> Result<TypeName> {
    TypeName::parse(sql_type).ok_or_else(|| {
        ConnectorError::unsupported(
            format!("{sql_type:?}, the type of column {column:?}, is not the name of a type"),
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
                evolution.compared.push(column.clone());
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
        let compared = written.clone();
        Self { statements: Vec::new(), written, compared, is_generated: false, is_same: true }
    }

    fn write(&mut self, column: Column) {
        self.compared.push(column.clone());
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
                _ if holds(&there.pg_type.name, &wire, &written) => {}
                _ if widens(&column.wire, &wire) => {
                    written.wire = wire;
                    self.is_same = false;
                }
                TypeChange::Alter => {
                    let of = type_of(column)?;
                    let of = of.sql();
                    // `replace` leaves none of the existing values.
                    if target.write_mode != WriteMode::Replace {
                        let before = parsed(&there.pg_type.name, &column.name)?;
                        let types = (before.sql(), of);
                        self.statements.push(unchanged(name, column, &quoted, types));
                    }
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

/// A statement that fails if a value of the table would not survive the change of its type, such as
/// a text that is cut off or a number that is rounded. The table stays locked until the transaction
/// that changes the type ends, so that no such value is added in between.
fn unchanged(
    name: &TableName,
    column: &Column,
    quoted: &str,
    (before, after): (&str, &str),
) -> String {
    let message = format!(
        "type_change would alter existing values of column {:?} of {name}, as {after} cannot hold them",
        column.name
    );
    let body = format!(
        "begin lock table {table} in access exclusive mode; \
         if exists (select from {table} where ({quoted}::{after})::{before}::text \
         is distinct from {quoted}::text) then \
         raise exception using errcode = 'data_exception', message = {message}; end if; end",
        table = name.sql(),
        message = literal(&message)
    );
    format!("do {}", literal(&body))
}

/// Whether a column of a table can hold every value of the source's.
///
/// * `there`, `wire`: the type of the table's column.
fn holds(there: &str, wire: &Wire, column: &Column) -> bool {
    // What a destination without a type of the source has instead: what a domain is made of.
    let base = catalog::built_in(&column.wire).map(|(base, _)| base);
    let base = base.as_deref().unwrap_or(&column.sql_type);
    *wire == column.wire && (!narrows(there) || there == base)
        || is_longer(there, &column.sql_type)
        || is_longer(there, base)
}

/// Whether a type is another one with a greater length or precision, so that it can hold all of its
/// values: `varchar(9)` those of `varchar(5)`, `numeric(6,2)` those of `numeric(5,2)`, `timestamp(3)`
/// those of `timestamp(0)`, and `numeric` all numbers. The format on the wire is the same.
fn is_longer(there: &str, source: &str) -> bool {
    /// The name without its numbers, and these.
    fn parts(name: &str) -> Option<(String, Vec<u32>)> {
        let Some((word, rest)) = name.split_once('(') else {
            return Some((name.into(), Vec::new()));
        };
        let (numbers, after) = rest.split_once(')')?;
        let numbers = numbers.split(',').map(|number| number.trim().parse().ok());
        Some((format!("{word}{after}"), numbers.collect::<Option<_>>()?))
    }
    let (Some((word, there)), Some((other, source))) = (parts(there), parts(source)) else {
        return false;
    };
    let is_known = matches!(
        word.as_str(),
        "character varying"
            | "numeric"
            | "time without time zone"
            | "time with time zone"
            | "timestamp without time zone"
            | "timestamp with time zone"
            | "bit varying"
    );
    is_known
        && word == other
        && match (there.as_slice(), source.as_slice()) {
            ([], _) => true,
            ([there], [source]) => there >= source,
            // With more digits after the point the server would return zeros that were not sent.
            ([precision, scale], [of, digits]) => scale == digits && precision >= of,
            _ => false,
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
    use Wire::{Decimal, Float4, Float8, Int2, Int4, Int8, Jsonb, Numeric, Text};
    /// Digits of the greatest value.
    fn digits(integer: &Wire) -> Option<i16> {
        match integer {
            Int2 => Some(5),
            Int4 => Some(10),
            Int8 => Some(19),
            _ => None,
        }
    }
    match (from, to) {
        (Int2, Int4 | Int8) | (Int4, Int8) | (Float4, Float8) | (Jsonb, Text) => true,
        // A `real` has 24 bits for the digits of a number, a `double precision` 53.
        (Int2, Float4) | (Int2 | Int4, Float8) => true,
        (from, Numeric) => digits(from).is_some(),
        (from, Decimal { precision, scale }) => {
            digits(from).is_some_and(|digits| i16::from(*precision) - i16::from(*scale) >= digits)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_type_with_room_for_every_integer_holds_them() {
        use Wire::{Decimal, Float4, Float8, Int2, Int4, Int8, Numeric};
        let decimal = |precision, scale| Decimal { precision, scale };
        for (from, to, expected) in [
            (Int8, Numeric, true),
            (Int4, decimal(12, 2), true),
            (Int4, decimal(11, 2), false),
            (Int8, decimal(19, 0), true),
            (Int4, Float8, true),
            (Int8, Float8, false),
            (Int2, Float4, true),
            (Int4, Float4, false),
            (Float8, Numeric, false),
            (Numeric, Int8, false),
        ] {
            assert_eq!(widens(&from, &to), expected, "{from:?} to {to:?}");
        }
    }

    #[test]
    fn a_longer_type_holds_every_value_of_a_shorter_one() {
        for (there, source, expected) in [
            ("character varying(9)", "character varying(5)", true),
            ("character varying(5)", "character varying(5)", true),
            ("character varying(4)", "character varying(5)", false),
            ("character varying(4)", "character varying", false),
            ("character(9)", "character(5)", false),
            ("character varying(9)", "character(5)", false),
            ("numeric", "numeric(5,2)", true),
            ("numeric(6,2)", "numeric(5,2)", true),
            ("numeric(6,3)", "numeric(5,2)", false),
            ("numeric(5,2)", "numeric", false),
            ("timestamp(3) without time zone", "timestamp(0) without time zone", true),
            ("timestamp(3) with time zone", "timestamp(0) without time zone", false),
            ("timestamp without time zone", "timestamp(0) without time zone", true),
            ("public.mood(3)", "public.mood(2)", false),
        ] {
            assert_eq!(is_longer(there, source), expected, "{there} for {source}");
        }
    }
}
