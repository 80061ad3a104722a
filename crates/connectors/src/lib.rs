//! The connectors that every Forebay has: sources and destinations of pipelines.
//!
//! | connector | source | destination |
//! |---|---|---|
//! | `postgres` | yes | yes |
//! | `mongodb` | yes | yes |
//! | `mysql` | yes | |
//! | `sqlite` | yes | yes |
//! | `parquet`, `csv`, `ndjson` | yes | yes |
//! | `delta` | | yes |
//! | `clickhouse` | | yes |
//! | `forebay` | yes | changes |
//! | `http-json` | yes | |
//!
//! Each of them implements the traits of [`forebay_sdk`]; [`registry`] lists them for the engine.
//! Those of databases and files are in the store of the system (`forebay-postgres`,
//! `forebay-objects`, ...), beside its connections; that of JSON APIs is `forebay-http-json`, that of ClickHouse
//! `forebay-clickhouse`. Here is that of other Forebays, over HTTP.

pub mod forebay;

use forebay_mongodb::settings as mongodb;
use forebay_objects::{Environment, connector as files};
use forebay_postgres::connector as postgres;
use forebay_sdk::registry::Registry;
use forebay_sqlite::connector as sqlite;

/// All connectors of this crate, by name. A profile in `~/.aws` cannot be loaded: there is no home.
#[must_use]
pub fn registry() -> Registry {
    registry_in(&Environment::default())
}

/// All connectors of this crate, by name. Profiles that settings name are those of `environment`.
#[must_use]
pub fn registry_in(environment: &Environment) -> Registry {
    Registry::default()
        .source::<postgres::Settings>("postgres")
        .source::<mongodb::Settings>("mongodb")
        .source::<forebay_mysql::Settings>("mysql")
        .source_with::<files::ParquetSource, _>("parquet", files::in_environment(environment))
        .source_with::<files::CsvSource, _>("csv", files::in_environment(environment))
        .source_with::<files::NdjsonSource, _>("ndjson", files::in_environment(environment))
        .source::<sqlite::SqliteSourceSettings>("sqlite")
        .source::<forebay::Settings>("forebay")
        .source::<forebay_http_json::Settings>("http-json")
        .destination::<postgres::Settings>("postgres")
        .destination::<mongodb::Settings>("mongodb")
        .destination::<forebay_clickhouse::Settings>("clickhouse")
        .destination_with::<files::ParquetDestination, _>(
            "parquet",
            files::in_environment(environment),
        )
        .destination_with::<files::DeltaDestination, _>("delta", files::in_environment(environment))
        .destination_with::<files::CsvDestination, _>("csv", files::in_environment(environment))
        .destination_with::<files::NdjsonDestination, _>(
            "ndjson",
            files::in_environment(environment),
        )
        .destination::<sqlite::SqliteDestinationSettings>("sqlite")
        .destination::<forebay::DestinationSettings>("forebay")
}
