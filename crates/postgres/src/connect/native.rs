//! Connections over sockets of this process, encrypted by rustls.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::ServerError;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::config::{Host, SslMode, SslNegotiation};
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{Server, drive};
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
