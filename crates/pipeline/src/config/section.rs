//! The two sections with `use: CONNECTOR` and that connector's `config`.
//!
//! Deserialized by hand, so that an error in `config` still has its line: serde reads a tagged enum
//! into a buffer first, without positions.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use forebay_sdk::registry::{DestinationSettings, Entry, Permitted, Registry, SourceSettings};
use forebay_sdk::settings::text::take_names;
use forebay_sdk::settings::{
    DeletedRows, FeedForm, LoadMethod, OnDataError, OnLost, SchemaEvolution, StreamSettings,
    Within, WriteMode,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, de::DeserializeOwned};

use super::aside::{Aside, Values};
use super::in_use::{Kind, current};
use super::permissions::{Limits, Permissions};

/// Where rows are read from.
#[derive(Debug, Clone)]
pub struct SourceSection {
    /// The value of `use`.
    pub uses: String,
    /// Limits on the connector.
    pub limits: Limits,
    /// The connector and its settings.
    pub connector: Arc<dyn SourceSettings>,
    /// Streams to read.
    pub streams: Vec<StreamSettings>,
    /// What to do when changes are lost, for `cdc`.
    pub on_lost: OnLost,
}

/// Where rows are written to.
#[derive(Debug, Clone)]
pub struct DestinationSection {
    /// The value of `use`.
    pub uses: String,
    /// Limits on the connector.
    pub limits: Limits,
    /// The connector and its settings.
    pub connector: Arc<dyn DestinationSettings>,
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
    /// What becomes of deleted rows, for `cdc`.
    pub deleted_rows: DeletedRows,
}

impl DestinationSection {
    /// What changes become, if they are followed.
    #[must_use]
    pub fn feed_form(&self) -> FeedForm {
        match (self.write_mode, self.deleted_rows) {
            (WriteMode::Append, _) => FeedForm::Log,
            (_, DeletedRows::Mark) => FeedForm::Mark,
            (_, DeletedRows::Delete) => FeedForm::Apply,
        }
    }
}

/// Fields of a source besides `use` and `config`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SourceRest {
    /// Whether the component of this name is used instead of the built-in connector.
    #[serde(default)]
    #[expect(
        dead_code,
        reason = "it is read before the section is, since it decides who reads `config`"
    )]
    sandbox: bool,
    /// What the connector may access.
    #[serde(default)]
    permissions: Permissions,
    /// Limits on the connector.
    #[serde(default)]
    limits: Limits,
    /// Streams to read.
    streams: Vec<StreamSettings>,
    /// What to do when the source no longer has the changes that follow, for `cdc`.
    #[serde(default)]
    on_lost: OnLost,
}

/// Fields of a destination besides `use` and `config`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DestinationRest {
    /// Whether the component of this name is used instead of the built-in connector.
    #[serde(default)]
    #[expect(
        dead_code,
        reason = "it is read before the section is, since it decides who reads `config`"
    )]
    sandbox: bool,
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
    /// What becomes of a row that is deleted at the source, for `cdc` with `upsert`.
    #[serde(default)]
    deleted_rows: DeletedRows,
}

/// Sources whose streams are tables in schemas: the part after the dot is a name, whatever it looks like.
const QUALIFIED: [&str; 2] = ["mysql", "postgres"];

/// Names the target of a stream whose table is called like the ending of a file, such as `public.json`.
fn name_table(stream: &mut StreamSettings) {
    let Some((schema, table)) = stream.name.rsplit_once('.') else { return };
    if stream.into.is_none() && stream.target() == schema {
        stream.into = Some(table.to_owned());
    }
}

impl<'de> Deserialize<'de> for SourceSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let section = Section::<dyn SourceSettings, SourceRest>::current();
        let (uses, connector, mut rest) = deserializer.deserialize_map(section)?;
        if QUALIFIED.contains(&uses.strip_prefix("wasm:").unwrap_or(&uses)) {
            rest.streams.iter_mut().for_each(name_table);
        }
        Ok(Self {
            uses,
            limits: rest.limits,
            connector: connector.into(),
            streams: rest.streams,
            on_lost: rest.on_lost,
        })
    }
}

impl<'de> Deserialize<'de> for DestinationSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let section = Section::<dyn DestinationSettings, DestinationRest>::current();
        let (uses, connector, rest) = deserializer.deserialize_map(section)?;
        Ok(Self {
            uses,
            limits: rest.limits,
            connector: connector.into(),
            write_mode: rest.write_mode,
            primary_key: rest.primary_key,
            on_data_error: rest.on_data_error,
            schema_evolution: rest.schema_evolution,
            load_method: rest.load_method,
            deleted_rows: rest.deleted_rows,
        })
    }
}

/// The fields besides `use` and `config`.
trait Rest: DeserializeOwned {
    /// Those that may also be in `config`, where other tools write them.
    const IN_CONFIG: &'static [&'static str];

    fn permissions(&self) -> &Permissions;

    fn limits(&self) -> &Limits;
}

impl Rest for SourceRest {
    const IN_CONFIG: &'static [&'static str] = &[];

    fn permissions(&self) -> &Permissions {
        &self.permissions
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }
}

impl Rest for DestinationRest {
    const IN_CONFIG: &'static [&'static str] = &["load_method"];

    fn permissions(&self) -> &Permissions {
        &self.permissions
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }
}

/// Reads `use`, `config` and the remaining fields.
struct Section<C: ?Sized, R> {
    registry: Registry,
    kind: PhantomData<(Box<C>, R)>,
}

impl<C: Kind + ?Sized, R> Section<C, R> {
    fn current() -> Self {
        Self { registry: current(), kind: PhantomData }
    }

    /// The connector of this name.
    fn find<E: de::Error>(&self, name: &str) -> Result<&Entry<C>, E> {
        let entries = C::entries(&self.registry);
        entries.iter().find(|entry| entry.name == name).ok_or_else(|| {
            let names: Vec<_> = entries.iter().map(|entry| &*entry.name).collect();
            let (section, names) = (C::SECTION, names.join(", "));
            match name.strip_prefix("wasm:") {
                Some(component) => E::custom(format_args!(
                    "no component {component:?} with the role {section} is installed; list them with `forebay connector list`"
                )),
                None => E::custom(format_args!("unknown {section} {name:?}; use one of {names}")),
            }
        })
    }
}

impl<'de, C: Kind + ?Sized, R: Rest> Visitor<'de> for Section<C, R> {
    type Value = (String, Box<C>, R);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {} with `use` and `config`", C::SECTION)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut chosen: Option<&Entry<C>> = None;
        let mut connector = None;
        let mut names = Vec::new();
        let mut rest = serde_json::Map::new();
        let mut aside = Values::new();
        while let Some(key) = map.next_key::<String>()? {
            match (key.as_str(), chosen) {
                ("use", None) => {
                    let written = map.next_value::<String>()?;
                    // With `sandbox: true`, wherever that is written, another one is meant.
                    let meant = C::used().filter(|meant| meant.ends_with(&written));
                    chosen = Some(self.find(meant.as_ref().unwrap_or(&written))?);
                }
                ("config", _) if connector.is_none() => {
                    let entry = match (chosen, C::used()) {
                        (Some(entry), _) => entry,
                        // It follows.
                        (None, Some(name)) => self.find(&name)?,
                        (None, None) => return Err(de::Error::missing_field("use")),
                    };
                    let (keys, values) = (R::IN_CONFIG, &mut aside);
                    take_names();
                    connector = Some(map.next_value_seed(Aside { seed: entry, keys, values })?);
                    names = take_names();
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
        let entry = chosen.ok_or_else(|| de::Error::missing_field("use"))?;
        for (key, value) in aside {
            if rest.insert(key.clone(), value).is_some() {
                let twice = format_args!("`{key}` is set in `config` and beside it; remove one");
                return Err(de::Error::custom(twice));
            }
        }
        let mut connector = match connector {
            Some(connector) => connector,
            // A connector may work without settings.
            None => entry
                .deserialize(serde_json::Value::Object(serde_json::Map::new()))
                .map_err(|error| de::Error::custom(format_args!("without `config`: {error}")))?,
        };
        let rest: R = serde_path_to_error::deserialize(serde_json::Value::Object(rest))
            .map_err(|error| in_field(&error))?;
        connector.check().map_err(|error| de::Error::custom(format_args!("config: {error}")))?;
        let checked = rest.permissions().check(&connector.reach(), &names);
        checked.map_err(|(field, found)| {
            de::Error::custom(format_args!("`permissions.{field}` of the {} {found}", C::SECTION))
        })?;
        if let Some(permitted) = &rest.permissions().fs.allowed_preopens {
            connector.confine(Within::new(permitted));
        }
        connector.grant(&Permitted {
            hosts: rest.permissions().network.allowed_hosts.as_deref(),
            paths: rest.permissions().fs.allowed_preopens.as_deref(),
            memory: rest.limits().max_memory.map(|memory| memory.0),
        });
        Ok((entry.name.clone().into_owned(), connector, rest))
    }
}

/// Prefixes an error with the field it concerns.
fn in_field<E: de::Error>(error: &serde_path_to_error::Error<serde_json::Error>) -> E {
    match error.path().to_string().as_str() {
        "." => E::custom(error.inner()),
        field => E::custom(format_args!("{field}: {}", error.inner())),
    }
}

impl JsonSchema for SourceSection {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Source".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        section_schema::<dyn SourceSettings, SourceRest>(generator)
    }
}

impl JsonSchema for DestinationSection {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Destination".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        section_schema::<dyn DestinationSettings, DestinationRest>(generator)
    }
}

/// The schema of the remaining fields, of `use`, and of `config` for each connector.
fn section_schema<C: Kind + ?Sized, R: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = R::json_schema(generator);
    let registry = current();
    let entries = C::entries(&registry);
    let names: Vec<_> = entries.iter().map(|entry| &*entry.name).collect();
    let choices: Vec<_> = entries
        .iter()
        .map(|Entry { name, schema, .. }| {
            let config = schema(generator);
            json_schema!({
                "if": { "properties": { "use": { "const": name } } },
                "then": { "properties": { "config": config } },
            })
        })
        .collect();
    if let Some(properties) =
        schema.ensure_object().get_mut("properties").and_then(serde_json::Value::as_object_mut)
    {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_called_like_the_ending_of_a_file_keeps_its_name() {
        for (name, target) in [
            ("public.json", "json"),
            ("shop.csv", "csv"),
            ("public.orders", "orders"),
            ("json", "json"),
            ("public.\"a.csv\"", "\"a.csv\""),
        ] {
            let mut stream: StreamSettings =
                serde_json::from_value(serde_json::json!({ "name": name })).unwrap();
            name_table(&mut stream);
            assert_eq!(stream.target(), target, "{name}");
        }
        let given = serde_json::json!({ "name": "public.json", "into": "documents" });
        let mut stream: StreamSettings = serde_json::from_value(given).unwrap();
        name_table(&mut stream);
        assert_eq!(stream.target(), "documents");
    }
}
