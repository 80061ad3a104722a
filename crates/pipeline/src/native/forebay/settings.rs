//! What the pipeline file says of a Forebay to be read.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::{Secret, Text};

/// How a server is reached.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Its address: `https://host:port`.
    pub url: Text,
    /// A key that may read.
    #[serde(default)]
    pub key: Option<Secret>,
    /// A file of certificates (PEM) to be trusted instead of the system's.
    #[serde(default)]
    pub tls_ca_file: Option<Text>,
    /// Whether the key is sent over a connection to another machine that is not encrypted.
    #[serde(default)]
    pub allow_http: bool,
    /// Whether events come with `hash`, the hash of their leaf in the log. Finding it takes longer.
    #[serde(default)]
    pub event_hashes: bool,
}
