//! Where objects are read from.
//!
//! A [`Source`] is cut into [`Part`]s that are read independently, by several threads; each pushes its
//! objects, batch by batch, into a [`RowSink`]. A source can be cut again, when a build has to begin
//! anew.
//!
//! What is read, and what is made of it, is described in `docs/formats/inventory-sources.md`; [`open()`]
//! makes a source of what a user names.

use serde::{Deserialize, Serialize};

use crate::object::Batch;

mod columns;
mod csv;
mod error;
mod fs;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod input;
mod list;
mod manifest;
mod open;
mod parquet;
mod place;
mod s3;
mod tables;
#[cfg(test)]
mod testing;
mod values;

pub use columns::{Column, Columns};
pub use error::SourceError;
pub use open::{Settings, Spec, open};
pub use s3::S3;

/// Something that lists objects.
pub trait Source: Send + Sync {
    /// What it is and what it promises.
    fn provenance(&self) -> Provenance;

    /// Its parts, in the order of their keys where the source knows one.
    ///
    /// # Errors
    /// When what it consists of cannot be told: a manifest that is not there, a directory that cannot
    /// be listed.
    fn parts(&self) -> Result<Vec<Box<dyn Part>>, SourceError>;
}

/// A piece of a source, read by one thread.
pub trait Part: Send {
    /// What it is called in messages: a file, a prefix, a directory.
    fn name(&self) -> &str;

    /// Bytes to read, where they are known before; for progress.
    fn size(&self) -> Option<u64>;

    /// Reads it to its end.
    ///
    /// # Errors
    /// When it cannot be read, is not what it should be, or `sink` wants no more.
    fn read(self: Box<Self>, sink: &mut dyn RowSink) -> Result<(), SourceError>;
}

/// What takes the objects of a part.
pub trait RowSink {
    /// Takes the objects of a batch, and leaves it empty.
    ///
    /// # Errors
    /// When nothing more is wanted; the reader then gives up with [`SourceError::Stopped`].
    fn rows(&mut self, batch: &mut Batch) -> Result<(), Stopped>;

    /// Takes note of a row that could not be read.
    ///
    /// # Errors
    /// When bad rows are not to be skipped; as [`RowSink::rows`].
    fn bad_row(&mut self, row: BadRow) -> Result<(), Stopped>;

    /// Takes note that so many more bytes of the part were read.
    fn bytes(&mut self, more: u64);
}

/// Nothing more is wanted from a reader; the reason is known to whoever gave it the sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the reader was told to stop")]
pub struct Stopped;

/// A row that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadRow {
    /// The file it is in, or the part, where a source has no files.
    pub part: String,
    /// Which row of the file, the first is 1; 0 when it is no row, as a directory that cannot be read.
    pub row: u64,
    /// The field at fault, by the name the source gives it; empty when it is the row as a whole.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}

/// What an index was built from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Provenance {
    /// As it was named on the command line.
    pub source: String,
    /// What it turned out to be: `s3-inventory-csv`, `parquet`, `s3-list`, `fs`, ...
    pub format: String,
    /// The bucket or directory that was listed, where it is known.
    pub bucket: Option<String>,
    /// When the list was made, milliseconds since 1970, where it is known.
    pub listed_at_ms: Option<u64>,
    /// Whether every version of each key is listed, not the current one alone.
    pub all_versions: bool,
    /// Fields the source has.
    pub fields: Vec<String>,
    /// The files it consists of.
    pub files: Vec<SourceFile>,
    /// Rows the source says it has.
    pub rows: Option<u64>,
    /// What a reader of the figures should know of how it was read.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// A file of a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    /// Its key or path.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// The checksum it was verified against, as `md5:hex`; nothing when the source has none.
    pub checksum: Option<String>,
}

#[cfg(test)]
mod tests;
