//! The changes of one table, row by row: in one process a statement costs no round trip.
//!
//! SQLite checks a unique index with every row, so where keys change, or another index is unique, the rows that change
//! wait in a temporary table until all of them were deleted, and are then inserted again.
//!
//! Invariant: every statement affects exactly one row, or the unit fails.

use std::collections::HashMap;

use arrow::array::RecordBatch;
use forebay_pgcopy::Column;
use forebay_sdk::changes::decoded::{Decoded, times};
use forebay_sdk::changes::feed::{Applied, changed_by_others};
use forebay_sdk::changes::{Effect, Field};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::values::write::Cells;
use rusqlite::Connection;

use super::super::writer::{bound, is_constraint};
use super::super::{Database, quoted};
use super::table::{DELETED_AT, Table};

/// The table in which rows wait.
const REBUILT: &str = "temp._forebay_rebuilt";
/// Number of changes that are decoded at once.
const DECODED: usize = 4 << 10;

/// A unit that is being applied to a table.
pub(super) struct Applying<'a> {
    pub(super) table: &'a Table,
    pub(super) database: &'a Database,
    pub(super) connection: &'a Connection,
    /// Whether a row that is changed must not be a deleted one.
    pub(super) is_live: bool,
    /// Whether rows that change are deleted and inserted again.
    pub(super) rebuilds: bool,
    /// Number of rows that wait for it.
    pub(super) waiting: u64,
    /// The statement of an update by the columns that were sent.
    pub(super) updates: HashMap<Vec<bool>, String>,
    pub(super) applied: Applied,
}

/// The values of one row: some columns of a batch.
struct Values<'a, 'b> {
    cells: &'b [Cells<'a>],
    row: usize,
}

impl Applying<'_> {
    fn failed(&self) -> impl Fn(rusqlite::Error) -> ConnectorError + use<'_> {
        |error| self.database.failed("apply changes to", error)
    }

    /// Applies effects.
    ///
    /// * `truncated_us`: when the table was emptied before them, in microseconds since 1970.
    pub(super) fn apply(
        mut self,
        truncated_us: Option<i64>,
        effects: &[Effect],
    ) -> Result<Applied> {
        if let Some(at_us) = truncated_us {
            self.truncate(at_us)?;
        }
        self.begin()?;
        for effects in effects.chunks(DECODED) {
            self.take(effects)?;
        }
        self.insert_waiting()?;
        Ok(self.applied)
    }

    /// Empties the table, or marks its rows as deleted.
    fn truncate(&self, at_us: i64) -> Result<()> {
        let table = quoted(&self.table.into);
        let Some(column) = &self.table.deleted_at else {
            let deleted = self.connection.execute(&format!("DELETE FROM {table}"), []);
            return deleted.map(drop).map_err(self.failed());
        };
        let array = times(column, [Some(at_us)])?;
        let (cells, mut text) = (Cells::new(array.as_ref(), column)?, Vec::new());
        let mark = format!("UPDATE {table} SET {DELETED_AT} = ?1 WHERE {DELETED_AT} IS NULL");
        let marked = self.connection.execute(&mark, [bound(&cells, 0, &mut text)]);
        marked.map(drop).map_err(self.failed())
    }

    fn begin(&self) -> Result<()> {
        if !self.rebuilds {
            return Ok(());
        }
        let names = self.table.names();
        let create = format!("DROP TABLE IF EXISTS {REBUILT}; CREATE TABLE {REBUILT} ({names})");
        self.connection.execute_batch(&create).map_err(self.failed())
    }

    /// Takes effects, of which all deletions come before all updates, and these before all insertions.
    fn take(&mut self, effects: &[Effect]) -> Result<()> {
        let table = self.table;
        let deleted_at = table.deleted_at.as_ref();
        let decoded = Decoded::of(&table.into, &table.columns, &table.key, deleted_at, effects)?;
        let of_key = decoded.rows.columns().iter().zip(&table.columns);
        let of_key = of_key.filter(|(_, column)| table.key.contains(column));
        let new_keys = of_key.map(|(array, column)| Cells::new(array.as_ref(), column));
        let new_keys = new_keys.collect::<Result<Vec<_>>>()?;
        let keys = cells(&decoded.keys, &table.key)?;
        let rows = cells(&decoded.rows, &table.columns)?;
        let times = match (&decoded.times, &table.deleted_at) {
            (Some(times), Some(column)) => vec![Cells::new(times.as_ref(), column)?],
            _ => Vec::new(),
        };
        let (mut at_key, mut at_row) = (0, 0);
        for (at, effect) in effects.iter().enumerate() {
            let key = Values { cells: &keys, row: at_key };
            let row = Values { cells: &rows, row: at_row };
            let time = Values { cells: &times, row: at };
            match effect {
                Effect::Delete { kept_us, .. } => {
                    self.delete(&key, &time, kept_us.is_some())?;
                    at_key += 1;
                }
                Effect::Update { row: changed, .. } => {
                    let sent = changed.fields().map(|field| field != Field::Unchanged).collect();
                    self.update(&key, &row, &time, sent)?;
                    at_key += 1;
                    at_row += 1;
                }
                Effect::Insert { .. } => {
                    self.insert_waiting()?;
                    let new_key = Values { cells: &new_keys, row: at_row };
                    self.insert(&new_key, &row, &time)?;
                    at_row += 1;
                }
            }
        }
        Ok(())
    }

    /// The condition that a row has the key that is bound from a parameter on.
    fn same(&self, from: usize) -> String {
        let keys = self.table.key.iter().enumerate();
        let keys = keys.map(|(at, column)| format!("{} = ?{}", quoted(&column.name), from + at));
        let is_live = self.is_live && self.table.deleted_at.is_some();
        let live = is_live.then(|| format!("{DELETED_AT} IS NULL"));
        keys.chain(live).collect::<Vec<_>>().join(" AND ")
    }

    /// Executes a statement with the values of rows as its parameters; returns the number of rows it affected.
    fn execute(&self, sql: &str, values: &[&Values<'_, '_>]) -> Result<usize> {
        let failed = self.failed();
        let mut statement = self.connection.prepare_cached(sql).map_err(&failed)?;
        let (mut at, mut text) = (0, Vec::new());
        for Values { cells, row } in values {
            for cells in *cells {
                at += 1;
                text.clear();
                let value = bound(cells, *row, &mut text);
                statement.raw_bind_parameter(at, value).map_err(&failed)?;
            }
        }
        statement.raw_execute().map_err(|error| self.refused(error))
    }

    fn one(&self, affected: usize, what: &str) -> Result<()> {
        match affected {
            1 => Ok(()),
            found => Err(changed_by_others(&self.table.into, found as u64, 1, what)),
        }
    }

    /// Why the table refuses a row.
    fn refused(&self, error: rusqlite::Error) -> ConnectorError {
        match is_constraint(&error) {
            true => ConnectorError::data(&*self.table.into, format!("refuses a row: {error}")),
            false => self.failed()(error),
        }
    }

    fn delete(&mut self, key: &Values<'_, '_>, time: &Values<'_, '_>, marks: bool) -> Result<()> {
        let table = quoted(&self.table.into);
        let affected = if marks {
            let same = self.same(2);
            let mark = format!("UPDATE {table} SET {DELETED_AT} = ?1 WHERE {same}");
            self.execute(&mark, &[time, key])?
        } else {
            self.execute(&format!("DELETE FROM {table} WHERE {}", self.same(1)), &[key])?
        };
        self.one(affected, "deleted")?;
        self.applied.deleted += 1;
        Ok(())
    }

    fn update(
        &mut self,
        key: &Values<'_, '_>,
        row: &Values<'_, '_>,
        time: &Values<'_, '_>,
        sent: Vec<bool>,
    ) -> Result<()> {
        if !self.updates.contains_key(&sent) {
            let statement = self.update_statement(&sent);
            self.updates.insert(sent.clone(), statement);
        }
        let statement = self.updates.get(&sent).map(String::as_str).unwrap_or_default();
        self.one(self.execute(statement, &[row, time, key])?, "updated")?;
        if self.rebuilds {
            let delete = format!("DELETE FROM {} WHERE {}", quoted(&self.table.into), self.same(1));
            self.one(self.execute(&delete, &[key])?, "updated")?;
            self.waiting += 1;
        }
        self.applied.updated += 1;
        Ok(())
    }

    /// The statement that updates a row, or lets it wait as it will be. Its parameters are the values of all columns,
    /// the time, and the key.
    fn update_statement(&self, sent: &[bool]) -> String {
        let table = quoted(&self.table.into);
        let columns = self.table.columns.iter().zip(sent).enumerate();
        let times = self.table.deleted_at.iter();
        let time = self.table.columns.len() + 1;
        let same = self.same(time + times.clone().count());
        if self.rebuilds {
            let values =
                columns.map(
                    |(at, (column, sent))| {
                        if *sent { format!("?{}", at + 1) } else { quoted(&column.name) }
                    },
                );
            let values: Vec<String> = values.chain(times.map(|_| format!("?{time}"))).collect();
            return format!(
                "INSERT INTO {REBUILT} SELECT {} FROM main.{table} WHERE {same}",
                values.join(", ")
            );
        }
        let sets = columns.filter(|(_, (_, sent))| **sent);
        let sets = sets.map(|(at, (column, _))| format!("{} = ?{}", quoted(&column.name), at + 1));
        let sets: Vec<String> =
            sets.chain(times.map(|_| format!("{DELETED_AT} = ?{time}"))).collect();
        format!("UPDATE {table} SET {} WHERE {same}", sets.join(", "))
    }

    fn insert(
        &mut self,
        key: &Values<'_, '_>,
        row: &Values<'_, '_>,
        time: &Values<'_, '_>,
    ) -> Result<()> {
        let table = quoted(&self.table.into);
        if self.table.deleted_at.is_some() {
            // A deleted row with this key gives way.
            let keys = self.table.key.iter().enumerate();
            let keys = keys.map(|(at, column)| format!("{} = ?{}", quoted(&column.name), at + 1));
            let keys: Vec<String> = keys.collect();
            let keys = keys.join(" AND ");
            let delete = format!("DELETE FROM {table} WHERE {keys} AND {DELETED_AT} IS NOT NULL");
            self.execute(&delete, &[key])?;
        }
        let names = self.table.names();
        let count = self.table.columns.len() + self.table.deleted_at.iter().count();
        let marks = vec!["?"; count].join(", ");
        let insert = format!("INSERT INTO {table} ({names}) VALUES ({marks})");
        self.one(self.execute(&insert, &[row, time])?, "inserted")?;
        self.applied.inserted += 1;
        Ok(())
    }

    /// Inserts the rows that wait. All rows that change were deleted before.
    fn insert_waiting(&mut self) -> Result<()> {
        if self.waiting == 0 {
            return Ok(());
        }
        let (table, names) = (quoted(&self.table.into), self.table.names());
        if self.table.deleted_at.is_some() {
            let keys = self.table.key.iter().map(|key| quoted(&key.name));
            let keys: Vec<String> =
                keys.map(|key| format!("r.{key} = main.{table}.{key}")).collect();
            let delete = format!(
                "DELETE FROM main.{table} WHERE {DELETED_AT} IS NOT NULL AND EXISTS (SELECT 1 FROM {REBUILT} r WHERE {})",
                keys.join(" AND ")
            );
            self.execute(&delete, &[])?;
        }
        let insert = format!("INSERT INTO main.{table} ({names}) SELECT {names} FROM {REBUILT}");
        let inserted = self.execute(&insert, &[])?;
        let waiting = std::mem::take(&mut self.waiting);
        if inserted as u64 != waiting {
            let found = format!("{inserted} rows of {waiting} were inserted again");
            return Err(ConnectorError::data(&*self.table.into, found));
        }
        self.execute(&format!("DELETE FROM {REBUILT}"), &[]).map(drop)
    }
}

fn cells<'a>(batch: &'a RecordBatch, columns: &[Column]) -> Result<Vec<Cells<'a>>> {
    let cells = batch.columns().iter().zip(columns);
    cells.map(|(array, column)| Cells::new(array.as_ref(), column)).collect()
}
