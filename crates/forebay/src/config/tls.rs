//! The settings that name certificates and their keys.

use super::error::Fault;
use super::settings::Config;

/// Checks that a certificate and its key are set together.
///
/// # Errors
/// The pair of which only one is set.
pub(super) fn check(config: &Config) -> Result<(), Fault> {
    let pairs = [
        ("server", config.server.tls_cert.is_some(), config.server.tls_key.is_some()),
        ("cache", config.cache.tls_cert.is_some(), config.cache.tls_key.is_some()),
    ];
    match pairs.into_iter().find(|(_, cert, key)| cert != key) {
        Some((section, ..)) => {
            let (cert, key) = (format!("{section}.tls_cert"), format!("{section}.tls_key"));
            let problem = format!("{cert} and {key} belong together: set both or neither");
            Err(Fault::between(&[&cert, &key], problem))
        }
        None => Ok(()),
    }
}
