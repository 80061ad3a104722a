//! The connectors that are built in, by the names the pipeline file has for them.

use std::sync::Arc;

use schemars::{Schema, SchemaGenerator};
use serde::Deserializer;

use crate::config::section::Chosen;
use crate::connector::{Destination, Source};

/// Settings of a source.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum SourceSettings {}

/// Settings of a destination.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum DestinationSettings {}

impl Chosen for SourceSettings {
    const WHAT: &'static str = "source";
    const NAMES: &'static [&'static str] = &[];

    fn read<'de, D: Deserializer<'de>>(name: &str, _from: D) -> Result<Self, D::Error> {
        Err(unknown(name))
    }

    fn schema(_name: &str, _generator: &mut SchemaGenerator) -> Schema {
        Schema::default()
    }
}

impl Chosen for DestinationSettings {
    const WHAT: &'static str = "destination";
    const NAMES: &'static [&'static str] = &[];

    fn read<'de, D: Deserializer<'de>>(name: &str, _from: D) -> Result<Self, D::Error> {
        Err(unknown(name))
    }

    fn schema(_name: &str, _generator: &mut SchemaGenerator) -> Schema {
        Schema::default()
    }
}

fn unknown<E: serde::de::Error>(name: &str) -> E {
    E::custom(format_args!("no connector is called {name:?}"))
}

/// The source of these settings.
#[must_use]
pub fn source(settings: &SourceSettings) -> Arc<dyn Source> {
    match *settings {}
}

/// The destination of these settings.
#[must_use]
pub fn destination(settings: &DestinationSettings) -> Arc<dyn Destination> {
    match *settings {}
}
