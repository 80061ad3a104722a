//! Rows of prefixes as a Parquet file.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Builder, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;

use super::rows::{Columns, ENCODED, PREFIX};
use super::{ExportError, Walk};
use crate::index::Index;
use crate::render::percent_encoded;

/// Rows converted to columns at once.
const BATCH_ROWS: usize = 4 << 10;
/// Rows of a row group, which is in memory until it is written.
const GROUP_ROWS: usize = 64 << 10;

/// Buffered rows.
struct Batch<'a> {
    columns: &'a Columns<'a>,
    schema: SchemaRef,
    prefix: StringBuilder,
    encoded: StringBuilder,
    numbers: Vec<Int64Builder>,
    rows: usize,
}

pub(super) fn write(
    index: &Index,
    walk: &mut Walk<'_, '_>,
    out: impl Write + Send,
) -> Result<(), ExportError> {
    let columns = Columns::new(index);
    let mut batch = Batch::new(&columns);
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        // Each prefix occurs once.
        .set_column_dictionary_enabled(ColumnPath::from(PREFIX), false)
        .build();
    let mut writer = ArrowWriter::try_new(out, Arc::clone(&batch.schema), Some(properties))?;
    let mut numbers = Vec::new();
    while let Some(found) = walk.next()? {
        columns.fill(&found.node, &mut numbers)?;
        batch.push(&found.prefix, &numbers)?;
        if batch.rows == BATCH_ROWS {
            writer.write(&batch.take()?)?;
        }
    }
    writer.write(&batch.take()?)?;
    writer.close()?;
    Ok(())
}

impl<'a> Batch<'a> {
    fn new(columns: &'a Columns<'a>) -> Self {
        let mut fields = vec![
            Field::new(PREFIX, DataType::Utf8, false),
            Field::new(ENCODED, DataType::Utf8, true),
        ];
        fields.extend(columns.names.iter().map(|name| Field::new(name, DataType::Int64, false)));
        Self {
            columns,
            schema: Arc::new(Schema::new(fields)),
            prefix: StringBuilder::new(),
            encoded: StringBuilder::new(),
            numbers: columns.names.iter().map(|_| Int64Builder::new()).collect(),
            rows: 0,
        }
    }

    fn push(&mut self, prefix: &[u8], numbers: &[u64]) -> Result<(), ExportError> {
        let text = String::from_utf8_lossy(prefix);
        let is_text = std::str::from_utf8(prefix).is_ok();
        self.encoded.append_option((!is_text).then(|| percent_encoded(prefix)));
        let named = self.columns.names.iter().zip(numbers);
        for (column, (name, &number)) in self.numbers.iter_mut().zip(named) {
            let fits = i64::try_from(number).map_err(|_| ExportError::TooLarge {
                column: name.clone(),
                prefix: text.clone().into_owned(),
                number,
            })?;
            column.append_value(fits);
        }
        self.prefix.append_value(text);
        self.rows += 1;
        Ok(())
    }

    fn take(&mut self) -> Result<RecordBatch, ParquetError> {
        let mut arrays: Vec<ArrayRef> =
            vec![Arc::new(self.prefix.finish()), Arc::new(self.encoded.finish())];
        for column in &mut self.numbers {
            arrays.push(Arc::new(column.finish()));
        }
        self.rows = 0;
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), arrays)?)
    }
}
