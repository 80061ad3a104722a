//! The sink's own tables: read with their checksums verified, and stored with them.
//!
//! ```text
//! _forebay_state       one row: identity, position, the set of the namespaces' rows
//! _forebay_namespaces  namespace -> table, the set of its rows, its first and last id, when its rows
//!                      last got other values, whether its kind is still to be decided
//! _forebay_columns     namespace, ordinal -> path, name, type
//! _forebay_changes     namespace, id -> the newest change (module `changes`)
//! _forebay_column_changes   namespace, number -> a change of a column (module `history`)
//! ```
//!
//! Each covers the next: the state's row has the count and digest of the rows of namespaces, so one
//! that is missing is noticed; a namespace's row has those of its rows and a checksum of its columns,
//! of the SQL that made its table, and of how the columns changed.
//!
//! Invariants: nothing read here is used before its checksum was verified; everything changes in
//! the transaction that changes the rows it describes.

use std::collections::HashMap;

use forebay_base::rows::{RowHasher, RowSet};
use forebay_sink::{Column, ColumnType, Identity, Position, TableSchema};
use rusqlite::{Connection, OptionalExtension, Row};

use super::changes::Changed;
use super::fault::{Checked, Fault};
use super::history::{self, ColumnChange, SchemaHistory};
use super::layout::Namespace;

const NAMESPACE: &str = "SELECT namespace, table_name, row_count, first_id, last_id, rows_digest,
   schema_checksum, checksum, rewritten_at, undecided, change_count, changes_digest, deleted_count,
   changed_at, removed_at, dropped_at, dropped_id FROM _forebay_namespaces";

/// The database's identity, the committed position, and the set of the rows of namespaces.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    pub(super) identity: Identity,
    pub(super) position: Option<Position>,
    pub(super) namespaces: RowSet,
}

/// A row of `_forebay_namespaces`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamespaceRow {
    pub(super) name: String,
    pub(super) table: String,
    pub(super) rows: RowSet,
    pub(super) first_id: Option<u64>,
    pub(super) last_id: Option<u64>,
    /// Of its columns, of its table's SQL, and of how the columns changed.
    pub(super) schema_checksum: u64,
    /// Position at which its rows last got other values, and so other checksums.
    pub(super) rewritten_at: Option<u64>,
    /// Whether it is still to be decided if it is a table or a collection.
    pub(super) undecided: bool,
    /// What happened to its rows after they were written.
    pub(super) changed: Changed,
}

impl State {
    fn checksum(&self) -> u64 {
        let mut hasher = RowHasher::default();
        hasher.start().text(b"_forebay_state").blob(&self.identity.0);
        number(&mut hasher, self.position.map(|position| position.0));
        hasher.integer(self.namespaces.count.cast_signed());
        hasher.integer(self.namespaces.digest.cast_signed()).finish()
    }
}

impl NamespaceRow {
    pub(super) fn checksum(&self) -> u64 {
        let mut hasher = RowHasher::default();
        hasher.start().text(b"_forebay_namespaces");
        hasher.text(self.name.as_bytes()).text(self.table.as_bytes());
        hasher.integer(self.rows.count.cast_signed());
        number(&mut hasher, self.first_id);
        number(&mut hasher, self.last_id);
        hasher.integer(self.rows.digest.cast_signed());
        hasher.integer(self.schema_checksum.cast_signed());
        // Without either, the checksum is the one of layout 2.
        let is_changed = self.changed != Changed::default();
        if self.rewritten_at.is_some() || self.undecided || is_changed {
            number(&mut hasher, self.rewritten_at);
            hasher.integer(self.undecided.into());
        }
        // Without any, it is the one of layout 3.
        if is_changed {
            self.changed.hash(&mut hasher);
        }
        hasher.finish()
    }

    /// The first and last id, where every id between has a row, or had one that was deleted: then a
    /// row that is not found and was not deleted is damage.
    pub(super) fn dense(&self) -> Option<(u64, u64)> {
        let (first, last) = (self.first_id?, self.last_id?);
        let given = self.rows.count.checked_add(self.changed.deleted)?;
        (last.checked_sub(first)?.checked_add(1)? == given).then_some((first, last))
    }

    fn read(row: &Row<'_>) -> Checked<NamespaceRow> {
        let found = NamespaceRow {
            name: row.get(0)?,
            table: row.get(1)?,
            rows: RowSet { count: row.get(2)?, digest: row.get::<_, i64>(5)?.cast_unsigned() },
            first_id: row.get(3)?,
            last_id: row.get(4)?,
            schema_checksum: row.get::<_, i64>(6)?.cast_unsigned(),
            rewritten_at: row.get(8)?,
            undecided: row.get::<_, i64>(9)? != 0,
            changed: Changed::read(row, 10)?,
        };
        if row.get::<_, i64>(7)?.cast_unsigned() == found.checksum() {
            Ok(found)
        } else {
            let name = found.name;
            Err(Fault::Damaged(format!(
                "the row of the namespace {name:?} does not match its checksum"
            )))
        }
    }
}

pub(super) fn number(hasher: &mut RowHasher, value: Option<u64>) {
    match value {
        Some(value) => hasher.integer(value.cast_signed()),
        None => hasher.null(),
    };
}

/// Reads the state.
pub(super) fn state(connection: &Connection) -> Checked<State> {
    let mut statement = connection.prepare_cached(
        "SELECT identity, position, namespace_count, namespaces_digest, checksum
         FROM _forebay_state",
    )?;
    let mut rows = statement.query([])?;
    let row = rows.next()?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    let position: Option<u64> = row.get(1)?;
    let digest = row.get::<_, i64>(3)?.cast_unsigned();
    let state = State {
        identity: Identity(row.get(0)?),
        position: position.map(Position),
        namespaces: RowSet { count: row.get(2)?, digest },
    };
    if row.get::<_, i64>(4)?.cast_unsigned() == state.checksum() {
        Ok(state)
    } else {
        Err(Fault::Damaged("the sink's state does not match its checksum".to_owned()))
    }
}

/// Stores the state.
pub(super) fn save_state(connection: &Connection, state: &State) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO _forebay_state
           (one, identity, position, namespace_count, namespaces_digest, checksum)
         VALUES (1, ?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (one) DO UPDATE SET identity = ?1, position = ?2, namespace_count = ?3,
           namespaces_digest = ?4, checksum = ?5",
    )?;
    let set = state.namespaces;
    statement.execute((
        state.identity.0,
        state.position.map(|position| position.0),
        set.count,
        set.digest.cast_signed(),
        state.checksum().cast_signed(),
    ))?;
    Ok(())
}

/// Reads the row of every namespace, and checks that none is missing.
pub(super) fn namespace_rows(
    connection: &Connection,
    expected: RowSet,
) -> Checked<Vec<NamespaceRow>> {
    let mut found = Vec::new();
    let mut set = RowSet::default();
    let mut statement = connection.prepare_cached(&format!("{NAMESPACE} ORDER BY namespace"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let row = NamespaceRow::read(row)?;
        set.insert(row.checksum());
        found.push(row);
    }
    if set == expected {
        Ok(found)
    } else {
        Err(Fault::Damaged(format!(
            "{} namespaces that do not match the digest of the {} that were stored",
            set.count, expected.count
        )))
    }
}

/// The row of a namespace; `None` if there is certainly none.
pub(super) fn namespace(
    connection: &Connection,
    name: &str,
    state: &State,
) -> Checked<Option<NamespaceRow>> {
    let mut statement = connection.prepare_cached(&format!("{NAMESPACE} WHERE namespace = ?1"))?;
    let mut rows = statement.query([name])?;
    if let Some(row) = rows.next()? {
        return NamespaceRow::read(row).map(Some);
    }
    // A row whose name was altered is not found either.
    namespace_rows(connection, state.namespaces).map(|_| None)
}

/// Reads every namespace as the writer needs it.
pub(super) fn namespaces(
    connection: &Connection,
    state: &State,
) -> Checked<HashMap<String, Namespace>> {
    let mut sql = HashMap::new();
    let mut statement = connection
        .prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND tbl_name = name")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        sql.insert(row.get::<_, String>(0)?, row.get::<_, String>(1)?);
    }
    let mut found = HashMap::new();
    for row in namespace_rows(connection, state.namespaces)? {
        let made_by = sql.get(&row.table).map_or("", String::as_str);
        let schema = columns(connection, &row.name)?;
        verify_schema(&row, &schema, made_by, &history::read(connection, &row.name)?)?;
        found.insert(row.name.clone(), Namespace::stored(row, schema));
    }
    Ok(found)
}

/// Reads a namespace's columns.
pub(super) fn schema(connection: &Connection, row: &NamespaceRow) -> Checked<TableSchema> {
    Ok(schema_history(connection, row)?.schema)
}

/// Reads a namespace's columns, and how they became what they are.
pub(super) fn schema_history(
    connection: &Connection,
    row: &NamespaceRow,
) -> Checked<SchemaHistory> {
    let schema = columns(connection, &row.name)?;
    let changes = history::read(connection, &row.name)?;
    verify_schema(row, &schema, &table_sql(connection, &row.table)?, &changes)?;
    Ok(SchemaHistory { schema, changes })
}

/// The SQL that made a table, with the columns added since; empty if there is no such table.
fn table_sql(connection: &Connection, table: &str) -> rusqlite::Result<String> {
    let mut statement = connection.prepare_cached(
        "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?1 AND tbl_name = ?1",
    )?;
    Ok(statement.query_row([table], |row| row.get(0)).optional()?.unwrap_or_default())
}

fn verify_schema(
    row: &NamespaceRow,
    schema: &TableSchema,
    sql: &str,
    changes: &[ColumnChange],
) -> Checked<()> {
    if sql.is_empty() {
        return Err(Fault::Damaged(format!("the table of the namespace {} is missing", row.name)));
    }
    if schema_checksum(&row.name, schema, sql, changes) == row.schema_checksum {
        return Ok(());
    }
    Err(Fault::Damaged(format!(
        "the columns of the namespace {} do not match their checksum",
        row.name
    )))
}

fn schema_checksum(
    namespace: &str,
    schema: &TableSchema,
    sql: &str,
    changes: &[ColumnChange],
) -> u64 {
    let mut hasher = RowHasher::default();
    hasher.start().text(b"_forebay_columns").text(namespace.as_bytes());
    for Column { path, name, ty } in schema.columns() {
        hasher.text(path.as_bytes()).text(name.as_bytes()).text(ty.name().as_bytes());
    }
    hasher.text(sql.as_bytes());
    // Without any, the checksum is the one of layout 4.
    history::hash(changes, &mut hasher);
    hasher.finish()
}

/// Computes the checksum of a namespace's columns and of its table as it is now.
pub(super) fn current_schema_checksum(
    connection: &Connection,
    name: &str,
    table: &str,
    schema: &TableSchema,
    changes: &[ColumnChange],
) -> rusqlite::Result<u64> {
    Ok(schema_checksum(name, schema, &table_sql(connection, table)?, changes))
}

/// Reads the columns as they are stored; the caller verifies them.
pub(super) fn columns(connection: &Connection, namespace: &str) -> Checked<TableSchema> {
    let mut statement = connection.prepare_cached(
        "SELECT path, name, type FROM _forebay_columns WHERE namespace = ?1 ORDER BY ordinal",
    )?;
    let mut rows = statement.query([namespace])?;
    let mut schema = TableSchema::default();
    while let Some(row) = rows.next()? {
        let ty: String = row.get(2)?;
        let ty = ColumnType::from_name(&ty)
            .ok_or_else(|| Fault::Damaged(format!("unknown column type {ty:?}")))?;
        schema.push(Column { path: row.get(0)?, name: row.get(1)?, ty });
    }
    Ok(schema)
}

pub(super) fn insert_column(
    connection: &Connection,
    name: &str,
    ordinal: usize,
    column: &Column,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO _forebay_columns (namespace, ordinal, path, name, type)
         VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let (path, column_name) = (&column.path, &column.name);
    statement.execute((name, ordinal, path, column_name, column.ty.name())).map(|_| ())
}

/// Stores the columns of a namespace in place of those that it had.
pub(super) fn replace_columns(
    connection: &Connection,
    name: &str,
    schema: &TableSchema,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached("DELETE FROM _forebay_columns WHERE namespace = ?1")?
        .execute([name])?;
    for (ordinal, column) in schema.columns().iter().enumerate() {
        insert_column(connection, name, ordinal, column)?;
    }
    Ok(())
}

/// Stores the row of a namespace and returns its checksum.
pub(super) fn save_namespace(connection: &Connection, row: &NamespaceRow) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO _forebay_namespaces (namespace, table_name, row_count, first_id, last_id,
           rows_digest, schema_checksum, checksum, rewritten_at, undecided, change_count,
           changes_digest, deleted_count, changed_at, removed_at, dropped_at, dropped_id)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
         ON CONFLICT (namespace) DO UPDATE SET row_count = ?3, first_id = ?4, last_id = ?5,
           rows_digest = ?6, schema_checksum = ?7, checksum = ?8, rewritten_at = ?9,
           undecided = ?10, change_count = ?11, changes_digest = ?12, deleted_count = ?13,
           changed_at = ?14, removed_at = ?15, dropped_at = ?16, dropped_id = ?17",
    )?;
    let (checksum, changed) = (row.checksum(), &row.changed);
    statement.execute(rusqlite::params![
        &row.name,
        &row.table,
        row.rows.count,
        row.first_id,
        row.last_id,
        row.rows.digest.cast_signed(),
        row.schema_checksum.cast_signed(),
        checksum.cast_signed(),
        row.rewritten_at,
        row.undecided,
        changed.rows.count,
        changed.rows.digest.cast_signed(),
        changed.deleted,
        changed.changed_at,
        changed.removed_at,
        changed.dropped.map(|dropped| dropped.at),
        changed.dropped.map(|dropped| dropped.last_id),
    ])?;
    Ok(checksum)
}
