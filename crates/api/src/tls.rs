//! TLS from files: rustls with the ring provider, TLS 1.2 and 1.3; for HTTP, HTTP/1.1 by ALPN.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use forebay_base::error_chain::chain;
use parking_lot::Mutex;

use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{Error, ServerConfig};

/// A certificate or key that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The file cannot be read as PEM.
    #[error("cannot read {what} from {}", path.display())]
    Pem {
        /// The kind of content.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: pem::Error,
    },
    /// The file contains no certificate.
    #[error("{} contains no certificate", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The key belongs to another certificate.
    #[error("the private key in {} does not belong to the certificate in {}", key.display(), cert.display())]
    Mismatch {
        /// The certificate file.
        cert: PathBuf,
        /// The key file.
        key: PathBuf,
    },
    /// The certificate or the key cannot be used.
    #[error("{} and {} cannot be used together", cert.display(), key.display())]
    Pair {
        /// The certificate file.
        cert: PathBuf,
        /// The key file.
        key: PathBuf,
        /// The cause.
        #[source]
        source: Error,
    },
}

/// Reads a certificate chain and its key.
fn load(cert: &Path, key: &Path, protocols: &[&[u8]]) -> Result<ServerConfig, TlsError> {
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
    let pair = |source| {
        let (cert, key) = (cert.to_owned(), key.to_owned());
        match source {
            Error::InconsistentKeys(_) => TlsError::Mismatch { cert, key },
            source => TlsError::Pair { cert, key, source },
        }
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(pair)?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(pair)?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}

/// Interval between checks of the files.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A certificate and key that are read again when their files change. Files that cannot be used
/// are reported once, and the previous certificate stays in use.
#[derive(Debug)]
pub struct Renewed {
    cert: PathBuf,
    key: PathBuf,
    /// Protocols offered by ALPN.
    protocols: &'static [&'static [u8]],
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    config: Arc<ServerConfig>,
    looked: Instant,
    stamps: [Stamp; 2],
}

/// Identity of a version of a file.
type Stamp = Option<(SystemTime, u64)>;

impl Renewed {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// [`TlsError`]: which file, and why.
    pub fn open(cert: PathBuf, key: PathBuf) -> Result<Self, TlsError> {
        Self::offering(cert, key, &[])
    }

    /// The same for HTTP/1.1.
    ///
    /// # Errors
    /// As [`Renewed::open`].
    pub fn for_http(cert: PathBuf, key: PathBuf) -> Result<Self, TlsError> {
        Self::offering(cert, key, &[b"http/1.1"])
    }

    fn offering(
        cert: PathBuf,
        key: PathBuf,
        protocols: &'static [&'static [u8]],
    ) -> Result<Self, TlsError> {
        let stamps = [stamp(&cert), stamp(&key)];
        let config = Arc::new(load(&cert, &key, protocols)?);
        let held = Mutex::new(Held { config, looked: Instant::now(), stamps });
        Ok(Self { cert, key, protocols, held })
    }

    /// Requests that the files are read again for the next connection, changed or not.
    pub fn reload(&self) {
        let mut held = self.held.lock();
        held.stamps = [None, None];
        held.looked = Instant::now().checked_sub(LOOK_EVERY).unwrap_or(held.looked);
    }

    /// Returns the configuration for new connections.
    pub fn config(&self) -> Arc<ServerConfig> {
        let mut held = self.held.lock();
        if held.looked.elapsed() >= LOOK_EVERY {
            held.looked = Instant::now();
            // Recorded before the files are read, so that a change meanwhile causes another read.
            let stamps = [stamp(&self.cert), stamp(&self.key)];
            if stamps != held.stamps {
                held.stamps = stamps;
                match load(&self.cert, &self.key, self.protocols) {
                    Ok(config) => {
                        held.config = Arc::new(config);
                        tracing::info!(cert = ?self.cert, "certificate reloaded");
                    }
                    Err(error) => tracing::warn!(
                        error = %chain(&error),
                        "cannot use the changed certificate; the previous one stays in use"
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
