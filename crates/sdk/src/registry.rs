//! Connectors by name: the values that `use` in a pipeline file may have.
//!
//! The engine knows no connector. A [`Registry`] maps each name to the type of its settings, and the
//! settings create the source or destination. A connector joins it with [`Registry::source`] or
//! [`Registry::destination`]; the engine then reads and describes its settings, and checks them
//! against the permissions of its section.
//!
//! ```
//! use std::sync::Arc;
//!
//! use forebay_sdk::settings::{Reach, Text};
//! use forebay_sdk::connector::Source;
//! # use forebay_sdk::ConnectorError;
//! # use forebay_sdk::settings::StreamSettings;
//! # use forebay_sdk::connector::{Discovered, Opening, Result, SourceStream};
//! # use forebay_sdk::run::Context;
//! use forebay_sdk::registry::{ConnectorSettings, Registry, SourceSettings};
//!
//! /// The settings of a connector `meters`.
//! #[derive(Debug, Clone, serde::Deserialize, schemars::JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! struct Meters {
//!     /// Name or address of the server.
//!     host: Text,
//! }
//!
//! impl ConnectorSettings for Meters {
//!     fn reach(&self) -> Reach {
//!         Reach::host(&self.host.0, Some(4840))
//!     }
//! }
//!
//! impl SourceSettings for Meters {
//!     fn source(&self) -> Arc<dyn Source> {
//!         Arc::new(self.clone())
//!     }
//! }
//!
//! # #[async_trait::async_trait]
//! # impl Source for Meters {
//! #     async fn check(&self) -> Result<String> {
//! #         Ok(format!("meters of {}", self.host))
//! #     }
//! #     async fn discover(&self) -> Result<Vec<Discovered>> {
//! #         Ok(Vec::new())
//! #     }
//! #     async fn open(
//! #         &self,
//! #         stream: &StreamSettings,
//! #         _: &Opening,
//! #         _: &Context,
//! #     ) -> Result<Arc<dyn SourceStream>> {
//! #         Err(ConnectorError::unsupported("no such meter", stream.name.clone()))
//! #     }
//! # }
//! #
//! let registry = Registry::default().source::<Meters>("meters");
//! assert!(registry.source_names().any(|name| name == "meters"));
//! ```

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer};

use crate::connector::{Destination, Source};
use crate::settings::{Evolves, Reach};
use crate::transform::TransformSettings;

/// What a section of a pipeline file permits. `None`: nothing is said.
#[derive(Debug, Clone, Copy, Default)]
pub struct Permitted<'a> {
    /// `permissions.network.allowed_hosts`.
    pub hosts: Option<&'a [String]>,
    /// `permissions.fs.allowed_preopens`.
    pub paths: Option<&'a [PathBuf]>,
    /// `limits.max_memory`, in bytes.
    pub memory: Option<u64>,
}

/// Settings of a connector: the field `config` of its section.
pub trait ConnectorSettings: fmt::Debug + Send + Sync {
    /// Checks what the types of the settings cannot express, such as the form of an address, when
    /// the file is read.
    ///
    /// # Errors
    /// What is wrong, without secrets.
    fn check(&self) -> Result<(), forebay_base::ServerError> {
        Ok(())
    }

    /// The servers and files that these settings name. The section's `permissions` are compared
    /// with it before anything is created.
    fn reach(&self) -> Reach;

    /// Restricts the files that will be opened. Settings that open none ignore it.
    #[cfg(not(target_family = "wasm"))]
    fn confine(&mut self, _within: crate::settings::Within) {}

    /// Grants what the section permits to a connector in a sandbox. Others have no use for it.
    fn grant(&mut self, _permitted: &Permitted<'_>) {}

    /// Whether each unit keeps a process of a database server busy, and this process only passes
    /// bytes on. The number of threads depends on it.
    fn occupies_server(&self) -> bool {
        false
    }
}

/// Settings of a source.
pub trait SourceSettings: ConnectorSettings {
    /// Creates the source; sends nothing yet.
    fn source(&self) -> Arc<dyn Source>;
}

/// Settings of a destination.
pub trait DestinationSettings: ConnectorSettings {
    /// Creates the destination; sends nothing yet.
    fn destination(&self) -> Arc<dyn Destination>;

    /// The settings of `schema_evolution` that it honours. A file with another one is refused.
    fn evolves(&self) -> Evolves {
        Evolves::default()
    }
}

/// The connectors that a pipeline file can name. Cloning is cheap.
#[derive(Clone, Default)]
pub struct Registry {
    sources: Arc<Vec<Entry<dyn SourceSettings>>>,
    destinations: Arc<Vec<Entry<dyn DestinationSettings>>>,
    transforms: Arc<Vec<Entry<dyn TransformSettings>>>,
}

/// Connectors that are known only when the program runs.
#[derive(Default)]
pub struct Found {
    /// Sources.
    pub sources: Vec<Entry<dyn SourceSettings>>,
    /// Destinations.
    pub destinations: Vec<Entry<dyn DestinationSettings>>,
    /// Transforms.
    pub transforms: Vec<Entry<dyn TransformSettings>>,
}

impl Registry {
    /// Adds a source, or replaces the source of the same name.
    #[must_use]
    pub fn source<S>(self, name: &'static str) -> Self
    where
        S: SourceSettings + DeserializeOwned + JsonSchema + 'static,
    {
        self.source_with::<S, Infallible>(name, |_| Ok(()))
    }

    /// Adds a source as [`source`](Self::source) does. `prepare` completes settings that were read
    /// with what the program knows, such as its environment; its error is one of the file.
    #[must_use]
    pub fn source_with<S, E>(
        mut self,
        name: &'static str,
        prepare: impl Fn(&mut S) -> Result<(), E> + Send + Sync + 'static,
    ) -> Self
    where
        S: SourceSettings + DeserializeOwned + JsonSchema + 'static,
        E: fmt::Display,
    {
        let read: Read<dyn SourceSettings> =
            Arc::new(move |from| Ok(Box::new(read_with(from, &prepare)?)));
        let schema = Arc::new(SchemaGenerator::subschema_for::<S>);
        put(&mut self.sources, Entry { name: name.into(), read, schema });
        self
    }

    /// Adds sources, destinations and transforms that are known only when the program runs.
    #[must_use]
    pub fn with(mut self, found: Found) -> Self {
        found.sources.into_iter().for_each(|entry| put(&mut self.sources, entry));
        found.destinations.into_iter().for_each(|entry| put(&mut self.destinations, entry));
        found.transforms.into_iter().for_each(|entry| put(&mut self.transforms, entry));
        self
    }

    /// Adds a destination, or replaces the destination of the same name.
    #[must_use]
    pub fn destination<D>(self, name: &'static str) -> Self
    where
        D: DestinationSettings + DeserializeOwned + JsonSchema + 'static,
    {
        self.destination_with::<D, Infallible>(name, |_| Ok(()))
    }

    /// Adds a destination; `prepare` is that of [`source_with`](Self::source_with).
    #[must_use]
    pub fn destination_with<D, E>(
        mut self,
        name: &'static str,
        prepare: impl Fn(&mut D) -> Result<(), E> + Send + Sync + 'static,
    ) -> Self
    where
        D: DestinationSettings + DeserializeOwned + JsonSchema + 'static,
        E: fmt::Display,
    {
        let read: Read<dyn DestinationSettings> =
            Arc::new(move |from| Ok(Box::new(read_with(from, &prepare)?)));
        let schema = Arc::new(SchemaGenerator::subschema_for::<D>);
        put(&mut self.destinations, Entry { name: name.into(), read, schema });
        self
    }

    /// Names of the sources, in the order in which they were added.
    pub fn source_names(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().map(|entry| &*entry.name)
    }

    /// Names of the destinations, in the order in which they were added.
    pub fn destination_names(&self) -> impl Iterator<Item = &str> {
        self.destinations.iter().map(|entry| &*entry.name)
    }

    /// The sources.
    #[must_use]
    pub fn sources(&self) -> &[Entry<dyn SourceSettings>] {
        &self.sources
    }

    /// The destinations.
    #[must_use]
    pub fn destinations(&self) -> &[Entry<dyn DestinationSettings>] {
        &self.destinations
    }

    /// The transforms.
    #[must_use]
    pub fn transforms(&self) -> &[Entry<dyn TransformSettings>] {
        &self.transforms
    }
}

/// Describes settings.
pub type Describe = Arc<dyn Fn(&mut SchemaGenerator) -> Schema + Send + Sync>;

/// Reads settings.
pub type Read<C> = Arc<
    dyn Fn(&mut dyn erased_serde::Deserializer<'_>) -> Result<Box<C>, erased_serde::Error>
        + Send
        + Sync,
>;

/// Reads settings and completes them.
fn read_with<S: DeserializeOwned, E: fmt::Display>(
    from: &mut dyn erased_serde::Deserializer<'_>,
    prepare: &impl Fn(&mut S) -> Result<(), E>,
) -> Result<S, erased_serde::Error> {
    let mut settings = erased_serde::deserialize::<S>(from)?;
    prepare(&mut settings).map_err(de::Error::custom)?;
    Ok(settings)
}

/// A connector: its name, and how its settings are read and described.
pub struct Entry<C: ?Sized> {
    /// The value of `use`.
    pub name: Cow<'static, str>,
    /// Reads its settings.
    pub read: Read<C>,
    /// Describes its settings.
    pub schema: Describe,
}

impl<C: ?Sized> Clone for Entry<C> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            read: Arc::clone(&self.read),
            schema: Arc::clone(&self.schema),
        }
    }
}

impl<'de, C: ?Sized> DeserializeSeed<'de> for &Entry<C> {
    type Value = Box<C>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Box<C>, D::Error> {
        let mut from = <dyn erased_serde::Deserializer<'_>>::erase(from);
        (self.read)(&mut from).map_err(de::Error::custom)
    }
}

fn put<C: ?Sized>(entries: &mut Arc<Vec<Entry<C>>>, new: Entry<C>) {
    let entries = Arc::make_mut(entries);
    match entries.iter_mut().find(|entry| entry.name == new.name) {
        Some(entry) => *entry = new,
        None => entries.push(new),
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("sources", &self.source_names().collect::<Vec<_>>())
            .field("destinations", &self.destination_names().collect::<Vec<_>>())
            .finish()
    }
}
