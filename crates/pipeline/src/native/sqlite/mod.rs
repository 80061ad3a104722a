//! SQLite files as sources and destinations.
//!
//! | room | what it does |
//! |---|---|
//! | `values` | types and values between Arrow and SQLite |
//! | `layout` | what a table's columns are, declared and found |
//! | `source`, `stream` | tables to rows |
//! | `destination`, `target`, `writer` | rows to tables |
//! | `ledger` | loads and entries, in tables of the same file |
//!
//! Everything SQLite does waits for a disk, so it is done by threads that may.

mod destination;
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
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};
use schemars::JsonSchema;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::config::Text;
use crate::error::ConnectorError;

pub use destination::SqliteDestination;
pub use source::SqliteSource;

/// How long is waited for another writer.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of pages a connection keeps.
const CACHE_KIB: i32 = 4 << 10;

/// A SQLite file as a source.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SqliteSourceSettings {
    /// The file.
    pub path: Text,
    /// Types of columns by table and name, as in SQL, where what is declared is not what is there.
    #[serde(default)]
    pub types: BTreeMap<String, BTreeMap<String, String>>,
}

/// A SQLite file as a destination.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SqliteDestinationSettings {
    /// The file. It is created where it is not there.
    pub path: Text,
}

/// A file as it is called in messages, and opened.
#[derive(Debug, Clone)]
struct Database {
    path: PathBuf,
}

/// Whether a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

impl Database {
    fn new(path: &Text) -> Self {
        Self { path: PathBuf::from(&path.0) }
    }

    fn exists(&self) -> bool {
        self.path.exists()
    }

    fn open(&self, access: Access) -> Result<Connection, ConnectorError> {
        // A name that SQLite takes for something else than a file would lose what is written.
        let name = self.path.as_os_str();
        if name.is_empty() || name.to_string_lossy().starts_with(':') {
            return Err(ConnectorError::unsupported(
                format!("{name:?} is no file"),
                "set `path` to the path of a file",
            ));
        }
        let flags = OpenFlags::SQLITE_OPEN_NO_MUTEX
            | match access {
                Access::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
                Access::Write => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
            };
        let failed = |error| self.failed("open", error);
        let is_new = access == Access::Write && !self.path.exists();
        let connection = Connection::open_with_flags(&self.path, flags).map_err(failed)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
        connection.pragma_update(None, "cache_size", -CACHE_KIB).map_err(failed)?;
        // Functions a schema names are not to be run for whoever made the file.
        connection.pragma_update(None, "trusted_schema", false).map_err(failed)?;
        if access == Access::Write {
            if is_new {
                // Readers then never wait for a load.
                connection.pragma_update(None, "journal_mode", "wal").map_err(failed)?;
            }
            connection.pragma_update(None, "synchronous", "full").map_err(failed)?;
            connection.pragma_update(None, "temp_store", "file").map_err(failed)?;
            // Else a table cannot be renamed while a view names the one that it replaces.
            connection.pragma_update(None, "legacy_alter_table", true).map_err(failed)?;
        }
        Ok(connection)
    }

    /// Why something could not be done.
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

/// Digits that stand for a table's name where it cannot stand itself. SQLite does not tell names apart
/// by the case of ASCII letters, so they are the same for those.
fn digits_of(table: &str) -> String {
    let digest = Sha256::digest(table.to_ascii_lowercase().as_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// A name in SQL.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Names in SQL, with commas between them.
fn quoted_list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(quoted).collect::<Vec<_>>().join(", ")
}

/// What a file is called in messages.
fn display(path: &Path) -> String {
    path.display().to_string()
}
