//! The tables of the state, and how the database is opened (`docs/formats/webhooks.md`).

use std::path::Path;

use forebay_base::fs::{FileSystem as _, RealFs};
use forebay_base::rows::RowHasher;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::Stored;
use crate::error::StoreError;

/// Version of the tables.
pub(super) const VERSION: i64 = 1;
/// `FbWh`.
const APPLICATION_ID: i64 = 0x4662_5768;

const TABLES: &str = "
CREATE TABLE meta (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    fingerprint BLOB NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE TABLE hooks (
    id BLOB PRIMARY KEY,
    record TEXT NOT NULL,
    checksum INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE cursors (
    hook BLOB NOT NULL,
    source TEXT NOT NULL,
    log BLOB NOT NULL,
    position INTEGER NOT NULL,
    item INTEGER NOT NULL,
    time_ms INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (hook, source)
) WITHOUT ROWID;
CREATE TABLE deliveries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    hook BLOB NOT NULL,
    state INTEGER NOT NULL,
    due_ms INTEGER,
    record TEXT NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE INDEX deliveries_by_hook ON deliveries (hook, state, number);
";

/// Opens the database for writing, and makes it if it does not exist.
pub(super) fn open(path: &Path) -> Stored<Connection> {
    if !path.exists() {
        create(path)?;
    }
    let connection = Connection::open(path)?;
    tune(&connection)?;
    verify(&connection)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "wal_autocheckpoint", 1_000)?;
    // A deleted row must not be one changed byte away from being read.
    connection.pragma_update_and_check(None, "secure_delete", "FAST", |_| Ok(()))?;
    connection.pragma_update(None, "journal_size_limit", 16 << 20)?;
    Ok(connection)
}

/// Makes the database, under another name until it is whole: a file without tables is a damaged one.
fn create(path: &Path) -> Stored<()> {
    let new = path.with_extension("new");
    for left in [&new, &path.with_extension("new-journal")] {
        if let Err(error) = std::fs::remove_file(left)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(StoreError::Create(error));
        }
    }
    let connection = Connection::open(&new)?;
    tune(&connection)?;
    connection.execute_batch(&format!(
        "BEGIN; {TABLES} PRAGMA application_id = {APPLICATION_ID}; \
         PRAGMA user_version = {VERSION}; COMMIT;"
    ))?;
    connection.close().map_err(|(_, error)| error)?;
    std::fs::rename(&new, path).map_err(StoreError::Create)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    RealFs.sync_dir(parent.unwrap_or(Path::new("."))).map_err(StoreError::Create)
}

/// Opens the database to be read, by a program that does not run webhooks.
pub(super) fn open_to_read(path: &Path) -> Stored<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    tune(&connection)?;
    verify(&connection)?;
    Ok(connection)
}

fn tune(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(std::time::Duration::from_secs(10))?;
    connection.set_prepared_statement_cache_capacity(32);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // A schema that was altered must not run code.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "temp_store", "MEMORY")
}

/// Checks that the database is one of this version, whole, with the tables that belong to it.
fn verify(connection: &Connection) -> Stored<()> {
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found == 0 && schema_of(connection)?.is_empty() {
        return Err(StoreError::Damaged { found: "it has no tables".to_owned() });
    }
    if found != VERSION {
        return Err(StoreError::Version { found, expected: VERSION });
    }
    let model = Connection::open_in_memory()?;
    model.execute_batch(TABLES)?;
    if schema_of(connection)? != schema_of(&model)? {
        let found = "the tables are not as the server makes them".to_owned();
        return Err(StoreError::Damaged { found });
    }
    let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if found == "ok" { Ok(()) } else { Err(StoreError::Damaged { found }) }
}

type Made = (String, String, Option<String>);

fn schema_of(connection: &Connection) -> rusqlite::Result<Vec<Made>> {
    connection
        .prepare("SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY name")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect()
}

/// Computes the checksum of a row.
pub(super) fn checksum(table: &str, fill: impl FnOnce(&mut RowHasher)) -> i64 {
    let mut hasher = RowHasher::default();
    hasher.start().text(b"webhooks").text(table.as_bytes());
    fill(&mut hasher);
    hasher.finish().cast_signed()
}

/// Makes the error about a row that differs from its checksum.
pub(super) fn differs(table: &str, row: impl std::fmt::Display) -> StoreError {
    StoreError::Damaged {
        found: format!("row {row} of the table {table} does not match its checksum"),
    }
}
