//! SQLite files as sources and destinations.
//!
//! | module | purpose |
//! |---|---|
//! | `values` | types and values between Arrow and SQLite |
//! | `layout` | the columns of a table, declared and found |
//! | `source`, `stream` | reading tables |
//! | `destination`, `target`, `writer`, `conform` | writing tables |
//! | `ledger` | loads and entries, in tables of the same file |
//! | `feed` | changes of another database, applied |
//!
//! Everything SQLite does may block on a disk, so it runs on threads that may block.

mod conform;
mod destination;
mod feed;
mod layout;
mod ledger;
mod source;
mod stream;
mod target;
mod values;
mod writer;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_pgcopy::quote_identifier as quoted;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use schemars::JsonSchema;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use forebay_sdk::connector::{Destination, Source};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::registry::{ConnectorSettings, DestinationSettings, SourceSettings};
use forebay_sdk::settings::{
    Evolves, NewColumn, NullabilityChange, Reach, RemovedColumn, Text, Within,
};

pub use destination::SqliteDestination;
pub use source::SqliteSource;

/// How long to wait for another writer.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
/// Page cache of a connection, in bytes.
const CACHE_KIB: i32 = 4 << 10;

/// A SQLite file as a source.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SqliteSourceSettings {
    /// Path of the file.
    pub path: Text,
    /// Where files may be.
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) within: Within,
    /// Types of columns by table and name, as in SQL, where the declared ones do not match the
    /// values.
    #[serde(default)]
    pub types: BTreeMap<String, BTreeMap<String, String>>,
}

/// A SQLite file as a destination.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SqliteDestinationSettings {
    /// Path of the file. It is created if it does not exist.
    pub path: Text,
    /// Where files may be.
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) within: Within,
}

impl ConnectorSettings for SqliteSourceSettings {
    fn reach(&self) -> Reach {
        Reach::path(&self.path.0)
    }

    fn confine(&mut self, within: Within) {
        self.within = within;
    }
}

impl SourceSettings for SqliteSourceSettings {
    fn source(&self) -> Arc<dyn Source> {
        Arc::new(SqliteSource::new(self.clone()))
    }
}

impl ConnectorSettings for SqliteDestinationSettings {
    fn reach(&self) -> Reach {
        Reach::path(&self.path.0)
    }

    fn confine(&mut self, within: Within) {
        self.within = within;
    }
}

impl DestinationSettings for SqliteDestinationSettings {
    fn destination(&self) -> Arc<dyn Destination> {
        Arc::new(SqliteDestination::new(self))
    }

    fn evolves(&self) -> Evolves {
        Evolves {
            new_column: &[NewColumn::Add, NewColumn::Ignore, NewColumn::Fail],
            removed_column: &[RemovedColumn::Ignore, RemovedColumn::Fail],
            // ALTER TABLE changes neither a type nor NOT NULL.
            type_change: &[],
            nullability_change: &[NullabilityChange::Allow, NullabilityChange::Fail],
            on_replace: false,
        }
    }
}

/// A file, its name in messages, and how it is opened.
#[derive(Debug, Clone)]
struct Database {
    path: PathBuf,
    within: Within,
}

/// Whether the file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

impl Database {
    fn new(path: &Text, within: &Within) -> Self {
        Self { path: PathBuf::from(&path.0), within: within.clone() }
    }

    fn exists(&self) -> bool {
        self.path.exists()
    }

    /// What identifies a table, whatever path leads to the file; `None` without a file.
    fn place(&self, table: &str) -> Option<String> {
        let path = self.path.canonicalize().ok()?;
        Some(format!("{:?} {}", path, table.to_ascii_lowercase()))
    }

    fn open(&self, access: Access) -> Result<Connection, ConnectorError> {
        // A name that SQLite interprets specially would lose what is written.
        let name = self.path.as_os_str();
        if name.is_empty() || name.to_string_lossy().starts_with(':') {
            return Err(ConnectorError::unsupported(
                format!("{name:?} is not a file"),
                "set `path` to the path of a file",
            ));
        }
        let failed = |error| self.failed("open", error);
        if access == Access::Read {
            let opened = match self.connect(OpenFlags::SQLITE_OPEN_READ_ONLY)? {
                Err(error) if needs_rollback(&error) => {
                    // The next reader or writer of the file would do the same.
                    self.connect(OpenFlags::SQLITE_OPEN_READ_WRITE)?.map_err(failed)?;
                    self.connect(OpenFlags::SQLITE_OPEN_READ_ONLY)?
                }
                opened => opened,
            };
            return opened.map_err(failed);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let connection = self.connect(flags)?.map_err(failed)?;
        configure_writer(&connection).map_err(failed)?;
        Ok(connection)
    }

    /// Opens a connection and reads the file's schema. The inner error is SQLite's.
    fn connect(&self, flags: OpenFlags) -> Result<rusqlite::Result<Connection>, ConnectorError> {
        let (path, flags) = self.confined(flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        let connect = || {
            let connection = Connection::open_with_flags(&path, flags)?;
            connection.busy_timeout(BUSY_TIMEOUT)?;
            connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
            // Functions named in a schema must not run on behalf of the file's author.
            connection.pragma_update(None, "trusted_schema", false)?;
            schema_version(&connection)?;
            Ok(connection)
        };
        Ok(connect())
    }

    /// The path to open. If paths are restricted, links in the directory are resolved, and SQLite
    /// may follow none.
    fn confined(&self, flags: OpenFlags) -> Result<(PathBuf, OpenFlags), ConnectorError> {
        if !self.within.is_bounded() {
            return Ok((self.path.clone(), flags));
        }
        let failed = |error: std::io::Error| ConnectorError::file("open", self.path.clone(), error);
        let whole = std::path::absolute(&self.path).map_err(failed)?;
        let found = match whole.canonicalize() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let directory = whole.parent().unwrap_or(Path::new("/"));
                let directory = directory.canonicalize().map_err(failed)?;
                self.within.check(&directory).map_err(failed)?;
                directory.join(whole.file_name().unwrap_or_default())
            }
            found => {
                let found = found.map_err(failed)?;
                self.within.check(&found).map_err(failed)?;
                found
            }
        };
        Ok((found, flags | OpenFlags::SQLITE_OPEN_NOFOLLOW))
    }

    /// Converts an error of SQLite.
    fn failed(&self, act: &'static str, error: rusqlite::Error) -> ConnectorError {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => ConnectorError::Busy {
                act: format!("{act} {}", self.path.display()),
                source: error.into(),
            },
            _ => ConnectorError::file(act, self.path.clone(), error),
        }
    }
}

/// Whether a writer was interrupted in a transaction that a reader may not roll back.
fn needs_rollback(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    code == Some(rusqlite::ffi::SQLITE_READONLY_ROLLBACK)
}

/// 0 until something has been created in the file.
fn schema_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "schema_version", |row| row.get(0))
}

fn configure_writer(connection: &Connection) -> rusqlite::Result<()> {
    if schema_version(connection)? == 0 {
        // Readers then never wait for a load.
        connection.pragma_update(None, "journal_mode", "wal")?;
    }
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "temp_store", "file")?;
    // Otherwise a table cannot be renamed while a view refers to the one it replaces.
    connection.pragma_update(None, "legacy_alter_table", true)
}

/// A hash in hexadecimal that represents a table's name where it is not allowed. SQLite ignores the
/// case of ASCII letters in names, so the hash does too.
fn digits_of(table: &str) -> String {
    let digest = Sha256::digest(table.to_ascii_lowercase().as_bytes());
    hex::encode(&digest[..8])
}

/// Quoted names, separated by commas.
fn quoted_list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(quoted).collect::<Vec<_>>().join(", ")
}

/// The name of a file in messages.
fn display(path: &Path) -> String {
    path.display().to_string()
}
