//! Options of a sink in PostgreSQL.

use std::time::Duration;

use crate::settings::ServerSettings;

/// Settings of a sink in PostgreSQL.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The server and the user.
    pub server: ServerSettings,
    /// Schema of the sink's tables. It is created if it does not exist. A schema is one sink.
    pub schema: String,
    /// How long to wait for another writer of the same sink before it counts as in use.
    pub lock_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            server: ServerSettings {
                statement_timeout: Some(Duration::from_secs(60)),
                ..ServerSettings::default()
            },
            schema: "forebay".to_owned(),
            lock_timeout: Duration::from_secs(5),
        }
    }
}
