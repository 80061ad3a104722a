//! The rows that are there when a feed begins: the files of a load that replaces all others, with the columns of a log.

use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use forebay_pgcopy::{Column, ContentHash};
use forebay_sdk::batch::{Batch, Rows};
use forebay_sdk::connector::{LedgerEntry, Load, Result, Target, Unit, UnitWriter};

use super::rows::LogColumns;

/// A target that stores rows as a log has them.
pub(in super::super) struct CopyTarget<T> {
    inner: T,
    columns: Arc<LogColumns>,
    stream: Arc<str>,
}

struct CopyWriter {
    inner: Box<dyn UnitWriter>,
    columns: Arc<LogColumns>,
    stream: Arc<str>,
}

impl<T> CopyTarget<T> {
    /// Opens the target of a copy.
    ///
    /// * `open`: opens the target of rows with these columns.
    ///
    /// # Errors
    /// The stream has a column of the same name as a log, or the target cannot be opened.
    pub(in super::super) async fn open(
        stream: &str,
        columns: &[Column],
        open: impl AsyncFnOnce(&[Column]) -> Result<T>,
    ) -> Result<Self> {
        let columns = LogColumns::of_copy(stream, columns)?;
        let inner = open(&columns.all).await?;
        Ok(Self { inner, columns: Arc::new(columns), stream: stream.into() })
    }
}

#[async_trait]
impl<T: Target> Target for CopyTarget<T> {
    fn plan(&self) -> Vec<String> {
        self.inner.plan()
    }

    fn takes_tuples(&self) -> bool {
        false
    }

    async fn prepare(&self, load: &Load) -> Result<()> {
        self.inner.prepare(load).await
    }

    async fn writer(&self, load: &Load, unit: &Unit) -> Result<Box<dyn UnitWriter>> {
        let inner = self.inner.writer(load, unit).await?;
        let (columns, stream) = (Arc::clone(&self.columns), Arc::clone(&self.stream));
        Ok(Box::new(CopyWriter { inner, columns, stream }))
    }

    async fn finish(&self, load: &Load) -> Result<()> {
        self.inner.finish(load).await
    }

    fn as_stored(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        self.columns.copied(&self.stream, rows)
    }

    async fn content(&self) -> Result<ContentHash> {
        self.inner.content().await
    }
}

#[async_trait]
impl UnitWriter for CopyWriter {
    async fn write(&mut self, mut batch: Batch) -> Result<()> {
        if let Rows::Records(records) = &batch.rows {
            batch.rows = Rows::Records(self.columns.copied(&self.stream, records)?);
            // It is that of fewer columns.
            batch.hash = None;
        }
        self.inner.write(batch).await
    }

    async fn commit(self: Box<Self>, entry: LedgerEntry) -> Result<LedgerEntry> {
        self.inner.commit(entry).await
    }
}
