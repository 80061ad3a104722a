//! The S3-compatible port: its listener, and its credentials from the API keys.
//!
//! It is bound with the main port, so that an address in use stops the start, and answers 503 until the
//! intake is open.

use std::sync::Arc;

use forebay_api::keys::{KeyRing, MasterKey};
use forebay_api::serve;
use forebay_s3::{Port, Settings};
use tokio::net::TcpListener;

use crate::config::Config;
use crate::exit::{Coded, Exit};
use crate::ports;

/// The port, and the socket it listens on.
pub(crate) struct Bound {
    pub(crate) port: Arc<Port>,
    pub(crate) listener: TcpListener,
    pub(crate) url: String,
}

/// Binds the address of the port, if there is one.
///
/// # Errors
/// The address cannot be bound, or the master key cannot be read (exit code 3).
pub(crate) fn bind(config: &Config, keys: &Arc<KeyRing>) -> anyhow::Result<Option<Bound>> {
    let Some(asked) = config.s3.listen else { return Ok(None) };
    let failed = |act: &str, error: anyhow::Error| Coded::wrap(Exit::Start, act, error);
    let master = MasterKey::open(&config.process.data)
        .map_err(|error| failed("cannot open the master key", error.into()))?;
    let listener =
        serve::bind(asked).map_err(|error| ports::refused("s3.listen", asked, &error))?;
    let address = listener
        .local_addr()
        .map_err(|error| failed("cannot determine the local address", error.into()))?;
    let settings =
        Settings { region: config.s3.region.clone(), domains: config.s3.domains.0.clone() };
    let port = Arc::new(Port::new(settings, Arc::clone(keys), master));
    let tls = config.server.tls_cert.is_some();
    if !address.ip().is_loopback() && !tls {
        tracing::warn!(%address, "no TLS: objects cross the network unencrypted");
    }
    if keys.is_empty() {
        tracing::warn!(
            "the S3 port accepts no request without an API key; create one with forebay key new"
        );
    }
    let scheme = if tls { "https" } else { "http" };
    let url = format!("{scheme}://{address}");
    tracing::info!(%url, "S3 port open");
    Ok(Some(Bound { port, listener, url }))
}
