//! Connection settings of PostgreSQL.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Connection settings: `url`, or `host`, `user` and so on.
#[derive(Clone)]
pub struct ServerSettings {
    /// `postgres://user:password@host:port/database`, instead of the five fields below.
    pub url: Option<String>,
    /// Name or address of the server, or the directory of its socket.
    pub host: String,
    /// Port of the server.
    pub port: u16,
    /// Database. The default is the user's name.
    pub database: Option<String>,
    /// User name.
    pub user: String,
    /// Password of the user.
    pub password: Option<String>,
    /// Whether and how the connection is encrypted.
    pub tls: Tls,
    /// A file of certificates (PEM) that are trusted instead of the system's.
    pub tls_ca_file: Option<PathBuf>,
    /// Timeout of the connection.
    pub connect_timeout: Duration,
    /// Timeout of a statement, enforced by the server. `None` for no limit.
    pub statement_timeout: Option<Duration>,
}

impl Default for ServerSettings {
    fn default() -> ServerSettings {
        ServerSettings {
            url: None,
            host: "127.0.0.1".to_owned(),
            port: 5432,
            database: None,
            user: "postgres".to_owned(),
            password: None,
            tls: Tls::Auto,
            tls_ca_file: None,
            connect_timeout: Duration::from_secs(10),
            statement_timeout: None,
        }
    }
}

/// Without secrets.
impl fmt::Debug for ServerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSettings")
            .field("url", &self.url.as_ref().map(|_| "..."))
            .field("host", &self.host)
            .field("port", &self.port)
            .field("database", &self.database)
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| "..."))
            .field("tls", &self.tls)
            .field("tls_ca_file", &self.tls_ca_file)
            .field("connect_timeout", &self.connect_timeout)
            .field("statement_timeout", &self.statement_timeout)
            .finish()
    }
}

/// Whether and how a connection is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tls {
    /// `Verify` for any server except one on this machine, and `Disable` for that.
    #[default]
    Auto,
    /// Unencrypted.
    Disable,
    /// Encrypted. The certificate and its host name are verified.
    Verify,
}
