//! Connections over sockets of this process, encrypted by rustls.
//!
//! Invariant: a server that a redirect or a page names is not reached at an address that is not public, unless its
//! name is an address or one of a local network.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use forebay_base::network::{is_local_name, is_public};
use forebay_sdk::ConnectorError;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::address::{Origin, Reached};

/// A stream of bytes.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin + std::fmt::Debug {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + std::fmt::Debug> Stream for S {}

/// How certificates are verified.
#[derive(Clone)]
pub(crate) struct Encryption(Arc<ClientConfig>);

impl Encryption {
    /// By those of a file, or the system's.
    ///
    /// # Errors
    /// The file cannot be read, or there is no certificate.
    pub(crate) fn trusting(file: Option<&str>) -> Result<Self, ConnectorError> {
        let mut roots = RootCertStore::empty();
        if let Some(file) = file {
            let unread = |error: Box<dyn std::error::Error + Send + Sync>| {
                ConnectorError::file("read certificates of", file, error)
            };
            let certificates = CertificateDer::pem_file_iter(Path::new(file))
                .map_err(|error| unread(error.into()))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| unread(error.into()))?;
                roots.add(certificate).map_err(|error| unread(error.into()))?;
            }
        } else {
            // An unreadable one is not trusted.
            let found = rustls_native_certs::load_native_certs();
            let (_, refused) = roots.add_parsable_certificates(found.certs);
            tracing::debug!(
                refused,
                errors = found.errors.len(),
                "loaded the system's certificates"
            );
        }
        if roots.is_empty() {
            return Err(ConnectorError::unsupported(
                "there is no certificate to trust",
                "set `tls_ca_file` to a file of certificates, or install the system's (ca-certificates)",
            ));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| ConnectorError::Refused {
                act: "set up TLS".to_owned(),
                source: error.into(),
            })?;
        Ok(Self(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
    }
}

/// Connects to a server.
///
/// # Errors
/// It was not reached, its certificate is not trusted, or its address may not be used.
pub(crate) async fn open(
    origin: &Origin,
    reached: Reached,
    encryption: Option<&Encryption>,
    _limit: std::time::Duration,
) -> Result<Box<dyn Stream>, ConnectorError> {
    let named = format!("{}:{}", origin.host(), origin.port());
    let failed = |error: io::Error| ConnectorError::Unreachable {
        what: named.clone(),
        source: error.into(),
    };
    let found = tokio::net::lookup_host((origin.host(), origin.port())).await.map_err(failed)?;
    let mut last = io::Error::other("the name has no address");
    let mut connected = None;
    for address in found {
        if reached == Reached::Other {
            judge(origin.host(), address.ip())?;
        }
        match TcpStream::connect(address).await {
            Ok(stream) => {
                connected = Some(stream);
                break;
            }
            Err(error) => last = error,
        }
    }
    let Some(stream) = connected else { return Err(failed(last)) };
    stream.set_nodelay(true).map_err(failed)?;
    let Some(Encryption(config)) = encryption else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from(origin.host().to_owned())
        .map_err(|error| failed(io::Error::other(error)))?;
    let connecting = TlsConnector::from(Arc::clone(config)).connect(name, stream);
    Ok(Box::new(connecting.await.map_err(failed)?))
}

/// Refuses an address that is not public, unless the name is an address or one of a local network.
fn judge(host: &str, address: IpAddr) -> Result<(), ConnectorError> {
    if host.parse::<IpAddr>().is_ok() || is_public(address) || is_local_name(host) {
        return Ok(());
    }
    Err(ConnectorError::unsupported(
        format!("{host} is the address {address}, which is not public"),
        "name the address itself in `other_hosts` if it should be reached",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_name_with_a_private_address_is_refused() {
        let private: IpAddr = "169.254.169.254".parse().unwrap();
        assert!(judge("files.example.org", private).is_err());
        assert!(judge("169.254.169.254", private).is_ok());
        assert!(judge("nas.lan", private).is_ok());
        assert!(judge("files.example.org", "1.1.1.1".parse().unwrap()).is_ok());
    }
}
