//! Connections over sockets of this process, encrypted by rustls.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::ServerError;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_postgres::config::{Host, SslMode, SslNegotiation};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect as _};
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{Server, Socket, ask_for_encryption, drive};
use crate::coalesce::{Encrypted, Plain};

/// Idle time before the first keepalive probe, and the interval between probes.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));
/// How long sent bytes may stay unacknowledged before the connection is dropped.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// How certificates are verified.
#[derive(Debug, Clone)]
pub(super) struct Encryption(Arc<ClientConfig>);

impl Encryption {
    /// By those of a file, or the system's.
    pub(super) fn trusting(file: Option<&Path>) -> Result<Self, ServerError> {
        trusting(file).map(Arc::new).map(Self)
    }
}

/// Notices a server that has gone.
pub(super) fn keep_alive(config: &mut Config) {
    config
        .keepalives_idle(KEEPALIVE.0)
        .keepalives_interval(KEEPALIVE.1)
        .tcp_user_timeout(SEND_TIMEOUT);
}

impl Server {
    /// How its certificate is verified; `None` for an unencrypted connection.
    pub(crate) fn tls(&self) -> Option<ClientConfig> {
        self.tls.as_ref().map(|tls| ClientConfig::clone(&tls.0))
    }

    /// Opens a socket of a connection in replication mode; whether it is encrypted.
    ///
    /// * `host`: the index of the host.
    pub(crate) async fn socket(&self, host: usize) -> io::Result<(Box<dyn Socket>, bool)> {
        // One port is that of all hosts.
        let ports = self.config.get_ports();
        let port = ports.get(host).or(ports.first()).copied().unwrap_or(5432);
        let host = match self.config.get_hosts().get(host) {
            Some(Host::Tcp(host)) => host.clone(),
            #[cfg(unix)]
            Some(Host::Unix(directory)) => {
                let path = directory.join(format!(".s.PGSQL.{port}"));
                return Ok((Box::new(tokio::net::UnixStream::connect(path).await?), false));
            }
            None => "127.0.0.1".to_owned(),
        };
        let mut socket = TcpStream::connect((&*host, port)).await?;
        socket.set_nodelay(true)?;
        probe(&socket, &self.config)?;
        let Some(tls) = self.tls() else { return Ok((Box::new(socket), false)) };
        ask_for_encryption(&mut socket).await?;
        let mut make = MakeRustlsConnect::new(tls);
        let connect = MakeTlsConnect::<TcpStream>::make_tls_connect(&mut make, &host);
        let connect =
            connect.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok((Box::new(connect.connect(socket).await?), true))
    }

    /// Whether the server is accessed through a local socket.
    fn is_socket_file(&self) -> bool {
        self.config.get_hosts().iter().any(|host| !matches!(host, Host::Tcp(_)))
    }

    /// Makes a connection. A task of the current runtime does the reading and writing.
    pub(super) async fn open(&self) -> Result<Client, ServerError> {
        let failed = |error| self.failed(error);
        match &self.tls {
            None if self.is_socket_file() => {
                let (client, connection) = self.config.connect(NoTls).await.map_err(failed)?;
                drive(connection);
                Ok(client)
            }
            None => {
                // This is not encryption: it only merges messages.
                let mut config = self.config.clone();
                config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
                let (client, connection) = config.connect(Plain).await.map_err(failed)?;
                drive(connection);
                Ok(client)
            }
            Some(Encryption(tls)) => {
                let tls = Encrypted(MakeRustlsConnect::new(ClientConfig::clone(tls)));
                let (client, connection) = self.config.connect(tls).await.map_err(failed)?;
                drive(connection);
                Ok(client)
            }
        }
    }
}

/// A server that is gone without a word is noticed.
fn probe(socket: &TcpStream, config: &Config) -> io::Result<()> {
    let mut probes = socket2::TcpKeepalive::new().with_time(config.get_keepalives_idle());
    if let Some(interval) = config.get_keepalives_interval() {
        probes = probes.with_interval(interval);
    }
    let socket = socket2::SockRef::from(socket);
    socket.set_tcp_keepalive(&probes)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(config.get_tcp_user_timeout().copied())?;
    Ok(())
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
