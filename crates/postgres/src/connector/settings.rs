//! Settings of PostgreSQL, as a source or as a destination.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::{HumanDuration, ServerError};
use forebay_sdk::connector::{Destination, Source};
use forebay_sdk::registry::{ConnectorSettings, DestinationSettings, SourceSettings};
use forebay_sdk::settings::{Evolves, Reach, Secret, Text};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio_postgres::config::Host;

use super::{PostgresDestination, PostgresSource};
use crate::address;

/// Connection settings: `url`, or `host`, `user` and so on.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// `postgres://user:password@host:port/database`, instead of the five fields below.
    pub url: Option<Secret>,
    /// Name or address of the server, or the directory of its socket.
    pub host: Text,
    /// Port of the server.
    pub port: NonZeroU16,
    /// Database. The default is the user's name.
    pub database: Option<Text>,
    /// User name.
    pub user: Text,
    /// Password of the user.
    pub password: Option<Secret>,
    /// Whether and how the connection is encrypted.
    pub tls: Tls,
    /// A file of certificates (PEM) that are trusted instead of the system's.
    pub tls_ca_file: Option<Text>,
    /// Schema of tables whose name has none. A destination creates it if it does not exist.
    pub schema: Text,
    /// For a destination: schema of the ledger. It is created if it does not exist.
    pub ledger_schema: Text,
    /// For a source: how long an incremental run, or the beginning of a feed, waits for transactions that
    /// may still write when it starts.
    #[schemars(with = "String")]
    pub wait_for_late_commits: HumanDuration,
    /// For a source with `sync_mode: cdc`: the replication slot. The default is made from the pipeline's
    /// name.
    pub slot: Option<Text>,
    /// For a source with `sync_mode: cdc`: a publication that exists. By default one is made, and removed
    /// with the slot.
    pub publication: Option<Text>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            url: None,
            host: Text("127.0.0.1".into()),
            port: NonZeroU16::new(5432).unwrap_or(NonZeroU16::MIN),
            database: None,
            user: Text("postgres".into()),
            password: None,
            tls: Tls::Auto,
            tls_ca_file: None,
            schema: Text("public".into()),
            ledger_schema: Text("forebay".into()),
            wait_for_late_commits: HumanDuration(Duration::from_secs(30)),
            slot: None,
            publication: None,
        }
    }
}

impl ConnectorSettings for Settings {
    fn check(&self) -> Result<(), ServerError> {
        let url = self.url.as_ref();
        url.map_or(Ok(()), |url| address::parse(url.expose()).map(|_| ()))
    }

    /// An invalid `url` refers to no server.
    fn reach(&self) -> Reach {
        let mut reach = Reach::default();
        let url = self.url.as_ref().and_then(|url| address::parse(url.expose()).ok());
        match (url, &self.url) {
            (Some(config), _) => {
                for (index, host) in config.get_hosts().iter().enumerate() {
                    let ports = config.get_ports();
                    let port = ports.get(index).or_else(|| ports.first()).copied();
                    match host {
                        Host::Tcp(name) => reach.add_host(name, Some(port.unwrap_or(5432))),
                        #[cfg(unix)]
                        Host::Unix(path) => reach.paths.push(path.clone()),
                    }
                }
            }
            (None, Some(_)) => {}
            (None, None) => reach.add_host(&self.host.0, Some(self.port.get())),
        }
        reach.and_file(self.tls_ca_file.as_ref())
    }

    fn occupies_server(&self) -> bool {
        true
    }
}

impl SourceSettings for Settings {
    fn source(&self) -> Arc<dyn Source> {
        Arc::new(PostgresSource::new(self.clone()))
    }
}

impl DestinationSettings for Settings {
    fn destination(&self) -> Arc<dyn Destination> {
        Arc::new(PostgresDestination::new(self.clone()))
    }

    fn evolves(&self) -> Evolves {
        Evolves::ALL
    }
}

/// Whether and how a connection is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tls {
    /// `verify` for any server except one on this machine, and `disable` for that.
    #[default]
    Auto,
    /// Unencrypted.
    Disable,
    /// Encrypted. The certificate and its host name are verified.
    Verify,
}
