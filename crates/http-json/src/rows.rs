//! Values of records as batches of a stream's columns.
//!
//! Invariant: a value that its column does not hold is an error, never another value.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use forebay_pgcopy::column::schema;
use forebay_pgcopy::{Column, Wire};
use forebay_sdk::values::number::is_changed_by_float;
use forebay_sdk::values::read::Builder;

use crate::layout::Layout;

/// Maximum number of rows of a batch.
const BATCH_ROWS_MAX: usize = 64 << 10;
/// Overhead of a value in bytes, beside its text.
const VALUE_SIZE: usize = 8;
/// Number of characters of a value in messages.
const SHOWN_MAX: usize = 60;

/// A column that is collected.
struct Collected {
    builder: Builder,
    is_float: bool,
    /// Whether a number must keep its digits: no one decided that it may be rounded.
    is_exact: bool,
}

/// Collects rows.
pub(crate) struct Collector {
    columns: Vec<Collected>,
    schema: SchemaRef,
    rows: usize,
    size: usize,
    batch_size: usize,
}

impl Collector {
    /// * `batch_size`: size of a batch in bytes.
    pub(crate) fn new(layout: &Layout, batch_size: usize) -> Self {
        let collected = |column: &Column| Collected {
            builder: Builder::new(column),
            is_float: matches!(column.wire, Wire::Float4 | Wire::Float8),
            is_exact: layout.is_inferred,
        };
        Self {
            columns: layout.columns.iter().map(collected).collect(),
            schema: Arc::new(schema(&layout.columns)),
            rows: 0,
            size: 0,
            batch_size,
        }
    }

    /// Appends a row.
    ///
    /// * `values`: at least one for each column.
    ///
    /// # Errors
    /// The index of the column that does not hold its value, and why. The collector cannot be used after that.
    pub(crate) fn push(&mut self, values: &[Option<&str>]) -> Result<(), (usize, String)> {
        for (at, (column, value)) in self.columns.iter_mut().zip(values).enumerate() {
            self.size = self.size.saturating_add(value.map_or(0, str::len) + VALUE_SIZE);
            let Some(json) = value else {
                column.builder.null();
                continue;
            };
            column.check(json).map_err(|found| (at, found))?;
            column.builder.json(json).map_err(|found| (at, found))?;
        }
        self.rows += 1;
        Ok(())
    }

    /// Whether the batch is full.
    pub(crate) fn is_full(&self) -> bool {
        self.size >= self.batch_size || self.rows >= BATCH_ROWS_MAX
    }

    /// Takes the collected rows; `None` if there are none.
    ///
    /// # Errors
    /// They are not a batch.
    pub(crate) fn take(&mut self) -> Result<Option<RecordBatch>, String> {
        if self.rows == 0 {
            return Ok(None);
        }
        let arrays = self.columns.iter_mut().map(|column| column.builder.finish()).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        (self.rows, self.size) = (0, 0);
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options);
        batch.map(Some).map_err(|error| error.to_string())
    }
}

impl Collected {
    /// Refuses a number that would become another one.
    fn check(&self, json: &str) -> Result<(), String> {
        let is_number = json.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        if !self.is_float || !is_number {
            return Ok(());
        }
        let is_finite = json.parse::<f64>().is_ok_and(f64::is_finite);
        if is_finite && !(self.is_exact && is_changed_by_float(json)) {
            return Ok(());
        }
        let shown: String = json.chars().take(SHOWN_MAX).collect();
        Err(format!("{shown:?} would lose digits as double precision"))
    }
}

#[cfg(test)]
mod tests {
    use forebay_sdk::values::types;
    use serde_json::json;

    use super::*;
    use crate::pointer::Pointer;

    fn collector(types: &[&str], is_inferred: bool) -> Collector {
        let all = types.iter().map(|name| (types::column(name, name).unwrap(), Pointer::key(name)));
        let stream = serde_json::from_value(json!({ "name": "s" })).unwrap();
        let layout = Layout::new(&all.collect::<Vec<_>>(), is_inferred, &stream, None).unwrap();
        Collector::new(&layout, 1 << 10)
    }

    #[test]
    fn a_value_that_its_column_does_not_hold_is_an_error() {
        for (type_name, json) in [
            ("bigint", "1.5"),
            ("bigint", "1e3"),
            ("bigint", "9223372036854775808"),
            ("int", "2147483648"),
            ("bigint", "\"x\""),
            ("bigint", "true"),
            ("bigint", "{}"),
            ("boolean", "2"),
            ("double precision", "1e400"),
            ("numeric(4,2)", "1.234"),
            ("timestamptz", "\"2026-01-01T00:00:00\""),
            ("uuid", "\"x\""),
        ] {
            let refused = collector(&[type_name], false).push(&[Some(json)]);
            assert!(refused.is_err_and(|(at, _)| at == 0), "{type_name} {json}");
        }
        let digits = "0.12345678901234567890";
        assert!(collector(&["double precision"], true).push(&[Some(digits)]).is_err());
        assert!(collector(&["double precision"], false).push(&[Some(digits)]).is_ok());
    }

    #[test]
    fn rows_become_batches_of_the_requested_size() {
        let mut collector = collector(&["bigint", "text", "jsonb"], true);
        assert!(collector.take().unwrap().is_none());
        while !collector.is_full() {
            collector.push(&[Some("1"), Some("\"a\\n\""), None]).unwrap();
        }
        let batch = collector.take().unwrap().unwrap();
        assert!(batch.num_rows() > 10 && batch.num_columns() == 3);
        assert_eq!(batch.column(2).null_count(), batch.num_rows());
        assert!(!collector.is_full() && collector.take().unwrap().is_none());
    }
}
