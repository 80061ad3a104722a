//! Settings of a Forebay as a source.

use std::sync::Arc;

use forebay_sdk::connector::Source;
use forebay_sdk::registry::{ConnectorSettings, SourceSettings};
use forebay_sdk::settings::{Reach, Secret, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::ForebaySource;

/// Connection settings of a server.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Address: `https://host:port`. It may contain a password and is never printed in full.
    pub url: Secret,
    /// A key with permission to read.
    #[serde(default)]
    pub key: Option<Secret>,
    /// A file of certificates (PEM) that are trusted instead of the system's.
    #[serde(default)]
    pub tls_ca_file: Option<Text>,
    /// Whether the key may be sent to another machine over an unencrypted connection.
    #[serde(default)]
    pub allow_http: bool,
    /// Whether events have the column `hash`, the hash of their leaf in the log. Computing it takes
    /// longer.
    #[serde(default)]
    pub event_hashes: bool,
}

impl ConnectorSettings for Settings {
    fn reach(&self) -> Reach {
        let url: Option<reqwest::Url> = self.url.expose().parse().ok();
        let host =
            url.as_ref().and_then(|url| Some((url.host_str()?, url.port_or_known_default())));
        let reach = host.map_or_else(Reach::default, |(host, port)| Reach::host(host, port));
        reach.and_file(self.tls_ca_file.as_ref())
    }
}

impl SourceSettings for Settings {
    fn source(&self) -> Arc<dyn Source> {
        Arc::new(ForebaySource::new(self.clone()))
    }
}
