//! What is refused by its head alone, before `s3s` sees the request.
//!
//! `s3s` 0.14 obeys headers that no signature covers, accepts signature version 2 wherever it may stand, and
//! presigned URLs that never expire. So, with a status and a code that clients know:
//!
//! - a request carries exactly one signature: of version 4 in the header or the query, or of version 2 in
//!   the query, which old clients still presign URLs with; nothing is anonymous;
//! - every `x-amz-*` header is signed, `host` too; only `x-amz-content-sha256` need not be, since it is part
//!   of the signature by itself;
//! - a presigned URL is valid for at most seven days;
//! - `x-amz-*` parameters of a URL presigned with version 4 are headers, since clients move headers there
//!   ([`presigned`]);
//! - with version 2 the query has only parameters that its signature covers;
//! - headers that decide over the signature or the body occur once;
//! - forms, temporary credentials, other services and other regions than the configured one are refused.
//!
//! Invariant: what is read here is read more strictly than in `s3s`, so that both mean the same request.

use std::borrow::Cow;

use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use s3s::{S3Error, S3Result, s3_error};
use url::form_urlencoded;

use crate::Settings;
use crate::algorithm::Algorithm;
use crate::presigned;

/// Maximum validity of a presigned URL, in seconds: seven days.
const EXPIRES_MAX_S: u64 = 604_800;
const CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const DECODED_LENGTH: HeaderName = HeaderName::from_static("x-amz-decoded-content-length");
const SECURITY_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const TRAILER: HeaderName = HeaderName::from_static("x-amz-trailer");
const AMZ: &str = "x-amz-";

/// Headers that occur at most once.
const ONCE: [HeaderName; 9] = [
    AUTHORIZATION,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    HOST,
    CONTENT_SHA256,
    DECODED_LENGTH,
    TRAILER,
    DATE,
    HeaderName::from_static("x-amz-copy-source"),
];

/// Headers `x-amz-checksum-*` that are no checksums.
const ABOUT_CHECKSUMS: [&str; 3] =
    ["x-amz-checksum-algorithm", "x-amz-checksum-mode", "x-amz-checksum-type"];

/// Query parameters that a signature of version 2 covers, and those of the signature itself.
const SIGNED_BY_V2: [&str; 26] = [
    "AWSAccessKeyId",
    "Signature",
    "Expires",
    "acl",
    "cors",
    "delete",
    "lifecycle",
    "location",
    "logging",
    "notification",
    "object-lock",
    "partNumber",
    "policy",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "tagging",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
];

/// How the body of a request is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// As HTTP frames it.
    Plain,
    /// In chunks, which have this many bytes together.
    Chunked { signed: bool, declared: u64 },
}

/// Checks a request by its head.
///
/// * `now_s`: seconds since 1970.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check(parts: &mut Parts, settings: &Settings, now_s: u64) -> S3Result<Framing> {
    for name in &ONCE {
        if parts.headers.get_all(name).iter().nth(1).is_some() {
            return Err(s3_error!(InvalidRequest, "The header {name} occurs more than once"));
        }
    }
    if is_form(parts) {
        return Err(s3_error!(
            MethodNotAllowed,
            "Uploads by HTML form are not supported; presign a PUT request instead"
        ));
    }
    let query = parts.uri.query().unwrap_or_default();
    let query: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
    let authorization = text(&parts.headers, &AUTHORIZATION)?;
    let v4_query =
        query.iter().any(|(name, _)| name == "X-Amz-Signature" || name == "X-Amz-Algorithm");
    let v2_query = query.iter().any(|(name, _)| name == "Signature" || name == "AWSAccessKeyId");
    match (authorization, v4_query, v2_query) {
        (Some(header), false, false) => check_header(header, &parts.headers, settings)?,
        (None, true, false) => {
            check_presigned(&query, &parts.headers, settings)?;
            presigned::move_to_headers(&query, &mut parts.headers)?;
        }
        (None, false, true) => check_v2(&query, now_s)?,
        (None, false, false) => {
            return Err(denied("Anonymous access is not permitted; sign the request"));
        }
        _ => {
            return Err(s3_error!(
                InvalidArgument,
                "Only one auth mechanism allowed: the Authorization header, or a presigned URL"
            ));
        }
    }
    let has_token =
        query.iter().any(|(name, _)| name.eq_ignore_ascii_case(SECURITY_TOKEN.as_str()));
    if has_token || parts.headers.contains_key(SECURITY_TOKEN) {
        return Err(s3_error!(InvalidToken, "This server issues no temporary credentials"));
    }
    check_checksums(&parts.headers)?;
    framing(parts)
}

/// Returns whether a request is an upload by an HTML form, whose policy would be its signature.
fn is_form(parts: &Parts) -> bool {
    let kind = parts.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let kind = kind.trim_ascii_start().to_ascii_lowercase();
    parts.method == Method::POST && kind.starts_with(b"multipart/")
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> S3Result<Option<&'a str>> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let text = value.to_str().ok();
    Ok(Some(text.ok_or_else(|| s3_error!(InvalidRequest, "The header {name} is not ASCII text"))?))
}

/// Checks `AWS4-HMAC-SHA256 Credential=..., SignedHeaders=..., Signature=...`.
fn check_header(value: &str, headers: &HeaderMap, settings: &Settings) -> S3Result<()> {
    let Some(fields) = value.strip_prefix("AWS4-HMAC-SHA256 ") else {
        return Err(s3_error!(
            InvalidRequest,
            "The authorization mechanism you have provided is not supported. Please use \
             AWS4-HMAC-SHA256."
        ));
    };
    let malformed =
        || s3_error!(AuthorizationHeaderMalformed, "The authorization header is malformed");
    let names = ["Credential=", "SignedHeaders=", "Signature="];
    let fields: Vec<&str> = fields.split(',').map(str::trim).collect();
    let [Some(credential), Some(signed), Some(_)] =
        std::array::from_fn(|at| fields.get(at)?.strip_prefix(names[at]))
    else {
        return Err(malformed());
    };
    if fields.len() != names.len() {
        return Err(malformed());
    }
    check_scope(credential, settings, malformed)?;
    if text(headers, &DATE)?.is_none_or(|date| !is_time(date)) {
        return Err(denied("AWS authentication requires a valid Date or x-amz-date header."));
    }
    check_signed(signed, headers)
}

/// Whether a text has the form `20270115T080000Z`.
fn is_time(text: &str) -> bool {
    let is_right = |(at, byte): (usize, u8)| match at {
        8 => byte == b'T',
        15 => byte == b'Z',
        _ => byte.is_ascii_digit(),
    };
    text.len() == 16 && text.bytes().enumerate().all(is_right)
}

/// Checks the parameters of a URL presigned with version 4.
fn check_presigned(
    query: &[(Cow<'_, str>, Cow<'_, str>)],
    headers: &HeaderMap,
    settings: &Settings,
) -> S3Result<()> {
    let wrong = |why: &str| s3_error!(AuthorizationQueryParametersError, "{why}");
    let only = |wanted: &str| {
        let mut values = query.iter().filter(|(name, _)| name == wanted).map(|(_, value)| value);
        match (values.next(), values.next()) {
            (Some(value), None) => Ok(value),
            _ => Err(wrong(&format!("The query must have exactly one parameter {wanted}"))),
        }
    };
    for name in ["X-Amz-Algorithm", "X-Amz-Date", "X-Amz-Signature"] {
        only(name)?;
    }
    let expires: Option<u64> = number(only("X-Amz-Expires")?);
    if !expires.is_some_and(|seconds| (1..=EXPIRES_MAX_S).contains(&seconds)) {
        return Err(wrong("X-Amz-Expires must be a number of seconds from 1 to 604800"));
    }
    let malformed = || wrong("X-Amz-Credential is malformed");
    check_scope(only("X-Amz-Credential")?, settings, malformed)?;
    check_signed(only("X-Amz-SignedHeaders")?, headers)
}

/// Checks the parameters of a URL presigned with version 2. `s3s` checks that it has not expired.
fn check_v2(query: &[(Cow<'_, str>, Cow<'_, str>)], now_s: u64) -> S3Result<()> {
    let mut seen = Vec::new();
    for (name, _) in query {
        if !SIGNED_BY_V2.contains(&&**name) {
            return Err(denied(
                "The query has a parameter that signature version 2 does not cover",
            ));
        }
        if seen.contains(&name) {
            return Err(s3_error!(InvalidArgument, "A query parameter occurs more than once"));
        }
        seen.push(name);
    }
    let expires = query.iter().find(|(name, _)| name == "Expires");
    let expires: Option<u64> = expires.and_then(|(_, value)| number(value));
    if expires.is_none_or(|at| at > now_s.saturating_add(EXPIRES_MAX_S)) {
        return Err(denied("Expires must be a Unix time at most seven days ahead"));
    }
    Ok(())
}

/// Checks `KEY/DATE/REGION/SERVICE/aws4_request`.
fn check_scope(
    credential: &str,
    settings: &Settings,
    malformed: impl Fn() -> S3Error,
) -> S3Result<()> {
    let parts: Vec<&str> = credential.split('/').collect();
    let [_, date, region, service, "aws4_request"] = parts.as_slice() else {
        return Err(malformed());
    };
    if date.len() != 8 || !date.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(malformed());
    }
    if *service != "s3" {
        return Err(s3_error!(
            AuthorizationHeaderMalformed,
            "The authorization header is malformed; incorrect service \"{service}\". This endpoint belongs \
             to \"s3\"."
        ));
    }
    match &settings.region {
        Some(expected) if expected != region => {
            let mut error = s3_error!(
                AuthorizationHeaderMalformed,
                "The authorization header is malformed; the region '{region}' is wrong; expecting \
                 '{expected}'"
            );
            if let Ok(value) = HeaderValue::from_str(expected) {
                let name = HeaderName::from_static("x-amz-bucket-region");
                error.set_headers([(name, value)].into_iter().collect());
            }
            Err(error)
        }
        _ => Ok(()),
    }
}

/// Checks that the list of signed headers has every header that is obeyed.
fn check_signed(signed: &str, headers: &HeaderMap) -> S3Result<()> {
    let signed: Vec<&str> = signed.split(';').collect();
    let is_signed = |name: &str| signed.contains(&name);
    if !is_signed("host") {
        return Err(denied("The signature does not cover the host header"));
    }
    let obeyed = headers.keys().map(HeaderName::as_str).filter(|name| name.starts_with(AMZ));
    for name in obeyed {
        if !is_signed(name) && name != CONTENT_SHA256.as_str() {
            return Err(s3_error!(
                AccessDenied,
                "There were headers present in the request which were not signed"
            ));
        }
    }
    Ok(())
}

/// Refuses checksums that would not be compared.
fn check_checksums(headers: &HeaderMap) -> S3Result<()> {
    for name in headers.keys().map(HeaderName::as_str) {
        let is_known = Algorithm::of_header(name).is_some() || ABOUT_CHECKSUMS.contains(&name);
        if name.starts_with("x-amz-checksum-") && !is_known {
            return Err(s3_error!(InvalidRequest, "This server does not know the checksum {name}"));
        }
    }
    Ok(())
}

fn framing(parts: &mut Parts) -> S3Result<Framing> {
    let payload = text(&parts.headers, &CONTENT_SHA256)?.unwrap_or_default();
    let is_digest = payload.len() == 64 && payload.bytes().all(|byte| byte.is_ascii_hexdigit());
    let Some(kind) = payload.strip_prefix("STREAMING-") else {
        if payload.is_empty() || payload == "UNSIGNED-PAYLOAD" || is_digest {
            return Ok(Framing::Plain);
        }
        return Err(s3_error!(
            InvalidArgument,
            "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, \
             STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER, \
             STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD, STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER or \
             a valid sha256 value."
        ));
    };
    let declared = text(&parts.headers, &DECODED_LENGTH)?.and_then(number::<u64>);
    let declared = declared.ok_or_else(|| {
        s3_error!(MissingContentLength, "x-amz-decoded-content-length must be a number of bytes")
    })?;
    let signed = !kind.starts_with("UNSIGNED");
    if kind.ends_with("-TRAILER") && !parts.headers.contains_key(TRAILER) {
        // S3 does not insist on it; s3s does.
        parts.headers.insert(TRAILER, HeaderValue::from_static(""));
    }
    Ok(Framing::Chunked { signed, declared })
}

/// Reads a number without a sign.
fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn denied(why: &'static str) -> S3Error {
    s3_error!(AccessDenied, "{why}")
}

#[cfg(test)]
mod tests {
    use http::Request;
    use s3s::S3ErrorCode;

    use super::*;

    const NOW_S: u64 = 1_800_000_000;
    const TIME: &str = "20270115T080000Z";

    fn parts(method: &str, target: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(target).header("host", "h");
        let has = |wanted: &str| headers.iter().any(|(name, _)| *name == wanted);
        if has("authorization") && !has("x-amz-date") {
            request = request.header("x-amz-date", TIME);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn of(method: &str, target: &str, headers: &[(&str, &str)]) -> Result<Framing, S3ErrorCode> {
        let checked = check(&mut parts(method, target, headers), &Settings::default(), NOW_S);
        checked.map_err(|error| error.code().clone())
    }

    fn signed(headers: &str) -> String {
        format!(
            "AWS4-HMAC-SHA256 Credential=k/20270115/forebay/s3/aws4_request, SignedHeaders={headers}, \
             Signature=0"
        )
    }

    fn presigned(expires: &str, headers: &str) -> String {
        format!(
            "/b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=k%2F20270115%2Fr%2Fs3%2Faws4_request\
             &X-Amz-Date=20270115T080000Z&X-Amz-Expires={expires}&X-Amz-SignedHeaders={headers}\
             &X-Amz-Signature=0"
        )
    }

    #[test]
    fn an_anonymous_request_is_refused() {
        assert_eq!(of("GET", "/b/k", &[]), Err(S3ErrorCode::AccessDenied));
        assert_eq!(of("GET", "/b?prefix=x", &[]), Err(S3ErrorCode::AccessDenied));
    }

    #[test]
    fn an_unsigned_amz_header_is_refused_under_header_auth() {
        let auth = signed("host;x-amz-date;x-amz-content-sha256");
        let all = [
            ("authorization", &*auth),
            ("x-amz-date", TIME),
            ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
        ];
        assert_eq!(of("PUT", "/b/k", &all), Ok(Framing::Plain));
        for name in ["x-amz-copy-source", "x-amz-acl", "x-amz-tagging", "x-amz-meta-a"] {
            let mut more = all.to_vec();
            more.push((name, "b/secret"));
            assert_eq!(of("PUT", "/b/k", &more), Err(S3ErrorCode::AccessDenied), "{name}");
        }
        let unnamed = signed("x-amz-date");
        let headers = [("authorization", &*unnamed), ("x-amz-date", TIME)];
        assert_eq!(of("PUT", "/b/k", &headers), Err(S3ErrorCode::AccessDenied), "no host");
    }

    #[test]
    fn an_unsigned_amz_header_is_refused_on_a_presigned_url() {
        let url = presigned("60", "host");
        assert_eq!(of("PUT", &url, &[]), Ok(Framing::Plain));
        assert_eq!(
            of("PUT", &url, &[("x-amz-content-sha256", "UNSIGNED-PAYLOAD")]),
            Ok(Framing::Plain)
        );
        let copy = [("x-amz-copy-source", "/b/secret")];
        assert_eq!(of("PUT", &url, &copy), Err(S3ErrorCode::AccessDenied));
        assert_eq!(
            of("PUT", &presigned("60", "host%3Bx-amz-copy-source"), &copy),
            Ok(Framing::Plain)
        );
        assert_eq!(of("PUT", &presigned("60", "range"), &[]), Err(S3ErrorCode::AccessDenied));
    }

    #[test]
    fn a_presigned_url_is_valid_for_at_most_seven_days() {
        for (expires, good) in [
            ("1", true),
            ("604800", true),
            ("0", false),
            ("604801", false),
            ("-1", false),
            ("%2B9", false),
            ("", false),
        ] {
            let found = of("GET", &presigned(expires, "host"), &[]);
            let wrong = Err(S3ErrorCode::AuthorizationQueryParametersError);
            assert_eq!(found, if good { Ok(Framing::Plain) } else { wrong }, "{expires}");
        }
        let twice = format!("{}&X-Amz-Expires=60", presigned("60", "host"));
        assert!(of("GET", &twice, &[]).is_err());
    }

    #[test]
    fn signature_version_2_is_refused_in_a_header_and_in_forms() {
        let v2 = [("authorization", "AWS k:c2lnbmF0dXJl"), ("date", "x")];
        assert_eq!(of("GET", "/b/k", &v2), Err(S3ErrorCode::InvalidRequest));
        for kind in ["multipart/form-data; boundary=x", " Multipart/Form-Data; boundary=x"] {
            let form = [("content-type", kind)];
            assert_eq!(of("POST", "/b", &form), Err(S3ErrorCode::MethodNotAllowed), "{kind}");
        }
    }

    #[test]
    fn signature_version_2_in_a_query_expires_and_covers_every_parameter() {
        let url = |expires: u64, more: &str| {
            format!("/b/k?AWSAccessKeyId=k&Signature=c2ln&Expires={expires}{more}")
        };
        assert_eq!(of("GET", &url(NOW_S + 604_800, ""), &[]), Ok(Framing::Plain));
        assert_eq!(of("GET", &url(NOW_S + 604_801, ""), &[]), Err(S3ErrorCode::AccessDenied));
        assert_eq!(of("GET", &url(NOW_S, "&tagging"), &[]), Ok(Framing::Plain));
        for more in ["&attributes", "&select&select-type=2", "&retention", "&anything=1"] {
            assert_eq!(of("GET", &url(NOW_S, more), &[]), Err(S3ErrorCode::AccessDenied), "{more}");
        }
        assert_eq!(of("GET", &url(NOW_S, "&Expires=1"), &[]), Err(S3ErrorCode::InvalidArgument));
        assert_eq!(
            of("GET", "/b/k?AWSAccessKeyId=k&Signature=c2ln", &[]),
            Err(S3ErrorCode::AccessDenied)
        );
    }

    #[test]
    fn two_signatures_two_headers_and_other_services_are_refused() {
        let auth = signed("host;x-amz-date");
        let header = [("authorization", &*auth)];
        assert_eq!(of("GET", &presigned("60", "host"), &header), Err(S3ErrorCode::InvalidArgument));
        assert_eq!(of("GET", "/b/k?Signature=x", &header), Err(S3ErrorCode::InvalidArgument));
        let twice = [("authorization", &*auth), ("authorization", &*auth)];
        assert_eq!(of("GET", "/b/k", &twice), Err(S3ErrorCode::InvalidRequest));
        assert_eq!(
            of("GET", "/b/k", &[("host", "other"), header[0]]),
            Err(S3ErrorCode::InvalidRequest)
        );
        let sts = auth.replace("/s3/", "/sts/");
        let found = of("POST", "/", &[("authorization", &*sts)]);
        assert_eq!(found, Err(S3ErrorCode::AuthorizationHeaderMalformed));
        let token = [
            ("authorization", &*signed("host;x-amz-date;x-amz-security-token")),
            ("x-amz-security-token", "t"),
        ];
        assert_eq!(of("GET", "/b/k", &token), Err(S3ErrorCode::InvalidToken));
    }

    #[test]
    fn a_malformed_authorization_is_refused() {
        for value in [
            "AWS4-HMAC-SHA256",
            "AWS4-HMAC-SHA256 Credential=k/d/r/s3/aws4_request",
            "AWS4-HMAC-SHA256 Credential=k/d/r/s3/aws4_request, SignedHeaders=host, SignedHeaders=x, Signature=0",
            "AWS4-HMAC-SHA256 SignedHeaders=host, Credential=k/d/r/s3/aws4_request, Signature=0",
            "AWS4-HMAC-SHA256 Credential=k/d/r/s3, SignedHeaders=host, Signature=0",
            "Bearer fbk_x",
            "",
        ] {
            assert!(of("GET", "/b/k", &[("authorization", value)]).is_err(), "{value}");
        }
    }

    #[test]
    fn a_configured_region_is_enforced_and_named() {
        let settings = Settings { region: Some("forebay".to_owned()), ..Settings::default() };
        let auth = signed("host;x-amz-date");
        let mut right = parts("GET", "/b/k", &[("authorization", &*auth)]);
        assert!(check(&mut right, &settings, NOW_S).is_ok());
        let auth = auth.replace("/forebay/", "/us-east-1/");
        let mut wrong = parts("GET", "/b/k", &[("authorization", &*auth)]);
        let error = check(&mut wrong, &settings, NOW_S).unwrap_err();
        assert_eq!(error.code(), &S3ErrorCode::AuthorizationHeaderMalformed);
        assert_eq!(error.headers().unwrap()["x-amz-bucket-region"], "forebay");
    }

    #[test]
    fn a_chunked_body_needs_its_length_and_no_announcement_of_trailers() {
        let auth = signed("host;x-amz-date;x-amz-decoded-content-length");
        let framed = |payload: &str, length: &str| {
            of(
                "PUT",
                "/b/k",
                &[
                    ("authorization", &auth),
                    ("x-amz-content-sha256", payload),
                    ("x-amz-decoded-content-length", length),
                ],
            )
        };
        let unsigned = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
        assert_eq!(framed(unsigned, "5"), Ok(Framing::Chunked { signed: false, declared: 5 }));
        let signed = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
        assert_eq!(framed(signed, "0"), Ok(Framing::Chunked { signed: true, declared: 0 }));
        for length in ["", "-1", "+5", "5x", "18446744073709551616"] {
            assert_eq!(
                framed(unsigned, length),
                Err(S3ErrorCode::MissingContentLength),
                "{length}"
            );
        }
    }

    #[test]
    fn checksums_that_would_not_be_compared_are_refused() {
        let auth = signed("host;x-amz-date;x-amz-checksum-blake3;x-amz-checksum-crc32");
        let with = |name| of("PUT", "/b/k", &[("authorization", &*auth), (name, "AAAA")]);
        assert_eq!(with("x-amz-checksum-crc32"), Ok(Framing::Plain));
        assert_eq!(with("x-amz-checksum-blake3"), Err(S3ErrorCode::InvalidRequest));
    }
}
