//! Rows as SQLite stores them: the columns that a table has, of their types, with one zero.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Float32Type, Float64Type};
use forebay_pgcopy::column::schema;
use forebay_sdk::cast::exact;
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;

use super::target::Shared;

impl Shared {
    /// Rows of the stream as they are read back.
    pub(super) fn conform(&self, records: &RecordBatch) -> Result<RecordBatch> {
        let stream = &*self.settings.stream;
        let data = |found: String| ConnectorError::data(stream, found);
        let records = self.chosen.batch(stream, records)?;
        let mut arrays = records.columns().to_vec();
        for (array, column) in arrays.iter_mut().zip(&self.columns) {
            *array = exact(array, &column.wire.data_type())
                .map(|array| without_negative_zero(&array))
                .map_err(|found| data(format!("column {:?}: {found}", column.name)))?;
        }
        let options = RecordBatchOptions::new().with_row_count(Some(records.num_rows()));
        let batch =
            RecordBatch::try_new_with_options(Arc::new(schema(&self.columns)), arrays, &options);
        batch.map_err(|error| data(error.to_string()))
    }
}

/// Reals in SQLite's form, which has one zero. They are hashed that way, so that the entry matches
/// the stored rows.
fn without_negative_zero(array: &ArrayRef) -> ArrayRef {
    if let Some(array) = array.as_primitive_opt::<Float64Type>() {
        Arc::new(array.unary::<_, Float64Type>(|value| value + 0.0))
    } else if let Some(array) = array.as_primitive_opt::<Float32Type>() {
        Arc::new(array.unary::<_, Float32Type>(|value| value + 0.0))
    } else {
        Arc::clone(array)
    }
}
