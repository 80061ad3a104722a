//! Rows in transit: as Arrow, or as the tuples of binary COPY if nothing needs to look inside.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, RecordBatch};
use arrow::datatypes::{Schema, TimestampMicrosecondType};
use arrow::error::ArrowError;
use arrow::json::WriterBuilder;
use arrow::json::writer::LineDelimited;
use bytes::Bytes;
use forebay_pgcopy::ContentHash;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;

/// The rows of a batch.
#[derive(Debug, Clone)]
pub enum Rows {
    /// Complete tuples of binary COPY, without header and trailer, and their content hash: what a
    /// PostgreSQL server sends and another with the same types accepts.
    Tuples(Bytes, ContentHash),
    /// Arrow.
    Records(RecordBatch),
}

/// A row that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeadRow {
    /// Where it came from, as far as that is known: `orders.csv line 12`.
    pub position: String,
    /// Why it was refused.
    pub reason: String,
    /// The row: its columns as a JSON object. Values without a JSON form are text.
    pub row: String,
}

/// Some rows of one unit, in order.
#[derive(Debug)]
pub struct Batch {
    /// The rows.
    pub rows: Rows,
    /// Rows that a transform set aside.
    pub dead: Vec<DeadRow>,
    /// The content hash of the rows, if the source had it at no cost: that of exactly these rows in
    /// the stream's columns.
    pub hash: Option<ContentHash>,
    /// Its share of the run's memory, released when it is dropped.
    _share: Option<OwnedSemaphorePermit>,
}

impl DeadRow {
    /// Size in memory, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        size_of::<Self>() + self.position.len() + self.reason.len() + self.row.len()
    }
}

impl Rows {
    /// Number of rows.
    #[must_use]
    pub fn count(&self) -> u64 {
        match self {
            Self::Tuples(_, hash) => hash.rows,
            Self::Records(records) => records.num_rows() as u64,
        }
    }

    /// Size in memory, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Tuples(bytes, _) => bytes.len(),
            Self::Records(records) => records.get_array_memory_size(),
        }
    }
}

impl Batch {
    /// A batch that counts against no limit.
    #[must_use]
    pub fn unbounded(rows: Rows) -> Self {
        Self { rows, dead: Vec::new(), hash: None, _share: None }
    }

    pub(crate) fn sharing(
        rows: Rows,
        dead: Vec<DeadRow>,
        hash: Option<ContentHash>,
        share: OwnedSemaphorePermit,
    ) -> Self {
        Self { rows, dead, hash, _share: Some(share) }
    }
}

/// Each row as a JSON object: values without a JSON form as text, bytes as hexadecimal digits.
///
/// # Errors
/// Arrow has no JSON form for a type.
pub fn json_rows(records: &RecordBatch) -> Result<Vec<String>, ArrowError> {
    let mut writer =
        WriterBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(Vec::new());
    writer.write(&with_offsets(records)?)?;
    writer.finish()?;
    let text = String::from_utf8_lossy(&writer.into_inner()).into_owned();
    Ok(text.lines().map(ToOwned::to_owned).collect())
}

/// The same rows with timestamps at offset zero: Arrow has no text form for those in a named zone.
fn with_offsets(records: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = records.schema();
    let (fields, columns): (Vec<_>, Vec<_>) = schema
        .fields()
        .iter()
        .zip(records.columns())
        .map(|(field, column)| match column.as_primitive_opt::<TimestampMicrosecondType>() {
            Some(moments) if moments.timezone().is_some() => {
                let moments = moments.clone().with_timezone("+00:00");
                let of = moments.data_type().clone();
                (field.as_ref().clone().with_data_type(of), Arc::new(moments) as ArrayRef)
            }
            _ => (field.as_ref().clone(), Arc::clone(column)),
        })
        .unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}
