//! Files as sources and destinations: Parquet, CSV and NDJSON, on disk or in a bucket.
//!
//! | module | purpose |
//! |---|---|
//! | `settings` | their settings in the pipeline file |
//! | `location`, `list`, `opened` | where files are, which of them a stream has, and their bytes |
//! | `format` | the interface of a format |
//! | `parquet`, `csv`, `ndjson` | the formats |
//! | `source` | reads files |
//! | `destination`, `target`, `writer` | writes files |
//! | `feed` | writes changes as files |
//! | `ledger`, `damage` | which files are valid, and whether it agrees with those that exist |
//! | `store`, `disk`, `bucket` | storing the files of a destination |
//! | `delta` | writes Delta tables, with the feature `delta` |
//!
//! A written directory contains only files of complete, committed units. The ledger
//! (`_forebay/STREAM/ledger.json`) guarantees exactly-once delivery:
//! `docs/formats/pipeline-files.md`.

mod bucket;
mod compress;
mod conform;
mod csv;
mod damage;
mod dead;
#[cfg(feature = "delta")]
mod delta;
mod destination;
mod disk;
mod feed;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod ledger;
mod list;
mod location;
mod ndjson;
mod opened;
mod parquet;
mod settings;
mod source;
mod store;
mod target;
mod text;
mod writer;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use forebay_sdk::connector::{Destination, Source};
use forebay_sdk::registry::{ConnectorSettings, DestinationSettings, SourceSettings};
use forebay_sdk::settings::{Evolves, Reach, Within};

pub use settings::{
    Compression, CsvDestination, CsvSource, Delimiter, DeltaDestination, FileSettings,
    NamedProfile, NdjsonDestination, NdjsonSource, ParquetCompression, ParquetDestination,
    ParquetSource, S3Settings, in_environment,
};

/// A source of files of one format.
macro_rules! source {
    ($settings:ty, |$of:ident| $format:expr) => {
        connector!($settings);

        impl SourceSettings for $settings {
            fn source(&self) -> Arc<dyn Source> {
                let $of = self;
                Arc::new(source::FileSource::new(self.at(), Arc::new($format)))
            }
        }
    };
}

/// A destination of files of one format.
macro_rules! destination {
    ($settings:ty, |$of:ident| $layout:expr) => {
        connector!($settings);

        impl DestinationSettings for $settings {
            fn destination(&self) -> Arc<dyn Destination> {
                let $of = self;
                Arc::new(destination::FileDestination::new(self.at(), Arc::new($layout)))
            }

            fn evolves(&self) -> Evolves {
                destination::EVOLVES
            }
        }
    };
}

/// What sources and destinations share.
macro_rules! connector {
    ($settings:ty) => {
        impl ConnectorSettings for $settings {
            fn reach(&self) -> Reach {
                settings::reach(&self.path, &self.s3)
            }

            fn confine(&mut self, within: Within) {
                self.within = within;
            }
        }
    };
}

connector!(DeltaDestination);

impl DestinationSettings for DeltaDestination {
    #[cfg(feature = "delta")]
    fn destination(&self) -> Arc<dyn Destination> {
        Arc::new(delta::DeltaTables::new(self))
    }

    #[cfg(not(feature = "delta"))]
    fn destination(&self) -> Arc<dyn Destination> {
        Arc::new(forebay_sdk::absent::Absent("delta"))
    }

    fn evolves(&self) -> Evolves {
        EVOLVES_TABLE
    }
}

/// Columns of a Delta table are added, never changed: files have no others.
const EVOLVES_TABLE: Evolves = Evolves { on_replace: true, ..destination::EVOLVES };

source!(ParquetSource, |_settings| parquet::ParquetFormat);
source!(CsvSource, |settings| csv::CsvFormat::new(settings));
source!(NdjsonSource, |settings| ndjson::NdjsonFormat::new(settings));
destination!(ParquetDestination, |settings| parquet::ParquetLayout::new(settings));
destination!(CsvDestination, |settings| csv::CsvLayout::new(settings));
destination!(NdjsonDestination, |settings| ndjson::NdjsonLayout::new(settings));
