//! Values of `character(n)`, which end in spaces that do not count: PostgreSQL compares and casts them
//! without.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use forebay_pgcopy::{Column, Wire};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;

/// Number of characters to which the values of a column are padded, if its type does that. Without a
/// length no space is added.
pub(super) fn padded_to(column: &Column) -> Option<usize> {
    let of = column
        .sql_type
        .strip_prefix("character")
        .or_else(|| column.sql_type.strip_prefix("bpchar"))?;
    match of.strip_prefix('(') {
        Some(length) => length.strip_suffix(')')?.parse().ok(),
        None => of.is_empty().then_some(0),
    }
}

/// Texts without trailing spaces.
pub(super) fn trimmed(array: &ArrayRef, column: &Column) -> Result<ArrayRef> {
    let texts = array.as_string_opt::<i32>();
    let texts = texts.ok_or_else(|| {
        ConnectorError::data(
            format!("column {:?}", column.name),
            format!("is {}, not text", array.data_type()),
        )
    })?;
    let trimmed = texts.iter().map(|text| text.map(|text| text.trim_end_matches(' ')));
    Ok(Arc::new(trimmed.collect::<StringArray>()))
}

/// The batch with such columns without trailing spaces; `None` if there are none.
///
/// # Errors
/// A column has another type than it says.
pub(super) fn without(records: &RecordBatch, columns: &[Column]) -> Result<Option<RecordBatch>> {
    if !columns.iter().any(is_padded) {
        return Ok(None);
    }
    let arrays = records.columns().iter().zip(columns);
    let arrays = arrays.map(|(array, column)| match is_padded(column) {
        true => trimmed(array, column),
        false => Ok(Arc::clone(array)),
    });
    let arrays = arrays.collect::<Result<Vec<_>>>()?;
    let records = RecordBatch::try_new(records.schema(), arrays);
    records.map(Some).map_err(|error| ConnectorError::data("a batch", error.to_string()))
}

/// Whether the values of a column are padded.
pub(super) fn is_padded(column: &Column) -> bool {
    column.wire == Wire::Text && padded_to(column).is_some()
}
