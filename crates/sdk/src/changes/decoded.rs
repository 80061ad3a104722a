//! Changes decoded to Arrow, for destinations that do not read the tuples of PostgreSQL.
//!
//! Invariant: a row has a value for every column; one that was not sent is NULL here, and the change says that it
//! was not sent.

use arrow::array::{ArrayRef, RecordBatch};
use forebay_base::error_chain::chain;
use forebay_pgcopy::{Column, DecodeError, Decoder};

use super::feed::FeedColumn;
use super::net::Effect;
use super::row::{ChangedRow, Field};
use crate::connector::Result;
use crate::error::ConnectorError;
use crate::values::read::Builder;
use crate::values::time::write_timestamp;

/// The values of some effects, as Arrow.
pub struct Decoded {
    /// The keys of deletions and updates.
    pub keys: RecordBatch,
    /// The rows of updates and insertions.
    pub rows: RecordBatch,
    /// The time of a deletion for each, where deleted rows are kept.
    pub times: Option<ArrayRef>,
}

impl Decoded {
    /// Decodes effects.
    ///
    /// * `table`: where they are applied, for errors.
    /// * `deleted_at`: the column with the time of a deletion, where deleted rows are kept.
    ///
    /// # Errors
    /// A value is not of the type of its column.
    pub fn of(
        table: &str,
        columns: &[Column],
        key: &[Column],
        deleted_at: Option<&Column>,
        effects: &[Effect],
    ) -> Result<Self> {
        let keys = effects.iter().filter_map(|effect| match effect {
            Effect::Delete { key, .. } | Effect::Update { key, .. } => Some(key.as_bytes()),
            Effect::Insert { .. } => None,
        });
        let keys = records(table, key, keys.map(<[u8]>::to_vec))?;
        let rows = effects.iter().filter_map(|effect| match effect {
            Effect::Update { row, .. } | Effect::Insert { row, .. } => Some(row),
            Effect::Delete { .. } => None,
        });
        let rows = records(table, columns, rows.map(fields))?;
        let deleted = effects.iter().map(|effect| match effect {
            Effect::Delete { kept_us, .. } => *kept_us,
            Effect::Update { deleted_us, .. } | Effect::Insert { deleted_us, .. } => *deleted_us,
        });
        let times = deleted_at.map(|column| times(column, deleted)).transpose()?;
        Ok(Self { keys, rows, times })
    }
}

/// The fields of a row as in binary COPY. A value that was not sent becomes NULL.
#[must_use]
pub fn fields(row: &ChangedRow) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(row.size());
    for field in row.fields() {
        let Field::Value(value) = field else {
            bytes.extend_from_slice(&(-1i32).to_be_bytes());
            continue;
        };
        // A row has none of 2 GiB.
        let size = i32::try_from(value.len()).unwrap_or(i32::MAX);
        bytes.extend_from_slice(&size.to_be_bytes());
        bytes.extend_from_slice(value);
    }
    bytes
}

/// Rows, each given as its fields in binary COPY, as Arrow.
///
/// # Errors
/// A value is not of the type of its column.
pub fn records(
    table: &str,
    columns: &[Column],
    rows: impl Iterator<Item = Vec<u8>>,
) -> Result<RecordBatch> {
    let broken = |error: DecodeError| ConnectorError::data(table, chain(&error).to_string());
    let count = i16::try_from(columns.len());
    let count = count.map_err(|_| ConnectorError::data(table, "too many columns".to_owned()))?;
    let mut decoder = Decoder::without_header(columns);
    for fields in rows {
        decoder.push(&count.to_be_bytes()).map_err(broken)?;
        decoder.push(&fields).map_err(broken)?;
    }
    Ok(decoder.take().map_err(broken)?.0)
}

/// Times in microseconds since 1970, as the values of a column.
///
/// # Errors
/// The column cannot have one.
pub fn times(column: &Column, of: impl IntoIterator<Item = Option<i64>>) -> Result<ArrayRef> {
    let (mut builder, mut text) = (Builder::new(column), Vec::new());
    for at_us in of {
        let Some(at_us) = at_us else {
            builder.null();
            continue;
        };
        text.clear();
        write_timestamp(at_us, true, &mut text);
        let written = builder.text(&String::from_utf8_lossy(&text));
        written.map_err(|wanted| ConnectorError::data("the time of a commit", wanted))?;
    }
    Ok(builder.finish())
}

/// A column of a stream whose values are decoded.
///
/// * `store`: the destination, for the error.
///
/// # Errors
/// Values of its type, as changes have them, cannot be read by others than PostgreSQL.
pub fn column(table: &str, of: &FeedColumn, store: &str) -> Result<Column> {
    let FeedColumn { name, sql_type, .. } = of;
    let wire = of.wire.clone().ok_or_else(|| {
        ConnectorError::unsupported(
            format!("{table}, column {name:?}: {store} cannot store changes of {sql_type}"),
            "change the type of the column, or read the table with `sync_mode: full_refresh`; \
             a feed of an earlier version needs `--from-scratch`",
        )
    })?;
    Ok(Column { name: name.clone(), sql_type: sql_type.clone(), wire, nullable: true })
}

/// The value of the rows that were there when a column was added, as an array of one.
///
/// # Errors
/// The text is not a value of the column.
pub fn existing(table: &str, column: &Column, text: &str) -> Result<ArrayRef> {
    let mut builder = Builder::new(column);
    builder.text(text).map_err(|wanted| {
        let found = format!("the default {text:?} of column {:?}: {wanted}", column.name);
        ConnectorError::data(table, found)
    })?;
    Ok(builder.finish())
}
