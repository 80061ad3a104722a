//! Connections to a server, and what every session is set to.
//!
//! Invariants:
//! * An encrypted connection verifies the certificate and its host name.
//! * A statement that is not read to its end is killed, and its connection closed. The driver would read the
//!   remaining rows to throw them away.
//! * A packet larger than the limit of the session ends the connection; it is not stored.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::ServerError;
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::{Phase, Phases};
use futures_util::FutureExt as _;
use mysql_async::prelude::{FromRow, Queryable as _};
use mysql_async::{Conn, Opts, OptsBuilder, Params, Row, SslOpts};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use crate::address::Address;
use crate::error::{failure, is_too_large};
use crate::settings::{Settings, Tls};

/// Limit on connecting, and on ending a statement that is no longer wanted.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle time before the first keepalive probe.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Maximum size of a packet of a session that reads no rows of tables.
pub(crate) const PACKET_SIZE: usize = 16 << 20;

/// What every session is set to, whatever the server or the user has as default:
/// * texts in UTF-8 and times in UTC;
/// * no mode that changes what is read (`PAD_CHAR_TO_FULL_LENGTH`) or what a statement means;
/// * a server that waits for a slow destination, and for a stream whose units are read one by one;
/// * no wait without end for a table that is being altered.
const SESSION: [&str; 3] = [
    "SET NAMES utf8mb4",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SET SESSION time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES', autocommit = 1, \
     sql_select_limit = 18446744073709551615, sql_big_selects = 1, sql_auto_is_null = 0, \
     net_write_timeout = 86400, net_read_timeout = 86400, wait_timeout = 604800, lock_wait_timeout = 60",
];
/// Limits on the time of statements and transactions, which depend on the product.
const SESSION_OF_MARIADB: &str = "SET SESSION max_statement_time = 0, idle_transaction_timeout = 0, \
                                  idle_readonly_transaction_timeout = 0";
const SESSION_OF_MYSQL: &str = "SET SESSION max_execution_time = 0";

/// A server, and how it is reached.
#[derive(Clone)]
pub(crate) struct Server {
    options: OptsBuilder,
    name: Arc<str>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Server {
    /// Creates a server with these settings; reads only the file of certificates.
    ///
    /// # Errors
    /// The settings are invalid, or the file of certificates cannot be used.
    pub(crate) fn new(settings: &Settings) -> Result<Self> {
        let address = Address::of(settings)?;
        let is_encrypted = match settings.tls {
            Tls::Auto => !address.is_local(),
            Tls::Disable => false,
            Tls::Verify => true,
        };
        if is_encrypted && address.is_socket() {
            return Err(ConnectorError::unsupported(
                "a connection over a socket of this machine cannot be encrypted",
                "remove `tls: verify`",
            ));
        }
        let file = settings.tls_ca_file.as_ref().map(|file| PathBuf::from(&file.0));
        let tls = is_encrypted.then(|| trusting(file)).transpose()?;
        let socket = address.is_socket().then(|| address.host.clone());
        let options = OptsBuilder::default()
            .ip_or_hostname(address.host.clone())
            .tcp_port(address.port)
            .socket(socket)
            // The driver would otherwise change to the socket that the server names.
            .prefer_socket(false)
            .user(Some(address.user.clone()))
            .pass(address.password.clone())
            .db_name(Some(address.database.clone()))
            .ssl_opts(tls)
            .tcp_keepalive(Some(KEEPALIVE))
            .wait_timeout(Some(604_800))
            .stmt_cache_size(8);
        Ok(Self { options, name: address.name().into() })
    }

    /// Its name in messages: the server and the user.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Connects, and adds the time it takes to the phases of a run.
    ///
    /// * `packet_size`: maximum size of a row in bytes.
    ///
    /// # Errors
    /// The server was not reached, or refused.
    pub(crate) async fn connect(
        &self,
        packet_size: usize,
        phases: Option<&Phases>,
    ) -> Result<Session> {
        let begun = std::time::Instant::now();
        let mut session = self.open(packet_size).await?;
        let version: Option<(String,)> = session.first("connect", "SELECT VERSION()").await?;
        session.version = version.map(|(version,)| version).unwrap_or_default();
        let of_product = match session.is_mariadb() {
            true => SESSION_OF_MARIADB,
            false => SESSION_OF_MYSQL,
        };
        for statement in SESSION.iter().chain([&of_product]) {
            session.run("set up the session", statement).await?;
        }
        if let Some(phases) = phases {
            phases.add(Phase::Connect, begun);
        }
        Ok(session)
    }

    async fn open(&self, packet_size: usize) -> Result<Session> {
        let options = Opts::from(self.options.clone().max_allowed_packet(Some(packet_size)));
        let connecting = AssertUnwindSafe(Conn::new(options)).catch_unwind();
        let unreachable =
            |source| ConnectorError::Unreachable { what: self.name.to_string(), source };
        let conn = match timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(Ok(conn))) => conn,
            Ok(Ok(Err(error))) => {
                let act = format!("connect to {}", self.name);
                return Err(match failure(act, &self.name, error) {
                    // What the driver refuses concerns the connection: TLS, a method of authentication.
                    ConnectorError::Refused { source, .. }
                        if !source.is::<mysql_async::ServerError>() =>
                    {
                        unreachable(source)
                    }
                    error => error,
                });
            }
            Ok(Err(_)) => return Err(unreachable(INVALID.into())),
            Err(_) => {
                return Err(unreachable(format!("no answer in {CONNECT_TIMEOUT:?}").into()));
            }
        };
        let version = String::new();
        Ok(Session { conn: Some(conn), is_busy: false, server: self.clone(), version })
    }
}

/// The cause of an error that the driver does not expect.
const INVALID: &str = "the server sent an invalid packet";

/// Certificates that are trusted: those of a file, or the system's.
fn trusting(file: Option<PathBuf>) -> Result<SslOpts> {
    let mut roots = RootCertStore::empty();
    let mut trusted: Vec<Vec<u8>> = Vec::new();
    if let Some(file) = file {
        let unread = |source| ServerError::Certificates { path: file.clone(), source };
        let certificates =
            CertificateDer::pem_file_iter(&file).map_err(|error| unread(error.into()))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| unread(error.into()))?;
            roots.add(certificate.clone()).map_err(|error| unread(error.into()))?;
            trusted.push(certificate.to_vec());
        }
    } else {
        let found = rustls_native_certs::load_native_certs();
        for certificate in found.certs {
            // An unreadable one is not trusted.
            if roots.add(certificate.clone()).is_ok() {
                trusted.push(certificate.to_vec());
            }
        }
        tracing::debug!(trusted = trusted.len(), "loaded the system's certificates");
    }
    if trusted.is_empty() {
        return Err(ConnectorError::unsupported(
            "there is no certificate to trust",
            "set `tls_ca_file` to a file of certificates, or install the system's (ca-certificates)",
        ));
    }
    let trusted = trusted.into_iter().map(Into::into).collect();
    Ok(SslOpts::default().with_root_certs(trusted).with_disable_built_in_roots(true))
}

/// A connection.
pub(crate) struct Session {
    /// `None` after the end of the session only.
    conn: Option<Conn>,
    /// Whether a statement is being executed.
    is_busy: bool,
    server: Server,
    version: String,
}

impl Session {
    /// The version that the server reports.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Whether it is a MariaDB.
    pub(crate) fn is_mariadb(&self) -> bool {
        self.version.to_ascii_lowercase().contains("mariadb")
    }

    /// The server.
    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// The connection, for a statement. If it is not [`idle`](Self::idle) again when the session is dropped,
    /// the statement is killed.
    pub(crate) fn busy(&mut self) -> Result<&mut Conn> {
        self.is_busy = true;
        self.conn.as_mut().ok_or(ConnectorError::Stopped)
    }

    /// Whether a statement has not ended.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Declares that a statement has ended.
    pub(crate) fn idle(&mut self) {
        self.is_busy = false;
    }

    /// Executes a statement without a result, which cannot be prepared.
    pub(crate) async fn run(&mut self, act: &str, sql: &str) -> Result<()> {
        let name = Arc::clone(&self.server.name);
        let done = AssertUnwindSafe(self.busy()?.query_drop(sql)).catch_unwind().await;
        let done = done.map_err(|_| invalid(&name))?;
        self.idle();
        done.map_err(|error| failure(act, &name, error))
    }

    /// Returns the rows of a query, which are few.
    ///
    /// * `act`: what is attempted.
    pub(crate) async fn query<T: FromRow + Send + 'static>(
        &mut self,
        act: &str,
        sql: &str,
        parameters: impl Into<Params> + Send,
    ) -> Result<Vec<T>> {
        self.query_or(sql, parameters).await?.map_err(|error| {
            let name = self.server.name();
            match is_too_large(&error) {
                true => too_large(act, PACKET_SIZE),
                false => failure(act, name, error),
            }
        })
    }

    /// As [`query`](Self::query), with the error of the server as it is.
    pub(crate) async fn query_or<T: FromRow + Send + 'static>(
        &mut self,
        sql: &str,
        parameters: impl Into<Params> + Send,
    ) -> Result<Result<Vec<T>, mysql_async::Error>> {
        let name = Arc::clone(&self.server.name);
        let conn = self.busy()?;
        let asked = AssertUnwindSafe(conn.exec::<Row, _, _>(sql, parameters)).catch_unwind().await;
        let rows = match asked.map_err(|_| invalid(&name))? {
            Ok(rows) => rows,
            Err(error) => {
                if !error.is_fatal() {
                    self.idle();
                }
                return Ok(Err(error));
            }
        };
        self.idle();
        let rows = rows.into_iter().map(|row| T::from_row_opt(row).map_err(|_| invalid(&name)));
        rows.collect::<Result<Vec<T>>>().map(Ok)
    }

    /// The first row of a query without parameters.
    pub(crate) async fn first<T: FromRow + Send + 'static>(
        &mut self,
        act: &str,
        sql: &str,
    ) -> Result<Option<T>> {
        Ok(self.query(act, sql, ()).await?.into_iter().next())
    }
}

/// The error of an answer that is not as the protocol requires.
pub(crate) fn invalid(server: &str) -> ConnectorError {
    ConnectorError::Unreachable { what: server.to_owned(), source: INVALID.into() }
}

/// The error of a row that does not fit in memory.
pub(crate) fn too_large(place: &str, limit: usize) -> ConnectorError {
    ConnectorError::unsupported(
        format!("cannot {place}: a row is larger than {limit} bytes"),
        "increase `resources.max_memory`, of which a row may take a quarter, or leave out the column with \
         `columns`",
    )
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(conn) = self.conn.take().filter(|_| self.is_busy) else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        let server = self.server.clone();
        runtime.spawn(async move { kill(conn, &server).await });
    }
}

/// Closes a connection, and ends the statement that it executes: a server notices that a client has gone only
/// when it sends a row.
async fn kill(conn: Conn, server: &Server) {
    let (id, deadline) = (conn.id(), Instant::now() + CONNECT_TIMEOUT);
    let ended = tokio::time::timeout_at(deadline, async {
        if let Err(error) = conn.disconnect().await {
            tracing::debug!(%error, "a connection was closed by the server");
        }
        server.open(PACKET_SIZE).await?.run("end a statement", &format!("KILL {id}")).await
    });
    // Usually the server has ended it by itself, and reports that there is none.
    if let Ok(Err(error)) = ended.await {
        tracing::debug!(%error, id, "there was no statement to end");
    }
}
