//! Settings of ClickHouse, as they are in a pipeline file.

use std::sync::Arc;
use std::time::Duration;

use forebay_base::{ByteSize, HumanDuration, ServerError};
use forebay_sdk::connector::Destination;
use forebay_sdk::registry::{ConnectorSettings, DestinationSettings};
use forebay_sdk::settings::{Evolves, Reach, Secret, Text};
use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

/// Limits of `block_size`.
const BLOCK_SIZES: std::ops::RangeInclusive<u64> = (1 << 20)..=(4 << 30);

/// Connection settings.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Address of the server's HTTP interface: `https://HOST:8443`, or `http://HOST:8123`.
    pub url: Text,
    /// Database whose tables are written. It has to exist.
    #[serde(default = "named_default")]
    pub database: Text,
    /// User name.
    #[serde(default = "named_default")]
    pub user: Text,
    /// Password of the user.
    #[serde(default)]
    pub password: Option<Secret>,
    /// A file of certificates (PEM) that are trusted instead of the system's.
    #[serde(default)]
    pub tls_ca_file: Option<Text>,
    /// Whether the password and the rows may be sent to another machine over an unencrypted connection.
    #[serde(default)]
    pub allow_http: bool,
    /// How rows are compressed on their way to the server.
    #[serde(default)]
    pub compression: Compression,
    /// Maximum size of the rows of one INSERT in bytes, before compression. The server holds them in memory until
    /// they are stored. A unit with more rows is collected in a table beside the target first.
    #[serde(default = "block_size")]
    #[schemars(with = "String")]
    pub block_size: ByteSize,
    /// Maximum size in bytes of the rows of one unit that wait in the memory of this process, as they are sent. Each of
    /// the units that are copied in parallel has this limit.
    #[serde(default = "buffer_size")]
    #[schemars(with = "String")]
    pub buffer_size: ByteSize,
    /// How long the server may take to answer a request.
    #[serde(default = "timeout")]
    #[schemars(with = "String")]
    pub timeout: HumanDuration,
}

/// How rows are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// Not at all.
    None,
    /// Zstandard.
    #[default]
    Zstd,
}

fn named_default() -> Text {
    Text("default".into())
}

const fn block_size() -> ByteSize {
    ByteSize::mib(512)
}

const fn buffer_size() -> ByteSize {
    ByteSize::mib(32)
}

const fn timeout() -> HumanDuration {
    HumanDuration(Duration::from_secs(300))
}

impl Settings {
    /// The address, checked.
    ///
    /// # Errors
    /// It is not one of HTTP, has secrets in it, or secrets would be sent unencrypted.
    pub(crate) fn address(&self) -> Result<Url, ServerError> {
        let url = Url::parse(&self.url.0).ok();
        let url =
            url.filter(|url| matches!(url.scheme(), "http" | "https") && url.host_str().is_some());
        let Some(url) = url else {
            // It is not repeated: it may be a secret that got into the wrong place.
            return Err(ServerError::settings(
                "the value of `url` is not the address of a ClickHouse",
                "set `url` to https://HOST:8443 or http://HOST:8123",
            ));
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(ServerError::settings(
                "`url` has a user or a password",
                "set `user` and `password` instead",
            ));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(ServerError::settings(
                "`url` has parameters or a fragment",
                "set `database` and the other settings instead",
            ));
        }
        if url.scheme() == "http" && !is_here(&url) && !self.allow_http {
            return Err(ServerError::settings(
                "the password and the rows would be sent over an unencrypted connection",
                "use https://, or set `allow_http: true` if the network is trusted",
            ));
        }
        Ok(url)
    }
}

/// Whether a server is on this machine.
fn is_here(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

impl ConnectorSettings for Settings {
    fn check(&self) -> Result<(), ServerError> {
        self.address()?;
        if self.database.0.is_empty() {
            return Err(ServerError::settings("`database` is empty", "name a database"));
        }
        if self.timeout.get().is_zero() {
            return Err(ServerError::settings("`timeout` is 0", "set at least 1ms"));
        }
        for (name, size) in [("block_size", self.block_size), ("buffer_size", self.buffer_size)] {
            if !BLOCK_SIZES.contains(&size.bytes()) {
                return Err(ServerError::settings(
                    format!("`{name}` is {size}"),
                    "set 1MiB to 4GiB",
                ));
            }
        }
        Ok(())
    }

    /// An invalid `url` refers to no server.
    fn reach(&self) -> Reach {
        let url = Url::parse(&self.url.0).ok();
        let host =
            url.as_ref().and_then(|url| Some((url.host_str()?, url.port_or_known_default())));
        let reach = host.map_or_else(Reach::default, |(host, port)| Reach::host(host, port));
        reach.and_file(self.tls_ca_file.as_ref())
    }
}

impl DestinationSettings for Settings {
    #[cfg(feature = "client")]
    fn destination(&self) -> Arc<dyn Destination> {
        Arc::new(crate::ClickHouse::new(self.clone()))
    }

    #[cfg(not(feature = "client"))]
    fn destination(&self) -> Arc<dyn Destination> {
        Arc::new(forebay_sdk::absent::Absent("clickhouse"))
    }

    fn evolves(&self) -> Evolves {
        Evolves::ALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(yaml: serde_json::Value) -> Settings {
        serde_json::from_value(yaml).unwrap()
    }

    #[test]
    fn an_address_without_encryption_is_for_this_machine_unless_permitted() {
        for (url, is_taken) in [
            ("https://db.example.org:8443", true),
            ("https://db.example.org/clickhouse", true),
            ("http://127.0.0.1:8123", true),
            ("http://[::1]:8123", true),
            ("http://localhost:8123", true),
            ("http://db.example.org:8123", false),
            ("https://user:secret42@db.example.org", false),
            ("https://db.example.org/?password=secret42", false),
            ("tcp://127.0.0.1:9000", false),
            ("secret42", false),
        ] {
            let checked = settings(serde_json::json!({ "url": url })).check();
            assert_eq!(checked.is_ok(), is_taken, "{url}: {checked:?}");
            let text = checked.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(!text.contains("secret42"), "{text}");
        }
        let trusted =
            serde_json::json!({ "url": "http://db.example.org:8123", "allow_http": true });
        assert!(settings(trusted).check().is_ok());
    }

    #[test]
    fn the_server_and_the_file_are_subject_to_permissions() {
        let reach = settings(serde_json::json!({
            "url": "https://db.example.org:8443", "tls_ca_file": "/ca.pem",
        }))
        .reach();
        assert_eq!(reach.hosts, [("db.example.org".to_owned(), Some(8443))]);
        assert_eq!(reach.paths, [std::path::PathBuf::from("/ca.pem")]);
    }

    #[test]
    fn sizes_that_cannot_work_are_refused() {
        for size in ["1KiB", "8GiB"] {
            let settings = settings(serde_json::json!({
                "url": "http://127.0.0.1:8123", "block_size": size,
            }));
            assert!(settings.check().is_err(), "{size}");
        }
    }
}
