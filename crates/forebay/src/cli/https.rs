//! HTTPS of commands that talk to a server: which certificates they trust.
//!
//! Trusted are the certificates of a file (`--ca-file`), or else the system's, which `SSL_CERT_FILE` and
//! `SSL_CERT_DIR` replace.
//!
//! Invariant: a certificate and its host name are always verified; nothing switches that off, not even on loopback.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use forebay_console::cache_client::{OF_CA, is_of_ca};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::exit::{Coded, Exit};

/// An HTTP client of a server. It returns every status as an answer.
///
/// # Errors
/// See [`config`].
pub(super) fn agent(url: &str, ca_file: Option<&Path>) -> anyhow::Result<ureq::Agent> {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .tls_config(config(url, ca_file)?)
        .build();
    Ok(config.into())
}

/// The settings of TLS for a client of a server.
///
/// * `ca_file`: a file with the certificates to trust instead of the system's, in PEM.
///
/// # Errors
/// The file cannot be used, is given for a server without TLS (exit code 2), or there are no certificates to trust.
pub(super) fn config(url: &str, ca_file: Option<&Path>) -> anyhow::Result<TlsConfig> {
    let is_https = url.starts_with("https://");
    let certificates = match ca_file {
        Some(_) if !is_https => {
            let text = format!("--ca-file requires a server with https://, and {url} has none");
            return Err(Coded::error(Exit::Usage, text));
        }
        Some(file) => of_file(file)
            .with_context(|| format!("cannot use the certificates in {}", file.display()))?,
        // An unreadable one is not trusted.
        None if is_https => rustls_native_certs::load_native_certs().certs,
        // A server without TLS that redirects to one with TLS is not trusted.
        None => Vec::new(),
    };
    if is_https && certificates.is_empty() {
        let text = "there is no certificate to trust; install the system's (ca-certificates), or name a file \
                    of certificates in SSL_CERT_FILE";
        return Err(Coded::error(Exit::Failed, text));
    }
    let roots: Vec<_> =
        certificates.iter().map(|it| Certificate::from_der(it).to_owned()).collect();
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(roots)))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build())
}

/// The certificates of a file, of which there is at least one, and each can be used.
fn of_file(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let mut usable = RootCertStore::empty();
    let mut certificates = Vec::new();
    for certificate in CertificateDer::pem_file_iter(file)? {
        let certificate = certificate?;
        usable.add(certificate.clone())?;
        certificates.push(certificate);
    }
    match certificates.is_empty() {
        true => Err(anyhow!("it has none; certificates in PEM are expected")),
        false => Ok(certificates),
    }
}

/// Why there is no answer to a request.
#[derive(Debug, thiserror::Error)]
pub(super) enum Cause {
    /// An answer that is not HTTP came from a port that is asked without TLS.
    #[error("the answer is not HTTP; if the server speaks HTTPS, write https:// in its URL")]
    NotHttp(#[source] Box<ureq::Error>),
    /// An answer that is not TLS.
    #[error(
        "the server does not speak HTTPS on this port; if it speaks HTTP, write http:// in its URL"
    )]
    NotTls,
    /// The server's certificate is that of a CA, which rustls does not accept of a server even if it
    /// is trusted.
    #[error("{OF_CA}")]
    OfCa,
    /// Another one.
    #[error(transparent)]
    Other(Box<ureq::Error>),
}

impl Cause {
    /// Returns the cause of `error`, which a request to a server led to.
    pub(super) fn of(error: ureq::Error) -> Self {
        match tls_error(&error) {
            Some(rustls::Error::InvalidMessage(_)) => Self::NotTls,
            Some(error) if is_of_ca(error) => Self::OfCa,
            Some(_) => Self::Other(Box::new(error)),
            // The parser's reason has no public type.
            None if error.to_string().contains("http parse fail") => Self::NotHttp(Box::new(error)),
            None => Self::Other(Box::new(error)),
        }
    }

    /// Whether the same request may succeed later.
    pub(super) fn passes(&self) -> bool {
        match self {
            // The name of a server, or what was sent, is not going to change.
            Self::Other(error) => !matches!(**error, ureq::Error::BadUri(_) | ureq::Error::Http(_)),
            Self::NotHttp(_) => true,
            Self::NotTls | Self::OfCa => false,
        }
    }
}

/// The error of TLS in an error of a request, if it has one.
fn tls_error(error: &ureq::Error) -> Option<&rustls::Error> {
    match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => error.get_ref()?.downcast_ref(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_certificates_is_used_whole_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.pem");
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let url = "https://localhost:1";
        for (text, is_usable) in [
            (made.cert.pem(), true),
            (made.cert.pem().repeat(2), true),
            (made.signing_key.serialize_pem(), false),
            (String::new(), false),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned(), false),
        ] {
            std::fs::write(&file, &text).unwrap();
            assert_eq!(config(url, Some(&file)).is_ok(), is_usable, "{text}");
        }
        assert!(config(url, Some(&dir.path().join("missing"))).is_err());
        std::fs::write(&file, made.cert.pem()).unwrap();
        let error = config("http://localhost:1", Some(&file)).unwrap_err();
        assert!(error.to_string().contains("https://"), "{error}");
        assert!(!config(url, Some(&file)).unwrap().disable_verification());
    }
}
