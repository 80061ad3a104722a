//! Who may ask what: the API key of a request, and requests other web sites cause.

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, Method};

use super::problem::Problem;
use crate::keys::{Denied, KeyRing, Scope};

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether a request below `/v1` may go on.
///
/// Without keys the server is open to this machine, and so would be to any web page a browser on
/// it shows: requests a browser marks as caused by another site are refused then.
///
/// # Errors
/// The problem to answer with.
pub(super) fn check(
    keys: &KeyRing,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
) -> Result<(), Problem> {
    if !keys.required() {
        let cross = headers.get(FETCH_SITE).is_some_and(|site| site.as_bytes() == b"cross-site");
        return if cross { Err(Problem::CROSS_SITE) } else { Ok(()) };
    }
    keys.check(token(headers), scope(method, path)).map_err(|denied| match denied {
        Denied::Missing => Problem::KEY_MISSING,
        Denied::Unknown => Problem::KEY_UNKNOWN,
        Denied::Scope(_) => Problem::KEY_SCOPE,
    })
}

/// What a request needs to be allowed.
fn scope(method: &Method, path: &str) -> Scope {
    let admin = path.strip_prefix("/v1/admin").is_some_and(|r| r.is_empty() || r.starts_with('/'));
    match *method {
        _ if admin => Scope::Admin,
        Method::GET | Method::HEAD | Method::OPTIONS => Scope::Read,
        _ => Scope::Write,
    }
}

/// The token of `Authorization: Bearer` (RFC 6750; the scheme's case does not matter) or
/// `X-API-Key`.
fn token(headers: &HeaderMap) -> Option<&[u8]> {
    if let Some(value) = headers.get(AUTHORIZATION) {
        let (scheme, token) = value.as_bytes().split_at_checked(7)?;
        return scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii());
    }
    headers.get(API_KEY).map(|value| value.as_bytes().trim_ascii())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_token_is_found_in_either_header() {
        let with = |name: HeaderName, value: &'static str| {
            HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
        };
        for (headers, found) in [
            (with(AUTHORIZATION, "Bearer abc"), Some("abc")),
            (with(AUTHORIZATION, "bEaReR  abc "), Some("abc")),
            (with(AUTHORIZATION, "Basic abc"), None),
            (with(AUTHORIZATION, "Bear"), None),
            (with(API_KEY, "abc"), Some("abc")),
            (HeaderMap::new(), None),
        ] {
            assert_eq!(token(&headers), found.map(str::as_bytes), "{headers:?}");
        }
    }

    #[test]
    fn reading_and_writing_need_their_scopes_and_admin_routes_admin() {
        assert_eq!(scope(&Method::GET, "/v1/files"), Scope::Read);
        assert_eq!(scope(&Method::HEAD, "/v1/files"), Scope::Read);
        assert_eq!(scope(&Method::DELETE, "/v1/files/x"), Scope::Write);
        assert_eq!(scope(&Method::from_bytes(b"BREW").unwrap(), "/v1/x"), Scope::Write);
        assert_eq!(scope(&Method::GET, "/v1/admin/x"), Scope::Admin);
        assert_eq!(scope(&Method::GET, "/v1/administer"), Scope::Read);
    }
}
