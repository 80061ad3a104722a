//! Writes one unit as one data file, and its dead letters as another.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use async_trait::async_trait;
use forebay_sdk::batch::{Batch, Rows};
use forebay_sdk::bridge::Encoder;
use forebay_sdk::connector::{LedgerEntry, Load, Result, Unit, UnitWriter};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::hash::Hasher;
use forebay_sdk::run::Phase;

use super::super::dead::DeadLetters;
use super::super::store::{Room, Staged};
use super::encoding::Encoding;
use super::ledger::{Committed, DataFile, stem};
use super::table::Shape;
use super::target::Shared;
use super::types::to_stored;

/// Writes one unit.
pub(super) struct TableWriter {
    shared: Arc<Shared>,
    load: Load,
    /// Name of its file, without the ending.
    stem: String,
    encoder: Encoder<Rendering>,
    file: Option<Box<dyn Staged>>,
    dead: DeadLetters,
}

/// The rows of a unit that are being encoded.
struct Rendering {
    file: Encoding,
    hasher: Hasher,
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
        let file = Encoding::new(fields, shape, &shared.properties)?;
        let rendering = Rendering { file, hasher: Hasher::new(&shared.columns)? };
        let stem = stem(&shared.settings, &load.id, run, &unit.name);
        Ok(Self {
            shared: Arc::clone(shared),
            load: load.clone(),
            dead: DeadLetters::new(&stem),
            stem,
            encoder: Encoder::new(rendering),
            file: None,
        })
    }

    /// Writes the encoded output.
    async fn flush(&mut self) -> Result<()> {
        let begun = Instant::now();
        let encoding = &mut self.encoder.state_mut()?.file;
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
        let phases = &self.shared.context.phases;
        let stats = self.encoder.run(phases, |rendering| rendering.file.finish()).await?;
        self.flush().await?;
        let Some(file) = self.file.take() else { return Err(ConnectorError::Stopped) };
        let bytes = file.publish().await?;
        let at_ms = now_ms();
        Ok(Some(DataFile { path: format!("{}.parquet", self.stem), bytes, at_ms, stats }))
    }
}

impl Rendering {
    /// Adds rows with the columns of the target.
    fn add(&mut self, batch: &RecordBatch, shared: &Shared) -> Result<()> {
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(batch.num_columns());
        let columns = batch.columns().iter().zip(&*shared.columns);
        for ((array, column), field) in columns.zip(self.file.schema.fields()) {
            arrays.push(to_stored(array, column, field.data_type())?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let schema = Arc::clone(&self.file.schema);
        let stored = RecordBatch::try_new_with_options(schema, arrays, &options)
            .map_err(|error| ConnectorError::data(shared.stream(), error.to_string()))?;
        self.file.write(&stored)
    }
}

/// The time, in ms since 1970.
pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
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
            .run(&self.shared.context.phases, move |rendering| {
                let records = shared.conform(&records)?;
                rendering.add(&records, &shared)?;
                match hash {
                    Some(hash) => rendering.hasher.add_hashed(hash),
                    None => rendering.hasher.add(&records)?,
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
