//! What a component is: its roles, and the settings of each.

use forebay_sdk::ConnectorError;
use forebay_sdk::connector::{Form, Result};
use forebay_sdk::settings::{NewColumn, NullabilityChange, RemovedColumn, TypeChange};
use serde::{Deserialize, Serialize};

use crate::instance::{Loaded, instantiate};
use crate::wit::destination_world::DestinationConnector;
use crate::wit::source_world::SourceConnector;
use crate::wit::transform_world::TransformConnector;
use crate::wit::types::ComponentSpec;

/// The interfaces, as a component exports them.
const SOURCE: &str = "forebay:connector/source@0.1.0";
const DESTINATION: &str = "forebay:connector/destination@0.1.0";
const TRANSFORM: &str = "forebay:connector/transform@0.1.0";
pub(crate) const CHANGE_SOURCE: &str = "forebay:connector/change-source@0.1.0";
pub(crate) const CHANGE_TARGET: &str = "forebay:connector/change-target@0.1.0";
/// Bytes of a description, and of a schema.
const TEXT_SIZE_MAX: usize = 1 << 20;

/// A role of a component.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Role {
    /// Its version.
    pub version: String,
    /// What it is for.
    pub description: String,
    /// JSON Schema of its settings.
    pub settings: serde_json::Value,
    /// Whether it reports or applies changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changes: bool,
}

/// A component as a destination.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DestinationRole {
    /// What it is.
    #[serde(flatten)]
    pub role: Role,
    /// The form of rows it prefers.
    form: FormName,
    /// The settings of `schema_evolution` that it honours.
    pub evolves: EvolvesNames,
}

/// A form of rows, as a manifest has it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FormName {
    Tuples,
    Records,
    PlainRecords,
}

impl DestinationRole {
    /// The form of rows it prefers.
    #[must_use]
    pub fn form(&self) -> Form {
        match self.form {
            FormName::Tuples => Form::Tuples,
            FormName::Records => Form::Records,
            FormName::PlainRecords => Form::PlainRecords,
        }
    }
}

/// The settings of `schema_evolution` that a destination honours, besides the defaults.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct EvolvesNames {
    /// For a column that only the source has.
    pub new_column: Vec<NewColumn>,
    /// For a column that only the destination has.
    pub removed_column: Vec<RemovedColumn>,
    /// For a column whose type differs.
    pub type_change: Vec<TypeChange>,
    /// For a column that is nullable only in the source.
    pub nullability_change: Vec<NullabilityChange>,
    /// Whether `replace` compares columns, too.
    pub on_replace: bool,
}

/// The roles of a component.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Roles {
    /// As a source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Role>,
    /// As a destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<DestinationRole>,
    /// As a transform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<Role>,
}

impl Roles {
    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.source.is_none() && self.destination.is_none() && self.transform.is_none()
    }

    /// The names of its roles.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        let roles = [
            ("source", self.source.is_some()),
            ("destination", self.destination.is_some()),
            ("transform", self.transform.is_some()),
        ];
        roles.into_iter().filter_map(|(name, has)| has.then_some(name))
    }
}

fn role(loaded: &Loaded, spec: ComponentSpec, changes: bool) -> Result<Role> {
    let refused = |found: String| {
        Err(ConnectorError::data(format!("the description of {}", loaded.name), found))
    };
    if spec.version.len() + spec.description.len() + spec.settings.len() > TEXT_SIZE_MAX {
        return refused(format!("it has more than {TEXT_SIZE_MAX} bytes"));
    }
    match serde_json::from_str::<serde_json::Value>(&spec.settings) {
        Ok(settings) if settings.is_object() => {
            let printable = |text: &str| forebay_base::printable::printable(text).to_string();
            Ok(Role {
                version: printable(&spec.version),
                description: printable(&spec.description),
                settings,
                changes,
            })
        }
        Ok(_) => refused("its settings are not a JSON Schema".to_owned()),
        Err(error) => refused(format!("its settings are not a JSON Schema: {error}")),
    }
}

/// The roles of a component.
pub(crate) async fn roles(loaded: &Loaded) -> Result<Roles> {
    let mut roles = Roles::default();
    if loaded.exports(SOURCE) {
        let mut instance = instantiate!(loaded, None, SourceConnector)?;
        let source = instance.world.forebay_connector_source();
        let spec = source.call_spec(&mut instance.store).await;
        let spec = spec.map_err(|error| loaded.trapped("describe itself", &error))?;
        roles.source = Some(role(loaded, spec, loaded.exports(CHANGE_SOURCE))?);
    }
    if loaded.exports(DESTINATION) {
        let mut instance = instantiate!(loaded, None, DestinationConnector)?;
        let trapped = |error| loaded.trapped("describe itself", &error);
        let destination = instance.world.forebay_connector_destination();
        let store = &mut instance.store;
        let spec = destination.call_spec(&mut *store).await.map_err(trapped)?;
        let form = destination.call_preferred_form(&mut *store).await.map_err(trapped)?;
        let evolves = destination.call_evolves(&mut *store).await.map_err(trapped)?;
        roles.destination = Some(DestinationRole {
            role: role(loaded, spec, loaded.exports(CHANGE_TARGET))?,
            form: match form.into() {
                Form::Tuples => FormName::Tuples,
                Form::Records => FormName::Records,
                Form::PlainRecords => FormName::PlainRecords,
            },
            evolves: EvolvesNames {
                new_column: evolves.new_column.into_iter().map(Into::into).collect(),
                removed_column: evolves.removed_column.into_iter().map(Into::into).collect(),
                type_change: evolves.type_change.into_iter().map(Into::into).collect(),
                nullability_change: evolves
                    .nullability_change
                    .into_iter()
                    .map(Into::into)
                    .collect(),
                on_replace: evolves.on_replace,
            },
        });
    }
    if loaded.exports(TRANSFORM) {
        let mut instance = instantiate!(loaded, None, TransformConnector)?;
        let transform = instance.world.forebay_connector_transform();
        let spec = transform.call_spec(&mut instance.store).await;
        let spec = spec.map_err(|error| loaded.trapped("describe itself", &error))?;
        roles.transform = Some(role(loaded, spec, false)?);
    }
    Ok(roles)
}
