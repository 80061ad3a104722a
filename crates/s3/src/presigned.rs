//! Headers that are in the query of a presigned URL.
//!
//! The AWS SDK for JavaScript moves every `x-amz-*` header into the query when it presigns a URL. The signature
//! covers the whole query, so such a parameter is as good as a signed header; `s3s` reads headers only, and
//! would store the empty body of a copy.
//!
//! Ignored are the parameters of the signature, those that frame the body, and checksums: the same SDK signs
//! the checksum of no bytes at all into a URL whose body it does not know.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};
use s3s::{S3Error, S3Result, s3_error};

const AMZ: &str = "x-amz-";

/// Parameters that stay in the query, without `x-amz-`.
const OF_QUERY: [&str; 11] = [
    "algorithm",
    "content-sha256",
    "credential",
    "date",
    "decoded-content-length",
    "expires",
    "sdk-checksum-algorithm",
    "security-token",
    "signature",
    "signedheaders",
    "trailer",
];

/// Adds the headers that are in a query.
///
/// # Errors
/// `InvalidArgument`: one is given twice, or cannot be a header.
pub(crate) fn move_to_headers(
    query: &[(Cow<'_, str>, Cow<'_, str>)],
    headers: &mut HeaderMap,
) -> S3Result<()> {
    for (name, value) in query {
        let lower = name.to_ascii_lowercase();
        let Some(rest) = lower.strip_prefix(AMZ) else { continue };
        if OF_QUERY.contains(&rest) || rest.starts_with("checksum-") {
            continue;
        }
        let header = HeaderName::from_bytes(lower.as_bytes()).map_err(|_| malformed(name))?;
        let value = HeaderValue::from_str(value).map_err(|_| malformed(name))?;
        if headers.insert(header, value).is_some() {
            return Err(s3_error!(InvalidArgument, "The request has {name:?} more than once"));
        }
    }
    Ok(())
}

fn malformed(name: &str) -> S3Error {
    s3_error!(InvalidArgument, "The query parameter {name:?} cannot be a header")
}

#[cfg(test)]
mod tests {
    use s3s::S3ErrorCode;
    use url::form_urlencoded;

    use super::*;

    fn moved(query: &str, headers: &[(&'static str, &'static str)]) -> S3Result<HeaderMap> {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let mut headers: HeaderMap = headers.iter().map(pair).collect();
        let query: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        move_to_headers(&query, &mut headers).map(|()| headers)
    }

    #[test]
    fn parameters_of_the_signature_and_checksums_stay_in_the_query() {
        let query = "X-Amz-Algorithm=a&X-Amz-Credential=a&X-Amz-Date=a&X-Amz-Expires=1&X-Amz-Signature=a\
                     &X-Amz-SignedHeaders=host&X-Amz-Content-Sha256=a&X-Amz-Security-Token=a\
                     &x-amz-checksum-crc32=AAAAAA%3D%3D&x-amz-sdk-checksum-algorithm=CRC32&x-id=PutObject";
        assert!(moved(query, &[]).unwrap().is_empty());
        let found = moved("x-amz-copy-source=b%2Fa%2520b&X-Amz-Meta-A=1&x-amz-acl=", &[]).unwrap();
        assert_eq!(found["x-amz-copy-source"], "b/a%20b");
        assert_eq!(found["x-amz-meta-a"], "1");
        assert_eq!((found["x-amz-acl"].as_bytes(), found.len()), (&b""[..], 3));
    }

    #[test]
    fn a_header_that_is_given_twice_or_malformed_is_refused() {
        for (query, headers) in [
            ("x-amz-acl=private&x-amz-acl=private", &[][..]),
            ("x-amz-acl=private&X-Amz-Acl=private", &[]),
            ("x-amz-acl=private", &[("x-amz-acl", "private")]),
            ("x-amz-meta-a=%0A", &[]),
            ("x-amz-meta-%20=a", &[]),
        ] {
            let error = moved(query, headers).unwrap_err();
            assert_eq!(error.code(), &S3ErrorCode::InvalidArgument, "{query}");
        }
    }
}
