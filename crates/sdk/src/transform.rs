//! The traits of transforms: rows of a stream, one after another, between source and destination.
//!
//! Invariants every transform keeps:
//! * The resulting columns are known before the first row.
//! * A transform that is stable makes the same rows of the same rows in a later run.

use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use forebay_pgcopy::Column;

use crate::batch::DeadRow;
use crate::connector::Result;
use crate::registry::ConnectorSettings;

/// The position of a batch in its unit.
#[derive(Debug, Clone, Copy)]
pub struct Position<'a> {
    /// Name of the unit.
    pub unit: &'a str,
    /// Number of rows of the unit before this batch.
    pub rows_before: u64,
}

/// What became of a batch.
#[derive(Debug)]
pub struct Applied {
    /// The rows that pass, in the resulting columns.
    pub records: RecordBatch,
    /// Rows that become dead letters.
    pub dead: Vec<DeadRow>,
    /// Number of rows that are left out.
    pub skipped: u64,
}

/// A transform of the rows of one stream.
#[async_trait]
pub trait Transform: Send + Sync {
    /// The resulting columns.
    fn columns(&self) -> &[Column];

    /// Whether it makes the same rows of the same rows in a later run.
    fn is_stable(&self) -> bool;

    /// A note for a reader of the plan.
    fn note(&self) -> String;

    /// Transforms a batch.
    ///
    /// # Errors
    /// The rows cannot be transformed.
    async fn apply(&self, position: Position<'_>, records: RecordBatch) -> Result<Applied>;
}

/// Settings of a transform.
#[async_trait]
pub trait TransformSettings: ConnectorSettings {
    /// Prepares for a stream.
    ///
    /// # Errors
    /// The transform is not possible with these columns.
    async fn transform(&self, stream: &str, columns: &[Column]) -> Result<Arc<dyn Transform>>;
}
