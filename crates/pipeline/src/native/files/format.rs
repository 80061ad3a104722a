//! What a format of files is to the connectors: how columns are found, how rows are read and written.
//!
//! `docs/formats/pipeline-files.md` says how each of them keeps values.

use arrow::array::RecordBatch;
use forebay_pgcopy::Column;

use super::opened::Opened;
use crate::error::ConnectorError;
use crate::native::bridge::Give;

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// Row groups, from and to (not included); all there are where it is not divided.
    pub(super) groups: (usize, usize),
    pub(super) rows: Option<u64>,
    pub(super) bytes: u64,
}

/// Reads files of a format. Everything here waits for disk or network.
pub(super) trait Format: Send + Sync + std::fmt::Debug {
    /// Endings of names, without those of compression.
    fn endings(&self) -> &'static [&'static str];

    /// The columns of a file: those that are wanted, as far as it has them; all where none is named.
    fn columns(&self, file: &Opened, wanted: &[String]) -> Result<Vec<Column>, ConnectorError>;

    /// The parts of a file, of about `size` bytes.
    fn divide(&self, file: &Opened, size: u64) -> Result<Vec<Part>, ConnectorError>;

    /// Reads a part.
    fn read(&self, reading: &Reading<'_>, give: &mut Give<'_>) -> Result<(), ConnectorError>;
}

/// What is read, and how.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    pub(super) file: &'a Opened,
    pub(super) part: &'a Part,
    /// The columns that are wanted. A file may lack those that may be NULL.
    pub(super) columns: &'a [Column],
    /// Whether columns were chosen: then others in the file are passed over, else they are an error.
    pub(super) is_projection: bool,
    /// Bytes of a batch.
    pub(super) batch_size: usize,
}

/// Encodes the rows of one file.
pub(super) trait Encode: Send {
    /// Adds rows; what is ready is appended to `out`.
    fn write(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), ConnectorError>;

    /// Ends the file.
    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), ConnectorError>;
}

/// Writes files of a format.
pub(super) trait Layout: Send + Sync + std::fmt::Debug {
    /// How names of files end: `csv.gz`.
    fn ending(&self) -> String;

    /// Whether files of one directory may have different columns.
    fn columns_may_differ(&self) -> bool;

    /// A new file.
    fn encode(&self, columns: &[Column]) -> Result<Box<dyn Encode>, ConnectorError>;

    /// What reads files of these columns back as they were written.
    fn format(&self, columns: &[Column]) -> Box<dyn Format>;

    /// What is made otherwise of these columns.
    fn notes(&self, columns: &[Column]) -> Vec<String>;
}

impl Part {
    /// All of a file.
    pub(super) fn whole(bytes: u64) -> Self {
        Self { groups: (0, usize::MAX), rows: None, bytes }
    }
}

impl Reading<'_> {
    /// Which column a name of the file is, if it is wanted.
    ///
    /// # Errors
    /// When it is none and no columns were chosen: leaving it out would lose it.
    pub(super) fn column(&self, name: &str) -> Result<Option<usize>, ConnectorError> {
        let found = self.columns.iter().position(|column| column.name == name);
        if found.is_none() && !self.is_projection {
            return Err(ConnectorError::data(
                self.file.path.display().to_string(),
                format!(
                    "it has a column {name:?}, which the first file of the stream has not; \
                     choose the stream's `columns`"
                ),
            ));
        }
        Ok(found)
    }

    /// That a column the file lacks may be NULL.
    pub(super) fn check_missing(&self, column: &Column) -> Result<(), ConnectorError> {
        if column.nullable {
            return Ok(());
        }
        let found = format!("it has no column {:?}, which may not be NULL", column.name);
        Err(ConnectorError::data(self.file.path.display().to_string(), found))
    }
}
