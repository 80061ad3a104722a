//! The byte stream of a client's connection: plain, or over TLS with the server's certificate
//! verified.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, ClientConnection, Error, RootCertStore, StreamOwned,
};

/// Paths of the trusted certificates on Linux systems.
const SYSTEM_ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// How a client verifies its server.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// PEM file with the CA certificates to trust; by default those of the system.
    pub roots: Option<PathBuf>,
    /// The name in its certificate; by default the address.
    pub name: Option<String>,
}

/// A connection.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// Starts TLS.
    pub(super) fn over_tls(
        mut socket: TcpStream,
        address: SocketAddr,
        trust: &Trust,
    ) -> anyhow::Result<Self> {
        let name = match &trust.name {
            Some(name) => ServerName::try_from(name.clone())
                .with_context(|| format!("{name} is not a valid name for a certificate"))?,
            None => ServerName::from(address.ip()),
        };
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .context("cannot set up TLS")?
            .with_root_certificates(roots(trust.roots.as_deref())?)
            .with_no_client_auth();
        let mut session =
            ClientConnection::new(Arc::new(config), name).context("cannot set up TLS")?;
        // The handshake is done here, so that its errors are reported as such.
        while session.is_handshaking() {
            session
                .complete_io(&mut socket)
                .map_err(explained)
                .with_context(|| format!("TLS handshake with {address} failed"))?;
        }
        Ok(Self::Tls(Box::new(StreamOwned::new(session, socket))))
    }

    /// Returns the underlying socket.
    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        }
    }
}

/// Replaces an error whose text names no remedy.
fn explained(error: io::Error) -> anyhow::Error {
    match error.get_ref().and_then(|error| error.downcast_ref()) {
        Some(error) if is_of_ca(error) => anyhow!(OF_CA),
        Some(Error::InvalidMessage(_)) => anyhow!("the server does not speak TLS on this port"),
        _ => error.into(),
    }
}

/// What is wrong with a server's certificate that says it is one of a CA. rustls does not accept it
/// of a server, even if it is trusted.
pub const OF_CA: &str = "the server's certificate says that it is one of a CA, which cannot be a \
    server's; make one with `-addext basicConstraints=critical,CA:FALSE`, or one that this CA signs";

/// Returns whether a server's certificate was refused because it is one of a CA.
pub fn is_of_ca(error: &Error) -> bool {
    // The reason has a type of the verifier that rustls uses, and no other text.
    matches!(error, Error::InvalidCertificate(CertificateError::Other(reason))
        if reason.to_string().contains("CaUsedAsEndEntity"))
}

fn roots(given: Option<&Path>) -> anyhow::Result<RootCertStore> {
    let from_environment = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let path = match given.map(Path::to_path_buf).or(from_environment) {
        Some(path) => path,
        None => SYSTEM_ROOTS
            .iter()
            .map(PathBuf::from)
            .find(|path| path.is_file())
            .context("no CA certificates found on this system; name a file with --tls-ca")?,
    };
    let about = || format!("cannot read certificates from {}", path.display());
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(&path).with_context(about)?;
    let certificates = certificates.collect::<Result<Vec<_>, _>>().with_context(about)?;
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 {
        bail!("{} contains no certificate", path.display());
    }
    Ok(roots)
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}
