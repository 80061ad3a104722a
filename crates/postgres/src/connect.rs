//! Connections to PostgreSQL, and the classification of its errors.
//!
//! Invariants: a connection ends when its client is dropped, and the server then rolls back what
//! was not committed; names for messages contain no secret; an encrypted connection verifies the
//! certificate and its host name.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_sink::ServerError;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::config::{Host, SslMode, SslNegotiation};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::address;
use crate::coalesce::{Encrypted, Plain};
use crate::settings::{ServerSettings, Tls};

/// Idle time before the first keepalive probe, and the interval between probes.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));
/// How long sent bytes may stay unacknowledged before the connection is dropped.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

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

/// Connection settings of a server.
#[derive(Debug, Clone)]
pub struct Server {
    config: Config,
    /// The statements that a connection starts with. As startup options, poolers would refuse them or
    /// leave them out.
    session: String,
    tls: Option<Arc<ClientConfig>>,
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
            .keepalives_idle(KEEPALIVE.0)
            .keepalives_interval(KEEPALIVE.1)
            .tcp_user_timeout(SEND_TIMEOUT)
            .ssl_mode(if is_encrypted { SslMode::Require } else { SslMode::Disable });
        // The server, too, notices when the client has gone, and releases its locks.
        let session = format!("{SESSION}; set statement_timeout = {timeout_ms}");
        let tls = is_encrypted.then(|| trusting(settings.tls_ca_file.as_deref()));
        let name = format!("PostgreSQL {database} at {host}:{port} as {user}");
        Ok(Server { config, session, tls: tls.transpose()?.map(Arc::new), name })
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

    /// How its certificate is verified; `None` for an unencrypted connection.
    pub(crate) fn tls(&self) -> Option<ClientConfig> {
        self.tls.as_deref().cloned()
    }

    /// Whether the server is accessed through a local socket.
    fn is_socket_file(&self) -> bool {
        self.config.get_hosts().iter().any(|host| !matches!(host, Host::Tcp(_)))
    }

    /// Connects. A task of the current runtime does the reading and writing.
    ///
    /// # Errors
    /// [`ServerError::Unreachable`]; [`ServerError::Refused`] if the server refused permanently (a
    /// wrong password); [`ServerError::Busy`] if it refused temporarily.
    pub async fn connect(&self) -> Result<Client, ServerError> {
        let failed = |error| {
            let act = "connect";
            match failure(act, &self.name, error) {
                // Errors that the server did not send itself (TLS, DNS) concern the connection.
                ServerError::Refused { source, .. } if !is_said_by_server(source.as_ref()) => {
                    ServerError::Unreachable { act: act.into(), server: self.name.clone(), source }
                }
                error => error,
            }
        };
        let client = match &self.tls {
            None if self.is_socket_file() => {
                let (client, connection) = self.config.connect(NoTls).await.map_err(failed)?;
                drive(connection);
                client
            }
            None => {
                // This is not encryption: it only merges messages.
                let mut config = self.config.clone();
                config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
                let (client, connection) = config.connect(Plain).await.map_err(failed)?;
                drive(connection);
                client
            }
            Some(tls) => {
                let tls = Encrypted(MakeRustlsConnect::new(ClientConfig::clone(tls)));
                let (client, connection) = self.config.connect(tls).await.map_err(failed)?;
                drive(connection);
                client
            }
        };
        client.batch_execute(&self.session).await.map_err(failed)?;
        Ok(client)
    }
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
    tokio::spawn(async move {
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

/// Verifies certificates: against those of a file, or the system's.
fn trusting(file: Option<&Path>) -> Result<ClientConfig, ServerError> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = file {
        let unread = |source| ServerError::Certificates { path: file.to_owned(), source };
        let certificates =
            CertificateDer::pem_file_iter(file).map_err(|error| unread(error.into()))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| unread(error.into()))?;
            roots.add(certificate).map_err(|error| unread(error.into()))?;
        }
    } else {
        // An unreadable one is not trusted.
        let found = rustls_native_certs::load_native_certs();
        let (_, refused) = roots.add_parsable_certificates(found.certs);
        tracing::debug!(refused, errors = found.errors.len(), "loaded the system's certificates");
    }
    if roots.is_empty() {
        return Err(ServerError::settings(
            "there is no certificate to trust",
            "set `tls_ca_file` to a file of certificates, or install the system's \
             (ca-certificates)",
        ));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| {
            ServerError::settings(format!("TLS cannot be set up: {error}"), "use `tls: disable`")
        })?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Classifies an error of a server.
///
/// * `act`: what was attempted.
/// * `server`: [`Server::name`], or a part of it.
#[must_use]
pub fn failure(
    act: impl Into<String>,
    server: impl Into<String>,
    error: tokio_postgres::Error,
) -> ServerError {
    let code = error.as_db_error().map(|error| error.code().clone());
    let is_io = error.is_closed() || is_io(&error);
    classified(act.into(), server.into(), code.as_ref(), is_io, error.into())
}

/// An error with this code, or without one.
///
/// * `is_io`: whether an error without a code is of the connection.
pub(crate) fn classified(
    act: String,
    server: String,
    code: Option<&SqlState>,
    is_io: bool,
    source: Box<dyn std::error::Error + Send + Sync>,
) -> ServerError {
    let (is_lost, is_passing) = match code {
        Some(code) => (ends_connection(code), passes(code)),
        None => (is_io, false),
    };
    if is_lost {
        ServerError::Unreachable { act, server, source }
    } else if is_passing {
        ServerError::Busy { act, server, source }
    } else {
        ServerError::Refused { act, server, source }
    }
}

/// Whether the connection failed, not the server.
fn is_io(error: &tokio_postgres::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        if source.is::<std::io::Error>() {
            return true;
        }
        cause = source.source();
    }
    false
}

/// Whether the server is shutting down, or still starting.
fn ends_connection(code: &SqlState) -> bool {
    // Class 08: connection.
    let is_connection = code.code().starts_with("08");
    let gone = [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW];
    is_connection || gone.contains(code)
}

/// Whether the server may succeed later.
fn passes(code: &SqlState) -> bool {
    // Class 53: resources.
    let is_resource = code.code().starts_with("53");
    let passing = [
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::QUERY_CANCELED,
        SqlState::READ_ONLY_SQL_TRANSACTION,
    ];
    is_resource || passing.contains(code)
}

/// Whether the server refused to convert a text to the client's encoding, or from it.
#[must_use]
pub fn is_of_encoding(error: &tokio_postgres::Error) -> bool {
    let of = [SqlState::CHARACTER_NOT_IN_REPERTOIRE, SqlState::UNTRANSLATABLE_CHARACTER];
    error.code().is_some_and(|code| of.contains(code))
}

/// Whether the server refused the rows: their values, or constraints they violate.
#[must_use]
pub fn is_of_data(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(concerns_data)
}

fn concerns_data(code: &SqlState) -> bool {
    // Class 22: data exception, 23: integrity constraint violation.
    code.code().starts_with("22") || code.code().starts_with("23")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a code ends the connection, passes, and concerns the data.
    fn classes(code: &str) -> [bool; 3] {
        let code = SqlState::from_code(code);
        [ends_connection(&code), passes(&code), concerns_data(&code)]
    }

    #[test]
    fn a_code_has_at_most_one_class() {
        for code in ["08000", "08006", "57P01", "57P02", "57P03"] {
            assert_eq!(classes(code), [true, false, false], "{code}");
        }
        for code in ["40001", "40P01", "53100", "53300", "55P03", "57014", "25006"] {
            assert_eq!(classes(code), [false, true, false], "{code}");
        }
        for code in ["22001", "22P02", "23505", "23514"] {
            assert_eq!(classes(code), [false, false, true], "{code}");
        }
        for code in ["28P01", "3D000", "42501", "42P01", "0A000", "XX000"] {
            assert_eq!(classes(code), [false; 3], "{code}");
        }
    }

    #[test]
    fn an_address_that_cannot_be_says_so_without_its_password() {
        let url = Some("postgres://user:geheim@[".to_owned());
        let settings = ServerSettings { url, ..ServerSettings::default() };
        let error = Server::new(&settings).unwrap_err();
        assert!(matches!(error, ServerError::Settings { .. }), "{error}");
        assert!(!format!("{error} {error:?} {settings:?}").contains("geheim"));
    }
}
