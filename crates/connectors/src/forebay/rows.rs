//! Rows of a stream: the columns that are chosen, and batches of them.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use forebay_pgcopy::Column;
use forebay_pgcopy::column::schema;
use forebay_sdk::batch::Rows;
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::StreamSettings;
use forebay_sdk::values::read::Builder;
use forebay_sdk::values::types;

/// Columns from their names, their types, and whether they are nullable.
pub(super) fn described<'a>(
    columns: impl IntoIterator<Item = (&'a str, &'a str, bool)>,
) -> impl Iterator<Item = Column> {
    columns.into_iter().filter_map(|(name, of, nullable)| {
        types::column(name, of).map(|column| Column { nullable, ..column })
    })
}

/// Returns which columns a stream chooses, in its order.
///
/// # Errors
/// It has no column of a name.
pub(super) fn choose(all: &[Column], stream: &StreamSettings) -> Result<Vec<usize>> {
    if stream.columns.is_empty() {
        return Ok((0..all.len()).collect());
    }
    let choose = |name: &String| {
        all.iter().position(|column| column.name == *name).ok_or_else(|| {
            let known: Vec<&str> = all.iter().map(|column| &*column.name).collect();
            ConnectorError::unsupported(
                format!("{} has no column {name:?}", stream.name),
                format!("choose from {}", known.join(", ")),
            )
        })
    };
    stream.columns.iter().map(choose).collect()
}

/// Appends a text, or NULL.
///
/// # Errors
/// The expected value, if the text is invalid.
pub(super) fn append(builder: &mut Builder, text: Option<&str>) -> std::result::Result<(), String> {
    match text {
        Some(text) => builder.text(text),
        None => {
            builder.null();
            Ok(())
        }
    }
}

/// Rows that are gathered into a batch.
pub(super) struct Gathered<'a> {
    columns: &'a [Column],
    builders: Vec<Builder>,
    rows: usize,
    /// Approximate size of the rows in bytes.
    size: usize,
    size_max: usize,
}

impl<'a> Gathered<'a> {
    /// * `size_max`: size of a batch in bytes.
    pub(super) fn new(columns: &'a [Column], size_max: usize) -> Self {
        let builders = columns.iter().map(Builder::new).collect();
        Self { columns, builders, rows: 0, size: 0, size_max }
    }

    /// A column, and what its next value is appended to, for each.
    pub(super) fn builders(&mut self) -> impl Iterator<Item = (&'a Column, &mut Builder)> {
        self.columns.iter().zip(&mut self.builders)
    }

    /// Counts a row of which all values were appended. Returns the batch if it is full.
    ///
    /// * `size`: its size in bytes, about.
    pub(super) fn count(&mut self, size: usize) -> Result<Option<Rows>> {
        (self.rows, self.size) = (self.rows + 1, self.size + size);
        if self.size < self.size_max { Ok(None) } else { self.take() }
    }

    /// Returns what was gathered; `None` if there is no row.
    pub(super) fn take(&mut self) -> Result<Option<Rows>> {
        let (rows, _) = (std::mem::take(&mut self.rows), std::mem::take(&mut self.size));
        if rows == 0 {
            return Ok(None);
        }
        let arrays = self.builders.iter_mut().map(Builder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::new(schema(self.columns));
        let batch = RecordBatch::try_new_with_options(schema, arrays, &options);
        let batch =
            batch.map_err(|error| ConnectorError::data("a batch of rows", error.to_string()))?;
        Ok(Some(Rows::Records(batch)))
    }
}
