//! The contents of the database besides the rows, and the setup of a connection.
//!
//! ```text
//! <namespace>          _id, _received_ms, _checksum, columns known from the start, _document,
//!                      later columns
//! ```
//!
//! The sink's own tables are in the module `state`.
//!
//! The namespaces' tables are not `STRICT`: SQLite re-reads a whole STRICT table whenever a column
//! is added to it, and [`ColumnType::fit`] has checked every value before it is bound. Columns
//! known when the table is made stand before the document, so that reading them never walks
//! through a long document's overflow pages. Where columns change, the table is made again (module
//! `reshape`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_base::rows::RowSet;
use forebay_pgcopy::quote_identifier;
use forebay_sink::{Column, ColumnType, Identity, OpenError, TableSchema};
use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::changes::Changed;
use super::fault::open_error;
use super::history::CREATE_COLUMN_CHANGES;
use super::state::{self, NamespaceRow, State};
use super::upgrade;

/// "FBsk": what SQLite's header says the file is (<https://sqlite.org/fileformat.html>, offset 68).
pub const APPLICATION_ID: u32 = 0x4642_736b;
/// The oldest layout that is upgraded when it is opened for writing.
const LAYOUT_VERSION_MIN: u32 = 1;
/// The version of this layout, kept as SQLite's user version.
pub const LAYOUT_VERSION: u32 = 5;

/// How long to wait for another process's lock, such as that of a `sqlite3` shell.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Of 8 KiB, where documents of a few KiB need no overflow pages.
const PAGE_SIZE: u32 = 8192;
/// 32 MiB between checkpoints: each flushes twice, whatever it moves.
const WAL_PAGES_MAX: u32 = 4096;
/// The journal's size after a checkpoint, in bytes.
const JOURNAL_SIZE_MAX: u32 = 64 << 20;

/// Names of columns that every table has already, and that `ALTER TABLE ... ADD COLUMN` refuses
/// (<https://sqlite.org/rowidtable.html>).
pub(super) const ROWID_NAMES: &[&str] = &["rowid", "oid", "_rowid_"];

pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";

pub(super) const CREATE_STATE: &str = "
CREATE TABLE _forebay_state (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  identity BLOB NOT NULL,
  position INTEGER,
  namespace_count INTEGER NOT NULL,
  namespaces_digest INTEGER NOT NULL,
  checksum INTEGER NOT NULL
) STRICT;
";
pub(super) const CREATE_NAMESPACES: &str = "
CREATE TABLE _forebay_namespaces (
  namespace TEXT PRIMARY KEY,
  table_name TEXT NOT NULL UNIQUE,
  row_count INTEGER NOT NULL,
  first_id INTEGER,
  last_id INTEGER,
  rows_digest INTEGER NOT NULL,
  schema_checksum INTEGER NOT NULL,
  rewritten_at INTEGER,
  undecided INTEGER NOT NULL,
  change_count INTEGER NOT NULL,
  changes_digest INTEGER NOT NULL,
  deleted_count INTEGER NOT NULL,
  changed_at INTEGER,
  removed_at INTEGER,
  dropped_at INTEGER,
  dropped_id INTEGER,
  checksum INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";
pub(super) const CREATE_CHANGES: &str = "
CREATE TABLE _forebay_changes (
  namespace TEXT NOT NULL,
  id INTEGER NOT NULL,
  at INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  checksum INTEGER NOT NULL,
  PRIMARY KEY (namespace, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX _forebay_changes_by_at ON _forebay_changes (namespace, at);
";
pub(super) const CREATE_COLUMNS: &str = "
CREATE TABLE _forebay_columns (
  namespace TEXT NOT NULL,
  ordinal INTEGER NOT NULL,
  path TEXT NOT NULL,
  name TEXT NOT NULL,
  type TEXT NOT NULL,
  PRIMARY KEY (namespace, ordinal),
  UNIQUE (namespace, path),
  UNIQUE (namespace, name)
) STRICT, WITHOUT ROWID;
";

/// A namespace as the sink knows it: its row, its columns, and its insert statement.
#[derive(Debug)]
pub(super) struct Namespace {
    pub(super) row: NamespaceRow,
    pub(super) schema: TableSchema,
    /// Checksum of the row that is stored; `None` before the first.
    pub(super) stored: Option<u64>,
    /// Its columns have changed since the row was stored.
    pub(super) reshaped: bool,
    /// It is in the list of those to be saved by the next commit.
    pub(super) dirty: bool,
    /// Inserts `_id`, `_received_ms`, `_document`, `_checksum` and every column, in this order.
    pub(super) insert: String,
}

impl Namespace {
    /// A namespace without rows, whose table was just created.
    pub(super) fn new(name: String, table: String) -> Namespace {
        let row = NamespaceRow {
            name,
            table,
            rows: RowSet::default(),
            first_id: None,
            last_id: None,
            schema_checksum: 0,
            rewritten_at: None,
            undecided: false,
            changed: Changed::default(),
        };
        let mut namespace = Namespace::of(row, TableSchema::default(), None);
        namespace.reshaped = true;
        namespace
    }

    pub(super) fn stored(row: NamespaceRow, schema: TableSchema) -> Namespace {
        let stored = row.checksum();
        Namespace::of(row, schema, Some(stored))
    }

    fn of(row: NamespaceRow, schema: TableSchema, stored: Option<u64>) -> Namespace {
        let (reshaped, dirty, insert) = (false, false, String::new());
        let mut namespace = Namespace { row, schema, stored, reshaped, dirty, insert };
        namespace.prepare_insert();
        namespace
    }

    /// Must be called whenever the schema has changed.
    pub(super) fn prepare_insert(&mut self) {
        self.insert = insert_into(&self.row.table, &self.schema);
    }
}

/// The SQL that inserts `_id`, `_received_ms`, `_document`, `_checksum` and every column.
pub(super) fn insert_into(table: &str, schema: &TableSchema) -> String {
    let mut names = String::from("_id, _received_ms, _document, _checksum");
    let mut values = String::from("?1, ?2, ?3, ?4");
    for (number, column) in (5_u32..).zip(schema.columns()) {
        names.push_str(", ");
        names.push_str(&quote_identifier(&column.name));
        values.push_str(&format!(", ?{number}"));
    }
    format!("INSERT INTO {} ({names}) VALUES ({values})", quote_identifier(table))
}

/// The table of a namespace: its own name, unless SQLite or this sink reserves that; then a name
/// that no namespace can have.
pub(super) fn table_name(namespace: &str) -> String {
    if namespace.starts_with("sqlite_") || namespace.starts_with("_forebay_") {
        format!("namespace:{namespace}")
    } else {
        namespace.to_owned()
    }
}

/// The SQL that creates a namespace's table with its initial columns.
pub(super) fn create_table(table: &str, columns: &[Column]) -> String {
    let mut sql = format!(
        "CREATE TABLE {} (_id INTEGER PRIMARY KEY, _received_ms INTEGER NOT NULL, \
         _checksum INTEGER NOT NULL",
        quote_identifier(table)
    );
    for column in columns {
        sql.push_str(", ");
        sql.push_str(&column_definition(column));
    }
    sql.push_str(", _document)");
    sql
}

/// The SQL that adds a column to a namespace's table.
pub(super) fn add_column(table: &str, column: &Column) -> String {
    format!("ALTER TABLE {} ADD COLUMN {}", quote_identifier(table), column_definition(column))
}

fn column_definition(column: &Column) -> String {
    let declared = match column.ty {
        ColumnType::Boolean | ColumnType::Integer => "INTEGER",
        ColumnType::Real => "REAL",
        ColumnType::Decimal
        | ColumnType::Text
        | ColumnType::Json
        | ColumnType::Timestamp
        | ColumnType::Date => "TEXT",
        ColumnType::Bytes => "BLOB",
    };
    format!("{} {declared}", quote_identifier(&column.name))
}

/// Sets up a connection that writes; creates the database if there is none.
pub(super) fn prepare_writer(connection: &Connection, path: &Path) -> Result<bool, OpenError> {
    let failed = |act| move |source| open_error(act, path, source);
    harden(connection).map_err(failed("configure the connection"))?;
    let application: u32 = connection
        .pragma_query_value(None, "application_id", |row| row.get(0))
        .map_err(failed("read the header"))?;
    let tables: u32 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(failed("read the schema"))?;
    let fresh = application == 0 && tables == 0;
    let version = if fresh { LAYOUT_VERSION } else { check_header(connection, path)? };
    (|| {
        connection.pragma_update(None, "page_size", PAGE_SIZE)?;
        connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "normal")?;
        connection.pragma_update(None, "cache_size", -32_768)?;
        connection.pragma_update(None, "temp_store", "memory")?;
        // A deleted row is overwritten with zeros: one changed byte, the number of rows of its page,
        // would make it a row again whose checksum is right.
        connection.pragma_update_and_check(None, "secure_delete", "fast", |_| Ok(()))?;
        connection.pragma_update_and_check(
            None,
            "wal_autocheckpoint",
            WAL_PAGES_MAX,
            |_| Ok(()),
        )?;
        connection.pragma_update_and_check(None, "journal_size_limit", JOURNAL_SIZE_MAX, |_| Ok(()))
    })()
    .map_err(failed("configure the connection"))?;
    connection.set_prepared_statement_cache_capacity(256);
    if fresh {
        create(connection).map_err(failed("create the tables"))?;
    } else if version < LAYOUT_VERSION {
        upgrade::upgrade(connection, version)
            .map_err(|fault| open_error("upgrade the layout to version 5", path, fault))?;
    }
    Ok(fresh)
}

/// Creates the sink's own tables.
pub(super) fn create_tables(connection: &Connection) -> rusqlite::Result<()> {
    for sql in
        [CREATE_STATE, CREATE_NAMESPACES, CREATE_COLUMNS, CREATE_CHANGES, CREATE_COLUMN_CHANGES]
    {
        connection.execute_batch(sql)?;
    }
    Ok(())
}

fn create(connection: &Connection) -> rusqlite::Result<()> {
    let transaction = connection.unchecked_transaction()?;
    create_tables(&transaction)?;
    let identity: [u8; 16] =
        transaction.query_row("SELECT randomblob(16)", [], |row| row.get(0))?;
    let namespaces = RowSet::default();
    let state = State { identity: Identity(identity), position: None, namespaces };
    state::save_state(&transaction, &state)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", LAYOUT_VERSION)?;
    transaction.commit()
}

/// Sets up a connection that only reads.
pub(super) fn prepare_reader(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let failed = |source| open_error("configure the connection", path, source);
    harden(connection).map_err(failed)?;
    connection.pragma_update(None, "query_only", true).map_err(failed)?;
    connection.pragma_update(None, "cache_size", -8_192).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(256);
    let found = check_header(connection, path)?;
    if found != LAYOUT_VERSION {
        let path = path.to_owned();
        return Err(OpenError::Version { path, found, expected: LAYOUT_VERSION });
    }
    Ok(())
}

/// A database file is untrusted: nothing in it may run, and an identifier that is not a column is
/// an error rather than a string.
fn harden(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    for (setting, on) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        (DbConfig::SQLITE_DBCONFIG_DQS_DML, false),
        (DbConfig::SQLITE_DBCONFIG_DQS_DDL, false),
    ] {
        connection.set_db_config(setting, on)?;
    }
    connection.pragma_update(None, "cell_size_check", true)
}

/// Refuses what is not a sink's database; returns the version of its layout.
fn check_header(connection: &Connection, path: &Path) -> Result<u32, OpenError> {
    let pragma = |name: &str| {
        connection
            .pragma_query_value(None, name, |row| row.get::<_, u32>(0))
            .map_err(|source| open_error("read the header", path, source))
    };
    let found = pragma("application_id")?;
    if found != APPLICATION_ID {
        let path = path.to_owned();
        return Err(OpenError::Foreign { path, found, expected: APPLICATION_ID });
    }
    let found = pragma("user_version")?;
    if !(LAYOUT_VERSION_MIN..=LAYOUT_VERSION).contains(&found) {
        let path = path.to_owned();
        return Err(OpenError::Version { path, found, expected: LAYOUT_VERSION });
    }
    // The sink never turns it on, and with it SQLite reads some pages as something else.
    if pragma("auto_vacuum")? != 0 {
        let found = "the header says auto_vacuum, which the sink does not use".to_owned();
        return Err(OpenError::Corrupt { path: path.to_owned(), found });
    }
    Ok(found)
}

/// The write-ahead log beside the database at `path`.
pub(super) fn wal_path(path: &Path) -> PathBuf {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    PathBuf::from(wal)
}
