//! Which receivers are permitted: what stands in a URL, and what its name resolves to.
//!
//! A hook makes the server send requests to where a client says. So that it cannot be used to reach what only
//! the server's machine reaches, an address must be one of the public Internet, unless the operator permits it
//! by name or by network. Names are judged by the addresses they resolve to when a connection is made, and the
//! connection uses exactly those.
//!
//! Invariants: what is not known to be public is refused; an address inside another (mapped, translated) is judged
//! by what it leads to.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use forebay_base::network::is_public;
use ipnet::IpNet;
use url::{Host, Url};

use crate::hook::URL_SIZE_MAX;

/// Why a receiver is not permitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The text is no URL that can be used.
    #[error("the URL is invalid: {reason}")]
    Url {
        /// What is wrong.
        reason: String,
    },
    /// It is not encrypted.
    #[error("the URL must begin with https://; to permit http:// add {host} to webhooks.allow")]
    Plain {
        /// The host.
        host: String,
    },
    /// It leads to an address that is not public.
    #[error(
        "{host} is the address {address}, which is not public; to permit it add it to webhooks.allow"
    )]
    NotPublic {
        /// The host.
        host: String,
        /// The address.
        address: IpAddr,
    },
}

/// Something that is permitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allow {
    /// A host by its name, whatever it resolves to, also without encryption.
    Host(String),
    /// Addresses; without encryption if a URL has them in place of a name.
    Net(IpNet),
}

impl FromStr for Allow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(Self::Net(address.into()));
        }
        if text.contains('/') {
            let net: IpNet = text.parse().map_err(|_| {
                format!("{text:?} is not a network: write an address and a length, as 10.0.0.0/8")
            })?;
            return Ok(Self::Net(net.trunc()));
        }
        match Host::parse(text) {
            Ok(Host::Domain(name)) if !name.contains('*') => Ok(Self::Host(name)),
            _ => Err(format!("{text:?} is neither a host name, an address nor a network")),
        }
    }
}

impl fmt::Display for Allow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(name) => f.write_str(name),
            Self::Net(net) => write!(f, "{net}"),
        }
    }
}

/// All that is permitted beside the public Internet.
#[derive(Debug, Clone, Default)]
pub struct Allowed(pub Vec<Allow>);

impl Allowed {
    /// Checks the URL of a hook.
    ///
    /// # Errors
    /// [`AddressError`]. What a name resolves to is checked when a request is sent.
    pub fn check_url(&self, text: &str) -> Result<Url, AddressError> {
        let invalid = |reason: &str| AddressError::Url { reason: reason.to_owned() };
        if text.len() > URL_SIZE_MAX {
            return Err(invalid(&format!("it has more than {URL_SIZE_MAX} bytes")));
        }
        let url = Url::parse(text).map_err(|error| invalid(&error.to_string()))?;
        if !matches!(url.scheme(), "https" | "http") {
            return Err(invalid("it must begin with https://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("it has a user name or a password, which requests do not send"));
        }
        if url.fragment().is_some() {
            return Err(invalid("it has a fragment, which requests do not send"));
        }
        if url.port() == Some(0) {
            return Err(invalid("its port is 0"));
        }
        let host = url.host().ok_or_else(|| invalid("it has no host"))?;
        let shown = host.to_string();
        let literal = match host {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some(IpAddr::V4(address)),
            Host::Ipv6(address) => Some(IpAddr::V6(address)),
        };
        let is_named = literal.is_none() && self.has_host(&shown);
        let is_listed = literal.is_some_and(|address| self.has_address(address));
        if url.scheme() == "http" && !is_named && !is_listed {
            return Err(AddressError::Plain { host: shown });
        }
        match literal {
            Some(address) => self.check_address(&shown, address).map(|()| url),
            None => Ok(url),
        }
    }

    /// Checks an address that the host of a URL resolved to.
    ///
    /// # Errors
    /// [`AddressError::NotPublic`].
    pub fn check_address(&self, host: &str, address: IpAddr) -> Result<(), AddressError> {
        if self.has_host(host) || self.has_address(address) || is_public(address) {
            return Ok(());
        }
        Err(AddressError::NotPublic { host: host.to_owned(), address })
    }

    fn has_host(&self, host: &str) -> bool {
        // A name may be written with the dot that ends it.
        let host = host.strip_suffix('.').unwrap_or(host);
        self.0.iter().any(|allow| match allow {
            Allow::Host(name) => name.strip_suffix('.').unwrap_or(name).eq_ignore_ascii_case(host),
            Allow::Net(_) => false,
        })
    }

    fn has_address(&self, address: IpAddr) -> bool {
        // An IPv4 address in IPv6 notation is the same receiver.
        let same = address.to_canonical();
        self.0.iter().any(|allow| match allow {
            Allow::Net(net) => net.contains(&address) || net.contains(&same),
            Allow::Host(_) => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(entries: &[&str]) -> Allowed {
        Allowed(entries.iter().map(|entry| entry.parse().unwrap()).collect())
    }

    #[test]
    fn a_url_is_encrypted_public_and_has_nothing_that_is_not_sent() {
        let none = Allowed::default();
        for right in
            ["https://hooks.example.com/in?t=1", "https://1.1.1.1:8443/", "HTTPS://A.example"]
        {
            assert!(none.check_url(right).is_ok(), "{right}");
        }
        for wrong in [
            "",
            "hooks.example.com",
            "ftp://hooks.example.com/",
            "file:///etc/passwd",
            "https://",
            "https://user@hooks.example.com/",
            "https://user:pass@hooks.example.com/",
            "https://:pass@hooks.example.com/",
            "https://hooks.example.com/#part",
            "https://hooks.example.com:0/",
            "https://hooks.example.com:99999/",
            "http://hooks.example.com/",
            "https://127.0.0.1/",
            // The same address, as a browser understands it.
            "https://2130706433/",
            "https://0x7f000001/",
            "https://0177.0.0.1/",
            "https://127.1/",
            "https://[::1]/",
            "https://[::ffff:127.0.0.1]/",
            "https://[::ffff:7f00:1]/",
            "https://169.254.169.254/latest/meta-data/",
            "https://127\u{3002}0\u{3002}0\u{3002}1/",
            "https://\u{ff11}27.0.0.1/",
        ] {
            assert!(none.check_url(wrong).is_err(), "{wrong}");
        }
        let long = format!("https://hooks.example.com/{}", "x".repeat(URL_SIZE_MAX));
        assert!(none.check_url(&long).is_err());
    }

    #[test]
    fn what_is_allowed_by_name_or_network_is_permitted_and_nothing_beside_it() {
        let some = allowed(&["hooks.internal", "10.1.0.0/16", "127.0.0.1", "[fd00::1]"]);
        for right in [
            "http://hooks.internal/",
            "http://HOOKS.internal.:81/",
            "http://10.1.2.3/",
            "https://10.1.2.3/",
            "http://127.0.0.1:99/",
            "http://[::ffff:127.0.0.1]/",
            "http://[fd00::1]/",
        ] {
            assert!(some.check_url(right).is_ok(), "{right}");
        }
        for wrong in [
            "http://other.internal/",
            "http://10.2.0.1/",
            "https://10.2.0.1/",
            "https://127.0.0.2/",
        ] {
            assert!(some.check_url(wrong).is_err(), "{wrong}");
        }
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(some.check_address("hooks.internal", address("192.168.0.1")).is_ok());
        assert!(some.check_address("a.example", address("10.1.0.9")).is_ok());
        assert!(some.check_address("a.example", address("192.168.0.1")).is_err());
        for wrong in ["10.0.0.0/33", "a b", "*.example.com", "http://x", "x/y", ""] {
            assert!(wrong.parse::<Allow>().is_err(), "{wrong}");
        }
    }
}
