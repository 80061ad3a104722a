//! Requests whose headers say something of the body that a handler would ignore.
//!
//! A `Content-Range` makes the body a part of what is meant; storing that as the whole would lose the
//! rest, so it is refused on every route (RFC 9110, section 14.5). Digests of the body are compared by the
//! routes of files and documents; all others refuse a body that has one, rather than accept it unchecked.

use http::header::CONTENT_RANGE;
use http::{HeaderMap, HeaderName, Method, Request};
use hyper::body::Body;

use crate::problem::Problem;

/// First segments below `/v1` of the routes that compare digests.
const COMPARING: [&str; 4] = ["files", "documents", "ingest", "namespaces"];
/// Headers with a digest of the body.
const DIGESTS: [HeaderName; 3] = [
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("content-md5"),
];

/// Checks a request before its handler runs.
///
/// # Errors
/// `content_range`; `digest`.
pub(super) fn check<B: Body>(request: &Request<B>) -> Result<(), Problem> {
    if !matches!(*request.method(), Method::PUT | Method::POST | Method::PATCH) {
        return Ok(());
    }
    if request.headers().contains_key(CONTENT_RANGE) {
        return Err(Problem::PART);
    }
    if !compares(request.uri().path())
        && !request.body().is_end_stream()
        && has_digest(request.headers())
    {
        return Err(Problem::DIGEST);
    }
    Ok(())
}

fn has_digest(headers: &HeaderMap) -> bool {
    DIGESTS.iter().any(|name| headers.contains_key(name))
}

fn compares(path: &str) -> bool {
    let segment = path.strip_prefix("/v1/").and_then(|rest| rest.split('/').next());
    segment.is_some_and(|segment| COMPARING.contains(&segment))
}

#[cfg(test)]
mod tests {
    use http_body_util::{Empty, Full};

    use super::*;

    fn refused(method: &str, path: &str, header: (&str, &str)) -> Option<String> {
        let request = Request::builder().method(method).uri(path).header(header.0, header.1);
        let checked = check(&request.body(Full::<bytes::Bytes>::from("x")).unwrap());
        checked.err().map(Problem::into_message)
    }

    #[test]
    fn a_part_is_refused_everywhere_and_a_digest_where_it_is_not_compared() {
        let part = ("content-range", "bytes 0-6/100");
        let expected = Some(Problem::PART.into_message());
        assert_eq!(refused("PUT", "/v1/documents/a/1", part), expected);
        assert_eq!(refused("POST", "/v1/events", part), expected);
        assert_eq!(refused("GET", "/v1/events", part), None);
        let expected = Some(Problem::DIGEST.into_message());
        for header in [("content-md5", "AA=="), ("content-digest", "x"), ("repr-digest", "x")] {
            assert_eq!(refused("POST", "/v1/events", header), expected);
            assert_eq!(refused("PATCH", "/v1/uploads/a", header), expected);
            assert_eq!(refused("PUT", "/v1/files/a/b", header), None, "its handler compares it");
        }
        let empty = Request::post("/v1/events").header("content-md5", "AA==");
        let empty = empty.body(Empty::<bytes::Bytes>::new()).unwrap();
        assert!(check(&empty).is_ok());
    }
}
