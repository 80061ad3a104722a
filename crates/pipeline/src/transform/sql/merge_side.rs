//! The sides of a merge join: batches in the order of their keys, and a current row.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use arrow::row::{OwnedRow, RowConverter, Rows, SortField};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::SendableRecordBatchStream;
use futures_util::StreamExt as _;

/// Turns the keys of both sides into bytes that compare as they do.
pub(super) struct Keys(RowConverter);

impl Keys {
    /// * `on`: the keys of one side, whose batches have this schema; those of the other have the same
    ///   types.
    pub(super) fn new(
        on: &[Arc<dyn PhysicalExpr>],
        schema: &SchemaRef,
        order: &[SortOptions],
    ) -> Result<Self> {
        let field = |(key, order): (&Arc<dyn PhysicalExpr>, &SortOptions)| {
            Ok(SortField::new_with_options(key.data_type(schema)?, *order))
        };
        let fields = on.iter().zip(order).map(field).collect::<Result<_>>()?;
        Ok(Self(RowConverter::new(fields)?))
    }
}

/// One side.
pub(super) struct Side {
    rows: SendableRecordBatchStream,
    on: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) batch: RecordBatch,
    /// The keys of the batch; `None` before the first one.
    keys: Option<Rows>,
    /// Which rows have no NULL in their key.
    valid: Option<NullBuffer>,
    /// The index of the current row.
    pub(super) at: usize,
    has_ended: bool,
}

impl Side {
    pub(super) fn new(rows: SendableRecordBatchStream, on: Vec<Arc<dyn PhysicalExpr>>) -> Self {
        let batch = RecordBatch::new_empty(rows.schema());
        Self { rows, on, batch, keys: None, valid: None, at: 0, has_ended: false }
    }

    pub(super) fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }

    /// Whether there is no current row until the next batch is read.
    pub(super) fn needs_batch(&self) -> bool {
        !self.has_ended && self.at >= self.batch.num_rows()
    }

    /// Reads the next batch with rows.
    pub(super) async fn fill(&mut self, keys: &Keys) -> Result<()> {
        loop {
            let Some(batch) = self.rows.next().await.transpose()? else {
                self.has_ended = true;
                return Ok(());
            };
            if batch.num_rows() == 0 {
                continue;
            }
            let key =
                |key: &Arc<dyn PhysicalExpr>| key.evaluate(&batch)?.into_array(batch.num_rows());
            let columns: Vec<ArrayRef> = self.on.iter().map(key).collect::<Result<_>>()?;
            self.valid = columns.iter().fold(None, |valid, column| {
                NullBuffer::union(valid.as_ref(), column.logical_nulls().as_ref())
            });
            self.keys = Some(keys.0.convert_columns(&columns)?);
            (self.batch, self.at) = (batch, 0);
            return Ok(());
        }
    }

    /// The index of the current row; `None` at the end.
    pub(super) fn row(&self) -> Option<u32> {
        if self.at >= self.batch.num_rows() {
            return None;
        }
        u32::try_from(self.at).ok()
    }

    pub(super) fn advance(&mut self) {
        self.at += 1;
    }

    /// Whether the key of the current row has a NULL.
    pub(super) fn has_null(&self) -> bool {
        self.valid.as_ref().is_some_and(|valid| valid.is_null(self.at))
    }

    /// Compares the keys of the current rows.
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        match (&self.keys, &other.keys) {
            (Some(keys), Some(others)) => keys.row(self.at).cmp(&others.row(other.at)),
            _ => Ordering::Less,
        }
    }

    /// The rows of the batch with the key of the current one.
    pub(super) fn run(&self) -> (usize, usize) {
        let mut to = self.at + 1;
        if let Some(keys) = &self.keys {
            let key = keys.row(self.at);
            while to < keys.num_rows() && keys.row(to) == key {
                to += 1;
            }
        }
        (self.at, to)
    }

    /// The key of the current row.
    pub(super) fn key(&self) -> Option<OwnedRow> {
        self.keys.as_ref().map(|keys| keys.row(self.at).owned())
    }

    /// Whether the current row has this key.
    pub(super) fn has_key(&self, key: &Option<OwnedRow>) -> bool {
        match (&self.keys, key) {
            (Some(keys), Some(key)) => keys.row(self.at) == key.row(),
            _ => false,
        }
    }
}
