//! Reading Parquet: one page of every column is in memory, and the batch made of them.
//!
//! The sizes that a file declares are compared with the memory of the run first
//! ([`forebay_parquet`]). Texts are read as views of their pages, and copied if a batch is small
//! enough: a few bytes of a file can refer to one long text any number of times.

#![deny(clippy::indexing_slicing)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, new_null_array};
use arrow::datatypes::{DataType, Field, IntervalUnit, SchemaRef};
use forebay_parquet::{Batches, Footer, Plan, ReadError, load, view_bytes};
use forebay_pgcopy::Column;
use forebay_pgcopy::column::schema;
use forebay_sdk::bridge::Give;
use forebay_sdk::cast::exact;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::values::read::Builder;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetStatisticsPolicy, RowGroupMetaData};

use super::super::format::{Format, Part, Reading};
use super::super::opened::Opened;
use super::is_kept_as_text;

/// Maximum number of rows of a batch, however small they are.
const BATCH_ROWS_MAX: usize = 64 << 10;
/// Minimum size that a row counts as, so that a column with a single value makes no huge batch.
const ROW_SIZE_MIN: usize = 16;

/// Parquet files.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct ParquetFormat;

fn failed(file: &Opened, error: ReadError) -> ConnectorError {
    let place = || file.path.display().to_string();
    match error {
        // The read failed, not the format.
        ReadError::Parquet(ParquetError::External(error)) => {
            match error.downcast::<std::io::Error>() {
                Ok(error) => file.failed(*error),
                Err(error) => {
                    ConnectorError::File { act: "read", path: file.path.clone(), source: error }
                }
            }
        }
        ReadError::Exceeded(exceeded) => ConnectorError::data(
            place(),
            format!("{exceeded}; raise `resources.max_memory` or a stage's `limits.max_memory`"),
        ),
        error => ConnectorError::data(place(), error.to_string()),
    }
}

/// Runs the decoder, which panics on some invalid files: arithmetic on numbers of the file is not
/// checked everywhere.
fn guarded<T>(
    file: &Opened,
    read: impl FnOnce() -> Result<T, ReadError>,
) -> Result<T, ConnectorError> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(result) => result.map_err(|error| failed(file, error)),
        Err(_) => Err(ConnectorError::data(file.path.display().to_string(), "it is damaged")),
    }
}

fn metadata(file: &Opened) -> Result<ArrowReaderMetadata, ConnectorError> {
    let options = ArrowReaderOptions::new()
        .with_column_stats_policy(ParquetStatisticsPolicy::SkipAll)
        .with_size_stats_policy(ParquetStatisticsPolicy::SkipAll)
        .with_encoding_stats_as_mask(true);
    guarded(file, || {
        let footer = Footer::read(file, file.memory)?;
        load(&footer, options)
    })
}

/// The column for a field of a file.
fn column_of(field: &Field, file: &Opened) -> Result<Column, ConnectorError> {
    // Only a stored interval is text in the file and another type by its metadata.
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
            // Numbers of the file, which are added without a check.
            let bytes = guarded(file, || Ok(group.compressed_size()))?;
            let bytes = u64::try_from(bytes).unwrap_or(0);
            let rows = u64::try_from(group.num_rows()).unwrap_or(0);
            match parts.last_mut().filter(|part| part.bytes.saturating_add(bytes) <= size) {
                Some(part) => {
                    part.bytes += bytes;
                    part.rows = part.rows.map(|before| before.saturating_add(rows));
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
        let plan = Plan {
            chunks: file.clone(),
            metadata,
            mask,
            groups: (from..to).collect(),
            rows_max: rows,
            limit: file.memory,
        };
        let mut batches = guarded(file, || Batches::new(plan))?;
        let wanted = Arc::new(schema(reading.columns));
        let mut first_row = 0;
        while let Some(batch) = guarded(file, || batches.next().transpose())? {
            give_all(&batch, &wanted, reading, &mut first_row, give)?;
        }
        Ok(())
    }
}

/// Sends a batch of the file, in as many parts that the texts of each fit in the size of a batch.
fn give_all(
    batch: &RecordBatch,
    wanted: &SchemaRef,
    reading: &Reading<'_>,
    first_row: &mut usize,
    give: &mut Give<'_>,
) -> Result<(), ConnectorError> {
    let mut parts = vec![batch.clone()];
    while let Some(part) = parts.pop() {
        let rows = part.num_rows();
        let texts = part.columns().iter().map(view_bytes).fold(0, u64::saturating_add);
        if texts > reading.batch_size as u64 && rows > 1 {
            let half = rows / 2;
            parts.push(part.slice(half, rows - half));
            parts.push(part.slice(0, half));
            continue;
        }
        if texts > reading.file.memory {
            let place = format!("{} row {}", reading.file.path.display(), *first_row + 1);
            let limit = reading.file.memory;
            let found = format!("its texts have {texts} bytes; the limit is {limit} bytes");
            return Err(ConnectorError::data(place, found));
        }
        give(conform(&part, wanted, reading, *first_row)?)?;
        *first_row += rows;
    }
    Ok(())
}

/// Number of rows that have about the maximum size of a batch.
fn batch_rows(
    metadata: &ArrowReaderMetadata,
    groups: std::ops::Range<usize>,
    batch_size: usize,
) -> usize {
    let groups = metadata.metadata().row_groups().get(groups).unwrap_or_default();
    let sum = |of: fn(&RowGroupMetaData) -> i64| {
        groups
            .iter()
            .map(|group| u64::try_from(of(group)).unwrap_or(0))
            .fold(0, u64::saturating_add)
    };
    let (bytes, rows) = (sum(RowGroupMetaData::total_byte_size), sum(RowGroupMetaData::num_rows));
    let row_size = usize::try_from(bytes / rows.max(1)).unwrap_or(usize::MAX).max(ROW_SIZE_MIN);
    (batch_size / row_size).clamp(1, BATCH_ROWS_MAX)
}

/// Converts a batch of the file to the stream's columns: in their order and of their types, with
/// NULL where the file lacks one.
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
        let is_text = is_kept_as_text(&column.wire) && *array.data_type() == DataType::Utf8View;
        let cast = match is_text {
            true => from_text(array, column),
            false => exact(array, &data_type),
        };
        arrays.push(cast.map_err(|found| {
            let file = reading.file.path.display();
            let place =
                format!("{file} at row {} or later, column {:?}", first_row + 1, column.name);
            ConnectorError::data(place, found)
        })?);
    }
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(wanted), arrays, &options).map_err(|error| {
        ConnectorError::data(reading.file.path.display().to_string(), error.to_string())
    })
}

/// Values of a column that is stored as text.
fn from_text(array: &ArrayRef, column: &Column) -> Result<ArrayRef, String> {
    let texts = array.as_string_view_opt();
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
