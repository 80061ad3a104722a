//! The two sections that say `use: CONNECTOR` and then have that connector's own `config`.
//!
//! Read by hand, so that an error in `config` still knows its line: what serde makes of a tagged enum
//! reads it into a buffer first, without places.

use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, de::DeserializeOwned};

use super::permissions::{Limits, Permissions, Reach};
use super::text::take_names;
use super::{LoadMethod, OnDataError, SchemaEvolution, StreamSettings, WriteMode};
use crate::native::{DestinationSettings, SourceSettings};

/// Settings of one of several connectors, chosen by name.
pub(crate) trait Chosen: Sized {
    /// What they are settings of: `source`.
    const WHAT: &'static str;
    /// The names there are.
    const NAMES: &'static [&'static str];

    /// Reads the settings of the connector of this name, one of [`NAMES`](Self::NAMES).
    fn read<'de, D: Deserializer<'de>>(name: &str, from: D) -> Result<Self, D::Error>;

    /// What these settings lead to.
    fn reach(&self) -> Reach;

    /// What may stand in the settings of the connector of this name.
    fn schema(name: &str, generator: &mut SchemaGenerator) -> Schema;
}

/// Where rows come from.
#[derive(Debug, Clone)]
pub struct SourceSection {
    /// What `use` says.
    pub uses: String,
    /// How much the connector may take.
    pub limits: Limits,
    /// The connector and its settings.
    pub connector: SourceSettings,
    /// What is read.
    pub streams: Vec<StreamSettings>,
}

/// Where rows go.
#[derive(Debug, Clone)]
pub struct DestinationSection {
    /// What `use` says.
    pub uses: String,
    /// How much the connector may take.
    pub limits: Limits,
    /// The connector and its settings.
    pub connector: DestinationSettings,
    /// How rows meet those that are there.
    pub write_mode: WriteMode,
    /// The key for `upsert`.
    pub primary_key: Vec<String>,
    /// What happens with rows that are not taken.
    pub on_data_error: OnDataError,
    /// How the destination follows the source's columns.
    pub schema_evolution: SchemaEvolution,
    /// How rows are handed to a database.
    pub load_method: LoadMethod,
}

/// What may stand beside `use` and `config` of a source.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SourceRest {
    /// What the connector may reach.
    #[serde(default)]
    permissions: Permissions,
    /// How much it may take.
    #[serde(default)]
    limits: Limits,
    /// What is read.
    streams: Vec<StreamSettings>,
}

/// What may stand beside `use` and `config` of a destination.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DestinationRest {
    /// What the connector may reach.
    #[serde(default)]
    permissions: Permissions,
    /// How much it may take.
    #[serde(default)]
    limits: Limits,
    /// How rows meet those that are there.
    #[serde(default)]
    write_mode: WriteMode,
    /// The key for `upsert`.
    #[serde(default)]
    primary_key: Vec<String>,
    /// What happens with rows that are not taken.
    #[serde(default)]
    on_data_error: OnDataError,
    /// How the destination follows the source's columns.
    #[serde(default)]
    schema_evolution: SchemaEvolution,
    /// How rows are handed to a database.
    #[serde(default)]
    load_method: LoadMethod,
}

impl<'de> Deserialize<'de> for SourceSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let section = Section::<_, SourceRest>(PhantomData);
        let (uses, connector, rest) = deserializer.deserialize_map(section)?;
        Ok(Self { uses, limits: rest.limits, connector, streams: rest.streams })
    }
}

impl<'de> Deserialize<'de> for DestinationSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let section = Section::<_, DestinationRest>(PhantomData);
        let (uses, connector, rest) = deserializer.deserialize_map(section)?;
        Ok(Self {
            uses,
            limits: rest.limits,
            connector,
            write_mode: rest.write_mode,
            primary_key: rest.primary_key,
            on_data_error: rest.on_data_error,
            schema_evolution: rest.schema_evolution,
            load_method: rest.load_method,
        })
    }
}

/// What stands beside `use` and `config`.
trait Rest: DeserializeOwned {
    fn permissions(&self) -> &Permissions;
}

impl Rest for SourceRest {
    fn permissions(&self) -> &Permissions {
        &self.permissions
    }
}

impl Rest for DestinationRest {
    fn permissions(&self) -> &Permissions {
        &self.permissions
    }
}

/// Reads `use`, `config` and the rest.
struct Section<C, R>(PhantomData<(C, R)>);

impl<'de, C: Chosen, R: Rest> Visitor<'de> for Section<C, R> {
    type Value = (String, C, R);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {} with `use` and `config`", C::WHAT)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut name: Option<String> = None;
        let mut connector = None;
        let mut names = Vec::new();
        let mut rest = serde_json::Map::new();
        while let Some(key) = map.next_key::<String>()? {
            match (key.as_str(), &name) {
                ("use", None) => {
                    let said: String = map.next_value()?;
                    if !C::NAMES.contains(&said.as_str()) {
                        let names = C::NAMES.join(", ");
                        return Err(de::Error::custom(format_args!(
                            "no {} is called {said:?}; there are {names}",
                            C::WHAT
                        )));
                    }
                    name = Some(said);
                }
                ("config", Some(name)) if connector.is_none() => {
                    take_names();
                    connector = Some(map.next_value_seed(Named::<C>(name, PhantomData))?);
                    names = take_names();
                }
                ("config", None) => {
                    return Err(de::Error::custom("`use` must stand before `config`"));
                }
                ("use" | "config", _) => {
                    return Err(de::Error::custom(format_args!("`{key}` stands here twice")));
                }
                _ => {
                    let value = map.next_value()?;
                    if rest.insert(key.clone(), value).is_some() {
                        return Err(de::Error::custom(format_args!("`{key}` stands here twice")));
                    }
                }
            }
        }
        let name = name.ok_or_else(|| de::Error::missing_field("use"))?;
        let connector = match connector {
            Some(connector) => connector,
            // A connector may do without any.
            None => C::read(&name, serde_json::Value::Object(serde_json::Map::new()))
                .map_err(|error| de::Error::custom(format_args!("without `config`: {error}")))?,
        };
        let rest: R = serde_path_to_error::deserialize(serde_json::Value::Object(rest))
            .map_err(|error| in_field(&error))?;
        let checked = rest.permissions().check(&connector.reach(), &names);
        checked.map_err(|(field, found)| {
            de::Error::custom(format_args!("`permissions.{field}` of the {} {found}", C::WHAT))
        })?;
        Ok((name, connector, rest))
    }
}

/// What is wrong, with the field it is wrong in.
fn in_field<E: de::Error>(error: &serde_path_to_error::Error<serde_json::Error>) -> E {
    match error.path().to_string().as_str() {
        "." => E::custom(error.inner()),
        field => E::custom(format_args!("{field}: {}", error.inner())),
    }
}

/// Reads the settings of the connector of a name.
struct Named<'a, C>(&'a str, PhantomData<C>);

impl<'de, C: Chosen> DeserializeSeed<'de> for Named<'_, C> {
    type Value = C;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<C, D::Error> {
        C::read(self.0, deserializer)
    }
}

impl JsonSchema for SourceSection {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Source".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        section_schema::<SourceSettings, SourceRest>(generator)
    }
}

impl JsonSchema for DestinationSection {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Destination".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        section_schema::<DestinationSettings, DestinationRest>(generator)
    }
}

/// The fields of the rest, `use`, and for each connector what its `config` may be.
fn section_schema<C: Chosen, R: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = R::json_schema(generator);
    let choices: Vec<_> = C::NAMES
        .iter()
        .map(|name| {
            let config = C::schema(name, generator);
            json_schema!({
                "if": { "properties": { "use": { "const": name } } },
                "then": { "properties": { "config": config } },
            })
        })
        .collect();
    if let Some(properties) =
        schema.ensure_object().get_mut("properties").and_then(serde_json::Value::as_object_mut)
    {
        let names = C::NAMES;
        properties.insert("use".into(), serde_json::json!({ "enum": names }));
        properties.insert("config".into(), serde_json::json!({ "type": "object" }));
    }
    let object = schema.ensure_object();
    object.insert("allOf".into(), choices.into_iter().map(Schema::to_value).collect());
    let required = object.entry("required").or_insert_with(|| serde_json::json!([]));
    if let Some(required) = required.as_array_mut() {
        required.push("use".into());
    }
    schema
}
