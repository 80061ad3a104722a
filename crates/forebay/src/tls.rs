//! TLS from files: rustls with the ring provider, TLS 1.2 and 1.3, HTTP/1.1 by ALPN.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate or key that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum TlsError {
    /// The file cannot be read as PEM.
    #[error("cannot read {what} from {}", path.display())]
    Pem {
        /// What was looked for.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        #[source]
        source: pem::Error,
    },
    /// The file has no certificate in it.
    #[error("{} holds no certificate", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Certificate and key do not make a server.
    #[error("{} and {} cannot be used together", cert.display(), key.display())]
    Pair {
        /// The certificate file.
        cert: PathBuf,
        /// The key file.
        key: PathBuf,
        /// Why not.
        #[source]
        source: tokio_rustls::rustls::Error,
    },
}

/// Reads a certificate chain and its key and makes the acceptor of connections.
///
/// # Errors
/// [`TlsError`]: which file, and why.
pub(crate) fn acceptor(cert: &Path, key: &Path) -> Result<TlsAcceptor, TlsError> {
    let unreadable = |what, path: &Path| {
        let path = path.to_owned();
        move |source| TlsError::Pem { what, path, source }
    };
    let chain = CertificateDer::pem_file_iter(cert)
        .map_err(unreadable("a certificate chain", cert))?
        .collect::<Result<Vec<_>, _>>()
        .map_err(unreadable("a certificate chain", cert))?;
    if chain.is_empty() {
        return Err(TlsError::Empty { path: cert.to_owned() });
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(unreadable("a private key", key))?;
    let pair = |source| TlsError::Pair { cert: cert.to_owned(), key: key.to_owned(), source };
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(pair)?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(pair)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
