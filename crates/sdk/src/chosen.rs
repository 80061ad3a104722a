//! The columns of a stream that a target stores, where it leaves others out.

use arrow::array::RecordBatch;
use forebay_pgcopy::Column;

use crate::error::ConnectorError;

/// The columns that are stored, and where they are in the batches that arrive.
#[derive(Debug, Clone)]
pub struct Chosen {
    columns: Vec<Column>,
    /// Their indexes; `None` if all are stored.
    indexes: Option<Vec<usize>>,
    /// Number of columns of a batch.
    count: usize,
}

impl Chosen {
    /// The columns that fulfil a condition.
    pub fn of(columns: &[Column], is_stored: impl Fn(&Column) -> bool) -> Self {
        let indexes: Vec<usize> = (0..columns.len())
            .filter(|index| columns.get(*index).is_some_and(&is_stored))
            .collect();
        let is_all = indexes.len() == columns.len();
        Self {
            columns: columns.iter().filter(|column| is_stored(column)).cloned().collect(),
            indexes: (!is_all).then_some(indexes),
            count: columns.len(),
        }
    }

    /// The columns that are stored.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Whether columns are left out.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.indexes.is_some()
    }

    /// A batch with the columns that are stored.
    ///
    /// * `stream`: for messages.
    ///
    /// # Errors
    /// The batch has not the columns of the stream.
    pub fn batch(&self, stream: &str, batch: &RecordBatch) -> Result<RecordBatch, ConnectorError> {
        let (got, want) = (batch.num_columns(), self.count);
        if got != want {
            let found = format!("a batch has {got} columns, but the stream has {want}");
            return Err(ConnectorError::data(stream, found));
        }
        let Some(indexes) = &self.indexes else { return Ok(batch.clone()) };
        batch.project(indexes).map_err(|error| ConnectorError::data(stream, error.to_string()))
    }
}
