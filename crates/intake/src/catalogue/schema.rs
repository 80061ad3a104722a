//! Tables of the catalogue and how its connections are opened.
//!
//! The catalogue is a view of the log: losing it costs a replay, never a file. So its connections
//! use `synchronous = NORMAL`: a power cut may take back its last transactions, and the position
//! they stored with them.

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::error::{CatalogueError, CatalogueFault};

/// Version of the tables. A catalogue with another version is rebuilt from the log.
pub(super) const SCHEMA_VERSION: i64 = 5;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS meta (
    key TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS blobs (
    digest BLOB PRIMARY KEY,
    size INTEGER NOT NULL,
    place INTEGER NOT NULL,
    refs INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS blobs_dead ON blobs (place) WHERE refs = 0;
CREATE TABLE IF NOT EXISTS files (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    id INTEGER NOT NULL,
    digest BLOB NOT NULL,
    size INTEGER NOT NULL,
    mime TEXT NOT NULL,
    category INTEGER NOT NULL,
    comment TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    attributes BLOB,
    first INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (namespace, name)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS files_by_digest ON files (digest) WHERE first = 0;
CREATE TABLE IF NOT EXISTS namespaces (
    namespace TEXT PRIMARY KEY,
    created_ms INTEGER NOT NULL,
    attributes BLOB,
    checksum INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS versions (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    id INTEGER NOT NULL,
    digest BLOB,
    size INTEGER NOT NULL,
    mime TEXT NOT NULL,
    category INTEGER NOT NULL,
    comment TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    attributes BLOB,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (namespace, name, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS versions_by_digest ON versions (digest) WHERE digest IS NOT NULL;
CREATE TABLE IF NOT EXISTS requests (
    key BLOB PRIMARY KEY,
    fingerprint BLOB NOT NULL,
    status INTEGER NOT NULL,
    answer BLOB NOT NULL,
    created_ms INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS requests_age ON requests (created_ms);
";

pub(super) fn open_writer(path: &Path) -> Result<Connection, CatalogueError> {
    let connection = Connection::open(path)
        .map_err(|source| CatalogueError::new("open the catalogue for writing", source))?;
    tune(&connection)
        .and_then(|()| {
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "wal_autocheckpoint", 8_192)?;
            // A deleted row is overwritten with zeros: one changed byte, the number of rows of its page,
            // would make it a row again whose checksum is right.
            connection.pragma_update_and_check(None, "secure_delete", "FAST", |_| Ok(()))?;
            connection.execute_batch(TABLES)
        })
        .map_err(|source| CatalogueError::new("prepare the catalogue's tables", source))?;
    Ok(connection)
}

/// Compares the SQL of the tables and indexes with what makes them.
pub(super) fn check(connection: &Connection) -> Result<(), CatalogueFault> {
    type Made = (String, String, String, Option<String>);
    let sql_of = |connection: &Connection| -> rusqlite::Result<Vec<Made>> {
        connection
            .prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name")?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?
            .collect()
    };
    let model = Connection::open_in_memory()?;
    model.execute_batch(TABLES)?;
    let vacuum: i64 = connection.pragma_query_value(None, "auto_vacuum", |row| row.get(0))?;
    if vacuum == 0 && sql_of(connection)? == sql_of(&model)? {
        Ok(())
    } else {
        let found = "the tables are not as the server makes them".to_owned();
        Err(CatalogueFault::Damaged { found })
    }
}

pub(super) fn recreate(connection: &Connection) -> Result<(), CatalogueError> {
    connection
        .execute_batch(
            "DROP TABLE IF EXISTS files; DROP TABLE IF EXISTS blobs;
             DROP TABLE IF EXISTS requests; DROP TABLE IF EXISTS meta;
             DROP TABLE IF EXISTS namespaces; DROP TABLE IF EXISTS versions;",
        )
        .and_then(|()| connection.execute_batch(TABLES))
        .map_err(|source| CatalogueError::new("create the catalogue's tables again", source))
}

pub(super) fn open_reader(path: &Path) -> Result<Connection, CatalogueError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)
        .map_err(|source| CatalogueError::new("open the catalogue for reading", source))?;
    tune(&connection)
        .map_err(|source| CatalogueError::new("configure a connection to the catalogue", source))?;
    Ok(connection)
}

fn tune(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(std::time::Duration::from_secs(10))?;
    connection.set_prepared_statement_cache_capacity(32);
    // Without this promise of stable plans SQLite compiles a statement again at every binding, to
    // see whether the value lets it use the partial index: most of the time of a lookup.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "cache_size", -32_768)?;
    connection.pragma_update(None, "temp_store", "MEMORY")
}
