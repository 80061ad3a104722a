//! How the columns of a stream fit those of a table, and what has to change.

use forebay_pgcopy::{Column, Wire};
use forebay_sdk::chosen::Chosen;
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::{
    NewColumn, NullabilityChange, RemovedColumn, TargetSettings, TypeChange, WriteMode,
};

use crate::catalog::{LOAD, OURS, Table, TableColumn, VERSION};
use crate::sql;
use crate::types::{Base, Fit, Type, is_local};

/// The type of the column with load and unit.
const LOAD_TYPE: &str = "LowCardinality(String)";
const VERSION_TYPE: &str = "UInt64";
/// A row is on disk before the INSERT that adds it has its answer. By default a server leaves that to the kernel.
pub(crate) const DURABLE: &str = "fsync_after_insert = 1, fsync_part_directory = 1";

/// The columns that are stored, and how.
#[derive(Debug, Clone)]
pub(crate) struct Fitted {
    pub(crate) chosen: Chosen,
    /// Whether each of them is never NULL in the table.
    pub(crate) is_not_null: Vec<bool>,
    /// What has to change in the table, as clauses of ALTER TABLE.
    pub(crate) changes: Vec<String>,
}

/// Fits the columns of a stream into a table, which may not exist yet.
///
/// # Errors
/// The columns do not fit, and the settings do not permit to change the table.
pub(crate) fn fit(
    table: Option<&Table>,
    settings: &TargetSettings,
    columns: &[Column],
) -> Result<Fitted> {
    check_names(settings, columns)?;
    let is_ignored = |column: &Column| {
        settings.schema_evolution.new_column == NewColumn::Ignore
            && table.is_some_and(|table| table.column(&column.name).is_none())
    };
    let chosen = Chosen::of(columns, |column| !is_ignored(column));
    check_key(settings, chosen.columns())?;
    if chosen.columns().is_empty() {
        return Err(ConnectorError::unsupported(
            format!("the table {:?} has none of the source's columns", settings.into),
            "write to another table with `into`",
        ));
    }
    let mut changes = Vec::new();
    let mut is_not_null = Vec::with_capacity(chosen.columns().len());
    for column in chosen.columns() {
        let needed = needed(settings, column);
        let not_null = match table.and_then(|table| table.column(&column.name)) {
            Some(found) => fit_one(column, &needed, found, settings, &mut changes)?,
            None => {
                if table.is_some() {
                    changes.push(added(column, &needed, settings)?);
                }
                !needed.is_nullable
            }
        };
        is_not_null.push(not_null && !matches!(needed.base, Base::Array(_)));
    }
    if let Some(table) = table {
        check_missing(table, settings, chosen.columns())?;
        changes.extend(own(table)?);
    }
    Ok(Fitted { chosen, is_not_null, changes })
}

/// The type that a column needs in a new table. Columns of a key are never NULL.
fn needed(settings: &TargetSettings, column: &Column) -> Type {
    let needed = Type::of(column);
    let is_key =
        settings.write_mode == WriteMode::Upsert && settings.primary_key.contains(&column.name);
    Type { is_nullable: needed.is_nullable && !is_key, ..needed }
}

/// The statement that creates a table, unless it exists.
pub(crate) fn create(name: &str, settings: &TargetSettings, columns: &[Column]) -> String {
    let mut all: Vec<String> = columns
        .iter()
        .map(|column| format!("{} {}", sql::name(&column.name), needed(settings, column)))
        .collect();
    all.push(format!("{LOAD} {LOAD_TYPE}"));
    let (engine, order) = match settings.write_mode {
        WriteMode::Upsert => {
            all.push(format!("{VERSION} {VERSION_TYPE}"));
            let key = sql::names(settings.primary_key.iter().map(String::as_str));
            let order = if settings.primary_key.len() == 1 { key } else { format!("({key})") };
            (format!("ReplacingMergeTree({VERSION})"), order)
        }
        WriteMode::Append | WriteMode::Replace => ("MergeTree".to_owned(), "tuple()".to_owned()),
    };
    let (name, all) = (sql::name(name), all.join(", "));
    format!(
        "CREATE TABLE IF NOT EXISTS {name} ({all}) ENGINE = {engine} ORDER BY {order} SETTINGS {DURABLE}"
    )
}

fn check_names(settings: &TargetSettings, columns: &[Column]) -> Result<()> {
    let rename = "rename it in a transform";
    if settings.into.is_empty() || settings.into.starts_with(OURS) {
        return Err(ConnectorError::unsupported(
            format!("the table cannot be named {:?}", settings.into),
            "give it another name with `into`",
        ));
    }
    for Column { name, .. } in columns {
        if name.is_empty() || name.starts_with(OURS) {
            return Err(ConnectorError::unsupported(
                format!("a column cannot be named {name:?}"),
                rename,
            ));
        }
    }
    let mut names: Vec<&str> = columns.iter().map(|column| &*column.name).collect();
    names.sort_unstable();
    match names.array_windows().find(|[one, next]| one == next) {
        Some([twice, _]) => {
            Err(ConnectorError::unsupported(format!("two columns are named {twice:?}"), rename))
        }
        None => Ok(()),
    }
}

fn check_key(settings: &TargetSettings, columns: &[Column]) -> Result<()> {
    if settings.write_mode != WriteMode::Upsert {
        return Ok(());
    }
    for key in &settings.primary_key {
        let Some(column) = columns.iter().find(|column| column.name == *key) else {
            return Err(ConnectorError::unsupported(
                format!("the key column {key:?} is not in the stream"),
                "set `primary_key` to columns of the stream",
            ));
        };
        if matches!(column.wire, Wire::Float4 | Wire::Float8) {
            return Err(ConnectorError::unsupported(
                format!(
                    "the key column {key:?} is {}, whose NaN is not equal to itself",
                    column.sql_type
                ),
                "set `primary_key` to other columns, or cast it in a transform",
            ));
        }
    }
    Ok(())
}

/// Fits a column into one of a table. Returns whether it is never NULL there.
fn fit_one(
    column: &Column,
    needed: &Type,
    found: &TableColumn,
    settings: &TargetSettings,
    changes: &mut Vec<String>,
) -> Result<bool> {
    let Column { name, sql_type, .. } = column;
    let refuse = |what: String, way_out: &str| Err(ConnectorError::unsupported(what, way_out));
    if matches!(&*found.default, "MATERIALIZED" | "ALIAS") {
        return refuse(
            format!(
                "column {name:?} of the table is {}, so nothing can be written to it",
                found.default
            ),
            "remove it from the stream's `columns`, or rename it in a transform",
        );
    }
    let is_utc = |zone: &Option<String>| matches!(zone.as_deref(), Some("UTC" | "Etc/UTC"));
    if is_local(&column.wire)
        && let Base::Moment { zone } = leaf(&found.stored.base)
        && !is_utc(zone)
    {
        return refuse(
            format!(
                "column {name:?} is {}, which shows a {sql_type} shifted by the zone's offset",
                found.type_name
            ),
            "change it to DateTime64(6, 'UTC'), or cast the column to timestamptz in a transform",
        );
    }
    let must_be_nullable = needed.is_nullable && !found.stored.is_nullable;
    let fit = found.stored.fits(needed);
    if fit != Fit::Holds {
        let may_alter = settings.schema_evolution.type_change == TypeChange::Alter;
        let what = format!(
            "column {name:?} is {} in the table, but {sql_type} in the source, which is stored as {needed}",
            found.type_name
        );
        let way_out = match (fit, may_alter) {
            (Fit::Narrower, false) => "set `schema_evolution.type_change: alter`",
            _ => "cast it in a transform, or write to another table with `into`",
        };
        if fit == Fit::Other || !may_alter || found.is_key {
            return refuse(what, way_out);
        }
    }
    if must_be_nullable && settings.schema_evolution.nullability_change == NullabilityChange::Fail {
        return refuse(
            format!("column {name:?} is never NULL in the table, but nullable in the source"),
            "set `schema_evolution.nullability_change: allow`",
        );
    }
    let becomes_nullable = must_be_nullable && !found.is_key;
    let is_nullable = found.stored.is_nullable || becomes_nullable;
    if fit == Fit::Narrower || becomes_nullable {
        let base = if fit == Fit::Narrower { &needed.base } else { &found.stored.base };
        let to = Type { base: base.clone(), is_nullable };
        changes.push(format!("MODIFY COLUMN {} {to}", sql::name(name)));
    }
    Ok(!is_nullable)
}

/// The type of the values of an array, or the type itself.
fn leaf(base: &Base) -> &Base {
    match base {
        Base::Array(element) => leaf(&element.base),
        base => base,
    }
}

/// The clause that adds a column.
fn added(column: &Column, needed: &Type, settings: &TargetSettings) -> Result<String> {
    let name = &column.name;
    if settings.schema_evolution.new_column == NewColumn::Fail {
        return Err(ConnectorError::unsupported(
            format!("the table has no column {name:?}"),
            "set `schema_evolution.new_column: add` or `ignore`",
        ));
    }
    // Rows that are there have no value.
    let is_nullable = !matches!(needed.base, Base::Array(_));
    let to = Type { base: needed.base.clone(), is_nullable };
    Ok(format!("ADD COLUMN IF NOT EXISTS {} {to}", sql::name(name)))
}

fn check_missing(table: &Table, settings: &TargetSettings, columns: &[Column]) -> Result<()> {
    let is_missing = |found: &&TableColumn| {
        !found.name.starts_with(OURS)
            && !matches!(&*found.default, "MATERIALIZED" | "ALIAS" | "EPHEMERAL")
            && columns.iter().all(|column| column.name != found.name)
    };
    match table.columns.iter().find(is_missing) {
        Some(found) if settings.schema_evolution.removed_column == RemovedColumn::Fail => {
            Err(ConnectorError::unsupported(
                format!("the table has a column {:?} that the source does not have", found.name),
                "set `schema_evolution.removed_column: ignore`",
            ))
        }
        _ => Ok(()),
    }
}

/// The clause that adds the column of loads to a table that another program created.
fn own(table: &Table) -> Result<Option<String>> {
    match table.column(LOAD) {
        None => Ok(Some(format!("ADD COLUMN IF NOT EXISTS {LOAD} {LOAD_TYPE}"))),
        Some(found) if found.stored.base == Base::Text && !found.stored.is_nullable => Ok(None),
        Some(found) => Err(ConnectorError::unsupported(
            format!("the table has a column {LOAD} of {}", found.type_name),
            format!("rename it: Forebay's has the type {LOAD_TYPE}"),
        )),
    }
}
