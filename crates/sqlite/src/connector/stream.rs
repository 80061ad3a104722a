//! Reading a table: ranges of rowids, in one transaction.
//!
//! All units are read by the connection that holds the transaction, one at a time: another one
//! would see other rows. What another run would see is unknown, so units are not stable.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use async_trait::async_trait;
use forebay_pgcopy::Column;
use forebay_pgcopy::column::schema;
use forebay_sdk::bridge::{Give, pump};
use forebay_sdk::connector::{Cursor, Division, Opening, Result, SourceStream, Unit};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::Outlet;
use forebay_sdk::settings::{StreamSettings, SyncMode};
use forebay_sdk::values::read::Builder;
use rusqlite::Connection;
use rusqlite::types::{Value, ValueRef};
use tokio::sync::Mutex;

use super::{Access, Database, display, layout, quoted, quoted_list, values};

/// Maximum number of rows of a batch.
const BATCH_ROWS_MAX: usize = 64 << 10;
/// Maximum number of units of a table.
const UNITS_MAX: i64 = 4_096;

/// An open table.
pub(super) struct SqliteStream {
    /// Holds the transaction. Taken by the unit that is being read.
    connection: Arc<Mutex<Connection>>,
    columns: Arc<[Column]>,
    units: Vec<Unit>,
    /// How each unit is read; those of an earlier load cannot be.
    selects: Vec<Option<Select>>,
    cursor: Option<Cursor>,
    reading: Arc<Reading>,
    /// The warning about rows that are not read, if there are any.
    unordered: Option<String>,
}

/// The query of a unit.
#[derive(Debug, Clone)]
struct Select {
    sql: String,
    parameters: Vec<Value>,
}

/// State shared by all units.
struct Reading {
    database: Database,
    table: String,
    columns: Arc<[Column]>,
    has_rowid: bool,
    batch_size: usize,
}

impl SqliteStream {
    pub(super) fn open(
        database: Database,
        given: Option<&BTreeMap<String, String>>,
        stream: &StreamSettings,
        opening: &Opening,
    ) -> Result<Self> {
        let failed = |error| database.failed("read", error);
        let connection = database.open(Access::Read)?;
        connection.execute_batch("BEGIN").map_err(failed)?;
        let tables = layout::tables(&connection).map_err(failed)?;
        let Some(table) = tables.iter().find(|table| table.name == stream.name).cloned() else {
            let names: Vec<&str> = tables.iter().map(|table| &*table.name).take(20).collect();
            return Err(ConnectorError::unsupported(
                format!("{} has no table {:?}", display(&database.path), stream.name),
                format!("choose one of {}", names.join(", ")),
            ));
        };
        let all = layout::columns(&connection, &table, given, true, &failed)?;
        let columns: Arc<[Column]> = chosen(all, stream)?.into();
        let reading = Reading {
            database: database.clone(),
            table: table.name.clone(),
            columns: Arc::clone(&columns),
            has_rowid: table.has_rowid,
            batch_size: opening.batch_size,
        };
        let (mut cursor, mut unordered) = (None, None);
        let divided = if let Division::As(units) = &opening.division {
            // Named, so that a load whose units are all committed can end; see `read`.
            units.iter().map(|unit| (unit.clone(), None)).collect()
        } else if stream.sync_mode == SyncMode::Incremental {
            let since = opening.since.as_ref();
            let incremental = Incremental::new(&connection, stream, since, &database)?;
            let may_repeat = opening.division == Division::Any;
            if let Some(since) = since.filter(|_| !may_repeat) {
                incremental.refuse_late(&connection, since, &failed)?;
            }
            cursor = incremental.last(&connection, &failed)?.or_else(|| since.cloned());
            if since.is_some() {
                unordered = incremental.unordered(&connection).map_err(failed)?;
            }
            let is_new = |since: &Cursor| cursor.as_ref().is_some_and(|last| !last.is_at(since));
            match since.is_none_or(is_new) {
                true => vec![incremental.unit(&reading, since, may_repeat)?],
                false => Vec::new(),
            }
        } else if opening.division == Division::Any && table.has_rowid {
            ranges(&connection, &reading, opening.unit_size).map_err(failed)?
        } else {
            vec![(unit("all"), Some(reading.select("", Vec::new())))]
        };
        let (units, selects) = divided.into_iter().unzip();
        let connection = Arc::new(Mutex::new(connection));
        let reading = Arc::new(reading);
        Ok(Self { connection, columns, units, selects, cursor, unordered, reading })
    }

    /// The warning about rows that are not read.
    pub(super) fn unordered(&self) -> Option<&str> {
        self.unordered.as_deref()
    }
}

fn unit(name: &str) -> Unit {
    Unit { name: name.into(), from: None, to: None, rows: None, bytes: None }
}

/// The columns that a stream chooses, in its order.
fn chosen(all: Vec<Column>, stream: &StreamSettings) -> Result<Vec<Column>> {
    if stream.columns.is_empty() {
        return Ok(all);
    }
    let choose = |name: &String| {
        all.iter().find(|column| column.name == *name).cloned().ok_or_else(|| {
            let known: Vec<&str> = all.iter().map(|column| &*column.name).collect();
            ConnectorError::unsupported(
                format!("{} has no column {name:?}", stream.name),
                format!("choose from {}", known.join(", ")),
            )
        })
    };
    stream.columns.iter().map(choose).collect()
}

/// Ranges of rowids of about the size of a unit.
fn ranges(
    connection: &Connection,
    reading: &Reading,
    unit_size: u64,
) -> rusqlite::Result<Vec<(Unit, Option<Select>)>> {
    let table = quoted(&reading.table);
    let sql = format!("SELECT min(rowid), max(rowid) FROM {table}");
    let ends = connection.query_row(&sql, [], |row| {
        Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?))
    })?;
    let (Some(first), Some(last)) = ends else {
        return Ok(vec![(unit("all"), Some(reading.select("", Vec::new())))]);
    };
    let bytes = i128::from(table_size(connection, &reading.table)?);
    let size = i128::from(unit_size.max(1));
    let count = bytes.div_euclid(size).clamp(1, i128::from(UNITS_MAX));
    // In 128 bits: the difference of two rowids may exceed an `i64`.
    let span = i128::from(last) - i128::from(first) + 1;
    let count = count.min(span);
    let mut units = Vec::new();
    for at in 0..count {
        let edge = |at: i128| i64::try_from(i128::from(first) + span * at / count);
        let from = edge(at).unwrap_or(i64::MAX);
        let to = edge(at + 1).map_or(last, |next| next.saturating_sub(1)).min(last);
        let mut unit = unit(&format!("rowid {from}..{to}"));
        unit.from = Some(from.to_string());
        unit.to = Some(to.to_string());
        unit.bytes = u64::try_from(bytes / count).ok();
        let parameters = vec![Value::Integer(from), Value::Integer(to)];
        let condition = "WHERE rowid BETWEEN ?1 AND ?2 ORDER BY rowid";
        units.push((unit, Some(reading.select(condition, parameters))));
    }
    Ok(units)
}

/// Estimated size of a table in bytes: that of the file, if there is only one table.
fn table_size(connection: &Connection, table: &str) -> rusqlite::Result<u64> {
    // Without the virtual table that counts pages, the average of some rows is used.
    let sql = format!("SELECT * FROM {} LIMIT 200", quoted(table));
    let mut statement = connection.prepare(&sql)?;
    let columns = statement.column_count();
    let mut rows = statement.query([])?;
    let (mut count, mut bytes) = (0_u64, 0_u64);
    while let Some(row) = rows.next()? {
        count += 1;
        for column in 0..columns {
            bytes += match row.get_ref(column)? {
                ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len() as u64 + 2,
                _ => 8,
            };
        }
    }
    let sql = format!("SELECT count(*) FROM {}", quoted(table));
    let rows: u64 = connection.query_row(&sql, [], |row| row.get(0))?;
    Ok(bytes.div_ceil(count.max(1)).saturating_mul(rows))
}

impl Reading {
    fn select(&self, condition: &str, parameters: Vec<Value>) -> Select {
        let mut names = quoted_list(self.columns.iter().map(|column| &*column.name));
        if self.has_rowid {
            names = format!("{names}, rowid");
        }
        let sql = format!("SELECT {names} FROM {} {condition}", quoted(&self.table));
        Select { sql, parameters }
    }

    /// Reads the rows of a unit.
    fn read(&self, connection: &Connection, select: &Select, give: &mut Give<'_>) -> Result<()> {
        let failed = |error| self.database.failed("read", error);
        let mut statement = connection.prepare(&select.sql).map_err(failed)?;
        let parameters = rusqlite::params_from_iter(&select.parameters);
        let mut rows = statement.query(parameters).map_err(failed)?;
        let mut builders: Vec<Builder> = self.columns.iter().map(Builder::new).collect();
        let (mut count, mut size, mut number) = (0, 0, 0_u64);
        while let Some(row) = rows.next().map_err(failed)? {
            number += 1;
            for (at, (builder, column)) in builders.iter_mut().zip(&*self.columns).enumerate() {
                let value = row.get_ref(at).map_err(failed)?;
                size += 8;
                if let ValueRef::Text(bytes) | ValueRef::Blob(bytes) = value {
                    size += bytes.len();
                }
                values::append(builder, value).map_err(|found| {
                    let place = match row.get::<_, i64>(self.columns.len()) {
                        Ok(rowid) if self.has_rowid => format!("rowid {rowid}"),
                        _ => format!("row {number}"),
                    };
                    let place = format!("{} {place}, column {:?}", self.table, column.name);
                    let way_out = "specify another type in `types`";
                    ConnectorError::data(place, format!("{found}; {way_out}"))
                })?;
            }
            count += 1;
            if size >= self.batch_size || count == BATCH_ROWS_MAX {
                give(self.take(&mut builders, count)?)?;
                (count, size) = (0, 0);
            }
        }
        give(self.take(&mut builders, count)?)
    }

    fn take(&self, builders: &mut [Builder], rows: usize) -> Result<RecordBatch> {
        let arrays = builders.iter_mut().map(Builder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::new(schema(&self.columns));
        RecordBatch::try_new_with_options(schema, arrays, &options)
            .map_err(|error| ConnectorError::data(self.table.clone(), error.to_string()))
    }
}

/// Rows after those of the last run.
struct Incremental {
    table: String,
    field: String,
    tie_breaker: Option<String>,
}

impl Incremental {
    fn new(
        connection: &Connection,
        stream: &StreamSettings,
        since: Option<&Cursor>,
        database: &Database,
    ) -> Result<Self> {
        let declared = layout::declared(connection, &stream.name);
        let declared = declared.map_err(|error| database.failed("read the schema of", error))?;
        let field = stream.cursor_field.clone().unwrap_or_default();
        let before = since.and_then(|since| since.tie_breaker_field.clone());
        let tie_breaker = stream.tie_breaker_field.clone().or(before);
        for name in std::iter::once(&field).chain(&tie_breaker) {
            if !declared.iter().any(|column| column.name == *name) {
                return Err(ConnectorError::unsupported(
                    format!("{} has no column {name:?}", stream.name),
                    "set `cursor_field` and `tie_breaker_field` to existing columns",
                ));
            }
        }
        Ok(Self { table: stream.name.clone(), field, tie_breaker })
    }

    /// The number of rows with the value of a cursor that are at or before it.
    fn rows_at(
        &self,
        connection: &Connection,
        value: Value,
        tie_breaker: Option<Value>,
    ) -> rusqlite::Result<u64> {
        let (table, field) = (quoted(&self.table), quoted(&self.field));
        let mut sql = format!("SELECT count(*) FROM {table} WHERE {field} = ?1");
        let mut parameters = vec![value];
        if let (Some(name), Some(last)) = (self.tie_breaker.as_deref().map(quoted), tie_breaker) {
            sql.push_str(&format!(" AND ({name} IS NULL OR {name} <= ?2)"));
            parameters.push(last);
        }
        let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        let count = connection.query_row(&sql, rusqlite::params_from_iter(parameters), count)?;
        Ok(u64::try_from(count).unwrap_or_default())
    }

    /// Fails if rows were added at or before the last row that was read.
    fn refuse_late(
        &self,
        connection: &Connection,
        since: &Cursor,
        failed: &dyn Fn(rusqlite::Error) -> ConnectorError,
    ) -> Result<()> {
        let Some(read) = since.rows_at else { return Ok(()) };
        let tie_breaker = since.tie_breaker.as_deref().map(decode).transpose()?;
        let now = self.rows_at(connection, decode(&since.value)?, tie_breaker).map_err(failed)?;
        if now <= read {
            return Ok(());
        }
        Err(since.late(&self.table, &self.field, now - read))
    }

    /// The warning about rows without a value of the cursor, if there are any.
    fn unordered(&self, connection: &Connection) -> rusqlite::Result<Option<String>> {
        let (table, field) = (quoted(&self.table), quoted(&self.field));
        let sql = format!("SELECT count(*) FROM {table} WHERE {field} IS NULL");
        let rows: u64 = connection.query_row(&sql, [], |row| row.get(0))?;
        Ok((rows > 0).then(|| Cursor::unordered(&self.table, &self.field, rows)))
    }

    /// The current last row.
    fn last(
        &self,
        connection: &Connection,
        failed: &dyn Fn(rusqlite::Error) -> ConnectorError,
    ) -> Result<Option<Cursor>> {
        let last = self.find_last(connection).map_err(failed)?;
        if let Some(last) = last.as_ref().filter(|last| last.value == "real inf") {
            return Err(last.endless(&self.table, &self.field));
        }
        Ok(last)
    }

    fn find_last(&self, connection: &Connection) -> rusqlite::Result<Option<Cursor>> {
        let (table, field) = (quoted(&self.table), quoted(&self.field));
        let tie_breaker = self.tie_breaker.as_deref().map_or_else(|| "NULL".into(), quoted);
        let sql = format!(
            "SELECT {field}, {tie_breaker} FROM {table} WHERE {field} IS NOT NULL \
             ORDER BY 1 DESC, 2 DESC LIMIT 1"
        );
        let mut statement = connection.prepare(&sql)?;
        let mut rows = statement.query([])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let tie_breaker = self.tie_breaker.as_ref().map(|_| row.get(1)).transpose()?;
        let value: Value = row.get(0)?;
        let cursor = Cursor::new(encode(&value), tie_breaker.as_ref().map(encode));
        let rows_at = Some(self.rows_at(connection, value, tie_breaker)?);
        Ok(Some(Cursor { rows_at, tie_breaker_field: self.tie_breaker.clone(), ..cursor }))
    }

    /// * `may_repeat`: whether rows with the last value may be read again.
    fn unit(
        &self,
        reading: &Reading,
        since: Option<&Cursor>,
        may_repeat: bool,
    ) -> Result<(Unit, Option<Select>)> {
        let field = quoted(&self.field);
        let Some(since) = since else {
            return Ok((unit("all"), Some(reading.select("", Vec::new()))));
        };
        let value = decode(&since.value)?;
        let mut unit = unit(&format!("{} after {}", self.field, since.value));
        unit.from = Some(since.value.clone());
        let (condition, parameters) = match (&self.tie_breaker, &since.tie_breaker) {
            _ if may_repeat => (format!("WHERE {field} >= ?1 ORDER BY {field}"), vec![value]),
            (Some(name), Some(then)) => {
                let name = quoted(name);
                let condition = format!(
                    "WHERE {field} > ?1 OR ({field} = ?1 AND {name} > ?2) ORDER BY {field}, {name}"
                );
                (condition, vec![value, decode(then)?])
            }
            _ => (format!("WHERE {field} > ?1 ORDER BY {field}"), vec![value]),
        };
        Ok((unit, Some(reading.select(&condition, parameters))))
    }
}

/// A value with its kind, as stored in a cursor.
fn encode(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Integer(value) => format!("integer {value}"),
        Value::Real(value) => format!("real {value:?}"),
        Value::Text(text) => format!("text {text}"),
        Value::Blob(bytes) => format!("blob {}", hex::encode(bytes)),
    }
}

fn decode(text: &str) -> Result<Value> {
    let value = match text.split_once(' ') {
        Some(("integer", value)) => value.parse().ok().map(Value::Integer),
        Some(("real", value)) => value.parse().ok().map(Value::Real),
        Some(("text", text)) => Some(Value::Text(text.into())),
        Some(("blob", digits)) => hex::decode(digits).ok().map(Value::Blob),
        None if text == "null" => Some(Value::Null),
        _ => None,
    };
    value.ok_or_else(|| {
        ConnectorError::data(
            "the cursor of the last run",
            format!("{text:?} is not a valid cursor"),
        )
    })
}

#[async_trait]
impl SourceStream for SqliteStream {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn units_are_stable(&self) -> bool {
        false
    }

    fn cursor(&self) -> Option<Cursor> {
        self.cursor.clone()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!("{} units, in one transaction", self.units.len())];
        if self.cursor.is_some() {
            notes.push("rows whose cursor is NULL are read only by the first run".into());
        }
        notes.extend(self.unordered.clone());
        notes
    }

    async fn read(&self, unit: usize, out: &mut Outlet) -> Result<()> {
        let Some(Some(select)) = self.selects.get(unit).cloned() else {
            return Err(ConnectorError::unsupported(
                format!(
                    "{}: the rows of a SQLite table in an earlier run are unknown",
                    self.reading.table
                ),
                "run with `--from-scratch` to load it from the beginning",
            ));
        };
        let connection = Arc::clone(&self.connection).lock_owned().await;
        let reading = Arc::clone(&self.reading);
        pump(out, move |give| reading.read(&connection, &select, give)).await
    }
}
