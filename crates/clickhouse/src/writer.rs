//! Writes one unit: rows wait in memory, encoded and compressed, until the unit is committed. Beyond `block_size` or
//! `buffer_size`, they are collected in a table beside the target, block by block.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{BooleanArray, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::compute::filter_record_batch;
use async_trait::async_trait;
use forebay_pgcopy::ContentHash;
use forebay_pgcopy::column::schema;
use forebay_sdk::batch::{Batch, DeadRow, Rows};
use forebay_sdk::bridge::Encoder;
use forebay_sdk::cast::exact;
use forebay_sdk::connector::{LedgerEntry, Load, Result, UnitWriter};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::hash::Hasher;
use forebay_sdk::run::Phase;
use forebay_sdk::settings::{OnDataError, WriteMode};
use forebay_sdk::values::write::json_rows;

use crate::bounds::{self, Refused};
use crate::client::Body;
use crate::encode::Block;
use crate::target::{Prepared, Shared};

/// Maximum number of rows of a block: what the server sorts and writes as one part.
const BLOCK_ROWS_MAX: u64 = 16 << 20;
/// Maximum number of dead letters held in memory until their unit is committed.
const DEAD_MAX: usize = 100_000;
/// Number of characters of a row in a message.
const SHOWN_MAX: usize = 200;
/// Number of bits of a version that number the rows of a unit; the others are the number of the load.
pub(crate) const ROW_BITS: u32 = 32;

/// Writes one unit.
pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) prepared: Prepared,
    pub(crate) load: Load,
    pub(crate) unit: String,
    /// Differs whenever a unit is written.
    pub(crate) attempt: String,
    encoder: Encoder<Encoding>,
    /// Number of rows received.
    came: u64,
    pub(crate) dead: Vec<DeadRow>,
    dead_rows: u64,
    /// Whether rows wait in a table beside the target.
    pub(crate) is_staged: bool,
}

struct Encoding {
    block: Block,
    hasher: Hasher,
    /// Number of rows encoded, of all blocks.
    rows: u64,
}

impl Writer {
    pub(crate) fn open(
        shared: Arc<Shared>,
        prepared: Prepared,
        load: &Load,
        unit: &str,
    ) -> Result<Self> {
        let encoding =
            Encoding { block: block(&shared)?, hasher: Hasher::new(shared.columns())?, rows: 0 };
        Ok(Self {
            shared,
            prepared,
            load: load.clone(),
            unit: unit.to_owned(),
            attempt: uuid::Uuid::new_v4().simple().to_string(),
            encoder: Encoder::new(encoding),
            came: 0,
            dead: Vec::new(),
            dead_rows: 0,
            is_staged: false,
        })
    }

    /// Encodes the rows of a batch that can be stored.
    async fn take(&mut self, records: RecordBatch, hash: Option<ContentHash>) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let is_not_null = self.prepared.is_not_null.clone();
        let number = self.prepared.number;
        // It covers the columns that are left out, too.
        let hash = hash.filter(|_| !shared.fitted.chosen.is_partial());
        let refused = self
            .encoder
            .run(&self.shared.context.phases, move |encoding| {
                let records = conform(&shared, &records)?;
                let mut refused = Refused::new();
                let columns = records.columns().iter().zip(shared.columns());
                for ((array, column), is_not_null) in columns.zip(&is_not_null) {
                    bounds::check(array, column, *is_not_null, &mut refused);
                }
                let kept = kept(&records, &refused)?;
                encoding.add(&kept, &shared, number)?;
                match hash.filter(|_| refused.is_empty()) {
                    Some(hash) => encoding.hasher.add_hashed(hash),
                    None => encoding.hasher.add(&kept)?,
                }
                Ok((refused, records))
            })
            .await?;
        self.refuse(refused.0, &refused.1)?;
        self.came += refused.1.num_rows() as u64;
        self.spill().await
    }

    /// Handles rows that cannot be stored.
    fn refuse(&mut self, refused: Refused, records: &RecordBatch) -> Result<()> {
        for (row, reason) in refused {
            let one = records.slice(row, 1);
            let text =
                json_rows(&one, self.shared.columns())?.into_iter().next().unwrap_or_default();
            match self.shared.settings.on_data_error {
                OnDataError::Fail => {
                    let shown: String = text.chars().take(SHOWN_MAX).collect();
                    return Err(ConnectorError::data(
                        format!("{} {}", self.shared.settings.stream, self.unit),
                        format!("{reason}, in the row {shown}"),
                    ));
                }
                OnDataError::Skip => self.dead_rows += 1,
                OnDataError::Dlq => {
                    let number = self.came + row as u64 + 1;
                    let position = format!("{} row {number}", self.unit);
                    self.bury(vec![DeadRow { position, reason, row: text }])?;
                }
            }
        }
        Ok(())
    }

    /// Adds rows to the dead letters.
    fn bury(&mut self, dead: Vec<DeadRow>) -> Result<()> {
        self.dead_rows += dead.len() as u64;
        self.dead.extend(dead);
        match self.dead.len() > DEAD_MAX {
            true => Err(ConnectorError::data(
                format!("{} {}", self.shared.settings.stream, self.unit),
                format!("one unit has more than {DEAD_MAX} dead letters"),
            )),
            false => Ok(()),
        }
    }

    /// Moves the rows that wait to a table beside the target, if there are too many for one block.
    async fn spill(&mut self) -> Result<()> {
        let settings = self.shared.server.settings();
        let (size, held) = (settings.block_size.bytes(), settings.buffer_size.bytes());
        let block = &self.encoder.state()?.block;
        let is_full = block.size >= size || block.held() >= held || block.rows >= BLOCK_ROWS_MAX;
        if !is_full {
            return Ok(());
        }
        let begun = Instant::now();
        if !self.is_staged {
            self.create_stage().await?;
            self.is_staged = true;
        }
        let body = self.next_block().await?;
        let staged = self.insert_into(&self.stage(), body, &[]).await;
        let act = format!("collect rows of {}", self.unit);
        staged.map_err(|failed| self.shared.server.failed(&act, failed))?;
        self.shared.context.phases.add(Phase::Flush, begun);
        Ok(())
    }

    /// Ends the block, and begins the next one.
    pub(crate) async fn next_block(&mut self) -> Result<Body> {
        let shared = Arc::clone(&self.shared);
        self.encoder
            .run(&self.shared.context.phases, move |encoding| {
                let full = std::mem::replace(&mut encoding.block, block(&shared)?);
                full.finish()
            })
            .await
    }

    /// The entry of what was written.
    pub(crate) fn entry(&self, entry: LedgerEntry) -> Result<LedgerEntry> {
        let encoding = self.encoder.state()?;
        let content = encoding.hasher.content();
        if content.rows != encoding.rows {
            // The hash that a source gave with a batch is of another number of rows.
            return Err(ConnectorError::data(
                format!("{} {}", self.shared.settings.stream, self.unit),
                format!("{} rows arrived with the hash of {}", encoding.rows, content.rows),
            ));
        }
        let hash = content.to_string();
        Ok(LedgerEntry { rows: content.rows, dead: self.dead_rows, hash, ..entry })
    }
}

impl Encoding {
    fn add(&mut self, kept: &RecordBatch, shared: &Shared, number: u64) -> Result<()> {
        let count = kept.num_rows() as u64;
        let versions = match shared.settings.write_mode {
            WriteMode::Upsert => {
                let first = self.rows + 1;
                if first + count > 1 << ROW_BITS {
                    return Err(ConnectorError::data(
                        shared.settings.stream.clone(),
                        format!("a unit has more than {} rows", 1_u64 << ROW_BITS),
                    ));
                }
                let base = number << ROW_BITS;
                Some(UInt64Array::from_iter_values((first..first + count).map(|row| base | row)))
            }
            WriteMode::Append | WriteMode::Replace => None,
        };
        self.rows += count;
        self.block.add(kept, shared.columns(), versions)
    }
}

/// An empty block.
fn block(shared: &Shared) -> Result<Block> {
    let has_versions = shared.settings.write_mode == WriteMode::Upsert;
    Block::new(shared.columns(), has_versions, shared.compression())
}

/// A batch with the columns of the target, of their types.
fn conform(shared: &Shared, batch: &RecordBatch) -> Result<RecordBatch> {
    let stream = &*shared.settings.stream;
    let batch = shared.fitted.chosen.batch(stream, batch)?;
    let mut arrays = batch.columns().to_vec();
    for (array, column) in arrays.iter_mut().zip(shared.columns()) {
        *array = exact(array, &column.wire.data_type()).map_err(|found| {
            ConnectorError::data(format!("{stream}, column {:?}", column.name), found)
        })?;
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let schema = Arc::new(schema(shared.columns()));
    RecordBatch::try_new_with_options(schema, arrays, &options)
        .map_err(|error| ConnectorError::data(stream, error.to_string()))
}

/// The rows that are not refused.
fn kept(records: &RecordBatch, refused: &Refused) -> Result<RecordBatch> {
    if refused.is_empty() {
        return Ok(records.clone());
    }
    let is_kept: BooleanArray =
        (0..records.num_rows()).map(|row| Some(!refused.contains_key(&row))).collect();
    filter_record_batch(records, &is_kept)
        .map_err(|error| ConnectorError::data("a batch", error.to_string()))
}

#[async_trait]
impl UnitWriter for Writer {
    async fn write(&mut self, mut batch: Batch) -> Result<()> {
        let Rows::Records(records) = &batch.rows else {
            return Err(ConnectorError::unsupported(
                "ClickHouse cannot store the tuples of binary COPY",
                "send rows as Arrow",
            ));
        };
        let records = records.clone();
        self.bury(std::mem::take(&mut batch.dead))?;
        // Its share of the budget is released when the rows are encoded.
        self.take(records, batch.hash).await
    }

    async fn commit(mut self: Box<Self>, entry: LedgerEntry) -> Result<LedgerEntry> {
        let (begun, context) = (Instant::now(), self.shared.context.clone());
        let committed = self.commit_unit(entry).await;
        context.phases.add(Phase::Commit, begun);
        committed
    }
}
