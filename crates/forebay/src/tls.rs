//! TLS from files: rustls with the ring provider, TLS 1.2 and 1.3; over HTTP, HTTP/1.1 by ALPN.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use forebay_base::error_chain::chain;
use parking_lot::Mutex;

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
    let mut config = load(cert, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Reads a certificate chain and its key.
fn load(cert: &Path, key: &Path) -> Result<ServerConfig, TlsError> {
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
    ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(pair)?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(pair)
}

/// How often is looked whether the files have changed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A certificate and key that are read again when their files change. Files that cannot be used
/// are told of once, and what served before goes on.
#[derive(Debug)]
pub(crate) struct Renewed {
    cert: PathBuf,
    key: PathBuf,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    config: Arc<ServerConfig>,
    looked: Instant,
    stamps: [Stamp; 2],
}

/// What tells a file from one that was there before.
type Stamp = Option<(SystemTime, u64)>;

impl Renewed {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// [`TlsError`]: which file, and why.
    pub(crate) fn open(cert: PathBuf, key: PathBuf) -> Result<Self, TlsError> {
        let stamps = [stamp(&cert), stamp(&key)];
        let config = Arc::new(load(&cert, &key)?);
        let held = Mutex::new(Held { config, looked: Instant::now(), stamps });
        Ok(Self { cert, key, held })
    }

    /// What serves connections that come now.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        let mut held = self.held.lock();
        if held.looked.elapsed() >= LOOK_EVERY {
            held.looked = Instant::now();
            // Noted before they are read: what changes meanwhile is read again.
            let stamps = [stamp(&self.cert), stamp(&self.key)];
            if stamps != held.stamps {
                held.stamps = stamps;
                match load(&self.cert, &self.key) {
                    Ok(config) => {
                        held.config = Arc::new(config);
                        tracing::info!(cert = ?self.cert, "the certificate was read anew");
                    }
                    Err(error) => tracing::warn!(
                        error = %chain(&error),
                        "the changed certificate cannot be used; the one before goes on"
                    ),
                }
            }
        }
        Arc::clone(&held.config)
    }
}

fn stamp(path: &Path) -> Stamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}
