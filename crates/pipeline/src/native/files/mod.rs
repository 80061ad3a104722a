//! Files as sources and destinations: Parquet, CSV and NDJSON, on disk or in a bucket.
//!
//! | module | purpose |
//! |---|---|
//! | `settings` | their settings in the pipeline file |
//! | `place`, `list`, `opened` | where files are, which of them a stream has, and their bytes |
//! | `format` | the interface of a format |
//! | `parquet`, `csv`, `ndjson` | the formats |
//! | `source` | reads files |
//! | `destination`, `target`, `writer` | writes files |
//! | `ledger` | which files are valid |
//! | `store`, `disk`, `bucket` | storing the files of a destination |
//!
//! A written directory contains only files of complete, committed units. The ledger
//! (`_forebay/STREAM/ledger.json`) guarantees exactly-once delivery:
//! `docs/formats/pipeline-files.md`.

mod bucket;
mod compress;
mod csv;
mod destination;
mod disk;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod ledger;
mod list;
mod ndjson;
mod opened;
mod parquet;
mod place;
mod settings;
mod source;
mod store;
mod target;
mod text;
mod writer;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::connector::{Destination, Source};

pub(crate) use settings::reach;
pub use settings::{
    Compression, CsvDestination, CsvSource, Delimiter, NdjsonDestination, NdjsonSource,
    ParquetCompression, ParquetDestination, ParquetSource, S3Settings,
};

/// The source of Parquet files.
pub(super) fn parquet_source(settings: &ParquetSource) -> Arc<dyn Source> {
    let format = Arc::new(parquet::ParquetFormat);
    Arc::new(source::FileSource::new(settings.at(), format))
}

/// The destination of Parquet files.
pub(super) fn parquet_destination(settings: &ParquetDestination) -> Arc<dyn Destination> {
    let layout = Arc::new(parquet::ParquetLayout::new(settings));
    Arc::new(destination::FileDestination::new(settings.at(), layout))
}

/// The source of CSV files.
pub(super) fn csv_source(settings: &CsvSource) -> Arc<dyn Source> {
    let format = Arc::new(csv::CsvFormat::new(settings));
    Arc::new(source::FileSource::new(settings.at(), format))
}

/// The destination of CSV files.
pub(super) fn csv_destination(settings: &CsvDestination) -> Arc<dyn Destination> {
    let layout = Arc::new(csv::CsvLayout::new(settings));
    Arc::new(destination::FileDestination::new(settings.at(), layout))
}

/// The destination of NDJSON files.
pub(super) fn ndjson_destination(settings: &NdjsonDestination) -> Arc<dyn Destination> {
    let layout = Arc::new(ndjson::NdjsonLayout::new(settings));
    Arc::new(destination::FileDestination::new(settings.at(), layout))
}

/// The source of NDJSON files.
pub(super) fn ndjson_source(settings: &NdjsonSource) -> Arc<dyn Source> {
    let format = Arc::new(ndjson::NdjsonFormat::new(settings));
    Arc::new(source::FileSource::new(settings.at(), format))
}
