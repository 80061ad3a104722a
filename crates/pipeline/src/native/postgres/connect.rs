//! Connections to a PostgreSQL, and what its errors mean.
//!
//! A connection is ended when it is dropped; the server then rolls back what was not committed.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::settings::{Settings, Tls};
use crate::connector::Result;
use crate::error::ConnectorError;
use crate::run::{Phase, Phases};

/// How long a server may take to answer at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Where a server is and how it is reached.
#[derive(Debug, Clone)]
pub(super) struct Server {
    config: Config,
    tls: Option<Arc<ClientConfig>>,
    /// For people: no secret in it.
    name: String,
}

impl Server {
    /// The server of these settings; asks nobody.
    pub(super) fn new(settings: &Settings) -> Result<Self> {
        let mut config = match &settings.url {
            // What is wrong with it would show a part of it.
            Some(url) => url.expose().parse::<Config>().map_err(|_| {
                ConnectorError::unsupported(
                    "`url` is no PostgreSQL address",
                    "write postgres://user:password@host:port/database, with special characters as %XX",
                )
            })?,
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
            || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let is_encrypted = match settings.tls {
            Tls::Auto => !is_local,
            Tls::Disable => false,
            Tls::Verify => true,
        };
        config
            .application_name("forebay")
            .connect_timeout(CONNECT_TIMEOUT)
            .ssl_mode(if is_encrypted { SslMode::Require } else { SslMode::Disable })
            .options(
                "-c statement_timeout=0 -c idle_in_transaction_session_timeout=0 \
                 -c client_encoding=UTF8 -c DateStyle=ISO -c IntervalStyle=postgres -c TimeZone=UTC \
                 -c extra_float_digits=1 -c bytea_output=hex -c search_path=pg_catalog",
            );
        let tls = is_encrypted
            .then(|| trusting(settings.tls_ca_file.as_ref().map(|file| Path::new(&file.0))));
        let name = format!("PostgreSQL {database} at {host}:{port} as {user}");
        Ok(Self { config, tls: tls.transpose()?.map(Arc::new), name })
    }

    /// For people.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Connects.
    pub(super) async fn connect(&self, phases: Option<&Phases>) -> Result<Client> {
        let begun = Instant::now();
        let client = match &self.tls {
            None => {
                let (client, connection) =
                    self.config.connect(NoTls).await.map_err(|e| self.failed(e))?;
                drive(connection);
                client
            }
            Some(tls) => {
                let tls = MakeRustlsConnect::new(ClientConfig::clone(tls));
                let (client, connection) =
                    self.config.connect(tls).await.map_err(|e| self.failed(e))?;
                drive(connection);
                client
            }
        };
        if let Some(phases) = phases {
            phases.add(Phase::Connect, begun);
        }
        Ok(client)
    }

    /// A connection that did not come about. What the server itself says (a wrong password) stays so.
    fn failed(&self, error: tokio_postgres::Error) -> ConnectorError {
        let is_refusal = error.as_db_error().is_some_and(|error| !passes(error.code()));
        if is_refusal {
            ConnectorError::Refused {
                act: format!("connect to {}", self.name),
                source: error.into(),
            }
        } else {
            ConnectorError::Unreachable { what: self.name.clone(), source: error.into() }
        }
    }
}

/// Connections to a server that nobody uses at the moment: a new one costs a process there.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) server: Server,
    idle: Mutex<Vec<Client>>,
}

impl Pool {
    pub(super) fn new(server: Server) -> Self {
        Self { server, idle: Mutex::default() }
    }

    /// One that was given back, or a new one.
    pub(super) async fn client(&self, phases: Option<&Phases>) -> Result<Client> {
        let idle = self.idle.lock().pop();
        match idle {
            Some(client) if !client.is_closed() => Ok(client),
            _ => self.server.connect(phases).await,
        }
    }

    /// Takes one back that has no transaction open.
    pub(super) fn give_back(&self, client: Client) {
        self.idle.lock().push(client);
    }
}

/// Does a connection's reading and writing until its client is dropped.
fn drive<S, T>(connection: tokio_postgres::Connection<S, T>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    tokio::spawn(async move {
        // Whoever waits for an answer is told the same.
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to PostgreSQL ended");
        }
    });
}

fn from_fields(settings: &Settings) -> Config {
    let mut config = Config::new();
    config.host(&settings.host.0).port(settings.port.get()).user(&settings.user.0);
    if let Some(database) = &settings.database {
        config.dbname(&database.0);
    }
    if let Some(password) = &settings.password {
        config.password(password.expose());
    }
    config
}

/// What checks certificates: those of a file, or the system's.
fn trusting(file: Option<&Path>) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = file {
        let unread = |source: Box<dyn std::error::Error + Send + Sync>| {
            ConnectorError::file("read certificates of", file, source)
        };
        let certificates = CertificateDer::pem_file_iter(file).map_err(|e| unread(e.into()))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|e| unread(e.into()))?;
            roots.add(certificate).map_err(|e| unread(e.into()))?;
        }
    } else {
        // One that cannot be read is one less that is trusted.
        let found = rustls_native_certs::load_native_certs();
        let (_, refused) = roots.add_parsable_certificates(found.certs);
        tracing::debug!(
            refused,
            errors = found.errors.len(),
            "the system's certificates were read"
        );
    }
    if roots.is_empty() {
        return Err(ConnectorError::unsupported(
            "there is no certificate to trust",
            "name a file of certificates in `tls_ca_file`, or install the system's (ca-certificates)",
        ));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ConnectorError::Refused {
            act: "set up TLS".into(),
            source: error.into(),
        })?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// What an error of a server means.
///
/// * `act`: what was attempted.
pub(super) fn refused(act: impl Into<String>, error: tokio_postgres::Error) -> ConnectorError {
    let act = act.into();
    match error.as_db_error().map(tokio_postgres::error::DbError::code) {
        Some(code) if passes(code) => ConnectorError::Busy { act, source: error.into() },
        Some(_) => ConnectorError::Refused { act, source: error.into() },
        None if error.is_closed() || is_io(&error) => ConnectorError::Unreachable {
            what: format!("the server to {act}"),
            source: error.into(),
        },
        None => ConnectorError::Refused { act, source: error.into() },
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

/// Whether what the server could not do now it may do later.
fn passes(code: &SqlState) -> bool {
    // Class 08: connection, 53: resources, 57P: shut down or starting.
    let class = code.code().get(..2).unwrap_or_default();
    class == "08"
        || class == "53"
        || [
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::LOCK_NOT_AVAILABLE,
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
        ]
        .contains(code)
}

/// Whether the server did not like the rows: their values, or what they break.
pub(super) fn is_of_data(error: &tokio_postgres::Error) -> bool {
    // Class 22: data exception, 23: integrity constraint violation.
    let code = error.as_db_error().map(|error| error.code().code());
    code.is_some_and(|code| code.starts_with("22") || code.starts_with("23"))
}
