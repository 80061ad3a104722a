//! Loads and their entries, in tables of the file that has the rows.
//!
//! ```sql
//! _forebay_loads(pipeline, stream, target, load)            -- load: JSON
//! _forebay_ledger(pipeline, stream, unit, load, run, rows, dead, hash)
//! _forebay_dead_letters(pipeline, stream, load, unit, position, reason, row)
//! ```
//!
//! Only the entries of the last load are kept. Earlier loads are only in the rows.

use rusqlite::{Connection, OptionalExtension as _, params};

use forebay_sdk::batch::DeadRow;
use forebay_sdk::connector::{LedgerEntry, Load};
use forebay_sdk::settings::TargetSettings;

/// The state before the first load.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS _forebay_loads (
    pipeline TEXT NOT NULL, stream TEXT NOT NULL, target TEXT NOT NULL, load TEXT NOT NULL,
    PRIMARY KEY (pipeline, stream)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS _forebay_ledger (
    pipeline TEXT NOT NULL, stream TEXT NOT NULL, unit TEXT NOT NULL, load TEXT NOT NULL,
    run TEXT NOT NULL, rows INTEGER NOT NULL, dead INTEGER NOT NULL, hash TEXT NOT NULL,
    PRIMARY KEY (pipeline, stream, unit)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS _forebay_dead_letters (
    pipeline TEXT NOT NULL, stream TEXT NOT NULL, load TEXT NOT NULL, unit TEXT NOT NULL,
    position TEXT NOT NULL, reason TEXT NOT NULL, row TEXT NOT NULL
) STRICT;";

/// Creates the tables of the ledger.
pub(super) fn create(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(TABLES)
}

fn exists(connection: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT count(*) = 2 FROM sqlite_schema WHERE type = 'table' \
               AND name IN ('_forebay_loads', '_forebay_ledger')";
    connection.query_row(sql, [], |row| row.get(0))
}

/// An error for JSON of the ledger that is invalid.
fn unreadable(error: serde_json::Error) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, error.into())
}

/// The last load of a stream, and its target.
pub(super) fn load(
    connection: &Connection,
    settings: &TargetSettings,
) -> rusqlite::Result<Option<(Load, String)>> {
    if !exists(connection)? {
        return Ok(None);
    }
    let sql = "SELECT load, target FROM _forebay_loads WHERE pipeline = ?1 AND stream = ?2";
    let found = connection.query_row(sql, [&settings.pipeline, &settings.stream], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
    });
    match found.optional()? {
        Some((load, target)) => {
            Ok(Some((serde_json::from_str(&load).map_err(unreadable)?, target)))
        }
        None => Ok(None),
    }
}

/// The entries of the last load.
pub(super) fn entries(
    connection: &Connection,
    settings: &TargetSettings,
) -> rusqlite::Result<Vec<LedgerEntry>> {
    let sql = "SELECT unit, load, run, rows, dead, hash FROM _forebay_ledger \
               WHERE pipeline = ?1 AND stream = ?2 ORDER BY unit";
    let mut statement = connection.prepare(sql)?;
    let entry = |row: &rusqlite::Row<'_>| {
        Ok(LedgerEntry {
            pipeline: settings.pipeline.clone(),
            stream: settings.stream.clone(),
            unit: row.get(0)?,
            load: row.get(1)?,
            run: row.get(2)?,
            rows: row.get(3)?,
            dead: row.get(4)?,
            hash: row.get(5)?,
        })
    };
    statement.query_map([&settings.pipeline, &settings.stream], entry)?.collect()
}

/// Starts a load: deletes the entries of any other.
pub(super) fn begin(
    connection: &Connection,
    settings: &TargetSettings,
    load: &Load,
) -> rusqlite::Result<()> {
    let sql = "DELETE FROM _forebay_ledger WHERE pipeline = ?1 AND stream = ?2";
    connection.execute(sql, [&settings.pipeline, &settings.stream])?;
    put(connection, settings, load)
}

/// Stores the current state of a load.
pub(super) fn put(
    connection: &Connection,
    settings: &TargetSettings,
    load: &Load,
) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO _forebay_loads (pipeline, stream, target, load) \
               VALUES (?1, ?2, ?3, ?4)";
    let load = serde_json::to_string(load).map_err(unreadable)?;
    let TargetSettings { pipeline, stream, into, .. } = settings;
    connection.execute(sql, params![pipeline, stream, into, load]).map(drop)
}

/// Adds an entry. A second one for the same unit is an error: its rows are already stored.
pub(super) fn add(connection: &Connection, entry: &LedgerEntry) -> rusqlite::Result<()> {
    let sql = "INSERT INTO _forebay_ledger (pipeline, stream, unit, load, run, rows, dead, hash) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let LedgerEntry { pipeline, stream, unit, load, run, rows, dead, hash } = entry;
    connection.execute(sql, params![pipeline, stream, unit, load, run, rows, dead, hash]).map(drop)
}

/// Stores dead letters.
pub(super) fn bury(
    connection: &Connection,
    entry: &LedgerEntry,
    dead: &[DeadRow],
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO _forebay_dead_letters \
               (pipeline, stream, load, unit, position, reason, row) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let mut statement = connection.prepare(sql)?;
    let LedgerEntry { pipeline, stream, load, unit, .. } = entry;
    for DeadRow { position, reason, row } in dead {
        statement.execute(params![pipeline, stream, load, unit, position, reason, row])?;
    }
    Ok(())
}
