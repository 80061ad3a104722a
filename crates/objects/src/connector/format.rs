//! The interface of a file format: how columns are found, how rows are read and written.
//!
//! `docs/formats/pipeline-files.md` describes how each format stores values.

use arrow::array::RecordBatch;
use forebay_pgcopy::Column;
use forebay_sdk::bridge::Give;
use forebay_sdk::error::ConnectorError;

use super::opened::Opened;

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// Row groups, from and to (exclusive); all if it is not divided.
    pub(super) groups: (usize, usize),
    pub(super) rows: Option<u64>,
    pub(super) bytes: u64,
}

/// Reads files of a format. Every method may block on disk or network.
pub(super) trait Format: Send + Sync + std::fmt::Debug {
    /// Suffixes of file names, without those of compression.
    fn endings(&self) -> &'static [&'static str];

    /// The columns of a file: the requested ones that it has, or all if none is requested.
    fn columns(&self, file: &Opened, wanted: &[String]) -> Result<Vec<Column>, ConnectorError>;

    /// The parts of a file, each of about `size` bytes.
    fn divide(&self, file: &Opened, size: u64) -> Result<Vec<Part>, ConnectorError>;

    /// Reads a part.
    fn read(&self, reading: &Reading<'_>, give: &mut Give<'_>) -> Result<(), ConnectorError>;
}

/// What to read, and how.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    pub(super) file: &'a Opened,
    pub(super) part: &'a Part,
    /// The requested columns. A file may lack nullable ones.
    pub(super) columns: &'a [Column],
    /// Whether columns were chosen: then others in the file are skipped; otherwise they are an
    /// error.
    pub(super) is_projection: bool,
    /// Size of a batch in bytes.
    pub(super) batch_size: usize,
}

/// Encodes the rows of one file.
pub(super) trait Encode: Send {
    /// Adds rows; finished output is appended to `out`.
    fn write(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), ConnectorError>;

    /// Ends the file.
    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), ConnectorError>;
}

/// Writes files of a format.
pub(super) trait Layout: Send + Sync + std::fmt::Debug {
    /// Suffix of file names: `csv.gz`.
    fn ending(&self) -> String;

    /// Whether files of one directory may have different columns.
    fn columns_may_differ(&self) -> bool;

    /// Whether a file without rows says which columns there are, with their types.
    fn keeps_columns(&self) -> bool {
        false
    }

    /// Starts a new file.
    fn encode(&self, columns: &[Column]) -> Result<Box<dyn Encode>, ConnectorError>;

    /// The reader that returns rows of these columns as they were written.
    fn format(&self, columns: &[Column]) -> Box<dyn Format>;

    /// Notes on how these columns are changed.
    fn notes(&self, columns: &[Column]) -> Vec<String>;
}

impl Part {
    /// The whole file.
    pub(super) fn whole(bytes: u64) -> Self {
        Self { groups: (0, usize::MAX), rows: None, bytes }
    }
}

impl Reading<'_> {
    /// The index of the column with this name in the file, if it is requested.
    ///
    /// # Errors
    /// If it is not a column of the stream and no columns were chosen: leaving it out would lose
    /// data.
    pub(super) fn column(&self, name: &str) -> Result<Option<usize>, ConnectorError> {
        let found = self.columns.iter().position(|column| column.name == name);
        if found.is_none() && !self.is_projection {
            return Err(ConnectorError::data(
                self.file.path.display().to_string(),
                format!(
                    "it has a column {name:?}, which the first file of the stream lacks; \
                     choose the stream's `columns`"
                ),
            ));
        }
        Ok(found)
    }

    /// Checks that a column that the file lacks is nullable.
    pub(super) fn check_missing(&self, column: &Column) -> Result<(), ConnectorError> {
        if column.nullable {
            return Ok(());
        }
        let found = format!("it has no column {:?}, which is not nullable", column.name);
        Err(ConnectorError::data(self.file.path.display().to_string(), found))
    }
}
