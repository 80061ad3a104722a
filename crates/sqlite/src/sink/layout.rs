//! The contents of the database besides the rows, and the setup of a connection.
//!
//! ```text
//! _forebay_state       one row: the database's identity and the committed position
//! _forebay_namespaces  namespace -> table, number of rows, largest id
//! _forebay_columns     namespace, ordinal -> path, name, type
//! <namespace>          _id, _received_ms, columns known from the start, _document, later columns
//! ```
//!
//! Invariant: these tables change in the transaction that changes the rows they describe.
//!
//! The namespaces' tables are not `STRICT`: SQLite re-reads a whole STRICT table whenever a column
//! is added to it, and [`ColumnType::fit`] has checked every value before it is bound. Columns
//! known when the table is made stand before the document, so that reading them never walks
//! through a long document's overflow pages.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_sink::name::quote_identifier;
use forebay_sink::{
    Column, ColumnType, Identity, OpenError, Position, ReadError, SinkError, TableSchema,
};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OptionalExtension};

/// "FBsk": what SQLite's header says the file is (<https://sqlite.org/fileformat.html>, offset 68).
pub const APPLICATION_ID: u32 = 0x4642_736b;
/// The version of this layout, kept as SQLite's user version.
pub const LAYOUT_VERSION: u32 = 1;

/// How long to wait for another process's lock, such as that of a `sqlite3` shell.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Of 8 KiB, where documents of a few KiB need no overflow pages.
const PAGE_SIZE: u32 = 8192;
/// 32 MiB between checkpoints: each flushes twice, whatever it moves.
const WAL_PAGES_MAX: u32 = 4096;
/// The journal's size after a checkpoint, in bytes.
const JOURNAL_SIZE_MAX: u32 = 64 << 20;

pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";

const CREATE: &str = "
CREATE TABLE _forebay_state (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  identity BLOB NOT NULL,
  position INTEGER
) STRICT;
CREATE TABLE _forebay_namespaces (
  namespace TEXT PRIMARY KEY,
  table_name TEXT NOT NULL UNIQUE,
  row_count INTEGER NOT NULL,
  last_id INTEGER
) STRICT, WITHOUT ROWID;
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
INSERT INTO _forebay_state (one, identity) VALUES (1, randomblob(16));
";

/// A namespace as the sink knows it: its state in the tables above, and its insert statement.
#[derive(Debug)]
pub(super) struct Namespace {
    pub(super) name: String,
    pub(super) table: String,
    pub(super) schema: TableSchema,
    pub(super) row_count: u64,
    pub(super) last_id: Option<u64>,
    /// It is in the list of those to be saved by the next commit.
    pub(super) dirty: bool,
    /// Inserts `_id`, `_received_ms`, `_document` and every column, in this order.
    pub(super) insert: String,
}

impl Namespace {
    pub(super) fn new(name: String, table: String, schema: TableSchema) -> Namespace {
        let mut namespace = Namespace {
            name,
            table,
            schema,
            row_count: 0,
            last_id: None,
            dirty: false,
            insert: String::new(),
        };
        namespace.prepare_insert();
        namespace
    }

    /// Must be called whenever the schema has changed.
    pub(super) fn prepare_insert(&mut self) {
        let mut names = String::from("_id, _received_ms, _document");
        let mut values = String::from("?1, ?2, ?3");
        for (number, column) in (4_u32..).zip(self.schema.columns()) {
            names.push_str(", ");
            names.push_str(&quote_identifier(&column.name));
            values.push_str(&format!(", ?{number}"));
        }
        let table = quote_identifier(&self.table);
        self.insert = format!("INSERT INTO {table} ({names}) VALUES ({values})");
    }
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
        "CREATE TABLE {} (_id INTEGER PRIMARY KEY, _received_ms INTEGER NOT NULL",
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
        ColumnType::Decimal | ColumnType::Text | ColumnType::Json => "TEXT",
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
    if !fresh {
        check_header(connection, path)?;
    }
    (|| {
        connection.pragma_update(None, "page_size", PAGE_SIZE)?;
        connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "normal")?;
        connection.pragma_update(None, "cache_size", -32_768)?;
        connection.pragma_update(None, "temp_store", "memory")?;
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
    }
    Ok(fresh)
}

fn create(connection: &Connection) -> rusqlite::Result<()> {
    let transaction = connection.unchecked_transaction()?;
    transaction.execute_batch(CREATE)?;
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
    check_header(connection, path)
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

fn check_header(connection: &Connection, path: &Path) -> Result<(), OpenError> {
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
    if found != LAYOUT_VERSION {
        let path = path.to_owned();
        return Err(OpenError::Version { path, found, expected: LAYOUT_VERSION });
    }
    Ok(())
}

/// Reads the identity and the committed position.
pub(super) fn state(connection: &Connection) -> rusqlite::Result<(Identity, Option<Position>)> {
    let mut statement =
        connection.prepare_cached("SELECT identity, position FROM _forebay_state")?;
    statement.query_row([], |row| {
        let position: Option<u64> = row.get(1)?;
        Ok((Identity(row.get(0)?), position.map(Position)))
    })
}

pub(super) fn save_position(connection: &Connection, position: Position) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached("UPDATE _forebay_state SET position = ?1")?;
    statement.execute([position.0]).map(|_| ())
}

/// Reads every namespace.
pub(super) fn namespaces(connection: &Connection) -> rusqlite::Result<HashMap<String, Namespace>> {
    let mut found = HashMap::new();
    let mut statement = connection
        .prepare("SELECT namespace, table_name, row_count, last_id FROM _forebay_namespaces")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        let schema = schema(connection, &name)?;
        let mut namespace = Namespace::new(name.clone(), row.get(1)?, schema);
        namespace.row_count = row.get(2)?;
        namespace.last_id = row.get(3)?;
        found.insert(name, namespace);
    }
    Ok(found)
}

/// Reads a namespace's columns; none when there is no such namespace.
pub(super) fn schema(connection: &Connection, namespace: &str) -> rusqlite::Result<TableSchema> {
    let mut statement = connection.prepare_cached(
        "SELECT path, name, type FROM _forebay_columns WHERE namespace = ?1 ORDER BY ordinal",
    )?;
    let columns = statement.query_map([namespace], |row| {
        let ty: String = row.get(2)?;
        let ty = ColumnType::from_name(&ty).ok_or_else(|| {
            let unknown = format!("unknown column type {ty:?}");
            rusqlite::Error::FromSqlConversionFailure(
                2,
                rusqlite::types::Type::Text,
                unknown.into(),
            )
        })?;
        Ok(Column { path: row.get(0)?, name: row.get(1)?, ty })
    })?;
    columns.collect()
}

/// The table, number of rows and largest id of a namespace.
pub(super) fn namespace(
    connection: &Connection,
    namespace: &str,
) -> rusqlite::Result<Option<(String, u64, Option<u64>)>> {
    let mut statement = connection.prepare_cached(
        "SELECT table_name, row_count, last_id FROM _forebay_namespaces WHERE namespace = ?1",
    )?;
    statement.query_row([namespace], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()
}

pub(super) fn insert_namespace(
    connection: &Connection,
    name: &str,
    table: &str,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO _forebay_namespaces (namespace, table_name, row_count) VALUES (?1, ?2, 0)",
    )?;
    statement.execute([name, table]).map(|_| ())
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

pub(super) fn save_namespace(
    connection: &Connection,
    name: &str,
    namespace: &Namespace,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "UPDATE _forebay_namespaces SET row_count = ?2, last_id = ?3 WHERE namespace = ?1",
    )?;
    statement.execute((name, namespace.row_count, namespace.last_id)).map(|_| ())
}

/// The write-ahead log beside the database at `path`.
pub(super) fn wal_path(path: &Path) -> PathBuf {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    PathBuf::from(wal)
}

/// SQLite's message about a damaged file; `None` for every other failure.
fn corruption(source: &rusqlite::Error) -> Option<String> {
    let corrupt = match source {
        rusqlite::Error::SqliteFailure(error, _) => {
            matches!(error.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
        }
        // What this sink stored about itself has another form.
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::QueryReturnedNoRows => true,
        _ => false,
    };
    corrupt.then(|| source.to_string())
}

pub(super) fn open_error(act: &'static str, path: &Path, source: rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    match corruption(&source) {
        Some(found) => OpenError::Corrupt { path, found },
        None => OpenError::Database { act, path, source: source.into() },
    }
}

pub(super) fn sink_error(act: &'static str, path: &Path, source: rusqlite::Error) -> SinkError {
    let path = path.to_owned();
    match corruption(&source) {
        Some(found) => SinkError::Corrupt { act, path, found },
        None => SinkError::Database { act, path, source: source.into() },
    }
}

pub(super) fn read_error(act: &'static str, path: &Path, source: rusqlite::Error) -> ReadError {
    let path = path.to_owned();
    match corruption(&source) {
        Some(found) => ReadError::Corrupt { act, path, found },
        None => ReadError::Database { act, path, source: source.into() },
    }
}
