//! Refuses to listen beyond this machine without protection.

use std::net::SocketAddr;

use crate::exit::{Coded, Exit};

/// What protects a listener.
#[derive(Clone, Copy, Debug)]
pub(super) struct Protection {
    /// Requests need a key.
    pub(super) keys: bool,
    /// The wire is encrypted.
    pub(super) tls: bool,
    /// The operator said they know.
    pub(super) insecure: bool,
}

/// Whether `address` may be listened on with this `protection`.
///
/// # Errors
/// A message with every way out (exit code 2).
pub(super) fn check(address: SocketAddr, protection: Protection) -> anyhow::Result<()> {
    let Protection { keys, tls, insecure } = protection;
    if address.ip().is_loopback() || keys || tls || insecure {
        return Ok(());
    }
    let text = format!(
        "refusing to listen on {address}: everybody who reaches it could read and write all data.\n\
         Do one of these:\n  \
         make an API key        forebay key new --name first --scope admin\n  \
         use TLS                forebay serve --tls-cert cert.pem --tls-key key.pem\n  \
         stay on this machine   forebay serve --listen 127.0.0.1:{port}\n  \
         accept the risk        forebay serve --listen {address} --insecure",
        port = address.port(),
    );
    Err(Coded::error(Exit::Usage, text))
}

/// What still lacks on a listener beyond this machine, worth a warning at start.
pub(super) fn warning(address: SocketAddr, protection: Protection) -> Option<&'static str> {
    match (address.ip().is_loopback(), protection.keys, protection.tls) {
        (true, ..) | (_, true, true) => None,
        (_, false, false) => {
            Some("no API keys and no TLS: everybody who reaches this can do anything")
        }
        (_, true, false) => Some("no TLS: API keys and data cross the network readable"),
        (_, false, true) => Some("no API keys: everybody who reaches this can do anything"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_loopback_needs_a_key_or_tls_or_the_operators_word() {
        let outside = "0.0.0.0:80".parse().unwrap();
        let none = Protection { keys: false, tls: false, insecure: false };
        assert!(check("127.0.0.1:80".parse().unwrap(), none).is_ok());
        assert!(check("[::1]:80".parse().unwrap(), none).is_ok());
        assert!(check("[::]:80".parse().unwrap(), none).is_err());
        let text = check(outside, none).unwrap_err().to_string();
        assert!(text.contains("forebay key new") && text.contains("--insecure"), "{text}");
        for protection in [
            Protection { keys: true, ..none },
            Protection { tls: true, ..none },
            Protection { insecure: true, ..none },
        ] {
            assert!(check(outside, protection).is_ok(), "{protection:?}");
            assert!(warning(outside, protection).is_some(), "half protected is worth a warning");
        }
        assert!(warning(outside, Protection { keys: true, tls: true, insecure: false }).is_none());
    }
}
