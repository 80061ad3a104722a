//! `component` of a step: which component, for which stream, with which settings.

use std::fmt;
use std::sync::Arc;

use forebay_base::ByteSize;
use forebay_sdk::registry::Permitted;
use forebay_sdk::transform::TransformSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{self, DeserializeSeed as _, Deserializer};

/// A component that transforms the rows of a stream.
#[derive(Clone)]
pub struct ComponentSettings {
    /// The value of `use`.
    pub uses: String,
    /// Its stream. It may be omitted if there is only one.
    pub stream: Option<String>,
    /// The component and its settings.
    pub transform: Arc<dyn TransformSettings>,
    /// Its settings as text, for the fingerprint of a load. It may have secrets, and is never printed.
    pub(crate) config: String,
}

/// Without the settings, which may have secrets.
impl fmt::Debug for ComponentSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ComponentSettings")
            .field("uses", &self.uses)
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

/// The fields as they are written.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Written {
    /// The component: `wasm:NAME`.
    r#use: String,
    /// The stream whose rows it transforms.
    #[serde(default)]
    stream: Option<String>,
    /// Its settings.
    #[serde(default)]
    config: serde_json::Value,
    /// Maximum size in bytes of its memory.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    max_memory: Option<ByteSize>,
}

impl<'de> Deserialize<'de> for ComponentSettings {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let written = Written::deserialize(from)?;
        let registry = crate::config::registry_in_use();
        let entries = registry.transforms();
        let entry = entries.iter().find(|entry| entry.name == written.r#use).ok_or_else(|| {
            let names: Vec<_> = entries.iter().map(|entry| &*entry.name).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            de::Error::custom(format_args!(
                "unknown component {:?}; installed transforms: {names}",
                written.r#use
            ))
        })?;
        let config = match written.config {
            serde_json::Value::Null => serde_json::json!({}),
            config => config,
        };
        let text = config.to_string();
        let mut transform = entry
            .deserialize(config)
            .map_err(|error| de::Error::custom(format_args!("config: {error}")))?;
        transform.grant(&Permitted {
            hosts: Some(&[]),
            paths: Some(&[]),
            memory: written.max_memory.map(|memory| memory.0),
        });
        Ok(Self {
            uses: written.r#use,
            stream: written.stream,
            transform: transform.into(),
            config: text,
        })
    }
}

impl JsonSchema for ComponentSettings {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Component".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Written::json_schema(generator);
        let registry = crate::config::registry_in_use();
        let choices: Vec<_> = registry
            .transforms()
            .iter()
            .map(|entry| {
                let config = (entry.schema)(generator);
                json_schema!({
                    "if": { "properties": { "use": { "const": entry.name } } },
                    "then": { "properties": { "config": config } },
                })
                .to_value()
            })
            .collect();
        if !choices.is_empty() {
            schema.ensure_object().insert("allOf".into(), choices.into());
        }
        schema
    }
}
