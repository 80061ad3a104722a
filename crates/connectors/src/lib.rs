//! The connectors that every Forebay has: sources and destinations of pipelines.
//!
//! | connector | source | destination |
//! |---|---|---|
//! | `postgres` | yes | yes |
//! | `mongodb` | yes | yes |
//! | `sqlite` | yes | yes |
//! | `parquet`, `csv`, `ndjson` | yes | yes |
//! | `forebay` | yes | |
//!
//! Each of them implements the traits of [`forebay_sdk`]; [`registry`] lists them for the engine.
//! Those of databases and files are in the store of the system (`forebay-postgres`,
//! `forebay-objects`, ...), beside its connections. Here is that of other Forebays, over HTTP.

pub mod forebay;

use forebay_mongodb::connector as mongodb;
use forebay_objects::connector as files;
use forebay_postgres::connector as postgres;
use forebay_sdk::registry::Registry;
use forebay_sqlite::connector as sqlite;

/// All connectors of this crate, by name.
#[must_use]
pub fn registry() -> Registry {
    Registry::default()
        .source::<postgres::Settings>("postgres")
        .source::<mongodb::Settings>("mongodb")
        .source::<files::ParquetSource>("parquet")
        .source::<files::CsvSource>("csv")
        .source::<files::NdjsonSource>("ndjson")
        .source::<sqlite::SqliteSourceSettings>("sqlite")
        .source::<forebay::Settings>("forebay")
        .destination::<postgres::Settings>("postgres")
        .destination::<mongodb::Settings>("mongodb")
        .destination::<files::ParquetDestination>("parquet")
        .destination::<files::CsvDestination>("csv")
        .destination::<files::NdjsonDestination>("ndjson")
        .destination::<sqlite::SqliteDestinationSettings>("sqlite")
}
