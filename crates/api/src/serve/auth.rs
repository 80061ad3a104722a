//! Authorization of a request: its API key, or the login session of a browser.

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, Method, Request};

use super::access;
use super::app::App;
use super::gate::From;
use super::presign;
use crate::keys::{self, Denied, Grant};
use crate::problem::Problem;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Checks that a request below `/v1` may proceed; returns what its key permits, if one is needed.
///
/// # Errors
/// The problem to respond with.
pub(super) fn check<B>(
    app: &App,
    request: &Request<B>,
    from: &From,
) -> Result<Option<Grant>, Problem> {
    if keys::presign::is_signed(request.uri()) {
        return presign::check(app, request).map(Some);
    }
    if !app.keys.required() {
        return Ok(None);
    }
    let (method, headers) = (request.method(), request.headers());
    let grant = match token(headers) {
        Some(token) => app.keys.grant(Some(token)),
        None => by_cookie(app, method, headers, from),
    };
    let grant = grant.map_err(problem)?;
    access::check(&grant, method, request.uri(), headers).map_err(problem)?;
    Ok(Some(grant))
}

/// Returns what the user of a login session may do.
fn by_cookie(
    app: &App,
    method: &Method,
    headers: &HeaderMap,
    from: &From,
) -> Result<Grant, Denied> {
    // A browser sends the cookie with every request, so a change is accepted only if the browser
    // reports that a page of this server sent it.
    let safe = matches!(*method, Method::GET | Method::HEAD) || *from == From::Own;
    if !safe || matches!(from, From::Permitted(_)) {
        return Err(Denied::Missing);
    }
    let key = app.sessions.find(headers).ok_or(Denied::Missing)?;
    app.keys.still(key).ok_or(Denied::Unknown)
}

/// Returns whether a request may see details of the server: where it keeps its data, what it is
/// connected to.
pub(super) fn may_see_details(app: &App, headers: &HeaderMap) -> bool {
    if !app.keys.required() {
        return true;
    }
    match token(headers) {
        Some(token) => app.keys.grant(Some(token)).is_ok_and(|grant| !grant.is_limited()),
        None => app.sessions.find(headers).is_some_and(|key| app.keys.still(key).is_some()),
    }
}

/// Returns the response to a request without a sufficient key.
pub(super) fn problem(denied: Denied) -> Problem {
    match denied {
        Denied::Missing => Problem::KEY_MISSING,
        Denied::Unknown => Problem::KEY_UNKNOWN,
        Denied::Scope(_) => Problem::KEY_SCOPE,
        Denied::Limit => Problem::KEY_LIMIT,
    }
}

/// Returns the token of `Authorization: Bearer` (RFC 6750; the scheme is case-insensitive) or
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
}
