//! Connections to PostgreSQL, and the classification of its errors.
//!
//! How a connection is made depends on where this runs: `native` in a process, `sandbox` in a component. What is
//! said over it is the same.
//!
//! Invariants: a connection ends when its client is dropped, and the server then rolls back what
//! was not committed; names for messages contain no secret; an encrypted connection verifies the
//! certificate and its host name.

mod error;
#[cfg(not(target_family = "wasm"))]
mod native;
#[cfg(target_family = "wasm")]
mod sandbox;

use std::io;
use std::net::IpAddr;

use forebay_base::ServerError;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config};

use crate::address;
use crate::settings::{ServerSettings, Tls};

pub(crate) use error::classified;
pub use error::{failure, is_of_data, is_of_encoding};
#[cfg(not(target_family = "wasm"))]
use native as platform;
#[cfg(target_family = "wasm")]
use sandbox as platform;

/// The settings of every session, whatever its role or database has set. `docs/guide/pipeline.md` lists
/// them with their reasons.
///
/// Sent as one request after the connection is made. The path is first: it decides which functions and
/// operators the others call. A setting that only some versions have, or that only some roles may set, is
/// changed only if it has to be; where the server refuses that, the connection fails.
const SESSION: &str = "\
set quote_all_identifiers = off; set search_path = pg_catalog, pg_temp; \
set client_encoding = 'UTF8'; set DateStyle = 'ISO, YMD'; set IntervalStyle = 'postgres'; \
set TimeZone = 'UTC'; set extra_float_digits = 1; set bytea_output = 'hex'; set array_nulls = on; \
set xmloption = 'content'; set transform_null_equals = off; \
set standard_conforming_strings = on; set backslash_quote = 'safe_encoding'; \
set row_security = off; set gin_fuzzy_search_limit = 0; \
set default_transaction_isolation = 'read committed'; set default_transaction_deferrable = off; \
set lock_timeout = 0; set idle_in_transaction_session_timeout = 0; set client_min_messages = 'warning'; \
set exit_on_error = off; set jit = off; \
set tcp_keepalives_idle = 30; set tcp_keepalives_interval = 10; set tcp_keepalives_count = 3; \
select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'; \
select set_config(name, value, false) from (values \
  ('idle_session_timeout', '0'), ('transaction_timeout', '0'), \
  ('session_replication_role', 'origin'), ('zero_damaged_pages', 'off'), \
  ('ignore_checksum_failure', 'off')) wanted(name, value) \
where current_setting(name, true) <> value";

/// A stream of bytes to a server.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin + Send + Sync {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send + Sync> Socket for S {}

/// Connection settings of a server.
#[derive(Debug, Clone)]
pub struct Server {
    config: Config,
    /// The statements that a connection starts with. As startup options, poolers would refuse them or
    /// leave them out.
    session: String,
    tls: Option<platform::Encryption>,
    name: String,
}

impl Server {
    /// Creates a server with these settings; reads only the file of certificates.
    ///
    /// # Errors
    /// [`ServerError::Settings`] and [`ServerError::Certificates`].
    pub fn new(settings: &ServerSettings) -> Result<Server, ServerError> {
        let mut config = match &settings.url {
            Some(url) => address::parse(url)?,
            None => from_fields(settings),
        };
        let user = config.get_user().unwrap_or("postgres").to_owned();
        let database = config.get_dbname().unwrap_or(&user).to_owned();
        let host = match config.get_hosts().first() {
            Some(Host::Tcp(host)) => host.clone(),
            #[cfg(unix)]
            Some(Host::Unix(path)) => path.display().to_string(),
            None => "127.0.0.1".into(),
        };
        let port = config.get_ports().first().copied().unwrap_or(5432);
        let is_local = host.starts_with('/')
            || host == "localhost"
            || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let is_encrypted = match settings.tls {
            Tls::Auto => !is_local,
            Tls::Disable => false,
            Tls::Verify => true,
        };
        let timeout_ms = settings.statement_timeout.map_or(0, |timeout| timeout.as_millis().max(1));
        config
            .application_name("forebay")
            .connect_timeout(settings.connect_timeout)
            .ssl_mode(if is_encrypted { SslMode::Require } else { SslMode::Disable });
        // The server, too, notices when the client has gone, and releases its locks.
        let session = format!("{SESSION}; set statement_timeout = {timeout_ms}");
        platform::keep_alive(&mut config);
        let file = settings.tls_ca_file.as_deref();
        let tls = is_encrypted.then(|| platform::Encryption::trusting(file)).transpose()?;
        let name = format!("PostgreSQL {database} at {host}:{port} as {user}");
        Ok(Server { config, session, tls, name })
    }

    /// Its name in messages: the server and the user.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address and user.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Connects. A task does the reading and writing.
    ///
    /// # Errors
    /// [`ServerError::Unreachable`]; [`ServerError::Refused`] if the server refused permanently (a
    /// wrong password); [`ServerError::Busy`] if it refused temporarily.
    pub async fn connect(&self) -> Result<Client, ServerError> {
        let client = self.open().await?;
        client.batch_execute(&self.session).await.map_err(|error| self.failed(error))?;
        Ok(client)
    }

    /// The error of a connection that was not made.
    fn failed(&self, error: tokio_postgres::Error) -> ServerError {
        let act = "connect";
        match failure(act, &self.name, error) {
            // Errors that the server did not send itself (TLS, DNS) concern the connection.
            ServerError::Refused { source, .. } if !is_said_by_server(source.as_ref()) => {
                ServerError::Unreachable { act: act.into(), server: self.name.clone(), source }
            }
            error => error,
        }
    }
}

/// Asks a server to encrypt a connection that was just made.
async fn ask_for_encryption(socket: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
    let mut request = bytes::BytesMut::new();
    postgres_protocol::message::frontend::ssl_request(&mut request);
    socket.write_all(&request).await?;
    socket.flush().await?;
    // One byte, so that nothing that comes before the encryption is taken for a part of it.
    if socket.read_u8().await? != b'S' {
        let what = "the server does not support encryption";
        return Err(io::Error::new(io::ErrorKind::Unsupported, what));
    }
    Ok(())
}

fn is_said_by_server(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<tokio_postgres::Error>().is_some_and(|error| error.as_db_error().is_some())
}

/// Does a connection's reading and writing until its client is dropped.
fn drive<S, T>(connection: tokio_postgres::Connection<S, T>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    forebay_sdk::platform::spawn(async move {
        // Waiting requests get the same error.
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to PostgreSQL ended");
        }
    });
}

fn from_fields(settings: &ServerSettings) -> Config {
    let mut config = Config::new();
    config.host(&settings.host).port(settings.port).user(&settings.user);
    if let Some(database) = &settings.database {
        config.dbname(database);
    }
    if let Some(password) = &settings.password {
        config.password(password);
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_says_so_without_its_password() {
        let url = Some("postgres://user:geheim@[".to_owned());
        let settings = ServerSettings { url, ..ServerSettings::default() };
        let error = Server::new(&settings).unwrap_err();
        assert!(matches!(error, ServerError::Settings { .. }), "{error}");
        assert!(!format!("{error} {error:?} {settings:?}").contains("geheim"));
    }
}
