//! What is changed of a request after its signature was verified: XML is rewritten, and headers that are to be
//! ignored are removed.
//!
//! ```text
//! port -> s3s: signature -> AmendingRoute: headers, XML -> s3s: access, operation
//! ```
//!
//! `s3s` compares a body with its signed digest while it reads it, and clients sign any header, so both can be
//! changed only after that: by a route of the first service, which passes the request to the second without its
//! signature.
//!
//! Invariants: the second service believes only [`Signer`], which no client can set; at most [`XML_SIZE_MAX`]
//! bytes are held, and none before the signature was verified; the bytes of objects are never changed.

use bytes::Bytes;
use forebay_base::error_chain::chain;
use http::header::{
    AUTHORIZATION, CONTENT_LENGTH, EXPIRES, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE, RANGE,
};
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use percent_encoding::percent_decode_str;
use s3s::dto::{Range, Timestamp, TimestampFormat};
use s3s::route::S3Route;
use s3s::service::S3Service;
use s3s::{Body, S3Error, S3Request, S3Response, S3Result, TrailingHeaders, s3_error};
use url::form_urlencoded;

use crate::sums::broken;
use crate::xml::rewritten;

/// Maximum size of a request's XML: 1,000 keys to delete, or 10,000 parts to join.
pub(crate) const XML_SIZE_MAX: usize = 8 << 20;

/// What of an object is set by XML.
const OF_OBJECT: [&str; 4] = ["acl", "legal-hold", "retention", "tagging"];

const COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");

/// Conditions that are dates.
const DATES: [HeaderName; 4] = [
    IF_MODIFIED_SINCE,
    IF_UNMODIFIED_SINCE,
    HeaderName::from_static("x-amz-copy-source-if-modified-since"),
    HeaderName::from_static("x-amz-copy-source-if-unmodified-since"),
];

/// In the extensions of a request: what is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Amend {
    /// Only headers.
    Headers,
    /// The body, which is XML.
    Xml,
}

impl Amend {
    /// Returns what is to be changed of a request.
    ///
    /// * `has_bucket`: the bucket is in the name of the host.
    pub(crate) fn of(parts: &Parts, has_bucket: bool) -> Option<Self> {
        if is_xml(parts, has_bucket) {
            return Some(Self::Xml);
        }
        if parts.method == Method::PUT && raw_expires(&parts.headers).is_some() {
            return Some(Self::Headers);
        }
        let has_no_body = [Method::GET, Method::HEAD].contains(&parts.method)
            || parts.headers.contains_key(COPY_SOURCE);
        let is_concerned = |name: &HeaderName| *name == RANGE || DATES.contains(name);
        let amends = parts.headers.keys().any(is_concerned) && amend(&mut parts.headers.clone());
        (has_no_body && amends).then_some(Self::Headers)
    }
}

/// In the extensions of a request: an `Expires` that is no date, which is kept with the object as it was sent.
#[derive(Debug, Clone)]
pub(crate) struct RawExpires(pub(crate) String);

/// Returns the `Expires` of a request that `s3s` cannot read as a date.
fn raw_expires(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(EXPIRES)?.to_str().ok()?;
    let is_date = Timestamp::parse(TimestampFormat::HttpDate, text).is_ok();
    (!is_date).then(|| text.to_owned())
}

/// In the extensions of a request: the id of the key whose signature was verified.
#[derive(Debug, Clone)]
pub(crate) struct Signer(pub(crate) String);

/// Returns whether the body of a request is XML.
///
/// * `has_bucket`: the bucket is in the name of the host.
fn is_xml(parts: &Parts, has_bucket: bool) -> bool {
    let path = percent_decode_str(parts.uri.path()).decode_utf8_lossy();
    let path = path.trim_start_matches('/');
    let key = if has_bucket { Some(path) } else { path.split_once('/').map(|(_, key)| key) };
    let query = parts.uri.query().unwrap_or_default();
    let names_part =
        || form_urlencoded::parse(query.as_bytes()).any(|(name, _)| OF_OBJECT.contains(&&*name));
    match parts.method {
        Method::POST => true,
        Method::PUT => key.is_none_or(str::is_empty) || names_part(),
        _ => false,
    }
}

/// Removes headers that are to be ignored, and writes dates as `s3s` reads them. Returns whether there were
/// some.
///
/// A `Range` that is not one range is ignored: the whole object is the answer then. So are dates of conditions
/// that no one can read (RFC 9110, sections 13.1.3 and 13.1.4), and there are three forms of them (section
/// 5.6.7).
fn amend(headers: &mut HeaderMap) -> bool {
    let text = |value: &HeaderValue| value.to_str().map(str::to_owned).unwrap_or_default();
    let mut changed = false;
    if headers.get(RANGE).is_some_and(|value| Range::parse(&text(value)).is_err()) {
        headers.remove(RANGE);
        changed = true;
    }
    for name in &DATES {
        let Some(date) = headers.get(name).map(text) else { continue };
        if Timestamp::parse(TimestampFormat::HttpDate, &date).is_ok() {
            continue;
        }
        changed = true;
        let read = httpdate::parse_http_date(&date).ok().map(httpdate::fmt_http_date);
        match read.and_then(|date| HeaderValue::try_from(date).ok()) {
            Some(date) => drop(headers.insert(name, date)),
            None => drop(headers.remove(name)),
        }
    }
    changed
}

/// Passes requests that were changed to the service that answers them.
pub(crate) struct AmendingRoute(pub(crate) S3Service);

#[async_trait::async_trait]
impl S3Route for AmendingRoute {
    fn is_match(&self, _: &Method, _: &Uri, _: &HeaderMap, extensions: &mut Extensions) -> bool {
        extensions.get::<Amend>().is_some()
    }

    async fn call(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let S3Request {
            input,
            method,
            uri,
            mut headers,
            mut extensions,
            credentials,
            trailing_headers,
            ..
        } = request;
        let Some(credentials) = credentials else {
            return Err(s3_error!(AccessDenied, "Anonymous access is not permitted"));
        };
        let body = if extensions.get() == Some(&Amend::Xml) {
            let xml = rewritten(read(input, &headers).await?)?;
            if xml.len() > XML_SIZE_MAX {
                return Err(too_large());
            }
            headers.insert(CONTENT_LENGTH, HeaderValue::from(xml.len()));
            Body::from(xml)
        } else {
            input
        };
        amend(&mut headers);
        if let Some(text) = raw_expires(&headers) {
            headers.remove(EXPIRES);
            extensions.insert(RawExpires(text));
        }
        if let Some(trailers) = trailing_headers {
            extensions.insert::<TrailingHeaders>(trailers);
        }
        headers.remove(AUTHORIZATION);
        extensions.insert(Signer(credentials.access_key));
        let mut verified = Request::new(body);
        *verified.uri_mut() = without_signature(&uri)?;
        *verified.method_mut() = method;
        *verified.headers_mut() = headers;
        *verified.extensions_mut() = extensions;
        let answered = self.0.call(verified).await.map_err(|error| {
            let error: Box<dyn std::error::Error + Send + Sync> = error.into();
            S3Error::with_source(s3s::S3ErrorCode::InternalError, error)
        })?;
        let (parts, body) = answered.into_parts();
        let mut response = S3Response::new(body);
        response.status = Some(parts.status);
        response.headers = parts.headers;
        response.extensions = parts.extensions;
        Ok(response)
    }
}

/// Reads XML.
///
/// # Errors
/// `MaxMessageLengthExceeded`; others if the body is not what was signed.
async fn read(body: Body, headers: &HeaderMap) -> S3Result<Bytes> {
    let declared = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if declared.is_some_and(|declared: u64| declared > XML_SIZE_MAX as u64) {
        return Err(too_large());
    }
    match Limited::new(body, XML_SIZE_MAX).collect().await {
        Ok(read) => Ok(read.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(error) => Err(broken(&chain(&*error).to_string())),
    }
}

fn too_large() -> S3Error {
    s3_error!(
        MaxMessageLengthExceeded,
        "Your request was too big: its XML may have at most {XML_SIZE_MAX} bytes"
    )
}

/// Removes what signs a request from its query.
fn without_signature(uri: &Uri) -> S3Result<Uri> {
    let Some(query) = uri.query() else { return Ok(uri.clone()) };
    let signs = |pair: &&str| {
        let name = form_urlencoded::parse(pair.as_bytes()).next().map(|(name, _)| name);
        let name = name.unwrap_or_default();
        name.starts_with("X-Amz-") || ["AWSAccessKeyId", "Signature", "Expires"].contains(&&*name)
    };
    let kept: Vec<&str> = query.split('&').filter(|pair| !signs(pair)).collect();
    let target = format!("{}?{}", uri.path(), kept.join("&"));
    target.parse().map_err(|_| s3_error!(InvalidURI, "Couldn't parse the specified URI."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_an_object_are_no_xml() {
        for (method, target, xml) in [
            ("PUT", "/b/k", false),
            ("PUT", "/b%2Fk", false),
            ("PUT", "/b/k?anything", false),
            ("PUT", "/b/k?partNumber=1&uploadId=x", false),
            ("PUT", "/b/k?tagging", true),
            ("PUT", "/b/k?acl=", true),
            ("PUT", "/b", true),
            ("PUT", "/b/?versioning", true),
            ("POST", "/b?delete", true),
            ("POST", "/b/k?uploadId=x", true),
            ("GET", "/b/k?tagging", false),
        ] {
            let request = Request::builder().method(method).uri(target).body(()).unwrap();
            assert_eq!(is_xml(&request.into_parts().0, false), xml, "{method} {target}");
        }
        let request = Request::put("/k").body(()).unwrap();
        assert!(!is_xml(&request.into_parts().0, true), "the bucket is in the host");
    }

    #[test]
    fn several_ranges_mean_the_whole_object() {
        for (range, kept) in [("bytes=0-1", true), ("bytes=0-1,3-4", false), ("lines=1-2", false)] {
            let mut headers: HeaderMap =
                [(RANGE, HeaderValue::from_static(range))].into_iter().collect();
            assert_eq!(amend(&mut headers), !kept, "{range}");
            assert_eq!(headers.contains_key(RANGE), kept, "{range}");
        }
    }

    #[test]
    fn dates_have_three_forms_and_others_are_ignored() {
        let read = "Sun, 06 Nov 1994 08:49:37 GMT";
        for (date, expected) in [
            (read, Some(read)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(read)),
            ("Sun Nov  6 08:49:37 1994", Some(read)),
            ("1994-11-06T08:49:37Z", None),
            ("", None),
        ] {
            for name in DATES {
                let value = HeaderValue::from_static(date);
                let mut headers: HeaderMap = [(name.clone(), value)].into_iter().collect();
                amend(&mut headers);
                assert_eq!(
                    headers.get(&name).map(HeaderValue::as_bytes),
                    expected.map(str::as_bytes)
                );
            }
        }
    }

    #[test]
    fn a_verified_request_has_no_signature() {
        let without = |uri: &'static str| without_signature(&Uri::from_static(uri)).unwrap();
        let signed = "/b%20?X-Amz-Signature=a&delete&X%2DAmz-Date=b&versionId=%26&Expires=1";
        assert_eq!(without(signed), "/b%20?delete&versionId=%26");
        assert_eq!(without("/b?AWSAccessKeyId=a&Signature=b&Expires=1"), "/b?");
        assert_eq!(without("/b"), "/b");
    }
}
