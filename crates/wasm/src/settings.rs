//! Settings of components in a pipeline file.
//!
//! They are any JSON, in whose texts names are replaced by their values; the component checks them, in an instance that
//! reaches nothing.
//!
//! Invariant: a component gets no settings that it did not accept.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use forebay_base::ServerError;
use forebay_pgcopy::Column;
use forebay_sdk::ConnectorError;
use forebay_sdk::connector::{Destination, Result, Source};
use forebay_sdk::registry::{
    ConnectorSettings, DestinationSettings, Entry, Found, Permitted, SourceSettings,
};
use forebay_sdk::settings::text::resolve_text;
use forebay_sdk::settings::{Evolves, Reach};
use forebay_sdk::transform::{Applied, Position, Transform, TransformSettings};
use serde::Deserialize as _;
use serde::de::Error as _;

use crate::destination::WasmDestination;
use crate::grants::Grants;
use crate::inspect::DestinationRole;
use crate::installed::{Connectors, Manifest};
use crate::instance::{Loaded, instantiate};
use crate::source::WasmSource;
use crate::transform::WasmTransform;
use crate::wit::destination_world::DestinationConnector;
use crate::wit::source_world::SourceConnector;
use crate::wit::transform_world::TransformConnector;
use crate::wit::types;

/// Runs a future that needs no connection, on a separate thread: settings are read where nothing may wait.
pub(crate) fn block_on<T: Send>(future: impl Future<Output = Result<T>> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| ConnectorError::Refused {
                act: "ask a connector about its settings".into(),
                source: error.into(),
            })?;
            runtime.block_on(future)
        });
        match running.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// A role, as it is asked about settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Source,
    Destination,
    Transform,
}

/// Settings that a component accepted.
#[derive(Clone)]
struct Settings {
    loaded: Loaded,
    config: Arc<str>,
    reach: Reach,
    grants: Grants,
    destination: Option<DestinationRole>,
}

/// Without the settings, which may have secrets.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("component", &self.loaded.name).finish_non_exhaustive()
    }
}

impl Settings {
    /// The component with what it may reach.
    fn granted(&self) -> Loaded {
        let mut grants = self.grants.clone();
        grants.settle(&self.reach);
        self.loaded.granted(grants)
    }

    /// Reads settings, and has them checked.
    fn read(
        connectors: &Connectors,
        manifest: &Manifest,
        asked: Asked,
        from: &mut dyn erased_serde::Deserializer<'_>,
    ) -> Result<Self, erased_serde::Error> {
        let value = serde_json::Value::deserialize(from)?;
        let value = resolved(value).map_err(erased_serde::Error::custom)?;
        let config: Arc<str> = value.to_string().into();
        let loaded = connectors.load(&manifest.name, Grants::default()).map_err(|error| {
            erased_serde::Error::custom(forebay_base::error_chain::chain(&error))
        })?;
        let checked = block_on(validate(&loaded, asked, &config)).map_err(|error| {
            erased_serde::Error::custom(forebay_base::error_chain::chain(&error))
        })?;
        let reach = checked.map_err(|invalid| {
            let found = forebay_base::printable::printable(&invalid.found).to_string();
            let field = forebay_base::printable::printable(&invalid.field).to_string();
            erased_serde::Error::custom(if field.is_empty() {
                found
            } else {
                format!("{field}: {found}")
            })
        })?;
        Ok(Self {
            loaded,
            config,
            reach: Reach {
                hosts: reach.hosts,
                paths: reach.paths.into_iter().map(Into::into).collect(),
            },
            grants: Grants::default(),
            destination: manifest.roles.destination.clone(),
        })
    }
}

/// Replaces the names in all texts.
pub(crate) fn resolved(value: serde_json::Value) -> Result<serde_json::Value, String> {
    use serde_json::Value;
    Ok(match value {
        Value::String(text) => Value::String(resolve_text(text)?),
        Value::Array(values) => {
            Value::Array(values.into_iter().map(resolved).collect::<Result<_, _>>()?)
        }
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| Ok((name, resolved(value)?)));
            Value::Object(fields.collect::<Result<_, String>>()?)
        }
        other => other,
    })
}

/// Has settings checked by the component.
pub(crate) async fn validate(
    loaded: &Loaded,
    asked: Asked,
    config: &str,
) -> Result<Result<types::Reach, types::InvalidSetting>> {
    let returned = match asked {
        Asked::Source => {
            let mut instance = instantiate!(loaded, None, SourceConnector)?;
            let source = instance.world.forebay_connector_source();
            source.call_validate(&mut instance.store, config).await
        }
        Asked::Destination => {
            let mut instance = instantiate!(loaded, None, DestinationConnector)?;
            let destination = instance.world.forebay_connector_destination();
            destination.call_validate(&mut instance.store, config).await
        }
        Asked::Transform => {
            let mut instance = instantiate!(loaded, None, TransformConnector)?;
            let transform = instance.world.forebay_connector_transform();
            transform.call_validate(&mut instance.store, config).await
        }
    };
    returned.map_err(|error| loaded.trapped("check settings", &error))
}

impl ConnectorSettings for Settings {
    fn check(&self) -> Result<(), ServerError> {
        Ok(())
    }

    fn reach(&self) -> Reach {
        self.reach.clone()
    }

    fn grant(&mut self, permitted: &Permitted<'_>) {
        let default = Grants::default();
        self.grants.hosts = permitted.hosts.map(<[_]>::to_vec).unwrap_or_default();
        self.grants.paths = permitted.paths.map(<[_]>::to_vec).unwrap_or_default();
        let memory = permitted.memory.map(|memory| usize::try_from(memory).unwrap_or(usize::MAX));
        self.grants.memory = memory.unwrap_or(default.memory);
    }
}

impl SourceSettings for Settings {
    fn source(&self) -> Arc<dyn Source> {
        Arc::new(WasmSource::new(self.granted(), Arc::clone(&self.config)))
    }
}

impl DestinationSettings for Settings {
    fn destination(&self) -> Arc<dyn Destination> {
        let form = self
            .destination
            .as_ref()
            .map_or(forebay_sdk::connector::Form::PlainRecords, DestinationRole::form);
        Arc::new(WasmDestination::new(self.granted(), Arc::clone(&self.config), form))
    }

    fn evolves(&self) -> Evolves {
        let Some(role) = &self.destination else { return Evolves::default() };
        let evolves = role.evolves.clone();
        // A pipeline file is read a few times in the life of a process.
        Evolves {
            new_column: evolves.new_column.leak(),
            removed_column: evolves.removed_column.leak(),
            type_change: evolves.type_change.leak(),
            nullability_change: evolves.nullability_change.leak(),
            on_replace: evolves.on_replace,
        }
    }
}

#[async_trait]
impl TransformSettings for Settings {
    async fn transform(&self, stream: &str, columns: &[Column]) -> Result<Arc<dyn Transform>> {
        let config = Arc::clone(&self.config);
        Ok(Arc::new(WasmTransform::open(self.granted(), config, stream, columns).await?))
    }
}

#[async_trait]
impl Transform for WasmTransform {
    fn columns(&self) -> &[Column] {
        self.columns()
    }

    fn is_stable(&self) -> bool {
        self.is_stable()
    }

    fn note(&self) -> String {
        self.note().to_owned()
    }

    async fn apply(
        &self,
        position: Position<'_>,
        records: arrow::array::RecordBatch,
    ) -> Result<Applied> {
        self.apply(position, &records).await
    }
}

/// Adds the roles of a component.
pub(crate) fn add(connectors: &Connectors, manifest: &Arc<Manifest>, found: &mut Found) {
    let name = || format!("wasm:{}", manifest.name).into();
    let of = |asked| {
        let (connectors, manifest) = (connectors.clone(), Arc::clone(manifest));
        move |from: &mut dyn erased_serde::Deserializer<'_>| {
            Settings::read(&connectors, &manifest, asked, from)
        }
    };
    if let Some(role) = &manifest.roles.source {
        let (read, schema) = (of(Asked::Source), role.schema());
        found.sources.push(Entry {
            name: name(),
            read: Arc::new(move |from| Ok(Box::new(read(from)?))),
            schema: Arc::new(move |_| schema.clone()),
        });
    }
    if let Some(destination) = &manifest.roles.destination {
        let (read, schema) = (of(Asked::Destination), destination.role.schema());
        found.destinations.push(Entry {
            name: name(),
            read: Arc::new(move |from| Ok(Box::new(read(from)?))),
            schema: Arc::new(move |_| schema.clone()),
        });
    }
    if let Some(role) = &manifest.roles.transform {
        let (read, schema) = (of(Asked::Transform), role.schema());
        found.transforms.push(Entry {
            name: name(),
            read: Arc::new(move |from| Ok(Box::new(read(from)?))),
            schema: Arc::new(move |_| schema.clone()),
        });
    }
}
