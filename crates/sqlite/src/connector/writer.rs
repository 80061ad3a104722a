//! Writes one unit: rows wait in a temporary table, and are copied to the file with their entry.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use forebay_sdk::batch::{Batch, DeadRow, Rows};
use forebay_sdk::bridge::blocking;
use forebay_sdk::connector::{LedgerEntry, Load, Result, UnitWriter};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::hash::Hasher;
use forebay_sdk::run::Phase;
use forebay_sdk::settings::{OnDataError, WriteMode};
use forebay_sdk::values::write::{Cells, json_rows};
use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, ErrorCode, ToSql};

use super::target::{Shared, read_rows};
use super::{Access, ledger, quoted, quoted_list, values};

/// The table in which rows wait.
const STAGED: &str = "temp._forebay_staged";
/// Maximum number of dead letters held in memory until their unit is committed.
const DEAD_MAX: usize = 100_000;

/// Writes one unit.
pub(super) struct SqliteWriter {
    /// What is moved to the worker thread, and back.
    work: Option<Work>,
}

struct Work {
    shared: Arc<Shared>,
    load: Load,
    unit: String,
    connection: Connection,
    hasher: Hasher,
    dead: Vec<DeadRow>,
    dead_rows: u64,
}

/// A value in SQLite's form.
pub(super) enum Bound<'a> {
    Null,
    Integer(i64),
    Real(f64),
    Text(&'a str),
    Blob(&'a [u8]),
}

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        use rusqlite::types::ValueRef;
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(value) => ValueRef::Integer(*value),
            Self::Real(value) => ValueRef::Real(*value),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

impl SqliteWriter {
    pub(super) fn open(shared: Arc<Shared>, load: Load, unit: String) -> Result<Self> {
        let connection = shared.database.open(Access::Write)?;
        let columns: Vec<String> = shared
            .columns
            .iter()
            .map(|column| format!("{} {}", quoted(&column.name), values::declaration(column)))
            .collect();
        // A separate transaction: temporary tables are not synced, but are faster within one.
        let sql = format!("BEGIN; CREATE TABLE {STAGED} ({})", columns.join(", "));
        connection.execute_batch(&sql).map_err(shared.failed("stage rows for"))?;
        let hasher = Hasher::new(&shared.columns)?;
        let dead = Vec::new();
        let work = Work { shared, load, unit, connection, hasher, dead, dead_rows: 0 };
        Ok(Self { work: Some(work) })
    }
}

impl Work {
    fn write(&mut self, records: &RecordBatch) -> Result<()> {
        let shared = &self.shared;
        let records = shared.conform(records)?;
        let cells = records.columns().iter().zip(&shared.columns);
        let cells = cells.map(|(array, column)| Cells::new(array.as_ref(), column));
        let cells: Vec<Cells<'_>> = cells.collect::<Result<_>>()?;
        let failed = shared.failed("stage rows for");
        let marks = vec!["?"; cells.len()].join(", ");
        let sql = format!("INSERT INTO {STAGED} VALUES ({marks})");
        let mut statement = self.connection.prepare_cached(&sql).map_err(&failed)?;
        let mut text = Vec::new();
        for row in 0..records.num_rows() {
            for (at, cells) in cells.iter().enumerate() {
                text.clear();
                let bound = bound(cells, row, &mut text);
                statement.raw_bind_parameter(at + 1, bound).map_err(&failed)?;
            }
            statement.raw_execute().map_err(&failed)?;
        }
        self.hasher.add(&records)
    }

    /// Rows that the table refuses: stored as dead letters if requested.
    fn refuse(&mut self, dead: Vec<DeadRow>) -> Result<()> {
        if self.shared.settings.on_data_error != OnDataError::Dlq {
            self.dead_rows += dead.len() as u64;
            return Ok(());
        }
        self.bury(dead)
    }

    /// Adds rows to the dead letters.
    fn bury(&mut self, dead: Vec<DeadRow>) -> Result<()> {
        self.dead_rows += dead.len() as u64;
        self.dead.extend(dead);
        match self.dead.len() > DEAD_MAX {
            true => Err(ConnectorError::data(
                format!("{} {}", self.shared.settings.stream, self.unit),
                format!("one unit has more than {DEAD_MAX} dead letters"),
            )),
            false => Ok(()),
        }
    }

    fn commit(mut self, entry: LedgerEntry) -> Result<LedgerEntry> {
        let shared = Arc::clone(&self.shared);
        let failed = shared.failed("commit to");
        self.connection.execute_batch("COMMIT; BEGIN IMMEDIATE").map_err(&failed)?;
        let last = ledger::load(&self.connection, &shared.settings).map_err(&failed)?;
        if last.is_none_or(|(last, _)| last.id != self.load.id) {
            return Err(ConnectorError::Refused {
                act: format!("commit the unit {:?}", self.unit),
                source: format!("the load {} is not the one that was prepared", self.load.id)
                    .into(),
            });
        }
        let mut content = self.hasher.content();
        let inserted = self.connection.execute(&self.insert(""), []);
        if let Err(error) = inserted {
            if !is_constraint(&error) || shared.settings.on_data_error == OnDataError::Fail {
                return Err(self.refused(error));
            }
            // One by one, so that the valid rows are stored.
            let lost = self.insert_each()?;
            content.rows -= lost.rows;
            content.sum = content.sum.wrapping_sub(lost.sum);
        }
        let entry = LedgerEntry {
            rows: content.rows,
            dead: self.dead_rows,
            hash: content.to_string(),
            ..entry
        };
        ledger::add(&self.connection, &entry).map_err(&failed)?;
        ledger::bury(&self.connection, &entry, &self.dead).map_err(&failed)?;
        self.connection.execute_batch("COMMIT").map_err(&failed)?;
        Ok(entry)
    }

    /// Why the table refuses the rows.
    fn refused(&self, error: rusqlite::Error) -> ConnectorError {
        match is_constraint(&error) {
            true => ConnectorError::data(
                format!("{} {}", self.shared.settings.stream, self.unit),
                format!("{:?} refuses a row: {error}", self.shared.settings.into),
            ),
            false => self.shared.failed("commit to")(error),
        }
    }

    /// Copies staged rows to the table.
    fn insert(&self, condition: &str) -> String {
        let settings = &self.shared.settings;
        let names = quoted_list(self.shared.columns.iter().map(|column| &*column.name));
        let table = quoted(&self.shared.table());
        let condition = if condition.is_empty() { "true" } else { condition };
        let select = format!("SELECT {names} FROM {STAGED} WHERE {condition} ORDER BY rowid");
        if settings.write_mode != WriteMode::Upsert {
            return format!("INSERT INTO main.{table} ({names}) {select}");
        }
        let key = quoted_list(settings.primary_key.iter().map(String::as_str));
        let columns = self.shared.columns.iter().map(|column| &column.name);
        let others = columns.filter(|name| !settings.primary_key.contains(name));
        let sets: Vec<String> =
            others.map(|name| format!("{0} = excluded.{0}", quoted(name))).collect();
        let act = match sets.is_empty() {
            true => "NOTHING".to_owned(),
            false => format!("UPDATE SET {}", sets.join(", ")),
        };
        format!("INSERT INTO main.{table} ({names}) {select} ON CONFLICT ({key}) DO {act}")
    }

    /// Copies rows one by one. Refused rows are counted and, if requested, stored as dead letters.
    /// Returns their content hash.
    fn insert_each(&mut self) -> Result<forebay_pgcopy::ContentHash> {
        let failed = self.shared.failed("commit to");
        let mut lost = Hasher::new(&self.shared.columns)?;
        let sql = format!("SELECT coalesce(max(rowid), 0) FROM {STAGED}");
        let last: i64 = self.connection.query_row(&sql, [], |row| row.get(0)).map_err(&failed)?;
        let insert = self.insert("rowid = ?1");
        for rowid in 1..=last {
            let inserted =
                self.connection.prepare_cached(&insert).and_then(|mut it| it.execute([rowid]));
            let error = match inserted {
                Ok(_) => continue,
                Err(error) if is_constraint(&error) => error,
                Err(error) => return Err(self.refused(error)),
            };
            let names = quoted_list(self.shared.columns.iter().map(|column| &*column.name));
            let sql = format!("SELECT {names} FROM {STAGED} WHERE rowid = {rowid}");
            let mut rows = Vec::new();
            read_rows(&self.shared, &self.connection, &sql, &mut |batch| {
                lost.add(&batch)?;
                rows.extend(json_rows(&batch, &self.shared.columns)?);
                Ok(())
            })?;
            let dead = rows.into_iter().map(|row| DeadRow {
                position: format!("{} row {rowid}", self.unit),
                reason: error.to_string(),
                row,
            });
            self.refuse(dead.collect())?;
        }
        Ok(lost.content())
    }
}

pub(super) fn is_constraint(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
}

/// A cell in SQLite's form; `text` is a buffer for its text.
pub(super) fn bound<'a>(cells: &Cells<'a>, row: usize, text: &'a mut Vec<u8>) -> Bound<'a> {
    use forebay_sdk::values::write::Native;
    match cells.native(row) {
        Native::Null => Bound::Null,
        Native::Integer(value) => Bound::Integer(value),
        // SQLite converts NaN to NULL.
        Native::Real(value) if !value.is_nan() => Bound::Real(value),
        Native::Text(text) => Bound::Text(text),
        Native::Bytes(bytes) => Bound::Blob(bytes),
        _ => {
            cells.text(row, text);
            match std::str::from_utf8(text) {
                Ok(text) => Bound::Text(text),
                Err(_) => unreachable!("values are written as UTF-8"),
            }
        }
    }
}

impl SqliteWriter {
    /// Works on a thread that may block. After an error the unit cannot be written any more.
    async fn work(
        &mut self,
        act: impl FnOnce(&mut Work) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let Some(mut work) = self.work.take() else { return Err(ConnectorError::Stopped) };
        let begun = Instant::now();
        let work = blocking(move || {
            act(&mut work)?;
            Ok(work)
        })
        .await?;
        work.shared.context.phases.add(Phase::Flush, begun);
        self.work = Some(work);
        Ok(())
    }
}

#[async_trait]
impl UnitWriter for SqliteWriter {
    async fn write(&mut self, batch: Batch) -> Result<()> {
        let Rows::Records(records) = &batch.rows else {
            return Err(ConnectorError::unsupported(
                "SQLite cannot store the tuples of binary COPY",
                "send rows as Arrow",
            ));
        };
        let (records, dead) = (records.clone(), batch.dead.clone());
        self.work(move |work| {
            work.bury(dead)?;
            work.write(&records)
        })
        .await
    }

    async fn commit(mut self: Box<Self>, entry: LedgerEntry) -> Result<LedgerEntry> {
        let Some(work) = self.work.take() else { return Err(ConnectorError::Stopped) };
        let (begun, context) = (Instant::now(), work.shared.context.clone());
        let committed = blocking(move || work.commit(entry)).await;
        context.phases.add(Phase::Commit, begun);
        committed
    }
}
