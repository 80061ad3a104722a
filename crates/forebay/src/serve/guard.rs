//! Refuses to listen on other than loopback addresses without protection.

use std::net::SocketAddr;

use crate::exit::{Coded, Exit};

/// Protection of a listener.
#[derive(Clone, Copy, Debug)]
pub(super) struct Protection {
    /// Requests need a key.
    pub(super) keys: bool,
    /// Traffic is encrypted.
    pub(super) tls: bool,
    /// The operator accepts the risk.
    pub(super) insecure: bool,
}

/// Checks whether the server may listen on `address` with this `protection`.
///
/// # Errors
/// A message that lists the possible remedies (exit code 2).
pub(super) fn check(address: SocketAddr, protection: Protection) -> anyhow::Result<()> {
    let Protection { keys, insecure, .. } = protection;
    if address.ip().is_loopback() || keys || insecure {
        return Ok(());
    }
    let text = format!(
        "refusing to listen on {address} without API keys: any client could read and write \
         all data, even over TLS.\n\
         Do one of these:\n  \
         create an API key      forebay key new --name first --scope admin\n  \
         stay on this machine   forebay serve --listen 127.0.0.1:{port}\n  \
         accept the risk        forebay serve --listen {address} --insecure",
        port = address.port(),
    );
    Err(Coded::error(Exit::Usage, text))
}

/// Returns what protection a listener beyond this machine lacks, for a warning at start.
pub(super) fn warning(address: SocketAddr, protection: Protection) -> Option<&'static str> {
    match (address.ip().is_loopback(), protection.keys, protection.tls) {
        (true, ..) | (_, true, true) => None,
        (_, false, false) => {
            Some("no API keys and no TLS: every client that reaches this address can do anything")
        }
        (_, true, false) => Some("no TLS: API keys and data cross the network unencrypted"),
        (_, false, true) => {
            Some("no API keys: every client that reaches this address can do anything")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_loopback_a_key_or_insecure_is_required_even_with_tls() {
        let outside = "0.0.0.0:80".parse().unwrap();
        let none = Protection { keys: false, tls: false, insecure: false };
        assert!(check("127.0.0.1:80".parse().unwrap(), none).is_ok());
        assert!(check("[::1]:80".parse().unwrap(), none).is_ok());
        assert!(check("[::]:80".parse().unwrap(), none).is_err());
        assert!(check(outside, Protection { tls: true, ..none }).is_err());
        let text = check(outside, none).unwrap_err().to_string();
        assert!(text.contains("forebay key new") && text.contains("--insecure"), "{text}");
        for protection in [
            Protection { keys: true, ..none },
            Protection { insecure: true, ..none },
            Protection { insecure: true, tls: true, ..none },
        ] {
            assert!(check(outside, protection).is_ok(), "{protection:?}");
            assert!(warning(outside, protection).is_some(), "half protected is worth a warning");
        }
        assert!(warning(outside, Protection { keys: true, tls: true, insecure: false }).is_none());
    }
}
