//! What the pipeline file says of a PostgreSQL, as a source or as a destination.

use std::num::NonZeroU16;
use std::time::Duration;

use forebay_base::HumanDuration;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::config::permissions::Reach;
use crate::config::{Secret, Text};

/// How a server is reached: `url`, or `host`, `user` and so on.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// `postgres://user:password@host:port/database`, instead of the five fields below it.
    pub url: Option<Secret>,
    /// Name or address of the server, or the directory of its socket.
    pub host: Text,
    /// Its port.
    pub port: NonZeroU16,
    /// The database; the user's name where it is not given.
    pub database: Option<Text>,
    /// Who asks.
    pub user: Text,
    /// Their password.
    pub password: Option<Secret>,
    /// Whether and how the connection is encrypted.
    pub tls: Tls,
    /// A file of certificates (PEM) to be trusted instead of the system's.
    pub tls_ca_file: Option<Text>,
    /// The schema of tables whose name says none. A destination creates it where it is not there.
    pub schema: Text,
    /// Of a destination: the schema of the ledger; created where it is not there.
    pub ledger_schema: Text,
    /// Of a source: how long an incremental run waits for transactions that write when it begins.
    #[schemars(with = "String")]
    pub wait_for_late_commits: HumanDuration,
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
        }
    }
}

impl Settings {
    /// What these settings lead to. What an unreadable `url` would lead to nobody knows; it is refused when
    /// it is used.
    pub(crate) fn reach(&self) -> Reach {
        let mut reach = Reach::default();
        let url = self.url.as_ref().and_then(|url| url.expose().parse::<Config>().ok());
        match (url, &self.url) {
            (Some(config), _) => {
                for (index, host) in config.get_hosts().iter().enumerate() {
                    let ports = config.get_ports();
                    let port = ports.get(index).or_else(|| ports.first()).copied();
                    match host {
                        Host::Tcp(name) => reach.add_host(name, Some(port.unwrap_or(5432))),
                        Host::Unix(path) => reach.paths.push(path.clone()),
                    }
                }
            }
            (None, Some(_)) => {}
            (None, None) => reach.add_host(&self.host.0, Some(self.port.get())),
        }
        reach.and_file(self.tls_ca_file.as_ref())
    }
}

/// Whether and how a connection is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tls {
    /// `verify` for any server but one on this machine, `disable` for that.
    #[default]
    Auto,
    /// Not encrypted.
    Disable,
    /// Encrypted; the certificate is checked, and that it is for this host.
    Verify,
}
