//! The columns and rows of a log: those of the table, and what was done to them.
//!
//! ```text
//! the columns of the source   the row after an insertion or update, what is known of a deleted one; otherwise NULL
//! _operation                  insert, update, delete, truncate; copy: a row that was there when the feed began
//! _position, _number          the position of the commit, and the number of the change in it
//! _committed_at               when the source committed it
//! _unchanged                  the columns that an update left as they were and that were not sent
//! _before_KEY ...             the key before an update that changed it; without a key all values before an update
//! ```

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray, new_null_array};
use forebay_pgcopy::Column;
use forebay_pgcopy::column::schema;
use forebay_sdk::changes::decoded::{self, fields, records, times};
use forebay_sdk::changes::feed::{FeedColumn, FeedStream};
use forebay_sdk::changes::{Field, LoggedChange};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::values::read::{Builder, Wanted};
use forebay_sdk::values::types;

/// The columns of a log besides those of the source, with their types.
const COLUMNS: [(&str, &str); 5] = [
    ("_operation", "text"),
    ("_position", "text"),
    ("_number", "bigint"),
    ("_committed_at", "timestamptz"),
    ("_unchanged", "text[]"),
];
/// What the column of a key before an update is called: this, and its name.
const BEFORE: &str = "_before_";

/// The columns of a log.
#[derive(Debug, Clone)]
pub(super) struct LogColumns {
    /// Those of the source.
    own: Vec<Column>,
    /// Those of what was done.
    done: Vec<Column>,
    /// Those of the key.
    key: Vec<Column>,
    /// All of them, in order.
    pub(super) all: Vec<Column>,
}

impl LogColumns {
    /// The columns of the log of a stream.
    ///
    /// # Errors
    /// It has a column of the same name, or values of a type, as changes have them, cannot be read.
    pub(super) fn of(stream: &FeedStream) -> Result<Self> {
        let read = |column: &FeedColumn| decoded::column(&stream.stream, column, "a file");
        let own = stream.columns.iter().map(read).collect::<Result<Vec<_>>>()?;
        let key = stream.naming().map(read).collect::<Result<Vec<_>>>()?;
        Self::new(&stream.stream, own, key)
    }

    /// Those of the rows of a copy.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub(super) fn of_copy(stream: &str, columns: &[Column]) -> Result<Self> {
        let nullable = |column: &Column| Column { nullable: true, ..column.clone() };
        Self::new(stream, columns.iter().map(nullable).collect(), Vec::new())
    }

    fn new(stream: &str, own: Vec<Column>, key: Vec<Column>) -> Result<Self> {
        let done = COLUMNS.iter().filter_map(|(name, of)| types::column(name, of));
        let done: Vec<Column> = done.collect();
        let before = key.iter();
        let before = before
            .map(|column| Column { name: format!("{BEFORE}{}", column.name), ..column.clone() });
        let added: Vec<Column> = done.iter().cloned().chain(before).collect();
        if let Some(taken) = own.iter().find(|one| added.iter().any(|other| other.name == one.name))
        {
            return Err(ConnectorError::unsupported(
                format!("{stream} has a column {:?}, as a log of changes has", taken.name),
                "rename it at the source, or leave it out with `columns`",
            ));
        }
        let all = own.iter().cloned().chain(added).collect();
        Ok(Self { own, done, key, all })
    }

    /// Rows of a copy, as the log has them.
    ///
    /// # Errors
    /// They have not the columns of the source.
    pub(super) fn copied(&self, stream: &str, rows: &RecordBatch) -> Result<RecordBatch> {
        let count = rows.num_rows();
        let mut arrays = rows.columns().to_vec();
        for column in self.done.iter().chain(&self.key) {
            arrays.push(match column.name.as_str() {
                "_operation" => Arc::new(StringArray::from(vec!["copy"; count])) as ArrayRef,
                _ => new_null_array(&column.wire.data_type(), count),
            });
        }
        self.batch(stream, arrays, count)
    }

    /// Changes, as the log has them.
    ///
    /// # Errors
    /// A value is not of the type of its column.
    pub(super) fn changed(&self, stream: &str, changes: &[LoggedChange]) -> Result<RecordBatch> {
        let nulls = |count: usize| (-1i32).to_be_bytes().repeat(count);
        let rows = changes.iter();
        let rows =
            rows.map(|change| change.row.as_ref().map_or_else(|| nulls(self.own.len()), fields));
        let keys = changes.iter().map(|change| match &change.key_before {
            Some(key) => key.as_bytes().to_vec(),
            None => nulls(self.key.len()),
        });
        let mut arrays = records(stream, &self.own, rows)?.columns().to_vec();
        for column in &self.done {
            arrays.push(self.done(stream, column, changes)?);
        }
        if !self.key.is_empty() {
            arrays.extend_from_slice(records(stream, &self.key, keys)?.columns());
        }
        self.batch(stream, arrays, changes.len())
    }

    /// A column of what was done.
    fn done(&self, stream: &str, column: &Column, changes: &[LoggedChange]) -> Result<ArrayRef> {
        if column.name == "_committed_at" {
            return times(column, changes.iter().map(|change| Some(change.commit.at_us)));
        }
        let mut builder = Builder::new(column);
        let failed =
            |wanted: Wanted| ConnectorError::data(format!("{stream}, {}", column.name), wanted);
        for change in changes {
            match column.name.as_str() {
                "_operation" => builder.text(change.operation.as_str()),
                "_position" => builder.text(&change.commit.position),
                "_number" => builder.text(&change.number.to_string()),
                _ => match self.unchanged(change) {
                    Some(names) => builder.json(&names),
                    None => {
                        builder.null();
                        Ok(())
                    }
                },
            }
            .map_err(failed)?;
        }
        Ok(builder.finish())
    }

    /// The names of the columns that were not sent, as JSON; `None` if there are none.
    fn unchanged(&self, change: &LoggedChange) -> Option<String> {
        let row = change.row.as_ref().filter(|row| row.has_unchanged())?;
        let unchanged = self.own.iter().zip(row.fields());
        let unchanged = unchanged.filter(|(_, field)| *field == Field::Unchanged);
        let names: Vec<&str> = unchanged.map(|(column, _)| column.name.as_str()).collect();
        serde_json::to_string(&names).ok()
    }

    fn batch(&self, stream: &str, arrays: Vec<ArrayRef>, count: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let batch =
            RecordBatch::try_new_with_options(Arc::new(schema(&self.all)), arrays, &options);
        batch.map_err(|error| ConnectorError::data(stream, error.to_string()))
    }
}
