//! The two sections with `use: CONNECTOR` and that connector's `config`.
//!
//! Deserialized by hand, so that an error in `config` still has its line: serde reads a tagged enum
//! into a buffer first, without positions.

use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, de::DeserializeOwned};

use super::permissions::{Limits, Permissions, Reach};
use super::text::take_names;
use super::within::Within;
use super::{LoadMethod, OnDataError, SchemaEvolution, StreamSettings, WriteMode};
use crate::native::{DestinationSettings, SourceSettings};

/// Settings of one of several connectors, chosen by name.
pub(crate) trait Chosen: Sized {
    /// The section they belong to: `source`.
    const WHAT: &'static str;
    /// The names of all connectors.
    const NAMES: &'static [&'static str];

    /// Reads the settings of the connector with this name, one of [`NAMES`](Self::NAMES).
    fn read<'de, D: Deserializer<'de>>(name: &str, from: D) -> Result<Self, D::Error>;

    /// What these settings refer to.
    fn reach(&self) -> Reach;

    /// Restricts files to those that are permitted.
    fn confine(&mut self, within: Within);

    /// JSON Schema of the settings of the connector with this name.
    fn schema(name: &str, generator: &mut SchemaGenerator) -> Schema;
}

/// Where rows are read from.
#[derive(Debug, Clone)]
pub struct SourceSection {
    /// The value of `use`.
    pub uses: String,
    /// Limits on the connector.
    pub limits: Limits,
    /// The connector and its settings.
    pub connector: SourceSettings,
    /// Streams to read.
    pub streams: Vec<StreamSettings>,
}

/// Where rows are written to.
#[derive(Debug, Clone)]
pub struct DestinationSection {
    /// The value of `use`.
    pub uses: String,
    /// Limits on the connector.
    pub limits: Limits,
    /// The connector and its settings.
    pub connector: DestinationSettings,
    /// How rows are combined with existing rows.
    pub write_mode: WriteMode,
    /// Key columns for `upsert`.
    pub primary_key: Vec<String>,
    /// What to do with refused rows.
    pub on_data_error: OnDataError,
    /// How the destination follows changes of the source's columns.
    pub schema_evolution: SchemaEvolution,
    /// How rows are sent to a database.
    pub load_method: LoadMethod,
}

/// Fields of a source besides `use` and `config`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SourceRest {
    /// What the connector may access.
    #[serde(default)]
    permissions: Permissions,
    /// Limits on the connector.
    #[serde(default)]
    limits: Limits,
    /// Streams to read.
    streams: Vec<StreamSettings>,
}

/// Fields of a destination besides `use` and `config`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DestinationRest {
    /// What the connector may access.
    #[serde(default)]
    permissions: Permissions,
    /// Limits on the connector.
    #[serde(default)]
    limits: Limits,
    /// How rows are combined with existing rows.
    #[serde(default)]
    write_mode: WriteMode,
    /// Key columns for `upsert`.
    #[serde(default)]
    primary_key: Vec<String>,
    /// What to do with refused rows.
    #[serde(default)]
    on_data_error: OnDataError,
    /// How the destination follows changes of the source's columns.
    #[serde(default)]
    schema_evolution: SchemaEvolution,
    /// How rows are sent to a database.
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

/// The fields besides `use` and `config`.
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

/// Reads `use`, `config` and the remaining fields.
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
                            "unknown {} {said:?}; use one of {names}",
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
                    return Err(de::Error::custom("`use` must precede `config`"));
                }
                ("use" | "config", _) => {
                    return Err(de::Error::custom(format_args!("duplicate field `{key}`")));
                }
                _ => {
                    let value = map.next_value()?;
                    if rest.insert(key.clone(), value).is_some() {
                        return Err(de::Error::custom(format_args!("duplicate field `{key}`")));
                    }
                }
            }
        }
        let name = name.ok_or_else(|| de::Error::missing_field("use"))?;
        let mut connector = match connector {
            Some(connector) => connector,
            // A connector may work without settings.
            None => C::read(&name, serde_json::Value::Object(serde_json::Map::new()))
                .map_err(|error| de::Error::custom(format_args!("without `config`: {error}")))?,
        };
        let rest: R = serde_path_to_error::deserialize(serde_json::Value::Object(rest))
            .map_err(|error| in_field(&error))?;
        let checked = rest.permissions().check(&connector.reach(), &names);
        checked.map_err(|(field, found)| {
            de::Error::custom(format_args!("`permissions.{field}` of the {} {found}", C::WHAT))
        })?;
        if let Some(permitted) = &rest.permissions().fs.allowed_preopens {
            connector.confine(Within::new(permitted));
        }
        Ok((name, connector, rest))
    }
}

/// Prefixes an error with the field it concerns.
fn in_field<E: de::Error>(error: &serde_path_to_error::Error<serde_json::Error>) -> E {
    match error.path().to_string().as_str() {
        "." => E::custom(error.inner()),
        field => E::custom(format_args!("{field}: {}", error.inner())),
    }
}

/// Reads the settings of the connector with this name.
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

/// The schema of the remaining fields, of `use`, and of `config` for each connector.
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
