//! Rows as a target stores them: its columns, of their types.

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use forebay_pgcopy::Column;
use forebay_sdk::cast::exact;
use forebay_sdk::chosen::Chosen;
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;

/// A batch with the columns of a target, of their types.
///
/// * `stream`: for messages.
/// * `schema`: that of `columns`, which are those of `chosen`.
pub(super) fn conform(
    stream: &str,
    batch: &RecordBatch,
    chosen: &Chosen,
    columns: &[Column],
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    let batch = chosen.batch(stream, batch)?;
    let mut arrays = batch.columns().to_vec();
    for (array, column) in arrays.iter_mut().zip(columns) {
        *array = exact(array, &column.wire.data_type()).map_err(|found| {
            ConnectorError::data(format!("{stream}, column {:?}", column.name), found)
        })?;
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let batch = RecordBatch::try_new_with_options(schema.clone(), arrays, &options);
    batch.map_err(|error| ConnectorError::data(stream, error.to_string()))
}
