//! Writes one unit as one data file, and its dead letters as another.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, RecordBatch, RecordBatchOptions, StructArray,
};
use arrow::compute::kernels::substring::substring_by_char;
use arrow::datatypes::{DataType, Date32Type, Schema, SchemaRef, TimestampMicrosecondType};
use arrow::json::LineDelimitedWriter;
use async_trait::async_trait;
use delta_kernel_default_engine::stats::FileStatsAccumulator;
use forebay_sdk::batch::{Batch, Rows};
use forebay_sdk::bridge::Encoder;
use forebay_sdk::connector::{LedgerEntry, Load, Result, Unit, UnitWriter};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::hash::Hasher;
use forebay_sdk::run::Phase;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;

use super::super::dead::DeadLetters;
use super::super::parquet::failed;
use super::super::store::{Room, Staged};
use super::ledger::{Committed, DataFile, stem};
use super::table::Shape;
use super::target::Shared;
use super::types::to_stored;

/// Days since 1970 of the first and the last day that statistics can have: the years 0001 to 9999.
const DAYS: std::ops::RangeInclusive<i32> = -719_162..=2_932_896;
/// Number of microseconds in a day.
const DAY_US: i64 = 86_400_000_000;

/// Size in bytes of texts that statistics see as a whole.
const STATISTICS_SIZE_MAX: usize = 1024;
/// Number of characters of a longer one that they see. Bounds have at most 65.
const STATISTICS_CHARS: u64 = 256;

/// Writes one unit.
pub(super) struct TableWriter {
    shared: Arc<Shared>,
    load: Load,
    /// Name of its file, without the ending.
    stem: String,
    encoder: Encoder<Encoding>,
    file: Option<Box<dyn Staged>>,
    dead: DeadLetters,
}

struct Encoding {
    writer: ArrowWriter<Vec<u8>>,
    schema: SchemaRef,
    /// Taken when the file is complete.
    stats: Option<FileStatsAccumulator>,
    hasher: Hasher,
    out: Vec<u8>,
}

impl TableWriter {
    pub(super) fn new(
        shared: &Arc<Shared>,
        shape: &Shape,
        load: &Load,
        run: i64,
        unit: &Unit,
    ) -> Result<Self> {
        let mut fields = Vec::with_capacity(shared.columns.len());
        for column in &*shared.columns {
            let field = shape.fields.iter().find(|(name, _)| *name == column.name);
            let (_, field) = field.ok_or_else(|| ConnectorError::Refused {
                act: format!("write to {}", shared.display()),
                source: format!("it has no column {:?} any more; run again", column.name).into(),
            })?;
            fields.push(Arc::clone(field));
        }
        let schema = Arc::new(Schema::new(fields));
        let options = ArrowWriterOptions::new()
            .with_properties(shared.properties.clone())
            // Other readers take the types of Parquet, which have everything.
            .with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(Vec::new(), Arc::clone(&schema), options);
        let encoding = Encoding {
            writer: writer.map_err(failed)?,
            schema,
            stats: Some(FileStatsAccumulator::new(&shape.stats_columns, &shape.physical)),
            hasher: Hasher::new(&shared.columns)?,
            out: Vec::new(),
        };
        let stem = stem(&shared.settings, &load.id, run, &unit.name);
        Ok(Self {
            shared: Arc::clone(shared),
            load: load.clone(),
            dead: DeadLetters::new(&stem),
            stem,
            encoder: Encoder::new(encoding),
            file: None,
        })
    }

    /// Writes the encoded output.
    async fn flush(&mut self) -> Result<()> {
        let begun = Instant::now();
        let encoding = self.encoder.state_mut()?;
        if encoding.out.is_empty() {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let name = format!("{}.parquet", self.stem);
                self.file.insert(self.shared.store.stage(Room::Shown, &name).await?)
            }
        };
        file.write(&mut encoding.out).await?;
        self.shared.context.phases.add(Phase::Flush, begun);
        Ok(())
    }

    /// Completes the file and returns its record; `None` if there are no rows.
    async fn publish(&mut self) -> Result<Option<DataFile>> {
        let rows = self.encoder.state()?.hasher.content().rows;
        if rows == 0 {
            return Ok(None);
        }
        let stats = self.encoder.run(&self.shared.context.phases, Encoding::finish).await?;
        self.flush().await?;
        let Some(file) = self.file.take() else { return Err(ConnectorError::Stopped) };
        let bytes = file.publish().await?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        Ok(Some(DataFile { path: format!("{}.parquet", self.stem), bytes, at_ms, stats }))
    }
}

impl Encoding {
    /// Adds rows with the columns of the target.
    fn add(&mut self, batch: &RecordBatch, shared: &Shared) -> Result<()> {
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(batch.num_columns());
        let columns = batch.columns().iter().zip(&*shared.columns);
        for ((array, column), field) in columns.zip(self.schema.fields()) {
            arrays.push(to_stored(array, column, field.data_type())?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let stored = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)
            .map_err(|error| ConnectorError::data(shared.stream(), error.to_string()))?;
        self.writer.write(&stored).map_err(failed)?;
        let Some(stats) = &mut self.stats else { return Err(ConnectorError::Stopped) };
        stats.merge(&shortened(&stored)?).map_err(|error| refused(error.into()))?;
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
    fn finish(&mut self) -> Result<String> {
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

#[async_trait]
impl UnitWriter for TableWriter {
    async fn write(&mut self, batch: Batch) -> Result<()> {
        self.dead.add(&*self.shared.store, &batch.dead).await?;
        let Rows::Records(records) = &batch.rows else {
            return Err(ConnectorError::unsupported(
                "tables cannot store the tuples of binary COPY",
                "send rows as Arrow",
            ));
        };
        let (records, shared) = (records.clone(), Arc::clone(&self.shared));
        // It covers the columns that are left out, too.
        let hash = batch.hash.filter(|_| !shared.chosen.is_partial());
        self.encoder
            .run(&self.shared.context.phases, move |encoding| {
                let records = shared.conform(&records)?;
                encoding.add(&records, &shared)?;
                match hash {
                    Some(hash) => encoding.hasher.add_hashed(hash),
                    None => encoding.hasher.add(&records)?,
                }
                Ok(())
            })
            .await?;
        // Its share of the budget is released when the rows are encoded and written.
        self.flush().await
    }

    async fn commit(mut self: Box<Self>, entry: LedgerEntry) -> Result<LedgerEntry> {
        let begun = Instant::now();
        let dead = self.dead.publish().await?.map(|(name, _)| name);
        let file = self.publish().await?;
        let content = self.encoder.state()?.hasher.content();
        let hash = content.to_string();
        let entry = LedgerEntry { rows: content.rows, dead: self.dead.rows(), hash, ..entry };
        let committed = Committed::new(entry.clone(), file, dead);
        let committed = self.shared.commit_unit(&self.load, committed).await;
        self.shared.context.phases.add(Phase::Commit, begun);
        committed.map(|()| entry)
    }
}
