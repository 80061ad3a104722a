//! The prefixes of an index as a file for other programs.
//!
//! Invariants:
//! - Prefixes are written as they are walked, in the order of their names: the memory is that of a
//!   batch of rows, however many there are.
//! - Every number is exact; one that the file format cannot hold is an error.

use std::io::{self, Write};

use parquet::errors::ParquetError;

use crate::index::{Below, FoundPrefix, Index, IndexError, Node};

mod csv;
mod ncdu;
mod parquet_file;
mod rows;

/// The format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One row per prefix, as Parquet.
    Parquet,
    /// The same rows, as CSV with a header.
    Csv,
    /// A tree for `ncdu -f`. The direct objects of a prefix are one entry, since an index does not
    /// know single objects.
    Ncdu,
}

/// Options of an export.
#[derive(Debug, Clone, Copy)]
pub struct ExportOptions {
    /// The format.
    pub format: Format,
    /// Maximum depth below the prefix, in components.
    pub depth: Option<u64>,
    /// The time of the export, in milliseconds since 1970.
    pub now_ms: u64,
}

/// Why an export failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The index could not be read.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The output could not be written.
    #[error("write the export")]
    Write(#[from] io::Error),
    /// The Parquet file could not be written.
    #[error("write the export as Parquet")]
    Parquet(#[from] ParquetError),
    /// A number exceeds a signed 64-bit integer, the type of a Parquet column.
    #[error(
        "{column} of prefix {prefix:?} is {number}, which exceeds the range of a Parquet column"
    )]
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

/// Writes a prefix and what is below it; returns the number of prefixes written.
///
/// * `node`, `prefix`: the start.
/// * `goes_on`: called with each prefix; returns whether to continue.
///
/// # Errors
/// The index is damaged, `out` cannot be written, or the export was stopped.
pub fn export(
    index: &Index,
    node: &Node<'_>,
    prefix: &[u8],
    options: &ExportOptions,
    out: impl Write + Send,
    goes_on: &dyn Fn() -> bool,
) -> Result<u64, ExportError> {
    let below = node.below(prefix, options.depth, 0, 0);
    let mut walk = Walk { below, count: 0, goes_on };
    match options.format {
        Format::Parquet => parquet_file::write(index, &mut walk, out)?,
        Format::Csv => csv::write(index, &mut walk, out)?,
        Format::Ncdu => ncdu::write(&mut walk, options.now_ms, out)?,
    }
    Ok(walk.count)
}

/// Number of prefixes in an unlimited export of a prefix.
#[must_use]
pub fn expected(node: &Node<'_>) -> u64 {
    node.descendants().saturating_add(1)
}

/// The prefixes to write.
struct Walk<'a, 'g> {
    below: Below<'a>,
    count: u64,
    goes_on: &'g dyn Fn() -> bool,
}

impl<'a> Walk<'a, '_> {
    fn next(&mut self) -> Result<Option<FoundPrefix<'a>>, ExportError> {
        if !(self.goes_on)() {
            return Err(ExportError::Cancelled);
        }
        let found = self.below.next().transpose()?;
        self.count += u64::from(found.is_some());
        Ok(found)
    }
}
