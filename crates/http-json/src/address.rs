//! The servers that may be reached, and addresses on them.
//!
//! Invariants: an address is used only if [`Base::judge`] permits it; what is shown of one has neither
//! parameters nor credentials.

use std::collections::BTreeMap;

use forebay_base::{ServerError, address};
use forebay_sdk::settings::{Secret, permits_host};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use url::Url;

use crate::settings::Settings;

/// Maximum number of headers in the settings.
const HEADERS_MAX: usize = 64;
/// Headers that belong to the connection, or to what this client can read.
const RESERVED: [HeaderName; 9] = [
    header::HOST,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::ACCEPT_ENCODING,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
    header::RANGE,
];

/// A server: scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    is_encrypted: bool,
    host: String,
    port: u16,
}

impl Origin {
    /// The server of an address; `None` if it is not one of HTTP.
    pub(crate) fn of(url: &Url) -> Option<Self> {
        let is_encrypted = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let host = url.host_str()?.trim_start_matches('[').trim_end_matches(']').to_owned();
        Some(Self { is_encrypted, host, port: url.port_or_known_default()? })
    }

    /// Whether its connections are encrypted.
    #[cfg(feature = "client")]
    pub(crate) fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// Name or address, without brackets.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Whether it is on this machine.
    fn is_here(&self) -> bool {
        let ip = self.host.parse::<std::net::IpAddr>();
        self.host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
    }
}

/// Which server an address is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reached {
    /// That of the settings.
    Own,
    /// Another one that the settings permit: it gets no headers.
    Other,
}

/// The address of the settings, and the other servers that they permit.
#[derive(Debug, Clone)]
pub(crate) struct Base {
    url: Url,
    origin: Origin,
    others: Vec<(String, Option<u16>)>,
}

impl Base {
    /// Reads the addresses of settings.
    ///
    /// # Errors
    /// One of them is not an address, or secrets would be sent unencrypted.
    pub(crate) fn new(settings: &Settings) -> Result<Self, ServerError> {
        let given = settings.url.expose();
        let url = Url::parse(given).ok();
        let parts = url.and_then(|url| Origin::of(&url).map(|origin| (url, origin)));
        let Some((url, origin)) = parts else {
            // Even its path may be a secret that got into the wrong place.
            let what = "the value of `url` is not the address of an API";
            return Err(ServerError::settings(what, "set `url` to https://HOST/PATH"));
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(ServerError::settings(
                "`url` has a user or a password",
                "set the header `authorization` instead",
            ));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(ServerError::settings(
                "`url` has parameters or a fragment",
                "set `query` of the stream instead",
            ));
        }
        let has_secrets = !settings.headers.is_empty()
            || settings.streams.iter().any(|stream| !stream.query.is_empty());
        if has_secrets && !origin.is_encrypted && !origin.is_here() && !settings.allow_http {
            return Err(ServerError::settings(
                "`headers` or `query` would be sent over an unencrypted connection",
                "use https://, or set `allow_http: true` if the network is trusted",
            ));
        }
        let other = |other: &forebay_sdk::settings::Text| {
            host_and_port(&other.0).ok_or_else(|| {
                let what = format!("`other_hosts` has {:?}", other.0);
                ServerError::settings(what, "name each server as HOST or HOST:PORT")
            })
        };
        let others = settings.other_hosts.iter().map(other).collect::<Result<_, _>>()?;
        Ok(Self { url, origin, others })
    }

    /// The server of the settings.
    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The address of a path below that of the settings.
    pub(crate) fn join(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        if !path.is_empty() {
            let above = self.url.path().trim_end_matches('/');
            url.set_path(&format!("{above}/{}", path.trim_start_matches('/')));
        }
        url
    }

    /// Which server an address is on, if it may be used.
    ///
    /// # Errors
    /// Why it may not.
    #[cfg(feature = "client")]
    pub(crate) fn judge(&self, url: &Url) -> Result<Reached, String> {
        let Some(origin) = Origin::of(url) else {
            return Err(format!("{} is not an address of HTTP", shown(url)));
        };
        if origin == self.origin {
            return Ok(Reached::Own);
        }
        if self.origin.is_encrypted && !origin.is_encrypted {
            return Err(format!("{} would not be encrypted", shown(url)));
        }
        let is_permitted = self.others.iter().any(|(host, port)| {
            permits_host(host, &origin.host, None) && port.is_none_or(|port| port == origin.port)
        });
        match is_permitted {
            true => Ok(Reached::Other),
            false => Err(format!(
                "{} is on another server; add {}:{} to `other_hosts` if it should be used",
                shown(url),
                origin.host,
                origin.port
            )),
        }
    }
}

/// An address in messages: without user, parameters and fragment.
pub(crate) fn shown(url: &Url) -> String {
    match (Origin::of(url), url.host_str()) {
        (Some(_), Some(host)) => {
            let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
            format!("{}://{host}{port}{}", url.scheme(), url.path())
        }
        _ => address::HIDDEN.to_owned(),
    }
}

/// The parts of `HOST`, `HOST:PORT`, `[ADDRESS]` and `[ADDRESS]:PORT`; `None` for anything else.
pub(crate) fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
        }
        None => {
            let (host, port) =
                text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
            (!host.is_empty() && host.bytes().all(is_plain)).then_some((host, port))?
        }
    };
    let port = port.map(str::parse::<u16>).transpose().ok()?;
    Some((host.to_ascii_lowercase(), port))
}

/// The headers of requests. Their values are marked as secret.
///
/// # Errors
/// One of them is not a header, or belongs to the connection.
pub(crate) fn headers(given: &BTreeMap<String, Secret>) -> Result<HeaderMap, ServerError> {
    if given.len() > HEADERS_MAX {
        let what = format!("`headers` has {} headers", given.len());
        return Err(ServerError::settings(what, format!("set at most {HEADERS_MAX}")));
    }
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let parsed = HeaderName::from_bytes(name.as_bytes()).ok();
        let Some(parsed) = parsed.filter(|name| !RESERVED.contains(name)) else {
            let what = format!("`headers` has {name:?}, which is not a header that can be set");
            return Err(ServerError::settings(what, "remove it"));
        };
        let Ok(mut value) = HeaderValue::from_str(value.expose()) else {
            let what =
                format!("the value of the header {name:?} has a line end or another control");
            return Err(ServerError::settings(what, "remove it from the value"));
        };
        value.set_sensitive(true);
        headers.insert(parsed, value);
    }
    Ok(headers)
}

#[cfg(all(test, feature = "client"))]
mod tests {
    use forebay_sdk::registry::ConnectorSettings as _;
    use serde_json::json;

    use super::*;

    fn settings(url: &str, more: serde_json::Value) -> Settings {
        let mut value = json!({ "url": url, "streams": [{ "name": "s" }] });
        if let (Some(all), Some(more)) = (value.as_object_mut(), more.as_object()) {
            all.extend(more.clone());
        }
        serde_json::from_value(value).unwrap()
    }

    fn base(url: &str, more: serde_json::Value) -> Base {
        Base::new(&settings(url, more)).unwrap()
    }

    #[test]
    fn a_path_is_appended_to_the_address_of_the_settings() {
        for (url, path, expected) in [
            ("https://h/v2", "/orders", "https://h/v2/orders"),
            ("https://h/v2/", "orders", "https://h/v2/orders"),
            ("https://h", "", "https://h/"),
            ("https://h/v2/all", "", "https://h/v2/all"),
            ("http://[::1]:8080", "a b", "http://[::1]:8080/a%20b"),
        ] {
            assert_eq!(base(url, json!({})).join(path).as_str(), expected);
        }
    }

    #[test]
    fn only_the_server_of_the_settings_and_those_that_they_name_are_reached() {
        let base = base("https://h/v2", json!({ "other_hosts": ["files.example.org", "b:8443"] }));
        for (url, expected) in [
            ("https://h/other", Some(Reached::Own)),
            ("https://H:443/", Some(Reached::Own)),
            ("https://h:444/", None),
            ("http://h/", None),
            ("https://files.example.org/x", Some(Reached::Other)),
            ("http://files.example.org/x", None),
            ("https://a.files.example.org/", None),
            ("https://b:8443/", Some(Reached::Other)),
            ("https://b/", None),
            ("ftp://h/", None),
            ("https://h@evil.example.org/", None),
        ] {
            let judged = base.judge(&Url::parse(url).unwrap());
            assert_eq!(judged.clone().ok(), expected, "{url}: {judged:?}");
        }
    }

    #[test]
    fn what_is_shown_of_an_address_has_no_secrets() {
        let url = Url::parse("https://user:pw@h:1/a?token=x#y").unwrap();
        assert_eq!(shown(&url), "https://h:1/a");
        assert_eq!(shown(&Url::parse("data:secret").unwrap()), "***");
    }

    #[test]
    fn an_address_that_cannot_be_used_is_refused_without_its_secrets() {
        for (url, more) in [
            ("geheim", json!({})),
            ("ftp://h/geheim", json!({})),
            ("https://user:geheim@h/", json!({})),
            ("https://h/?key=geheim", json!({})),
            ("http://h/", json!({ "headers": { "authorization": "geheim" } })),
            ("https://h/", json!({ "headers": { "host": "geheim" } })),
            ("https://h/", json!({ "headers": { "x": "geheim\n" } })),
            ("https://h/", json!({ "headers": { "x y": "geheim" } })),
            ("https://h/", json!({ "other_hosts": ["*.geheim"] })),
        ] {
            // The names of other servers are no secrets.
            let is_secret = more.get("other_hosts").is_none();
            let settings = settings(url, more);
            let error = settings.check().unwrap_err();
            let shown = format!("{error} {error:?} {settings:?}");
            assert!(!is_secret || !shown.contains("geheim"), "{shown}");
        }
        let local = json!({ "headers": { "authorization": "x" } });
        assert!(settings("http://127.0.0.1:1/", local.clone()).check().is_ok());
        assert!(settings("https://h/", local).check().is_ok());
    }

    #[test]
    fn other_servers_are_names_or_addresses_with_ports() {
        for (text, expected) in [
            ("a.example.org", Some(("a.example.org", None))),
            ("A:80", Some(("a", Some(80)))),
            ("[::1]:80", Some(("::1", Some(80)))),
            ("[::1]", Some(("::1", None))),
            ("::1", None),
            ("[x]", None),
            ("a:x", None),
            ("a:70000", None),
            ("https://a", None),
            ("*", None),
            ("", None),
        ] {
            let expected = expected.map(|(host, port): (&str, _)| (host.to_owned(), port));
            assert_eq!(host_and_port(text), expected, "{text}");
        }
    }

    #[test]
    fn the_servers_of_settings_are_those_that_permissions_are_compared_with() {
        let more = json!({ "other_hosts": ["b:1", "c"], "tls_ca_file": "/ca.pem" });
        let reach = settings("https://[::1]/v2", more).reach();
        let hosts = vec![("::1".to_owned(), Some(443)), ("b".into(), Some(1)), ("c".into(), None)];
        assert_eq!(reach.hosts, hosts);
        assert_eq!(reach.paths, [std::path::PathBuf::from("/ca.pem")]);
    }
}
