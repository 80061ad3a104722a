//! How the columns of a namespace became what they are.
//!
//! ```text
//! _forebay_column_changes   namespace, number -> position, time, the id before it, path, name,
//!                           type before, type
//! ```
//!
//! One row for each column that was added, removed, or given another type; those of one write have the
//! same position. What a layout before version 5 did is not known.
//!
//! Invariants: a change is recorded in the transaction that makes it; the namespace's checksum of its
//! columns covers the changes, so one that was altered, removed or invented is noticed; of a namespace
//! the newest [`CHANGES_MAX`] are kept; where all rows are dropped, so are the changes.

use forebay_base::rows::RowHasher;
use forebay_sink::{Column, ColumnType, TableSchema};
use rusqlite::Connection;

use super::fault::{Checked, Fault};
use super::state::{NamespaceRow, number};

/// Number of changes of a namespace's columns that are kept.
pub const CHANGES_MAX: u64 = 1_000;

pub(super) const CREATE_COLUMN_CHANGES: &str = "
CREATE TABLE _forebay_column_changes (
  namespace TEXT NOT NULL,
  number INTEGER NOT NULL,
  at INTEGER NOT NULL,
  changed_ms INTEGER NOT NULL,
  after_id INTEGER,
  path TEXT NOT NULL,
  name TEXT NOT NULL,
  type_before TEXT,
  type TEXT,
  PRIMARY KEY (namespace, number)
) STRICT, WITHOUT ROWID;
";

/// A change of one column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnChange {
    /// Counts the changes of the namespace's columns, from 1.
    pub number: u64,
    /// Position of the write that made it.
    pub at: u64,
    /// When that was received, in milliseconds since 1970.
    pub changed_ms: u64,
    /// The largest id of the namespace's rows before; `None` if there were none.
    pub after_id: Option<u64>,
    /// Path of the field.
    pub path: String,
    /// Name of the column.
    pub name: String,
    /// Its type before; `None` if it was added.
    pub before: Option<ColumnType>,
    /// Its type since; `None` if it was removed.
    pub after: Option<ColumnType>,
}

/// The columns of a namespace, and how they became what they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaHistory {
    /// The columns.
    pub schema: TableSchema,
    /// The changes, oldest first.
    pub changes: Vec<ColumnChange>,
}

/// When and where columns change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    /// Position of the write.
    pub(super) at: u64,
    /// When it was received, in milliseconds since 1970.
    pub(super) received_ms: u64,
}

impl ColumnChange {
    fn hash(&self, hasher: &mut RowHasher) {
        number(hasher, Some(self.number));
        number(hasher, Some(self.at));
        number(hasher, Some(self.changed_ms));
        number(hasher, self.after_id);
        hasher.text(self.path.as_bytes()).text(self.name.as_bytes());
        for ty in [self.before, self.after] {
            match ty {
                Some(ty) => hasher.text(ty.name().as_bytes()),
                None => hasher.null(),
            };
        }
    }
}

/// Adds the changes to a checksum; nothing where there are none.
pub(super) fn hash(changes: &[ColumnChange], hasher: &mut RowHasher) {
    for change in changes {
        change.hash(hasher);
    }
}

/// Reads the changes as they are stored; the caller verifies them.
pub(super) fn read(db: &Connection, namespace: &str) -> Checked<Vec<ColumnChange>> {
    let mut statement = db.prepare_cached(
        "SELECT number, at, changed_ms, after_id, path, name, type_before, type
         FROM _forebay_column_changes WHERE namespace = ?1 ORDER BY number",
    )?;
    let mut rows = statement.query([namespace])?;
    let mut changes = Vec::new();
    while let Some(row) = rows.next()? {
        let ty = |index| -> Checked<Option<ColumnType>> {
            let Some(name) = row.get::<_, Option<String>>(index)? else { return Ok(None) };
            let unknown = || Fault::Damaged(format!("unknown column type {name:?}"));
            ColumnType::from_name(&name).ok_or_else(unknown).map(Some)
        };
        let unsigned = |value: i64| value.cast_unsigned();
        changes.push(ColumnChange {
            number: unsigned(row.get(0)?),
            at: unsigned(row.get(1)?),
            changed_ms: unsigned(row.get(2)?),
            after_id: row.get::<_, Option<i64>>(3)?.map(unsigned),
            path: row.get(4)?,
            name: row.get(5)?,
            before: ty(6)?,
            after: ty(7)?,
        });
    }
    Ok(changes)
}

/// Records what differs between two schemas of a namespace.
pub(super) fn record(
    db: &Connection,
    row: &NamespaceRow,
    moment: Moment,
    before: &TableSchema,
    after: &TableSchema,
) -> rusqlite::Result<()> {
    let removed = before.columns().iter().filter(|column| after.column(&column.path).is_none());
    let removed = removed.map(|column| (column, Some(column.ty), None));
    let others = after.columns().iter().filter_map(|column| {
        let known = before.column(&column.path).map(|known| known.ty);
        (known != Some(column.ty)).then_some((column, known, Some(column.ty)))
    });
    insert(db, row, moment, removed.chain(others))
}

/// Records that a namespace got more columns.
pub(super) fn record_added(
    db: &Connection,
    row: &NamespaceRow,
    moment: Moment,
    added: &[Column],
) -> rusqlite::Result<()> {
    insert(db, row, moment, added.iter().map(|column| (column, None, Some(column.ty))))
}

fn insert<'a>(
    db: &Connection,
    row: &NamespaceRow,
    Moment { at, received_ms }: Moment,
    changes: impl Iterator<Item = (&'a Column, Option<ColumnType>, Option<ColumnType>)>,
) -> rusqlite::Result<()> {
    let newest = "SELECT max(number) FROM _forebay_column_changes WHERE namespace = ?1";
    let newest: Option<u64> =
        db.prepare_cached(newest)?.query_row([&row.name], |found| found.get(0))?;
    let mut newest = newest.unwrap_or(0);
    let mut statement = db.prepare_cached(
        "INSERT INTO _forebay_column_changes
           (namespace, number, at, changed_ms, after_id, path, name, type_before, type)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    for (column, before, after) in changes {
        newest += 1;
        statement.execute(rusqlite::params![
            &row.name,
            newest,
            at,
            received_ms,
            row.last_id,
            &column.path,
            &column.name,
            before.map(ColumnType::name),
            after.map(ColumnType::name),
        ])?;
    }
    let oldest = newest.saturating_sub(CHANGES_MAX);
    db.prepare_cached("DELETE FROM _forebay_column_changes WHERE namespace = ?1 AND number <= ?2")?
        .execute((&row.name, oldest))?;
    Ok(())
}

/// Removes the changes of a namespace; returns whether there were any.
pub(super) fn forget(db: &Connection, namespace: &str) -> rusqlite::Result<bool> {
    let mut statement =
        db.prepare_cached("DELETE FROM _forebay_column_changes WHERE namespace = ?1")?;
    Ok(statement.execute([namespace])? > 0)
}

/// Number of changes of namespaces that do not exist, which no checksum covers.
pub(super) fn strays(db: &Connection) -> rusqlite::Result<u64> {
    let count = "SELECT count(*) FROM _forebay_column_changes
       WHERE namespace NOT IN (SELECT namespace FROM _forebay_namespaces)";
    db.query_row(count, [], |row| row.get(0))
}
