//! Sources of objects.
//!
//! A [`Source`] is divided into [`Part`]s that are read independently, by several threads; each
//! pushes its objects, batch by batch, into a [`RowSink`]. A source can be divided again if a build
//! has to start over.
//!
//! `docs/formats/inventory-sources.md` describes what is read and how; [`open()`] creates a source
//! from a user's specification.

use serde::{Deserialize, Serialize};

use crate::object::Batch;

mod columns;
mod csv;
mod error;
mod foreign;
mod fs;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod input;
mod list;
mod location;
mod manifest;
mod open;
mod parquet;
mod s3;
mod tables;
#[cfg(test)]
mod testing;
mod values;
mod within;

pub use columns::{Column, Columns};
pub use error::SourceError;
pub use open::{Settings, Spec, open};
pub use s3::S3;
pub use within::Within;

/// A list of objects.
pub trait Source: Send + Sync {
    /// Its properties.
    fn provenance(&self) -> Provenance;

    /// Its parts, in the order of their keys if the source has one.
    ///
    /// # Errors
    /// Its contents are unknown: a manifest is missing, or a directory cannot be listed.
    fn parts(&self) -> Result<Vec<Box<dyn Part>>, SourceError>;
}

/// A part of a source, read by one thread.
pub trait Part: Send {
    /// Its name in messages: a file, a prefix, a directory.
    fn name(&self) -> &str;

    /// Size in bytes, if known in advance; for progress.
    fn size(&self) -> Option<u64>;

    /// Reads it to its end.
    ///
    /// # Errors
    /// It cannot be read, is invalid, or `sink` wants no more.
    fn read(self: Box<Self>, sink: &mut dyn RowSink) -> Result<(), SourceError>;
}

/// Receives the objects of a part.
pub trait RowSink {
    /// Receives the objects of a batch, and leaves it empty.
    ///
    /// # Errors
    /// No more are wanted; the reader then ends with [`SourceError::Stopped`].
    fn rows(&mut self, batch: &mut Batch) -> Result<(), Stopped>;

    /// Reports a row that could not be read.
    ///
    /// # Errors
    /// Invalid rows are not skipped; as for [`RowSink::rows`].
    fn bad_row(&mut self, row: BadRow) -> Result<(), Stopped>;

    /// Reports that this many more bytes of the part were read.
    fn bytes(&mut self, more: u64);
}

/// No more objects are wanted; the creator of the sink knows the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the reader was stopped")]
pub struct Stopped;

/// An invalid row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = InventoryBadRow)]
pub struct BadRow {
    /// Its file, or the part if the source has no files.
    pub part: String,
    /// Its number in the file, from 1; 0 if it is not a row, such as an unreadable directory.
    pub row: u64,
    /// The faulty field, by the source's name for it; empty if the whole row is faulty.
    pub field: String,
    /// The fault.
    pub reason: String,
}

/// The description of an index's source.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = InventorySource)]
pub struct Provenance {
    /// As it was specified on the command line.
    pub source: String,
    /// Its detected kind: `s3-inventory-csv`, `parquet`, `s3-list`, `fs`, ...
    pub format: String,
    /// The listed bucket or directory, if known.
    #[schema(required)]
    pub bucket: Option<String>,
    /// Time of the listing, in milliseconds since 1970, if known.
    #[schema(required)]
    pub listed_at_ms: Option<u64>,
    /// Whether every version of each key is listed, and not only the current one.
    pub all_versions: bool,
    /// The fields it has.
    pub fields: Vec<String>,
    /// The files it consists of.
    pub files: Vec<SourceFile>,
    /// The declared number of rows.
    #[schema(required)]
    pub rows: Option<u64>,
    /// Notes for the reader of the figures.
    #[serde(default)]
    #[schema(required)]
    pub notes: Vec<String>,
}

/// A file of a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = InventorySourceFile)]
pub struct SourceFile {
    /// Its key or path.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// The checksum it was verified against, as `md5:hex`; `None` if the source has none.
    #[schema(required)]
    pub checksum: Option<String>,
}

#[cfg(test)]
mod tests;
