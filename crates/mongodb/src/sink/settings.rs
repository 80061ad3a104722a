//! Settings of a sink in MongoDB.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::server::{Acknowledgement, Compression, Pool, ServerSettings, Tls};

/// Settings of a sink in MongoDB.
#[derive(Clone)]
pub struct Settings {
    /// `mongodb://user:password@host:port/database?options` or `mongodb+srv://...`.
    pub url: String,
    /// Database, which takes precedence over the one in `url`. A database is one sink.
    pub database: Option<String>,
    /// Whether and how the connection is encrypted.
    pub tls: Tls,
    /// A file of certificates (PEM) that are trusted instead of the public ones. With
    /// [`Tls::Auto`] the connection is encrypted, also to this machine.
    pub tls_ca_file: Option<PathBuf>,
    /// Minimum number of idle connections, unless `url` sets it (`minPoolSize`).
    pub connections_min: u32,
    /// Maximum number of connections, unless `url` sets it (`maxPoolSize`).
    pub connections_max: u32,
    /// How long a connection above the minimum stays open when idle.
    pub idle_timeout: Duration,
    /// Timeout of locating the server and of its first answer.
    pub connect_timeout: Duration,
    /// Timeout of a request.
    pub answer_timeout: Duration,
    /// Whether requests are compressed with a method that the server offers (zstd, snappy or zlib).
    pub compression: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            url: "mongodb://127.0.0.1:27017/forebay".to_owned(),
            database: None,
            tls: Tls::Auto,
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

impl Settings {
    /// The connection settings.
    pub(super) fn server(&self) -> ServerSettings {
        ServerSettings {
            url: Some(self.url.clone()),
            database: self.database.clone(),
            tls: match self.tls {
                Tls::Auto if self.tls_ca_file.is_some() => Tls::Verify,
                tls => tls,
            },
            tls_ca_file: self.tls_ca_file.clone(),
            compression: if self.compression { Compression::Offered } else { Compression::Url },
            pool: Pool {
                connections_min: self.connections_min,
                connections_max: self.connections_max,
                idle_timeout: Some(self.idle_timeout),
            },
            connect_timeout: self.connect_timeout,
            acknowledgement: Acknowledgement::Journal,
            ..ServerSettings::default()
        }
    }
}

/// Without secrets.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("url", &"...")
            .field("database", &self.database)
            .field("tls", &self.tls)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_certificates_implies_encryption_unless_it_is_disabled() {
        let tls = |tls, file: Option<&str>| {
            let tls_ca_file = file.map(PathBuf::from);
            Settings { tls, tls_ca_file, ..Settings::default() }.server().tls
        };
        assert_eq!(tls(Tls::Auto, None), Tls::Auto);
        assert_eq!(tls(Tls::Auto, Some("ca.pem")), Tls::Verify);
        assert_eq!(tls(Tls::Disable, Some("ca.pem")), Tls::Disable);
        assert_eq!(tls(Tls::Verify, None), Tls::Verify);
    }
}
