//! The built-in connectors.
//!
//! A connector is a directory here: settings that implement the traits of [`registry`], a source or
//! destination with the traits of [`connector`], and its line in `register`.
//!
//! [`registry`]: crate::registry
//! [`connector`]: crate::connector

#[cfg(not(feature = "mongodb"))]
mod absent;
pub(crate) mod bridge;
pub(crate) mod cast;
pub mod files;
pub mod forebay;
pub(crate) mod hash;
pub mod mongodb;
pub mod postgres;
pub mod sqlite;
pub(crate) mod values;

use crate::registry::Registry;

/// Adds all built-in connectors.
pub(crate) fn register(registry: Registry) -> Registry {
    registry
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
