//! Decides which requests may reach a handler, by where a browser reports that they come from.
//!
//! A page of any web site can make a browser on this machine send requests to this server: under
//! a host name that it resolves to 127.0.0.1 (DNS rebinding), or directly to
//! `127.0.0.1`. Neither needs to read the response to do harm. So every request is checked, with or
//! without an API key, health and metrics included:
//!
//! - It names exactly one host, and that is this server: a loopback name or address, the address
//!   the connection came to, or a name in `server.hosts`. A page under a rebound name fails here.
//! - An `Origin`, which browsers add to the requests of a page, is the server's own or one of
//!   `server.cors_origins`. `null` never is.
//! - Without an `Origin`, the browser reports (`Sec-Fetch-Site`) that the sender is this server
//!   itself, or a user who followed a link.
//!
//! Programs send neither `Origin` nor `Sec-Fetch-Site` and are not affected.

use std::net::IpAddr;

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HOST, ORIGIN, VARY,
};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};

use crate::problem::Problem;

pub(super) const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Hosts and origins that the server accepts.
#[derive(Debug, Default)]
pub(super) struct Gate {
    hosts: Vec<String>,
    origins: Vec<HeaderValue>,
}

/// The sender of an accepted request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// A program, or a user who opened an address.
    Direct,
    /// A page of this server.
    Own,
    /// A page of an origin in `server.cors_origins`.
    Permitted(HeaderValue),
}

impl Gate {
    /// * `hosts`: names in addition to this machine's own, in lower case.
    /// * `origins`: origins as browsers write them.
    pub(super) fn new(hosts: &[String], origins: &[String]) -> Self {
        let origins = origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok());
        Self { hosts: hosts.to_vec(), origins: origins.collect() }
    }

    /// Checks whether a request may proceed.
    ///
    /// * `local`: the local address of its connection.
    ///
    /// # Errors
    /// The problem to respond with. Only the head of the request was examined.
    pub(super) fn check<B>(
        &self,
        request: &Request<B>,
        local: Option<IpAddr>,
    ) -> Result<From, Problem> {
        let headers = request.headers();
        let host = only(headers, &HOST).map_err(|()| Problem::HOST_MALFORMED)?;
        let host = host.ok_or(Problem::HOST_MALFORMED)?;
        let named = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
        let named = named.filter(|named| !named.as_str().contains('@'));
        let named = named.ok_or(Problem::HOST_MALFORMED)?;
        // An absolute target (`GET http://host/path`) overrides the header (RFC 9112, 3.2.2).
        for authority in request.uri().authority().into_iter().chain([&named]) {
            if !self.is_ours(authority.host(), local) {
                return Err(Problem::HOST_UNKNOWN);
            }
        }
        match only(headers, &ORIGIN).map_err(|()| Problem::ORIGIN)? {
            Some(origin) if self.origins.contains(origin) => Ok(From::Permitted(origin.clone())),
            Some(origin) if is_own(origin, &named) => Ok(From::Own),
            Some(_) => Err(Problem::ORIGIN),
            None => by_fetch_metadata(request.method(), headers),
        }
    }

    /// Returns whether `host` (a name, an address, or an address in brackets) is this server.
    fn is_ours(&self, host: &str, local: Option<IpAddr>) -> bool {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if let Ok(address) = bare.parse::<IpAddr>() {
            let address = address.to_canonical();
            // A page cannot come from an address that is not its own server's, so an address is
            // safe if the connection came to it.
            if address.is_loopback() || local.is_some_and(|local| local.to_canonical() == address) {
                return true;
            }
        }
        let bare = bare.strip_suffix('.').unwrap_or(bare);
        bare.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(bare))
    }

    /// Returns the sender of a request to a port that checks neither host nor origin: whether it is a
    /// page that may read the response.
    pub(super) fn sender<B>(&self, request: &Request<B>) -> From {
        match only(request.headers(), &ORIGIN) {
            Ok(Some(origin)) if self.origins.contains(origin) => From::Permitted(origin.clone()),
            _ => From::Direct,
        }
    }

    /// Returns the response to a browser's preflight request, if the request is one from a
    /// permitted origin.
    pub(super) fn preflight<B>(
        from: &From,
        request: &Request<B>,
    ) -> Option<axum::response::Response> {
        let From::Permitted(_) = from else { return None };
        if request.method() != Method::OPTIONS
            || !request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
        {
            return None;
        }
        let mut response = Response::new(axum::body::Body::empty());
        *response.status_mut() = http::StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        for (name, value) in [
            (ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST, PUT, PATCH, DELETE"),
            (
                ACCESS_CONTROL_ALLOW_HEADERS,
                "authorization, x-api-key, content-type, range, if-match, if-none-match, \
                 if-range, idempotency-key, x-request-id, tus-resumable, upload-length, \
                 upload-defer-length, upload-metadata, upload-offset, upload-checksum, \
                 upload-concat, x-http-method-override",
            ),
            (ACCESS_CONTROL_MAX_AGE, "600"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        Some(response)
    }

    /// Permits what a preflight request asks for, on a port whose requests are signed.
    pub(super) fn for_port<B>(
        mut answer: axum::response::Response,
        request: &Request<B>,
    ) -> axum::response::Response {
        if let Some(asked) = request.headers().get(ACCESS_CONTROL_REQUEST_HEADERS) {
            answer.headers_mut().insert(ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
        }
        answer
    }

    /// Lets a page of a permitted origin read the response.
    pub(super) fn open_to(from: &From, headers: &mut HeaderMap) {
        if let From::Permitted(origin) = from {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            let exposed = "etag, content-range, location, retry-after, x-request-id, \
                tus-resumable, tus-version, tus-extension, tus-max-size, tus-checksum-algorithm, \
                upload-offset, upload-length, upload-defer-length, upload-metadata, \
                upload-concat, upload-expires, upload-file";
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(exposed));
            headers.append(VARY, HeaderValue::from_static("origin"));
        }
    }
}

/// Checks a request without an `Origin`: a page can still have a browser fetch, as by an image or a
/// script.
fn by_fetch_metadata(method: &Method, headers: &HeaderMap) -> Result<From, Problem> {
    let Some(site) = only(headers, &FETCH_SITE).map_err(|()| Problem::ORIGIN)? else {
        return Ok(From::Direct);
    };
    let mode = headers.get(FETCH_MODE).map(HeaderValue::as_bytes);
    let read = matches!(*method, Method::GET | Method::HEAD);
    match site.as_bytes() {
        b"same-origin" => Ok(From::Own),
        b"none" => Ok(From::Direct),
        // A link that a user followed; what it leads to is shown to that user only.
        _ if read && mode == Some(b"navigate") => Ok(From::Direct),
        _ => Err(Problem::ORIGIN),
    }
}

/// Returns whether `origin` is the server under the name the client used, by either scheme: a
/// proxy in front may terminate TLS.
fn is_own(origin: &HeaderValue, host: &Authority) -> bool {
    let origin = origin.to_str().unwrap_or_default();
    let named = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    named.is_some_and(|named| named.eq_ignore_ascii_case(host.as_str()))
}

/// Returns the only value of a header; an error if there are several.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, ()> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() { Err(()) } else { Ok(first) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 7)));

    fn request(method: Method, target: &str, headers: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    fn gate() -> Gate {
        Gate::new(&["files.example.com".to_owned()], &["https://app.example.com".to_owned()])
    }

    #[test]
    fn only_names_and_addresses_of_this_machine_are_hosts() {
        for ours in [
            "localhost",
            "LOCALHOST:8090",
            "localhost.",
            "127.0.0.1:8090",
            "127.9.9.9",
            "[::1]:80",
            "[::ffff:127.0.0.1]",
            "10.0.0.7:1",
            "files.example.com",
            "Files.Example.com:443",
        ] {
            let asked = request(Method::GET, "/", &[("host", ours)]);
            assert_eq!(gate().check(&asked, LOCAL).ok(), Some(From::Direct), "{ours}");
        }
        for foreign in [
            "evil.test",
            "evil.test:8090",
            "127.0.0.1.evil.test",
            "localhost.evil.test",
            "10.0.0.8",
            "0.0.0.0",
            "x.files.example.com",
            "2130706433",
            "0x7f.1",
        ] {
            let asked = request(Method::GET, "/healthz", &[("host", foreign)]);
            let refused = gate().check(&asked, LOCAL).unwrap_err();
            assert_eq!(refused.status().as_u16(), 421, "{foreign}");
        }
    }

    #[test]
    fn a_host_is_named_exactly_once_and_a_target_cannot_name_another() {
        let two = [("host", "localhost"), ("host", "localhost")];
        for headers in
            [&[][..], &two, &[("host", "")], &[("host", "a b")], &[("host", "u@localhost")]]
        {
            let refused = gate().check(&request(Method::GET, "/", headers), None).unwrap_err();
            assert_eq!(refused.status().as_u16(), 400, "{headers:?}");
        }
        let absolute = request(Method::GET, "http://evil.test/v1/files", &[("host", "localhost")]);
        assert_eq!(gate().check(&absolute, None).unwrap_err().status().as_u16(), 421);
    }

    #[test]
    fn a_foreign_origin_is_refused_on_every_method() {
        for method in [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::OPTIONS] {
            for origin in [
                "null",
                "http://evil.test",
                "http://localhost:3000",
                "https://app.example.com.evil",
                "http://127.0.0.1",
                "file://",
                "",
            ] {
                let headers = [("host", "127.0.0.1:8090"), ("origin", origin)];
                let asked = request(method.clone(), "/v1/files", &headers);
                let refused = gate().check(&asked, None).unwrap_err();
                assert_eq!(refused.status().as_u16(), 403, "{method} {origin}");
            }
        }
        let twice =
            [("host", "localhost"), ("origin", "http://localhost"), ("origin", "http://evil.test")];
        assert!(gate().check(&request(Method::GET, "/", &twice), None).is_err());
    }

    #[test]
    fn the_servers_own_pages_and_permitted_origins_may_ask() {
        let own = [("host", "localhost:8090"), ("origin", "http://localhost:8090")];
        assert_eq!(gate().check(&request(Method::POST, "/", &own), None).ok(), Some(From::Own));
        let other = [("host", "localhost:8090"), ("origin", "https://app.example.com")];
        let asked = request(Method::OPTIONS, "/v1/files", &other);
        let from = gate().check(&asked, None).unwrap();
        assert!(matches!(from, From::Permitted(_)));
        assert!(Gate::preflight(&from, &asked).is_none(), "a preflight names the method");
        let asked = request(
            Method::OPTIONS,
            "/v1/files",
            &[other[0], other[1], ("access-control-request-method", "PUT")],
        );
        let mut answer = Gate::preflight(&from, &asked).unwrap();
        Gate::open_to(&from, answer.headers_mut());
        assert_eq!(answer.headers()[ACCESS_CONTROL_ALLOW_ORIGIN], "https://app.example.com");
        assert!(Gate::preflight(&From::Own, &asked).is_none());
    }

    #[test]
    fn what_a_page_embeds_is_refused_and_a_followed_link_is_not() {
        let asked = |site, mode, method| {
            let headers =
                [("host", "localhost"), ("sec-fetch-site", site), ("sec-fetch-mode", mode)];
            gate().check(&request(method, "/v1/files", &headers), None).is_ok()
        };
        assert!(!asked("cross-site", "no-cors", Method::GET));
        assert!(!asked("same-site", "no-cors", Method::GET), "another port of localhost");
        assert!(!asked("cross-site", "navigate", Method::POST));
        assert!(asked("cross-site", "navigate", Method::GET));
        assert!(asked("same-origin", "cors", Method::POST));
        assert!(asked("none", "navigate", Method::GET));
    }
}
