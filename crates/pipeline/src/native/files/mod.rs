//! Files as sources and destinations: Parquet, CSV and NDJSON, on the disk or in a bucket.
//!
//! | room | what it does |
//! |---|---|
//! | `settings` | what the pipeline file says of them |
//! | `place`, `list`, `opened` | where files are, which of them a stream has, and their bytes |
//! | `format` | what a format is to the rest |
//! | `parquet`, `csv`, `ndjson` | the formats |
//! | `source` | files to rows |
//! | `destination`, `target`, `writer` | rows to files |
//! | `ledger` | which files count |
//! | `store`, `disk`, `bucket` | how they are put where they belong |
//!
//! A directory that is written has nothing in it but files of whole units that were committed. Exactly
//! once is by the ledger (`_forebay/STREAM/ledger.json`): `docs/formats/pipeline-files.md`.

mod bucket;
mod compress;
mod csv;
mod destination;
mod disk;
mod format;
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
    Arc::new(source::FileSource::new(&settings.path, &settings.s3, format))
}

/// The destination of Parquet files.
pub(super) fn parquet_destination(settings: &ParquetDestination) -> Arc<dyn Destination> {
    let layout = Arc::new(parquet::ParquetLayout::new(settings));
    Arc::new(destination::FileDestination::new(&settings.path, &settings.s3, layout))
}

/// The source of CSV files.
pub(super) fn csv_source(settings: &CsvSource) -> Arc<dyn Source> {
    let format = Arc::new(csv::CsvFormat::new(settings));
    Arc::new(source::FileSource::new(&settings.path, &settings.s3, format))
}

/// The destination of CSV files.
pub(super) fn csv_destination(settings: &CsvDestination) -> Arc<dyn Destination> {
    let layout = Arc::new(csv::CsvLayout::new(settings));
    Arc::new(destination::FileDestination::new(&settings.path, &settings.s3, layout))
}

/// The destination of NDJSON files.
pub(super) fn ndjson_destination(settings: &NdjsonDestination) -> Arc<dyn Destination> {
    let layout = Arc::new(ndjson::NdjsonLayout::new(settings));
    Arc::new(destination::FileDestination::new(&settings.path, &settings.s3, layout))
}

/// The source of NDJSON files.
pub(super) fn ndjson_source(settings: &NdjsonSource) -> Arc<dyn Source> {
    let format = Arc::new(ndjson::NdjsonFormat::new(settings));
    Arc::new(source::FileSource::new(&settings.path, &settings.s3, format))
}
