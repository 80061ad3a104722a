//! Reading Parquet: a page of every column is in memory, and the batch that is made of them.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, new_null_array};
use arrow::datatypes::{DataType, Field, IntervalUnit, SchemaRef};
use forebay_pgcopy::Column;
use forebay_pgcopy::column::schema;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;

use super::super::format::{Format, Part, Reading};
use super::super::opened::Opened;
use super::is_kept_as_text;
use crate::error::ConnectorError;
use crate::native::bridge::Give;
use crate::native::cast::exact;
use crate::native::values::read::Builder;

/// Rows of a batch at most, however few bytes they take.
const BATCH_ROWS_MAX: usize = 64 << 10;
/// Bytes a row is taken for at least, so that a column of nothing but one value makes no huge batch.
const ROW_SIZE_MIN: usize = 16;

/// Parquet files.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct ParquetFormat;

fn failed(file: &Opened, error: ParquetError) -> ConnectorError {
    match error {
        // Reading failed, not the format.
        ParquetError::External(error) => match error.downcast::<std::io::Error>() {
            Ok(error) => file.failed(*error),
            Err(error) => {
                ConnectorError::File { act: "read", path: file.path.clone(), source: error }
            }
        },
        error => ConnectorError::data(file.path.display().to_string(), error.to_string()),
    }
}

fn metadata(file: &Opened) -> Result<ArrowReaderMetadata, ConnectorError> {
    ArrowReaderMetadata::load(file, ArrowReaderOptions::new()).map_err(|error| failed(file, error))
}

/// The column that a field of a file becomes.
fn column_of(field: &Field, file: &Opened) -> Result<Column, ConnectorError> {
    // Only what keeps intervals is text in the file and something else by its metadata.
    let interval = DataType::Interval(IntervalUnit::MonthDayNano);
    let said = field.metadata().get(forebay_pgcopy::column::WIRE).map(String::as_str);
    let kept = match said.filter(|_| *field.data_type() == DataType::Utf8) {
        Some("interval") => Some(interval),
        Some(wire) if wire.starts_with("array:") && wire.ends_with(":interval") => {
            Some(DataType::new_list(interval, true))
        }
        _ => None,
    };
    let column = match kept {
        Some(kept) => Column::from_field(&field.clone().with_data_type(kept)),
        None => Column::from_field(field),
    };
    column.map_err(|unfit| {
        ConnectorError::unsupported(
            format!("{}: {unfit}", file.path.display()),
            "choose other columns with the stream's `columns`",
        )
    })
}

impl Format for ParquetFormat {
    fn endings(&self) -> &'static [&'static str] {
        &["parquet", "pq"]
    }

    fn columns(&self, file: &Opened, wanted: &[String]) -> Result<Vec<Column>, ConnectorError> {
        let metadata = metadata(file)?;
        let fields = metadata.schema().fields().iter();
        let fields = fields.filter(|field| wanted.is_empty() || wanted.contains(field.name()));
        fields.map(|field| column_of(field, file)).collect()
    }

    fn divide(&self, file: &Opened, size: u64) -> Result<Vec<Part>, ConnectorError> {
        let metadata = metadata(file)?;
        let groups = metadata.metadata().row_groups();
        let mut parts: Vec<Part> = Vec::new();
        for (index, group) in groups.iter().enumerate() {
            let bytes = u64::try_from(group.compressed_size()).unwrap_or(0);
            let rows = u64::try_from(group.num_rows()).unwrap_or(0);
            match parts.last_mut().filter(|part| part.bytes + bytes <= size) {
                Some(part) => {
                    part.bytes += bytes;
                    part.rows = part.rows.map(|before| before + rows);
                    part.groups.1 = index + 1;
                }
                None => parts.push(Part { groups: (index, index + 1), rows: Some(rows), bytes }),
            }
        }
        if parts.is_empty() {
            return Ok(vec![Part::whole(file.size)]);
        }
        Ok(parts)
    }

    fn read(&self, reading: &Reading<'_>, give: &mut Give<'_>) -> Result<(), ConnectorError> {
        let file = reading.file;
        let metadata = metadata(file)?;
        let groups = metadata.metadata().num_row_groups();
        let (from, to) = (reading.part.groups.0.min(groups), reading.part.groups.1.min(groups));
        let rows = batch_rows(&metadata, from..to, reading.batch_size);
        let mut roots = Vec::new();
        for (index, field) in metadata.schema().fields().iter().enumerate() {
            if reading.column(field.name())?.is_some() {
                roots.push(index);
            }
        }
        let mask = ProjectionMask::roots(metadata.parquet_schema(), roots);
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file.clone(), metadata)
            .with_row_groups((from..to).collect())
            .with_projection(mask)
            .with_batch_size(rows)
            .build();
        let wanted = Arc::new(schema(reading.columns));
        let mut first_row = 0;
        for batch in reader.map_err(|error| failed(file, error))? {
            let batch = batch.map_err(|error| match error {
                arrow::error::ArrowError::ExternalError(error) => match error.downcast() {
                    Ok(error) => failed(file, *error),
                    Err(error) => {
                        ConnectorError::data(file.path.display().to_string(), error.to_string())
                    }
                },
                error => ConnectorError::data(file.path.display().to_string(), error.to_string()),
            })?;
            let rows = batch.num_rows();
            give(conform(&batch, &wanted, reading, first_row)?)?;
            first_row += rows;
        }
        Ok(())
    }
}

/// Rows that take about as many bytes as a batch may have.
fn batch_rows(
    metadata: &ArrowReaderMetadata,
    groups: std::ops::Range<usize>,
    batch_size: usize,
) -> usize {
    let groups = metadata.metadata().row_groups().get(groups).unwrap_or_default();
    let bytes: i64 = groups.iter().map(|group| group.total_byte_size()).sum();
    let rows: i64 = groups.iter().map(|group| group.num_rows()).sum();
    let row_size = usize::try_from(bytes / rows.max(1)).unwrap_or(usize::MAX).max(ROW_SIZE_MIN);
    (batch_size / row_size).clamp(1, BATCH_ROWS_MAX)
}

/// A batch of the file as a batch of the stream's columns: in their order and of their types, with NULL
/// where the file lacks one.
fn conform(
    batch: &RecordBatch,
    wanted: &SchemaRef,
    reading: &Reading<'_>,
    first_row: usize,
) -> Result<RecordBatch, ConnectorError> {
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(reading.columns.len());
    for column in reading.columns {
        let data_type = column.wire.data_type();
        let Some(array) = batch.column_by_name(&column.name) else {
            reading.check_missing(column)?;
            arrays.push(new_null_array(&data_type, batch.num_rows()));
            continue;
        };
        let is_text = is_kept_as_text(&column.wire) && *array.data_type() == DataType::Utf8;
        let cast = match is_text {
            true => from_text(array, column),
            false => exact(array, &data_type),
        };
        arrays.push(cast.map_err(|found| {
            let file = reading.file.path.display();
            let place = format!("{file} from row {} on, column {:?}", first_row + 1, column.name);
            ConnectorError::data(place, found)
        })?);
    }
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(wanted), arrays, &options).map_err(|error| {
        ConnectorError::data(reading.file.path.display().to_string(), error.to_string())
    })
}

/// Values of a column that is kept as text.
fn from_text(array: &ArrayRef, column: &Column) -> Result<ArrayRef, String> {
    let texts = array.as_string_opt::<i32>();
    let texts = texts.ok_or_else(|| format!("is {}, not text", array.data_type()))?;
    let mut builder = Builder::new(column);
    for text in texts {
        match text {
            Some(text) => builder.text(text)?,
            None => builder.null(),
        }
    }
    Ok(builder.finish())
}
