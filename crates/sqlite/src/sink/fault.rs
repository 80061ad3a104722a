//! Why stored data cannot be used: what SQLite says, or what a checksum says.
//!
//! Invariant: damage becomes the `Corrupt` variant of the error of the operation, never a missing
//! row; everything else is the database's failure.

use std::path::Path;

use forebay_sink::{OpenError, ReadError, SinkError};
use rusqlite::ErrorCode;

/// A failure to read or write stored data.
#[derive(Debug)]
pub(super) enum Fault {
    Sqlite(rusqlite::Error),
    /// What is stored is not what was written.
    Damaged(String),
}

/// A result of reading stored data.
pub(super) type Checked<T> = Result<T, Fault>;

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl Fault {
    /// The damage; the database's error for every other failure.
    pub(super) fn damage(self) -> Result<String, rusqlite::Error> {
        match self {
            Self::Damaged(found) => Ok(found),
            Self::Sqlite(source) => match corruption(&source) {
                Some(found) => Ok(found),
                None => Err(source),
            },
        }
    }
}

/// SQLite's message about a damaged file; `None` for every other failure.
fn corruption(source: &rusqlite::Error) -> Option<String> {
    let corrupt = match source {
        rusqlite::Error::SqliteFailure(error, message) => match error.code {
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => true,
            // The statements are the sink's own: only another schema makes one of them invalid.
            ErrorCode::Unknown => message.as_deref().is_some_and(is_about_schema),
            _ => false,
        },
        rusqlite::Error::SqlInputError { .. } => true,
        // What this sink stored about itself has another form.
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::QueryReturnedNoRows
        | rusqlite::Error::Utf8Error(..) => true,
        _ => false,
    };
    corrupt.then(|| source.to_string())
}

fn is_about_schema(message: &str) -> bool {
    message.contains("no such table")
        || message.contains("no such column")
        || message.contains("has no column named")
        || message.contains("unsupported file format")
}

pub(super) fn open_error(act: &'static str, path: &Path, source: impl Into<Fault>) -> OpenError {
    let path = path.to_owned();
    match source.into().damage() {
        Ok(found) => OpenError::Corrupt { path, found },
        Err(source) => OpenError::Database { act, path, source: source.into() },
    }
}

pub(super) fn sink_error(act: &'static str, path: &Path, source: impl Into<Fault>) -> SinkError {
    let path = path.to_owned();
    match source.into().damage() {
        Ok(found) => SinkError::Corrupt { act, path, found },
        Err(source) => SinkError::Database { act, path, source: source.into() },
    }
}

pub(super) fn read_error(act: &'static str, path: &Path, source: impl Into<Fault>) -> ReadError {
    let path = path.to_owned();
    match source.into().damage() {
        Ok(found) => ReadError::Corrupt { act, path, found },
        Err(source) => ReadError::Database { act, path, source: source.into() },
    }
}
