//! Connection settings of MongoDB.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Connection settings: `url`, or `host`, `user` and so on.
#[derive(Clone)]
pub struct ServerSettings {
    /// `mongodb://user:password@host:port/database?options` or `mongodb+srv://...`, instead of the
    /// five fields below.
    pub url: Option<String>,
    /// Name or address of the server.
    pub host: String,
    /// Port of the server.
    pub port: u16,
    /// User name. Without one, no authentication takes place.
    pub user: Option<String>,
    /// Password of the user.
    pub password: Option<String>,
    /// Database that the user authenticates against.
    pub auth_database: String,
    /// Database, which takes precedence over the one in `url`.
    pub database: Option<String>,
    /// Whether and how the connection is encrypted.
    pub tls: Tls,
    /// A file of certificates (PEM) that are trusted instead of the public ones.
    pub tls_ca_file: Option<PathBuf>,
    /// How messages are compressed.
    pub compression: Compression,
    /// Limits on the connections.
    pub pool: Pool,
    /// Timeout of a connection, and of locating the server.
    pub connect_timeout: Duration,
    /// The time at which a write is acknowledged, unless a command or `url` says otherwise.
    pub acknowledgement: Acknowledgement,
    /// Whether the driver may repeat a write that failed. If not, its caller knows what was sent.
    pub repeats_writes: bool,
}

impl Default for ServerSettings {
    fn default() -> ServerSettings {
        ServerSettings {
            url: None,
            host: "127.0.0.1".to_owned(),
            port: 27017,
            user: None,
            password: None,
            auth_database: "admin".to_owned(),
            database: None,
            tls: Tls::Auto,
            tls_ca_file: None,
            compression: Compression::Auto,
            pool: Pool::default(),
            connect_timeout: Duration::from_secs(10),
            acknowledgement: Acknowledgement::Server,
            repeats_writes: true,
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
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| "..."))
            .field("auth_database", &self.auth_database)
            .field("database", &self.database)
            .field("tls", &self.tls)
            .field("tls_ca_file", &self.tls_ca_file)
            .field("compression", &self.compression)
            .field("pool", &self.pool)
            .field("connect_timeout", &self.connect_timeout)
            .field("acknowledgement", &self.acknowledgement)
            .field("repeats_writes", &self.repeats_writes)
            .finish()
    }
}

/// Whether and how a connection is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tls {
    /// As in `url`. If it does not say, [`Verify`](Tls::Verify) for any server except one on this
    /// machine, and [`Disable`](Tls::Disable) for that.
    #[default]
    Auto,
    /// Unencrypted.
    Disable,
    /// Encrypted. The certificate and its host name are verified.
    Verify,
}

/// How messages are compressed, if the server supports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// As in `url`. If it does not say, [`None`](Compression::None) with a server on this machine,
    /// and [`Offered`](Compression::Offered) otherwise.
    #[default]
    Auto,
    /// As in `url`. If it does not say, none.
    Url,
    /// As in `url`. If it does not say, the first of zstd, snappy and zlib that the server supports.
    Offered,
    /// No compression.
    None,
    /// zstd.
    Zstd,
    /// Snappy.
    Snappy,
    /// zlib.
    Zlib,
}

/// Limits on the connections to each server. Those in `url` take precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// Minimum number of connections that are kept open when idle; at most `connections_max`.
    pub connections_min: u32,
    /// Maximum number of connections; 0 for no limit.
    pub connections_max: u32,
    /// How long a connection above the minimum stays open when idle. `None` for no limit.
    pub idle_timeout: Option<Duration>,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool { connections_min: 0, connections_max: 100, idle_timeout: None }
    }
}

/// The time at which a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Acknowledgement {
    /// When the server says, by its own default.
    #[default]
    Server,
    /// When the write is in the journal; of a majority of members if `url` does not set their number.
    Journal,
}
