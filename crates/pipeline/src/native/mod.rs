//! The built-in connectors, by their names in the pipeline file.

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

use std::sync::Arc;

use schemars::{Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer};

use crate::config::permissions::Reach;
use crate::config::section::Chosen;
use crate::config::within::Within;
use crate::connector::{Destination, Source};

/// Settings of a source.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum SourceSettings {
    /// `postgres`
    Postgres(postgres::Settings),
    /// `mongodb`
    Mongodb(Box<mongodb::Settings>),
    /// `parquet`
    Parquet(files::ParquetSource),
    /// `csv`
    Csv(files::CsvSource),
    /// `ndjson`
    Ndjson(files::NdjsonSource),
    /// `sqlite`
    Sqlite(sqlite::SqliteSourceSettings),
    /// `forebay`
    Forebay(forebay::Settings),
}

/// Settings of a destination.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum DestinationSettings {
    /// `postgres`
    Postgres(postgres::Settings),
    /// `mongodb`
    Mongodb(Box<mongodb::Settings>),
    /// `parquet`
    Parquet(files::ParquetDestination),
    /// `csv`
    Csv(files::CsvDestination),
    /// `ndjson`
    Ndjson(files::NdjsonDestination),
    /// `sqlite`
    Sqlite(sqlite::SqliteDestinationSettings),
}

impl Chosen for SourceSettings {
    const WHAT: &'static str = "source";
    const NAMES: &'static [&'static str] =
        &["postgres", "mongodb", "parquet", "csv", "ndjson", "sqlite", "forebay"];

    fn read<'de, D: Deserializer<'de>>(name: &str, from: D) -> Result<Self, D::Error> {
        match name {
            "postgres" => Deserialize::deserialize(from).map(Self::Postgres),
            "mongodb" => Deserialize::deserialize(from).map(Self::Mongodb),
            "parquet" => Deserialize::deserialize(from).map(Self::Parquet),
            "csv" => Deserialize::deserialize(from).map(Self::Csv),
            "ndjson" => Deserialize::deserialize(from).map(Self::Ndjson),
            "sqlite" => Deserialize::deserialize(from).map(Self::Sqlite),
            "forebay" => Deserialize::deserialize(from).map(Self::Forebay),
            _ => Err(unknown(name)),
        }
    }

    fn reach(&self) -> Reach {
        match self {
            Self::Postgres(settings) => settings.reach(),
            Self::Mongodb(settings) => settings.reach(),
            Self::Parquet(settings) => files::reach(&settings.path, &settings.s3),
            Self::Csv(settings) => files::reach(&settings.path, &settings.s3),
            Self::Ndjson(settings) => files::reach(&settings.path, &settings.s3),
            Self::Sqlite(settings) => Reach::path(&settings.path.0),
            Self::Forebay(settings) => settings.reach(),
        }
    }

    fn confine(&mut self, within: Within) {
        match self {
            Self::Parquet(settings) => settings.within = within,
            Self::Csv(settings) => settings.within = within,
            Self::Ndjson(settings) => settings.within = within,
            Self::Sqlite(settings) => settings.within = within,
            // Sockets, certificates and secrets were checked when the settings were read.
            Self::Postgres(_) | Self::Mongodb(_) | Self::Forebay(_) => {}
        }
    }

    fn schema(name: &str, generator: &mut SchemaGenerator) -> Schema {
        match name {
            "postgres" => generator.subschema_for::<postgres::Settings>(),
            "mongodb" => generator.subschema_for::<mongodb::Settings>(),
            "parquet" => generator.subschema_for::<files::ParquetSource>(),
            "csv" => generator.subschema_for::<files::CsvSource>(),
            "ndjson" => generator.subschema_for::<files::NdjsonSource>(),
            "sqlite" => generator.subschema_for::<sqlite::SqliteSourceSettings>(),
            "forebay" => generator.subschema_for::<forebay::Settings>(),
            _ => Schema::default(),
        }
    }
}

impl Chosen for DestinationSettings {
    const WHAT: &'static str = "destination";
    const NAMES: &'static [&'static str] =
        &["postgres", "mongodb", "parquet", "csv", "ndjson", "sqlite"];

    fn read<'de, D: Deserializer<'de>>(name: &str, from: D) -> Result<Self, D::Error> {
        match name {
            "postgres" => Deserialize::deserialize(from).map(Self::Postgres),
            "mongodb" => Deserialize::deserialize(from).map(Self::Mongodb),
            "parquet" => Deserialize::deserialize(from).map(Self::Parquet),
            "csv" => Deserialize::deserialize(from).map(Self::Csv),
            "ndjson" => Deserialize::deserialize(from).map(Self::Ndjson),
            "sqlite" => Deserialize::deserialize(from).map(Self::Sqlite),
            _ => Err(unknown(name)),
        }
    }

    fn reach(&self) -> Reach {
        match self {
            Self::Postgres(settings) => settings.reach(),
            Self::Mongodb(settings) => settings.reach(),
            Self::Parquet(settings) => files::reach(&settings.path, &settings.s3),
            Self::Csv(settings) => files::reach(&settings.path, &settings.s3),
            Self::Ndjson(settings) => files::reach(&settings.path, &settings.s3),
            Self::Sqlite(settings) => Reach::path(&settings.path.0),
        }
    }

    fn confine(&mut self, within: Within) {
        match self {
            Self::Parquet(settings) => settings.within = within,
            Self::Csv(settings) => settings.within = within,
            Self::Ndjson(settings) => settings.within = within,
            Self::Sqlite(settings) => settings.within = within,
            // Sockets, certificates and secrets were checked when the settings were read.
            Self::Postgres(_) | Self::Mongodb(_) => {}
        }
    }

    fn schema(name: &str, generator: &mut SchemaGenerator) -> Schema {
        match name {
            "postgres" => generator.subschema_for::<postgres::Settings>(),
            "mongodb" => generator.subschema_for::<mongodb::Settings>(),
            "parquet" => generator.subschema_for::<files::ParquetDestination>(),
            "csv" => generator.subschema_for::<files::CsvDestination>(),
            "ndjson" => generator.subschema_for::<files::NdjsonDestination>(),
            "sqlite" => generator.subschema_for::<sqlite::SqliteDestinationSettings>(),
            _ => Schema::default(),
        }
    }
}

fn unknown<E: serde::de::Error>(name: &str) -> E {
    E::custom(format_args!("unknown connector {name:?}"))
}

/// Creates the source with these settings.
#[must_use]
pub fn source(settings: &SourceSettings) -> Arc<dyn Source> {
    match settings {
        SourceSettings::Postgres(settings) => {
            Arc::new(postgres::PostgresSource::new(settings.clone()))
        }
        SourceSettings::Mongodb(settings) => mongodb::source(settings),
        SourceSettings::Parquet(settings) => files::parquet_source(settings),
        SourceSettings::Csv(settings) => files::csv_source(settings),
        SourceSettings::Ndjson(settings) => files::ndjson_source(settings),
        SourceSettings::Sqlite(settings) => Arc::new(sqlite::SqliteSource::new(settings.clone())),
        SourceSettings::Forebay(settings) => {
            Arc::new(forebay::ForebaySource::new(settings.clone()))
        }
    }
}

/// Creates the destination with these settings.
#[must_use]
pub fn destination(settings: &DestinationSettings) -> Arc<dyn Destination> {
    match settings {
        DestinationSettings::Postgres(settings) => {
            Arc::new(postgres::PostgresDestination::new(settings.clone()))
        }
        DestinationSettings::Mongodb(settings) => mongodb::destination(settings),
        DestinationSettings::Parquet(settings) => files::parquet_destination(settings),
        DestinationSettings::Csv(settings) => files::csv_destination(settings),
        DestinationSettings::Ndjson(settings) => files::ndjson_destination(settings),
        DestinationSettings::Sqlite(settings) => Arc::new(sqlite::SqliteDestination::new(settings)),
    }
}
