//! Writing Parquet: one row group is in memory, encoded and compressed, until it is full.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringBuilder};
use arrow::datatypes::{Schema, SchemaRef};
use forebay_base::ByteSize;
use forebay_pgcopy::Column;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::values::write::Cells;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use super::super::format::{Encode, Format, Layout};
use super::super::settings::{ParquetCompression, ParquetDestination};
use super::{ParquetFormat, is_kept_as_text, stored_field};

/// Minimum size of a row group in bytes: smaller ones are slower to read, and their statistics
/// larger than the data.
const ROW_GROUP_SIZE_MIN: u64 = 1 << 20;
/// Maximum number of rows of a row group, however small they are.
const ROW_GROUP_ROWS_MAX: usize = 1 << 20;
/// Number of bytes of long texts that are compared in statistics.
const STATISTICS_SIZE_MAX: usize = 64;

/// Maximum size of a column's dictionary in bytes. A larger one has values that hardly repeat, and
/// looking up each of them would be in vain.
const DICTIONARY_SIZE_MAX: usize = 128 << 10;

/// How Parquet files are written.
#[derive(Debug)]
pub(in super::super) struct ParquetLayout {
    properties: WriterProperties,
}

struct ParquetEncode {
    writer: ArrowWriter<Vec<u8>>,
    columns: Vec<Column>,
    schema: SchemaRef,
}

impl ParquetLayout {
    pub(in super::super) fn new(settings: &ParquetDestination) -> Self {
        Self { properties: properties(settings.compression, settings.row_group_size) }
    }
}

/// How files are written.
///
/// * `row_group_size`: in bytes.
pub(in super::super) fn properties(
    compression: ParquetCompression,
    row_group_size: ByteSize,
) -> WriterProperties {
    let compression = match compression {
        ParquetCompression::Snappy => Compression::SNAPPY,
        ParquetCompression::Zstd => Compression::ZSTD(ZstdLevel::default()),
        ParquetCompression::Lz4 => Compression::LZ4_RAW,
        ParquetCompression::None => Compression::UNCOMPRESSED,
    };
    let size = row_group_size.0.max(ROW_GROUP_SIZE_MIN);
    WriterProperties::builder()
        .set_compression(compression)
        .set_created_by(concat!("forebay ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_dictionary_page_size_limit(DICTIONARY_SIZE_MAX)
        .set_statistics_truncate_length(Some(STATISTICS_SIZE_MAX))
        .set_max_row_group_bytes(Some(usize::try_from(size).unwrap_or(usize::MAX)))
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS_MAX))
        .build()
}

impl Layout for ParquetLayout {
    fn ending(&self) -> String {
        "parquet".into()
    }

    fn columns_may_differ(&self) -> bool {
        true
    }

    fn keeps_columns(&self) -> bool {
        true
    }

    fn encode(&self, columns: &[Column]) -> Result<Box<dyn Encode>, ConnectorError> {
        let fields: Vec<_> = columns.iter().map(stored_field).collect();
        let schema = Arc::new(Schema::new(fields));
        let writer =
            ArrowWriter::try_new(Vec::new(), Arc::clone(&schema), Some(self.properties.clone()));
        let writer = writer.map_err(failed)?;
        Ok(Box::new(ParquetEncode { writer, columns: columns.to_vec(), schema }))
    }

    fn format(&self, _columns: &[Column]) -> Box<dyn Format> {
        Box::new(ParquetFormat)
    }

    fn notes(&self, columns: &[Column]) -> Vec<String> {
        let kept = columns.iter().filter(|column| is_kept_as_text(&column.wire));
        kept.map(|column| {
            let Column { name, sql_type, .. } = column;
            format!("column {name:?}: Parquet has no {sql_type}; it is stored as ISO 8601 text")
        })
        .collect()
    }
}

/// An encoding error. Nothing is written to disk here.
pub(in super::super) fn failed(error: ParquetError) -> ConnectorError {
    ConnectorError::Refused { act: "encode rows as Parquet".into(), source: error.into() }
}

impl ParquetEncode {
    /// The batch with the columns of the file.
    fn stored(&self, batch: &RecordBatch) -> Result<RecordBatch, ConnectorError> {
        let mut arrays: Vec<ArrayRef> = batch.columns().to_vec();
        for (array, column) in arrays.iter_mut().zip(&self.columns) {
            if is_kept_as_text(&column.wire) {
                *array = as_text(array, column)?;
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)
            .map_err(|error| failed(error.into()))
    }

    /// Takes the encoded output.
    fn take(&mut self, out: &mut Vec<u8>) {
        let ready = self.writer.inner_mut();
        match out.is_empty() {
            true => *out = std::mem::take(ready),
            false => out.append(ready),
        }
    }
}

fn as_text(array: &ArrayRef, column: &Column) -> Result<ArrayRef, ConnectorError> {
    let cells = Cells::new(array.as_ref(), column)?;
    let mut builder = StringBuilder::new();
    let mut text = Vec::new();
    for row in 0..array.len() {
        if cells.is_null(row) {
            builder.append_null();
            continue;
        }
        text.clear();
        cells.text(row, &mut text);
        builder.append_value(String::from_utf8_lossy(&text));
    }
    Ok(Arc::new(builder.finish()))
}

impl Encode for ParquetEncode {
    fn write(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), ConnectorError> {
        let batch = self.stored(batch)?;
        self.writer.write(&batch).map_err(failed)?;
        self.take(out);
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), ConnectorError> {
        self.writer.finish().map_err(failed)?;
        self.take(out);
        Ok(())
    }
}
