//! Encodes a data file of a table, with the statistics that its `add` action has.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, RecordBatch, StructArray};
use arrow::compute::kernels::substring::substring_by_char;
use arrow::datatypes::{
    DataType, Date32Type, FieldRef, Schema, SchemaRef, TimestampMicrosecondType,
};
use arrow::json::LineDelimitedWriter;
use delta_kernel_default_engine::stats::FileStatsAccumulator;
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::file::properties::WriterProperties;

use super::super::parquet::failed;
use super::table::Shape;

/// Days since 1970 of the first and the last day that statistics can have: the years 0001 to 9999.
const DAYS: std::ops::RangeInclusive<i32> = -719_162..=2_932_896;
/// Number of microseconds in a day.
const DAY_US: i64 = 86_400_000_000;

/// Size in bytes of texts that statistics see as a whole.
const STATISTICS_SIZE_MAX: usize = 1024;
/// Number of characters of a longer one that they see. Bounds have at most 65.
const STATISTICS_CHARS: u64 = 256;

/// A data file that is being encoded.
pub(super) struct Encoding {
    writer: ArrowWriter<Vec<u8>>,
    pub(super) schema: SchemaRef,
    /// Taken when the file is complete.
    stats: Option<FileStatsAccumulator>,
    /// What was encoded and is not written yet.
    pub(super) out: Vec<u8>,
}

impl Encoding {
    /// * `fields`: those of the file, as the table has them.
    pub(super) fn new(
        fields: Vec<FieldRef>,
        shape: &Shape,
        properties: &WriterProperties,
    ) -> Result<Self> {
        let schema = Arc::new(Schema::new(fields));
        let options = ArrowWriterOptions::new()
            .with_properties(properties.clone())
            // Other readers take the types of Parquet, which have everything.
            .with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(Vec::new(), Arc::clone(&schema), options);
        let stats = FileStatsAccumulator::new(&shape.stats_columns, &shape.physical);
        Ok(Self { writer: writer.map_err(failed)?, schema, stats: Some(stats), out: Vec::new() })
    }

    /// Adds rows with the schema of the file.
    pub(super) fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        self.writer.write(rows).map_err(failed)?;
        let Some(stats) = &mut self.stats else { return Err(ConnectorError::Stopped) };
        stats.merge(&shortened(rows)?).map_err(|error| refused(error.into()))?;
        self.take();
        Ok(())
    }

    /// Takes the encoded output.
    fn take(&mut self) {
        let ready = self.writer.inner_mut();
        match self.out.is_empty() {
            true => self.out = std::mem::take(ready),
            false => self.out.append(ready),
        }
    }

    /// Ends the file. Returns its statistics.
    pub(super) fn finish(&mut self) -> Result<String> {
        self.writer.finish().map_err(failed)?;
        self.take();
        let Some(stats) = self.stats.take() else { return Err(ConnectorError::Stopped) };
        match stats.finish().map_err(|error| refused(error.into()))? {
            Some(stats) => encode_stats(&stats),
            None => Ok("{}".into()),
        }
    }
}

/// A batch for statistics: without the ends of long texts, since the bounds of each batch are kept until the
/// end of the file. Bounds have fewer characters, and the order is the same as far as they go.
fn shortened(batch: &RecordBatch) -> Result<RecordBatch> {
    let mut arrays = batch.columns().to_vec();
    for array in &mut arrays {
        let Some(texts) = array.as_string_opt::<i32>() else { continue };
        if texts.iter().flatten().all(|text| text.len() <= STATISTICS_SIZE_MAX) {
            continue;
        }
        let short = substring_by_char(texts, 0, Some(STATISTICS_CHARS));
        *array = Arc::new(short.map_err(|error| refused(error.into()))?);
    }
    RecordBatch::try_new(batch.schema(), arrays).map_err(|error| refused(error.into()))
}

fn refused(source: Box<dyn std::error::Error + Send + Sync>) -> ConnectorError {
    ConnectorError::Refused { act: "compute the statistics of a data file".into(), source }
}

/// Statistics as JSON. Bounds that the form of dates there cannot express are left out.
fn encode_stats(stats: &StructArray) -> Result<String> {
    let fields = stats.fields().clone();
    let arrays = fields.iter().zip(stats.columns()).map(|(field, array)| {
        let is_bound = matches!(field.name().as_str(), "minValues" | "maxValues");
        match array.as_struct_opt().filter(|_| is_bound) {
            Some(bounds) => expressible(bounds, stats),
            None => Arc::clone(array),
        }
    });
    let arrays: Vec<ArrayRef> = arrays.collect();
    let batch = RecordBatch::try_from_iter(
        fields.iter().zip(arrays).map(|(field, array)| (field.name(), array)),
    );
    let batch = batch.map_err(|error| refused(error.into()))?;
    let mut json = Vec::new();
    let mut writer = LineDelimitedWriter::new(&mut json);
    writer.write(&batch).and_then(|()| writer.finish()).map_err(|error| refused(error.into()))?;
    drop(writer);
    let json = String::from_utf8(json).map_err(|error| refused(error.into()))?;
    Ok(json.trim_end().to_owned())
}

/// The bounds without those of columns for which one of the two is not of the years 0001 to 9999.
fn expressible(bounds: &StructArray, stats: &StructArray) -> ArrayRef {
    let both: Vec<&StructArray> = ["minValues", "maxValues"]
        .iter()
        .filter_map(|name| stats.column_by_name(name)?.as_struct_opt())
        .collect();
    let is_kept = |name: &str| {
        both.iter().filter_map(|bounds| bounds.column_by_name(name)).all(is_expressible)
    };
    let kept = bounds.fields().iter().zip(bounds.columns());
    let kept: Vec<_> = kept
        .filter(|(field, _)| is_kept(field.name()))
        .map(|(field, array)| (Arc::clone(field), Arc::clone(array)))
        .collect();
    match kept.is_empty() {
        true => Arc::new(StructArray::new_empty_fields(bounds.len(), None)),
        false => Arc::new(StructArray::from(kept)),
    }
}

fn is_expressible(bound: &ArrayRef) -> bool {
    match bound.data_type() {
        DataType::Date32 => {
            let days = bound.as_primitive_opt::<Date32Type>();
            days.is_none_or(|days| days.iter().flatten().all(|day| DAYS.contains(&day)))
        }
        DataType::Timestamp(..) => {
            let day = |us: i64| i32::try_from(us.div_euclid(DAY_US)).ok();
            let times = bound.as_primitive_opt::<TimestampMicrosecondType>();
            times.is_none_or(|times| {
                times.iter().flatten().all(|us| day(us).is_some_and(|day| DAYS.contains(&day)))
            })
        }
        _ => true,
    }
}
