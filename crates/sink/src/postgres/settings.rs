//! How a PostgreSQL is reached, and how a sink uses it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// What a sink in a PostgreSQL needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The server and who asks.
    pub server: ServerSettings,
    /// The schema of the sink's tables; made where it is not there. A schema is one sink.
    pub schema: String,
    /// The connections of readers.
    pub pool: PoolSettings,
    /// How long another writer of the same sink is waited for before it counts as in use.
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
            pool: PoolSettings::default(),
            lock_timeout: Duration::from_secs(5),
        }
    }
}

/// How a server is reached: by `url`, or by `host`, `user` and so on.
#[derive(Clone)]
pub struct ServerSettings {
    /// `postgres://user:password@host:port/database`, instead of the five fields below it.
    pub url: Option<String>,
    /// Name or address of the server, or the directory of its socket.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The database; the user's name where it is not given.
    pub database: Option<String>,
    /// Who asks.
    pub user: String,
    /// Their password.
    pub password: Option<String>,
    /// Whether and how the connection is encrypted.
    pub tls: Tls,
    /// A file of certificates (PEM) to be trusted instead of the system's.
    pub tls_ca_file: Option<PathBuf>,
    /// How long the server may take to answer at all.
    pub connect_timeout: Duration,
    /// How long a statement may take; the server ends it then. `None`: as long as it likes.
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

/// Without the secrets.
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
    /// `Verify` for any server but one on this machine, `Disable` for that.
    #[default]
    Auto,
    /// Not encrypted.
    Disable,
    /// Encrypted; the certificate is checked, and that it is for this host.
    Verify,
}

/// How many connections readers hold.
///
/// A sink writes over one connection of its own: what it commits is one transaction, and a transaction is
/// one connection's. More of them would not be all or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSettings {
    /// Kept open though nobody uses them.
    pub connections_min: usize,
    /// Open at most; whoever wants one more waits.
    pub connections_max: usize,
    /// How long to wait for one.
    pub acquire_timeout: Duration,
    /// How long one beyond `connections_min` stays open unused.
    pub idle_timeout: Duration,
}

impl Default for PoolSettings {
    /// One warm connection and four at most for each processor.
    fn default() -> PoolSettings {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        PoolSettings {
            connections_min: 1,
            connections_max: processors * 4,
            acquire_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(300),
        }
    }
}
