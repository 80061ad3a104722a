//! The columns of a table: as declared, and as found where SQLite does not enforce types.
//!
//! Any column of a table that is not `STRICT` may contain any value, so the whole table is examined
//! once, in the transaction that is read later. If the values differ from the declaration, the
//! column has the type of the values, or text if they are mixed.

use std::collections::BTreeMap;

use forebay_pgcopy::{Column, Wire};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::values::read::Builder;
use forebay_sdk::values::types;
use rusqlite::{Connection, Row};

use super::{quoted, quoted_list, values};

/// A table or view that can be read as a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) name: String,
    pub(super) has_rowid: bool,
    is_strict: bool,
}

/// A declared column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Declared {
    pub(super) name: String,
    pub(super) type_name: String,
    pub(super) nullable: bool,
    /// Its index in the primary key, from 1; 0 if it is not part of it.
    pub(super) key: u32,
}

/// The kinds of values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct ValueKinds {
    integer: bool,
    real: bool,
    text: bool,
    blob: bool,
    min: Option<i64>,
    max: Option<i64>,
}

/// All tables and views, except SQLite's own and the ledger's.
pub(super) fn tables(connection: &Connection) -> rusqlite::Result<Vec<Table>> {
    let sql = "SELECT name, type, wr, strict FROM pragma_table_list WHERE schema = 'main' \
               AND type IN ('table', 'view', 'virtual') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' \
               AND name NOT LIKE '\\_forebay\\_%' ESCAPE '\\' ORDER BY name";
    let mut statement = connection.prepare(sql)?;
    let table = |row: &Row<'_>| {
        let kind: String = row.get(1)?;
        let without_rowid: bool = row.get(2)?;
        Ok(Table {
            name: row.get(0)?,
            has_rowid: kind == "table" && !without_rowid,
            is_strict: row.get(3)?,
        })
    };
    statement.query_map([], table)?.collect()
}

/// The declared columns of a table; none if it does not exist.
pub(super) fn declared(connection: &Connection, table: &str) -> rusqlite::Result<Vec<Declared>> {
    let sql = "SELECT name, type, \"notnull\", pk FROM pragma_table_xinfo(?1) WHERE hidden <> 1";
    let mut statement = connection.prepare(sql)?;
    let column = |row: &Row<'_>| {
        let not_null: bool = row.get(2)?;
        Ok(Declared {
            name: row.get(0)?,
            type_name: row.get(1)?,
            nullable: !not_null,
            key: row.get(3)?,
        })
    };
    statement.query_map([table], column)?.collect()
}

/// The columns of a table as found. Specified types are used unchanged.
///
/// * `look`: whether values are examined if their types are not enforced.
pub(super) fn columns(
    connection: &Connection,
    table: &Table,
    given: Option<&BTreeMap<String, String>>,
    look: bool,
    failed: &dyn Fn(rusqlite::Error) -> ConnectorError,
) -> Result<Vec<Column>, ConnectorError> {
    let declared = declared(connection, &table.name).map_err(failed)?;
    if let Some(unknown) = given
        .and_then(|given| given.keys().find(|name| !declared.iter().any(|it| it.name == **name)))
    {
        return Err(ConnectorError::unsupported(
            format!("{} has no column {unknown:?}, although `types` gives it a type", table.name),
            "specify existing columns",
        ));
    }
    let found = match look && !table.is_strict {
        true => look_through(connection, &table.name, &declared).map_err(failed)?,
        false => Vec::new(),
    };
    let keys = declared.iter().filter(|column| column.key > 0).count();
    let column = |(at, declared): (usize, &Declared)| {
        let name = &declared.name;
        let mut column = match given.and_then(|given| given.get(name)) {
            Some(type_name) => types::column(name, type_name).ok_or_else(|| {
                ConnectorError::unsupported(
                    format!("column {name:?} cannot have the type {type_name:?}"),
                    "specify a PostgreSQL type such as bigint, numeric(10,2) or timestamptz",
                )
            })?,
            None => decide(declared, found.get(at).copied()),
        };
        // A primary key of one integer column is the rowid, and never NULL; other keys may be NULL.
        let is_row_number =
            keys == 1 && declared.key == 1 && declared.type_name.eq_ignore_ascii_case("integer");
        column.nullable = declared.nullable && !is_row_number;
        Ok(column)
    };
    let mut columns: Vec<Column> =
        declared.iter().enumerate().map(column).collect::<Result<_, ConnectorError>>()?;
    if look && !table.is_strict {
        let is_given = |name: &str| given.is_some_and(|given| given.contains_key(name));
        let parsed: Vec<&mut Column> = columns
            .iter_mut()
            .filter(|column| is_parsed(&column.wire) && !is_given(&column.name))
            .collect();
        give_up_types(connection, &table.name, parsed).map_err(failed)?;
    }
    Ok(columns)
}

/// Whether values of a type are read from texts, not all of which are such values.
fn is_parsed(wire: &Wire) -> bool {
    use Wire::{Bool, Bytes, Float4, Float8, Int2, Int4, Int8, Money, Oid, Opaque, Text};
    !matches!(
        wire,
        Bool | Bytes | Float4 | Float8 | Int2 | Int4 | Int8 | Money | Oid | Opaque | Text
    )
}

/// Makes columns texts if any of their values is not of their type, such as `soon` among dates.
fn give_up_types(
    connection: &Connection,
    table: &str,
    columns: Vec<&mut Column>,
) -> rusqlite::Result<()> {
    /// Bytes of values that are held at a time.
    const HELD: usize = 1 << 20;
    if columns.is_empty() {
        return Ok(());
    }
    let names = quoted_list(columns.iter().map(|column| &*column.name));
    let mut statement = connection.prepare(&format!("SELECT {names} FROM {}", quoted(table)))?;
    let mut rows = statement.query([])?;
    let mut left: Vec<_> = columns
        .into_iter()
        .enumerate()
        .map(|(at, column)| (at, Builder::new(column), column, 0_usize))
        .collect();
    while let Some(row) = rows.next()?.filter(|_| !left.is_empty()) {
        let mut unfit = Vec::new();
        for (at, builder, _, held) in &mut left {
            let value = row.get_ref(*at)?;
            let size = value.as_bytes_or_null().ok().flatten().map_or(0, <[u8]>::len);
            if values::append(builder, value).is_err() {
                unfit.push(*at);
            }
            // Every value takes some space, even none.
            *held += size + size_of::<u64>();
            if *held >= HELD {
                builder.finish();
                *held = 0;
            }
        }
        left.retain_mut(|(at, _, column, _)| {
            let fits = !unfit.contains(at);
            if !fits {
                (column.wire, column.sql_type) = (Wire::Text, "text".into());
            }
            fits
        });
    }
    Ok(())
}

/// The kinds of values of each column of a table.
fn look_through(
    connection: &Connection,
    table: &str,
    declared: &[Declared],
) -> rusqlite::Result<Vec<ValueKinds>> {
    // A few columns per query: a result has no more columns than a table may have.
    let mut all = Vec::with_capacity(declared.len());
    for some in declared.chunks(100) {
        let asked: Vec<String> = some.iter().map(|column| asked(&column.name)).collect();
        let sql = format!("SELECT {} FROM {}", asked.join(", "), quoted(table));
        let found = connection.query_row(&sql, [], |row| {
            let found = |at: usize| {
                let has =
                    |offset| row.get::<_, Option<bool>>(at * 6 + offset).map(|it| it == Some(true));
                Ok(ValueKinds {
                    integer: has(0)?,
                    real: has(1)?,
                    text: has(2)?,
                    blob: has(3)?,
                    min: row.get(at * 6 + 4)?,
                    max: row.get(at * 6 + 5)?,
                })
            };
            (0..some.len()).map(found).collect::<rusqlite::Result<Vec<_>>>()
        })?;
        all.extend(found);
    }
    Ok(all)
}

/// The expressions that examine a column. `NaN` is the text of a real that SQLite cannot represent.
fn asked(name: &str) -> String {
    let name = quoted(name);
    let integers = format!("({name}) FILTER (WHERE typeof({name}) = 'integer')");
    let has = |kind: &str| format!("max(typeof({name}) = '{kind}')");
    [
        has("integer"),
        has("real"),
        format!("max(typeof({name}) = 'text' AND {name} <> 'NaN')"),
        has("blob"),
        format!("min{integers}"),
        format!("max{integers}"),
    ]
    .join(", ")
}

/// The column for a declaration and the values found.
fn decide(declared: &Declared, found: Option<ValueKinds>) -> Column {
    let Declared { name, type_name, .. } = declared;
    let said = values::column_of(name, type_name);
    let plain = |wire: Wire, sql_type: &str| Column {
        name: name.clone(),
        sql_type: sql_type.into(),
        wire,
        nullable: true,
    };
    let Some(found) = found else {
        return said.unwrap_or_else(|| plain(Wire::Text, "text"));
    };
    let within = |min: i64, max: i64| {
        found.min.is_none_or(|it| it >= min) && found.max.is_none_or(|it| it <= max)
    };
    let ValueKinds { integer, real, text, blob, .. } = found;
    let fits = said.as_ref().is_some_and(|column| match &column.wire {
        Wire::Bool => !real && !text && !blob && within(0, 1),
        Wire::Int2 => !real && !text && !blob && within(i16::MIN.into(), i16::MAX.into()),
        Wire::Int4 => !real && !text && !blob && within(i32::MIN.into(), i32::MAX.into()),
        Wire::Oid => !real && !text && !blob && within(0, u32::MAX.into()),
        Wire::Int8 => !real && !text && !blob,
        Wire::Float4 | Wire::Float8 => !text && !blob,
        Wire::Decimal { .. } | Wire::Numeric => !blob,
        Wire::Bytes => !integer && !real && !text,
        _ => !integer && !real && !blob,
    });
    match said.filter(|_| fits) {
        Some(said) => said,
        None => match (integer, real, text, blob) {
            (true, false, false, false) => plain(Wire::Int8, "bigint"),
            (_, true, false, false) => plain(Wire::Float8, "double precision"),
            (false, false, false, true) => plain(Wire::Bytes, "bytea"),
            _ => plain(Wire::Text, "text"),
        },
    }
}
