//! Settings of a Forebay as a source and as a destination.

use std::sync::Arc;

use forebay_sdk::connector::{Destination, Source};
use forebay_sdk::registry::{self, ConnectorSettings, SourceSettings};
use forebay_sdk::settings::{Evolves, NewColumn, Reach, RemovedColumn, Secret, Text, TypeChange};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{ForebayDestination, ForebaySource};

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
        reach(&self.url, self.tls_ca_file.as_ref())
    }
}

/// The server and the file that settings name.
fn reach(url: &Secret, tls_ca_file: Option<&Text>) -> Reach {
    let url: Option<reqwest::Url> = url.expose().parse().ok();
    let host = url.as_ref().and_then(|url| Some((url.host_str()?, url.port_or_known_default())));
    let reach = host.map_or_else(Reach::default, |(host, port)| Reach::host(host, port));
    reach.and_file(tls_ca_file)
}

impl SourceSettings for Settings {
    fn source(&self) -> Arc<dyn Source> {
        Arc::new(ForebaySource::new(self.clone()))
    }
}

/// Connection settings of a server to whose event store changes are appended.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DestinationSettings {
    /// Address: `https://host:port`. It may contain a password and is never printed in full.
    pub url: Secret,
    /// A key with permission to read and to append.
    #[serde(default)]
    pub key: Option<Secret>,
    /// A file of certificates (PEM) that are trusted instead of the system's.
    #[serde(default)]
    pub tls_ca_file: Option<Text>,
    /// Whether the key may be sent to another machine over an unencrypted connection.
    #[serde(default)]
    pub allow_http: bool,
}

impl DestinationSettings {
    /// The same as settings of a source, which has the same connections.
    pub(super) fn as_source(&self) -> Settings {
        let Self { url, key, tls_ca_file, allow_http } = self.clone();
        Settings { url, key, tls_ca_file, allow_http, event_hashes: false }
    }
}

impl ConnectorSettings for DestinationSettings {
    fn reach(&self) -> Reach {
        reach(&self.url, self.tls_ca_file.as_ref())
    }
}

impl registry::DestinationSettings for DestinationSettings {
    fn destination(&self) -> Arc<dyn Destination> {
        Arc::new(ForebayDestination::new(self.clone()))
    }

    fn evolves(&self) -> Evolves {
        Evolves {
            new_column: &[NewColumn::Fail],
            removed_column: &[RemovedColumn::Fail],
            type_change: &[TypeChange::Alter],
            ..Evolves::default()
        }
    }
}
