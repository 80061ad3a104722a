//! The prefixes of an index as a file for other programs.
//!
//! Invariants:
//! - Prefixes are written as they are walked over, in the order of their names: memory is that of a
//!   batch of rows, however many there are.
//! - Every number is the index's own; one the file cannot hold is an error.

use std::io::{self, Write};

use parquet::errors::ParquetError;

use crate::index::{Below, Found, Index, IndexError, Node};

mod csv;
mod ncdu;
mod parquet_file;
mod rows;

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A row for each prefix, as Parquet.
    Parquet,
    /// The same rows, as CSV with a header.
    Csv,
    /// A tree for `ncdu -f`. What lies right below a prefix is one entry, for an index knows no single
    /// objects.
    Ncdu,
}

/// What is asked of an export.
#[derive(Debug, Clone, Copy)]
pub struct Question {
    /// What is written.
    pub format: Format,
    /// At most so many components deeper than the prefix.
    pub depth: Option<u64>,
    /// When it is written, milliseconds since 1970.
    pub now_ms: u64,
}

/// Why an export failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The index.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// What is written to.
    #[error("write the export")]
    Write(#[from] io::Error),
    /// The Parquet file.
    #[error("write the export as Parquet")]
    Parquet(#[from] ParquetError),
    /// A number that is no 64-bit number with a sign, which Parquet's readers have.
    #[error("{column} of prefix {prefix:?} is {number}, more than a column of Parquet holds")]
    TooLarge {
        /// The column.
        column: String,
        /// The prefix.
        prefix: String,
        /// The number.
        number: u64,
    },
    /// It was stopped.
    #[error("the export was stopped")]
    Cancelled,
}

/// Writes a prefix and what is below it; returns how many prefixes that are.
///
/// * `node`, `prefix`: where to begin.
/// * `goes_on`: is told each prefix, and says whether to go on.
///
/// # Errors
/// When the index is damaged, `out` cannot be written, or it was stopped.
pub fn export(
    index: &Index,
    node: &Node<'_>,
    prefix: &[u8],
    question: &Question,
    out: impl Write + Send,
    goes_on: &dyn Fn() -> bool,
) -> Result<u64, ExportError> {
    let below = node.below(prefix, question.depth, 0, 0);
    let mut walk = Walk { below, count: 0, goes_on };
    match question.format {
        Format::Parquet => parquet_file::write(index, &mut walk, out)?,
        Format::Csv => csv::write(index, &mut walk, out)?,
        Format::Ncdu => ncdu::write(&mut walk, question.now_ms, out)?,
    }
    Ok(walk.count)
}

/// How many prefixes an export of all of a prefix has.
#[must_use]
pub fn expected(node: &Node<'_>) -> u64 {
    node.descendants().saturating_add(1)
}

/// The prefixes to be written.
struct Walk<'a, 'g> {
    below: Below<'a>,
    count: u64,
    goes_on: &'g dyn Fn() -> bool,
}

impl<'a> Walk<'a, '_> {
    fn next(&mut self) -> Result<Option<Found<'a>>, ExportError> {
        if !(self.goes_on)() {
            return Err(ExportError::Cancelled);
        }
        let found = self.below.next().transpose()?;
        self.count += u64::from(found.is_some());
        Ok(found)
    }
}
