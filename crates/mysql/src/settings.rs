//! Settings of MySQL and MariaDB, as they are in a pipeline file.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::{HumanDuration, ServerError};
use forebay_sdk::connector::Source;
use forebay_sdk::registry::{ConnectorSettings, SourceSettings};
use forebay_sdk::settings::{Reach, Secret, Text};
use forebay_sdk::values::types;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::address::Address;

/// Connection settings: `url`, or `host`, `user` and so on.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// `mysql://user@host:port/database`, instead of `host`, `port`, `database` and `user`. It may have the
    /// password, too.
    pub url: Option<Secret>,
    /// Name or address of the server, or the path of its socket.
    pub host: Text,
    /// Port of the server.
    pub port: NonZeroU16,
    /// Database whose tables and views are the streams.
    pub database: Option<Text>,
    /// User name.
    pub user: Text,
    /// Password of the user.
    pub password: Option<Secret>,
    /// Whether and how the connection is encrypted.
    pub tls: Tls,
    /// A file of certificates (PEM) that are trusted instead of the system's.
    pub tls_ca_file: Option<Text>,
    /// Types of columns by table and column, as in SQL, where they differ from the default:
    /// `types: { orders: { is_paid: boolean } }`.
    pub types: BTreeMap<String, BTreeMap<String, String>>,
    /// What to do with dates that do not exist, such as `0000-00-00`.
    pub zero_dates: ZeroDates,
    /// How long an incremental run waits for transactions that may still commit rows with earlier values
    /// of the cursor.
    #[schemars(with = "String")]
    pub wait_for_late_commits: HumanDuration,
    /// Whether an incremental run may miss rows that are committed after rows with later values. By default
    /// a run is refused if the server does not show which transactions are open.
    pub allow_late_commits: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            url: None,
            host: Text("127.0.0.1".into()),
            port: NonZeroU16::new(3306).unwrap_or(NonZeroU16::MIN),
            database: None,
            user: Text("root".into()),
            password: None,
            tls: Tls::Auto,
            tls_ca_file: None,
            types: BTreeMap::new(),
            zero_dates: ZeroDates::Fail,
            wait_for_late_commits: HumanDuration(Duration::from_secs(30)),
            allow_late_commits: false,
        }
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

/// What to do with dates that do not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ZeroDates {
    /// Fail the run, and name table, row and column.
    #[default]
    Fail,
    /// Read them as NULL.
    Null,
}

impl ConnectorSettings for Settings {
    fn check(&self) -> Result<(), ServerError> {
        Address::of(self)?;
        for (table, columns) in &self.types {
            for (column, name) in columns {
                if types::wire_of(name).is_none() {
                    return Err(ServerError::settings(
                        format!("`types` has an unknown type {name:?} for {table}.{column}"),
                        "use the name of a type in SQL: boolean, bigint, numeric(10,2), time, jsonb",
                    ));
                }
            }
        }
        Ok(())
    }

    /// An invalid `url` refers to no server.
    fn reach(&self) -> Reach {
        let mut reach = Reach::default();
        if let Ok(address) = Address::of(self) {
            reach.add_host(&address.host, Some(address.port));
        }
        reach.and_file(self.tls_ca_file.as_ref())
    }

    fn occupies_server(&self) -> bool {
        true
    }
}

impl SourceSettings for Settings {
    #[cfg(feature = "driver")]
    fn source(&self) -> Arc<dyn Source> {
        Arc::new(crate::MysqlSource::new(self.clone()))
    }

    #[cfg(not(feature = "driver"))]
    fn source(&self) -> Arc<dyn Source> {
        Arc::new(forebay_sdk::absent::Absent("mysql"))
    }
}
