//! How a query sees columns, and back.
//!
//! As Arrow has them, without their types in SQL: a query would take different metadata for a reason not
//! to bring columns together. And a `uuid` as its text: it is compared with texts, and as 16 bytes would
//! never be equal to one.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeBinaryBuilder, RecordBatch, RecordBatchOptions,
    StringBuilder,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use forebay_pgcopy::{Column, Wire, column};

/// Bytes of a `uuid` as text.
const UUID_SIZE: usize = 36;

/// The type a query sees.
pub(super) fn data_type(wire: &Wire) -> DataType {
    match wire {
        Wire::Uuid => DataType::Utf8,
        wire => wire.data_type(),
    }
}

/// The schema a query sees.
pub(super) fn schema(columns: &[Column]) -> Schema {
    let fields = columns
        .iter()
        .map(|column| Field::new(&column.name, data_type(&column.wire), column.nullable));
    Schema::new(fields.collect::<Vec<_>>())
}

/// A batch as a query sees it.
///
/// # Errors
/// It is not of the schema.
pub(super) fn present(
    records: &RecordBatch,
    schema: &SchemaRef,
) -> Result<RecordBatch, ArrowError> {
    let arrays = records.columns().iter().zip(schema.fields());
    let arrays = arrays.map(|(array, field)| match (array.data_type(), field.data_type()) {
        (DataType::FixedSizeBinary(16), DataType::Utf8) => texts_of(array),
        _ => Ok(Arc::clone(array)),
    });
    let arrays = arrays.collect::<Result<Vec<_>, _>>()?;
    let rows = RecordBatchOptions::new().with_row_count(Some(records.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &rows)
}

/// Brings batches of a result into the types of its columns.
pub(super) struct Shape {
    schema: SchemaRef,
}

impl Shape {
    /// For these columns.
    pub(super) fn new(columns: &[Column]) -> Self {
        Self { schema: Arc::new(column::schema(columns)) }
    }

    /// A batch without rows.
    pub(super) fn empty(&self) -> RecordBatch {
        RecordBatch::new_empty(Arc::clone(&self.schema))
    }

    /// The batch, with every column of its type.
    ///
    /// # Errors
    /// A value that does not fit, or a NULL where the plan said there is none.
    pub(super) fn fit(&self, records: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        // What does not fit is an error and not NULL.
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let arrays = records.columns().iter().zip(self.schema.fields());
        let arrays = arrays.map(|(array, field)| match (array.data_type(), field.data_type()) {
            (from, to) if from == to => Ok(Arc::clone(array)),
            (DataType::Utf8, DataType::FixedSizeBinary(16)) => uuids_of(array),
            (_, to) => cast_with_options(array, to, &options),
        });
        let arrays = arrays.collect::<Result<Vec<_>, _>>()?;
        let rows = RecordBatchOptions::new().with_row_count(Some(records.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &rows)
    }
}

/// The texts of uuids.
fn texts_of(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let values = array.as_fixed_size_binary();
    let mut texts = StringBuilder::with_capacity(values.len(), values.len() * UUID_SIZE);
    let mut text = [0; UUID_SIZE];
    for value in values {
        let Some(value) = value else {
            texts.append_null();
            continue;
        };
        let value =
            uuid::Uuid::from_slice(value).map_err(|e| ArrowError::CastError(e.to_string()))?;
        texts.append_value(value.hyphenated().encode_lower(&mut text));
    }
    Ok(Arc::new(texts.finish()))
}

/// The uuids of texts.
fn uuids_of(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let mut values = FixedSizeBinaryBuilder::with_capacity(array.len(), 16);
    for text in array.as_string::<i32>() {
        match text.map(uuid::Uuid::try_parse) {
            None => values.append_null(),
            Some(Ok(value)) => values.append_value(value.as_bytes())?,
            Some(Err(error)) => return Err(ArrowError::CastError(error.to_string())),
        }
    }
    Ok(Arc::new(values.finish()))
}
