//! How a MongoDB is reached, and how a sink uses it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// What a sink in a MongoDB needs to know.
#[derive(Clone)]
pub struct Settings {
    /// `mongodb://user:password@host:port/database?options` or `mongodb+srv://...`.
    pub url: String,
    /// The database, before the one in `url`. A database is one sink.
    pub database: Option<String>,
    /// A file of certificates (PEM) to be trusted instead of the usual ones; implies TLS.
    pub tls_ca_file: Option<PathBuf>,
    /// Connections kept open though nobody uses them, unless `url` says how many (`minPoolSize`).
    pub connections_min: u32,
    /// Connections at most, unless `url` says how many (`maxPoolSize`).
    pub connections_max: u32,
    /// How long one beyond the least stays open unused.
    pub idle_timeout: Duration,
    /// How long the server may take to be found and to answer at all.
    pub connect_timeout: Duration,
    /// How long it may take to answer a request.
    pub answer_timeout: Duration,
    /// Whether requests are compressed by what the server offers (zstd, snappy or zlib).
    pub compression: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            url: "mongodb://127.0.0.1:27017/forebay".to_owned(),
            database: None,
            tls_ca_file: None,
            connections_min: 10,
            connections_max: 100,
            idle_timeout: Duration::from_secs(300),
            connect_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(60),
            compression: true,
        }
    }
}

/// Without the secrets.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("url", &"...")
            .field("database", &self.database)
            .field("tls_ca_file", &self.tls_ca_file)
            .field("connections_min", &self.connections_min)
            .field("connections_max", &self.connections_max)
            .field("idle_timeout", &self.idle_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("answer_timeout", &self.answer_timeout)
            .field("compression", &self.compression)
            .finish()
    }
}
