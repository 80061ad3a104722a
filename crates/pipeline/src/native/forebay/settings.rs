//! What the pipeline file says of a Forebay to be read.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::permissions::Reach;
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

impl Settings {
    /// What these settings lead to.
    pub(crate) fn reach(&self) -> Reach {
        let url: Option<reqwest::Url> = self.url.0.parse().ok();
        let host =
            url.as_ref().and_then(|url| Some((url.host_str()?, url.port_or_known_default())));
        let reach = host.map_or_else(Reach::default, |(host, port)| Reach::host(host, port));
        reach.and_file(self.tls_ca_file.as_ref())
    }
}
