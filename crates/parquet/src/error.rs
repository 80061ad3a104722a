//! Why a file is not read.

use std::fmt;

use arrow::error::ArrowError;
use parquet::errors::ParquetError;

/// Why a file was not read, or not further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It would take more memory than was given.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
    /// It is not as Parquet has to be, or could not be read.
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    /// What was read is no batch.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
}

/// What of a file takes memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// The footer, and what it is decoded to.
    Footer,
    /// The values of one row.
    Row,
    /// A page as the header declares it, with the others that a batch needs.
    Page,
    /// What the values of a page are decoded to.
    Values,
}

/// Something takes more memory than was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exceeded {
    /// What it is.
    pub what: What,
    /// The row group, from 0, for all but the footer.
    pub row_group: usize,
    /// The path of the column, for all but the footer.
    pub column: String,
    /// The page of the column in the row group, from 0; dictionaries are counted.
    pub page: usize,
    /// Bytes it declares.
    pub declared: u64,
    /// Bytes that others hold at the time.
    pub held: u64,
    /// Bytes there may be in all.
    pub limit: u64,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, row_group, column, page, declared, held, limit } = self;
        match what {
            What::Footer => write!(f, "its footer declares {declared} bytes")?,
            What::Row => write!(
                f,
                "row group {row_group}, column {column:?}: one row declares {declared} bytes"
            )?,
            What::Page | What::Values => {
                let of = if *what == What::Page { "" } else { "values of " };
                write!(
                    f,
                    "row group {row_group}, column {column:?}, page {page} declares {of}{declared} bytes"
                )?;
            }
        }
        if *held > 0 {
            write!(f, " in addition to {held} bytes in use")?;
        }
        write!(f, "; the limit is {limit} bytes")
    }
}

impl std::error::Error for Exceeded {}

/// A file is not as it should be.
pub(crate) fn damaged(what: impl Into<String>) -> ParquetError {
    ParquetError::General(what.into())
}
