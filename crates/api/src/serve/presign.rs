//! `POST /v1/presign` makes URLs for one request each; here is also what such a request must fulfil.
//!
//! A URL acts for the key that asked for it: its scope and limits are checked when the URL is made, and
//! again when it is used. The parameters of the signature are taken off before a handler sees them.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::response::Response;
use forebay_base::duration::HumanDuration;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::access;
use super::app::App;
use super::auth::problem;
use crate::answer::json;
use crate::keys::presign::{self, Permission, Refused, VALID_S_MAX};
use crate::keys::{Denied, Grant};
use crate::problem::Problem;
use crate::uploads;

/// Path of the route.
pub(super) const PATH: &str = "/v1/presign";
/// Maximum size of a request's body.
const BODY_SIZE_MAX: usize = 16 << 10;
/// Maximum length of a path with its query, in bytes.
const TARGET_SIZE_MAX: usize = 4 << 10;
const UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");

/// What a URL is asked to permit.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PresignRequest {
    /// GET (which includes HEAD), HEAD, PUT or DELETE of files; POST, PATCH or HEAD of uploads.
    method: String,
    /// The path, percent-encoded, with the query that belongs to it: /v1/files/... or /v1/uploads...
    path: String,
    /// How long the URL is valid, such as 15m; at most 7 days [default: 1h].
    expires: Option<String>,
    /// Maximum number of bytes that may be sent; of PUT, POST and PATCH only.
    size_max: Option<u64>,
}

/// A URL that permits one kind of request without a key.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PresignAnswer {
    /// The method it permits.
    method: String,
    /// The URL path with its query, to be appended to the server's address.
    url: String,
    /// When it expires, RFC 3339.
    expires: String,
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Answers a request for a URL.
pub(super) async fn create(app: Arc<App>, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let answer = async {
        let grant = parts.extensions.get::<Grant>();
        let bytes = axum::body::to_bytes(body, BODY_SIZE_MAX).await;
        let bytes = bytes.map_err(|_| Problem::bad("body", "the body is too large or was cut"))?;
        make(&app, grant, &bytes)
    };
    match answer.await {
        Ok(answer) => json(StatusCode::OK, &answer),
        Err(problem) => problem.answer(&parts.headers),
    }
}

fn make(app: &App, grant: Option<&Grant>, body: &[u8]) -> Result<PresignAnswer, Problem> {
    let bad = |text: String| Problem::bad("presign_request", text);
    let master = app.master.as_ref().ok_or_else(|| Problem::closed("there is no master key"))?;
    let grant = grant.ok_or_else(|| {
        bad("a URL is signed for an API key, and this server requires none".to_owned())
    })?;
    let asked: PresignRequest = serde_json::from_slice(body)
        .map_err(|error| bad(format!("the body is invalid: {error}")))?;
    if asked.path.len() > TARGET_SIZE_MAX {
        return Err(bad(format!("path is longer than {TARGET_SIZE_MAX} bytes")));
    }
    let method = Method::from_bytes(asked.method.to_ascii_uppercase().as_bytes())
        .map_err(|_| bad("method is not one of HTTP".to_owned()))?;
    // A fragment is no part of what is requested: its file would be another one.
    if asked.path.contains('#') {
        return Err(bad("path is percent-encoded: '#' is written as %23".to_owned()));
    }
    let target: Uri = asked.path.parse().map_err(|_| bad("path is not a URL path".to_owned()))?;
    if target.authority().is_some() || !may_be_signed(&method, target.path()) {
        return Err(bad(
            "only GET, HEAD, PUT and DELETE of /v1/files, and POST, PATCH and HEAD of /v1/uploads \
             can be signed"
                .to_owned(),
        ));
    }
    if presign::is_signed(&target) {
        return Err(bad("path has parameters of a signature".to_owned()));
    }
    if asked.size_max.is_some() && !sends_bytes(&method) {
        return Err(bad(format!("size_max does not apply to {method}")));
    }
    let valid: HumanDuration = asked
        .expires
        .as_deref()
        .unwrap_or("1h")
        .parse()
        .map_err(|error| bad(format!("expires is invalid: {error}")))?;
    let valid_s = valid.get().as_secs();
    if valid_s == 0 || valid_s > VALID_S_MAX {
        return Err(bad("expires must be from 1s to 7d".to_owned()));
    }
    // The narrowest request that the URL can be used for: `If-None-Match` lowers the scope.
    let narrowest = HeaderMap::from_iter([(IF_NONE_MATCH, HeaderValue::from_static("*"))]);
    access::check(grant, &method, &target, &narrowest).map_err(problem)?;
    let expires_s = now_s().saturating_add(valid_s);
    let permission = Permission { key: grant.id, method, expires_s, size_max: asked.size_max };
    let at = i64::try_from(expires_s).ok().and_then(|at| jiff::Timestamp::from_second(at).ok());
    Ok(PresignAnswer {
        method: permission.method.to_string(),
        url: presign::sign(master, &target, &permission),
        expires: at.map_or_else(|| expires_s.to_string(), |at| at.to_string()),
    })
}

fn may_be_signed(method: &Method, path: &str) -> bool {
    let below = |area: &str| {
        path.strip_prefix(area).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    match *method {
        Method::GET | Method::PUT | Method::DELETE => below("/v1/files"),
        Method::HEAD => below("/v1/files") || below("/v1/uploads"),
        Method::POST | Method::PATCH => below("/v1/uploads"),
        _ => false,
    }
}

fn sends_bytes(method: &Method) -> bool {
    matches!(*method, Method::PUT | Method::POST | Method::PATCH)
}

/// Checks a request with a signed URL; returns what the key behind it permits.
///
/// # Errors
/// The problem to respond with.
pub(super) fn check<B>(app: &App, request: &Request<B>) -> Result<Grant, Problem> {
    let master = app.master.as_ref().ok_or(Problem::PRESIGN_INVALID)?;
    let permission = presign::verify(master, request.uri(), now_s()).map_err(|why| match why {
        Refused::Signature => Problem::PRESIGN_INVALID,
        Refused::Expired => Problem::PRESIGN_EXPIRED,
    })?;
    let headers = request.headers();
    // A header can make a POST another method; it is that one that has to be signed.
    let method = match *request.method() {
        Method::POST => uploads::overriding(headers).unwrap_or(Method::POST),
        ref method => method.clone(),
    };
    let reads = method == Method::HEAD && permission.method == Method::GET;
    if method != permission.method && !reads {
        return Err(Problem::PRESIGN_INVALID);
    }
    // The signature covers no headers, so none may store more than the file.
    if headers.keys().any(|name| name.as_str().starts_with("forebay-")) {
        return Err(Problem::PRESIGN_HEADER);
    }
    if let Some(size_max) = permission.size_max {
        check_size(headers, &method, request.uri().path(), size_max)?;
    }
    let grant = app.keys.still(permission.key).ok_or(Problem::PRESIGN_INVALID)?;
    access::check(&grant, request.method(), request.uri(), headers).map_err(
        |denied| match denied {
            Denied::Missing | Denied::Unknown => Problem::PRESIGN_INVALID,
            denied => problem(denied),
        },
    )?;
    Ok(grant)
}

/// Checks that a request declares at most `size_max` bytes. The HTTP library reads no more than that.
fn check_size(
    headers: &HeaderMap,
    method: &Method,
    path: &str,
    size_max: u64,
) -> Result<(), Problem> {
    let count = |name: &HeaderName| {
        headers.get(name).and_then(|size| size.to_str().ok()?.parse::<u64>().ok())
    };
    let too_large = || {
        let text = format!("this URL takes at most {size_max} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", text)
    };
    let begins_upload = *method == Method::POST && path.starts_with("/v1/uploads");
    if begins_upload && count(&UPLOAD_LENGTH).ok_or(Problem::PRESIGN_LENGTH)? > size_max {
        return Err(too_large());
    }
    if headers.contains_key(CONTENT_ENCODING) {
        // What is stored is decoded, and may be of any size.
        return Err(Problem::PRESIGN_ENCODING);
    }
    match count(&CONTENT_LENGTH) {
        Some(size) if size > size_max => Err(too_large()),
        Some(_) => Ok(()),
        None if begins_upload && !headers.contains_key(http::header::TRANSFER_ENCODING) => Ok(()),
        None => Err(Problem::PRESIGN_LENGTH),
    }
}

/// Takes the parameters of a signature off a request that was checked.
pub(super) fn strip<B>(request: &mut Request<B>) {
    if presign::is_signed(request.uri())
        && let Ok(bare) = presign::bare(request.uri()).parse()
    {
        *request.uri_mut() = bare;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_and_uploads_can_be_signed() {
        for (method, path, may) in [
            ("GET", "/v1/files/a/b", true),
            ("GET", "/v1/files", true),
            ("GET", "/v1/filesystem", false),
            ("DELETE", "/v1/files/a/b", true),
            ("POST", "/v1/files/a/b", false),
            ("POST", "/v1/uploads", true),
            ("PATCH", "/v1/uploads/x", true),
            ("HEAD", "/v1/uploads/x", true),
            ("DELETE", "/v1/uploads/x", false),
            ("POST", "/v1/presign", false),
            ("GET", "/v1/events", false),
            ("OPTIONS", "/v1/files", false),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(may_be_signed(&method, path), may, "{method} {path}");
        }
    }

    #[test]
    fn a_size_limit_needs_a_declared_size() {
        let check = |method, path, headers: &[(&'static str, &'static str)]| {
            let headers = headers.iter().map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            });
            let headers = HeaderMap::from_iter(headers);
            check_size(&headers, &method, path, 100).map_err(|problem| problem.status().as_u16())
        };
        let (file, all) = ("/v1/files/a/b", "/v1/uploads");
        assert_eq!(check(Method::PUT, file, &[("content-length", "100")]), Ok(()));
        assert_eq!(check(Method::PUT, file, &[("content-length", "101")]), Err(413));
        assert_eq!(check(Method::PUT, file, &[("content-length", "x")]), Err(411));
        assert_eq!(check(Method::PUT, file, &[("transfer-encoding", "chunked")]), Err(411));
        let packed = [("content-length", "10"), ("content-encoding", "gzip")];
        assert_eq!(check(Method::PUT, file, &packed), Err(415));
        assert_eq!(check(Method::POST, all, &[("upload-length", "100")]), Ok(()));
        assert_eq!(check(Method::POST, all, &[("upload-length", "101")]), Err(413));
        assert_eq!(check(Method::POST, all, &[("upload-defer-length", "1")]), Err(411));
        let chunked = [("upload-length", "9"), ("transfer-encoding", "chunked")];
        assert_eq!(check(Method::POST, all, &chunked), Err(411));
    }
}
