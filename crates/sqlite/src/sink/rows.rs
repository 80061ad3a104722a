//! The checksum of a namespace's row, when it is written and when it is read.
//!
//! ```text
//! namespace, _id, _received_ms, _document, then of every column that is not NULL, in the order
//! of the schema: its ordinal, its value
//! ```
//!
//! NULLs are left out, so a row's checksum stays right when its table gains a column.
//!
//! Invariant: what a reader returns of a row, the checksum covered.

use std::fmt::Write as _;

use forebay_base::rows::RowHasher;
use forebay_pgcopy::quote_identifier;
use forebay_sink::TableSchema;
use forebay_sink::column::Fit;
use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::fault::{Checked, Fault};

/// Where the values of a row are in the statement that [`select`] begins.
pub(super) mod at {
    pub(crate) const ID: usize = 0;
    pub(crate) const RECEIVED: usize = 1;
    pub(crate) const CHECKSUM: usize = 2;
    pub(crate) const DOCUMENT: usize = 3;
    pub(crate) const COLUMNS: usize = 4;
}

/// `SELECT ... FROM ...` of everything that a row has.
pub(super) fn select(table: &str, schema: &TableSchema) -> String {
    let mut sql = String::from("SELECT _id, _received_ms, _checksum, _document");
    for column in schema.columns() {
        // Writing to a `String` does not fail.
        write!(sql, ", {}", quote_identifier(&column.name)).unwrap_or_default();
    }
    write!(sql, " FROM {}", quote_identifier(table)).unwrap_or_default();
    sql
}

/// Begins the checksum of a row.
pub(super) fn start(
    hasher: &mut RowHasher,
    namespace: &str,
    id: i64,
    received_ms: i64,
    document: ValueRef<'_>,
) {
    hasher.start().text(namespace.as_bytes()).integer(id).integer(received_ms);
    value(hasher, document);
}

/// Adds what a column holds. Columns are added in the order of the schema.
pub(super) fn column(hasher: &mut RowHasher, ordinal: usize, held: &Fit<'_>) {
    let ordinal = u32::try_from(ordinal).unwrap_or(u32::MAX);
    match held {
        Fit::Null | Fit::Conflict => {}
        Fit::Integer(value) => {
            hasher.ordinal(ordinal).integer(*value);
        }
        Fit::Real(value) => {
            hasher.ordinal(ordinal).real(*value);
        }
        Fit::Text(text) => {
            hasher.ordinal(ordinal).text(text.as_bytes());
        }
        Fit::Bytes(bytes) => {
            hasher.ordinal(ordinal).blob(bytes);
        }
    }
}

/// As [`column()`], for a value as it is stored.
pub(super) fn held(hasher: &mut RowHasher, ordinal: usize, held: ValueRef<'_>) {
    if held != ValueRef::Null {
        hasher.ordinal(u32::try_from(ordinal).unwrap_or(u32::MAX));
        value(hasher, held);
    }
}

/// Computes the checksum of a row read with [`select`].
pub(super) fn checksum(
    hasher: &mut RowHasher,
    namespace: &str,
    row: &Row<'_>,
    columns: usize,
) -> rusqlite::Result<u64> {
    start(hasher, namespace, row.get(at::ID)?, row.get(at::RECEIVED)?, row.get_ref(at::DOCUMENT)?);
    for ordinal in 0..columns {
        held(hasher, ordinal, row.get_ref(at::COLUMNS + ordinal)?);
    }
    Ok(hasher.finish())
}

/// Checks a row read with [`select`] and returns its id and its checksum.
pub(super) fn verify(
    hasher: &mut RowHasher,
    namespace: &str,
    row: &Row<'_>,
    columns: usize,
) -> Checked<(u64, u64)> {
    let id: i64 = row.get(at::ID)?;
    let stored = match row.get_ref(at::CHECKSUM)? {
        ValueRef::Integer(stored) => Some(stored.cast_unsigned()),
        _ => None,
    };
    // A time of another type is a damaged row as well.
    let computed = match row.get_ref(at::RECEIVED)? {
        ValueRef::Integer(_) => Some(checksum(hasher, namespace, row, columns)?),
        _ => None,
    };
    match (computed, stored, u64::try_from(id)) {
        (Some(computed), Some(stored), Ok(id)) if computed == stored => Ok((id, stored)),
        _ => Err(damaged(namespace, id)),
    }
}

/// A row that does not match its checksum.
pub(super) fn damaged(namespace: &str, id: i64) -> Fault {
    Fault::Damaged(format!(
        "the row with id {id} of the namespace {namespace} does not match its checksum"
    ))
}

fn value(hasher: &mut RowHasher, value: ValueRef<'_>) {
    match value {
        ValueRef::Null => {
            hasher.null();
        }
        ValueRef::Integer(value) => {
            hasher.integer(value);
        }
        ValueRef::Real(value) => {
            hasher.real(value);
        }
        ValueRef::Text(text) => {
            hasher.text(text);
        }
        ValueRef::Blob(bytes) => {
            hasher.blob(bytes);
        }
    }
}
