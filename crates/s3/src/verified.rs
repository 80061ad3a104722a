//! Small bodies, which are XML, compared with their headers as they pass.
//!
//! The bytes of objects and of parts are read by [`Reader`](crate::sums::Reader) instead, which compares them before anything
//! is acknowledged.
//!
//! Invariant: a body that differs ends with an error, and the response says why.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method};
use http_body::{Body as HttpBody, Frame};
use md5::{Digest as _, Md5};
use s3s::S3Result;
use url::form_urlencoded;

use crate::algorithm::{Algorithm, Running};
use crate::chunks::{Broken, Fault};
use crate::sums::{Expected, compare, compare_md5, other_content};

/// Returns a body, which compares itself with what the headers say of it if it is not that of an object.
///
/// * `has_bucket`: the bucket is in the name of the host. `fault`: receives the difference.
///
/// # Errors
/// A checksum is malformed, or differs from that of an empty body.
pub(crate) fn verified(
    body: Body,
    parts: &Parts,
    has_bucket: bool,
    fault: Fault,
) -> S3Result<s3s::Body> {
    if is_object(parts, has_bucket) {
        return Ok(s3s::Body::http_body_unsync(body));
    }
    let expected = match completes(parts) {
        true => Expected::of(&of_body(&parts.headers))?,
        false => Expected::of(&parts.headers)?,
    };
    let sha256 = parts.headers.get("x-amz-content-sha256").and_then(|value| {
        hex::decode(value).ok().filter(|digest| digest.len() == Algorithm::Sha256.size())
    });
    if expected.md5.is_none() && expected.value.is_none() && sha256.is_none() {
        return Ok(s3s::Body::http_body_unsync(body));
    }
    let running =
        Some((Md5::new(), Running::new(expected.algorithm), Running::new(Algorithm::Sha256)));
    let left = body.size_hint().exact();
    let mut verified = Verified { inner: body, expected, sha256, running, left, fault };
    // `s3s` does not read a body that is known to be empty.
    if left == Some(0) {
        verified.compared()?;
    }
    Ok(s3s::Body::http_body_unsync(verified))
}

/// Whether the body of a request is the bytes of an object or of a part.
///
/// * `has_bucket`: the bucket is in the name of the host.
fn is_object(parts: &Parts, has_bucket: bool) -> bool {
    let path = parts.uri.path().trim_start_matches('/');
    let key = if has_bucket { Some(path) } else { path.split_once('/').map(|(_, key)| key) };
    let query = parts.uri.query().unwrap_or_default();
    let is_plain = |name: &str| {
        let of_signature = ["AWSAccessKeyId", "Signature", "Expires"].contains(&name);
        of_signature
            || name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("x-amz-"))
            || ["partNumber", "uploadId", "x-id"].contains(&name)
    };
    parts.method == Method::PUT
        && key.is_some_and(|key| !key.is_empty())
        && form_urlencoded::parse(query.as_bytes()).all(|(name, _)| is_plain(&name))
}

/// Whether a request completes an upload. A checksum in its headers is that of the object, which is compared when
/// the object is put together.
fn completes(parts: &Parts) -> bool {
    let query = parts.uri.query().unwrap_or_default();
    parts.method == Method::POST
        && form_urlencoded::parse(query.as_bytes()).any(|(name, _)| name == "uploadId")
}

/// The headers of a request without those of checksums.
fn of_body(headers: &HeaderMap) -> HeaderMap {
    let is_of_body = |name: &HeaderName| !name.as_str().starts_with("x-amz-checksum-");
    let kept = headers.iter().filter(|(name, _)| is_of_body(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// A small body that is compared with the headers.
struct Verified {
    inner: Body,
    expected: Expected,
    sha256: Option<Vec<u8>>,
    running: Option<(Md5, Running, Running)>,
    /// Bytes that are still to come, if that is known.
    left: Option<u64>,
    fault: Fault,
}

impl Verified {
    /// Compares what has arrived; once.
    fn compared(&mut self) -> S3Result<()> {
        let Some((md5, running, sha256)) = self.running.take() else { return Ok(()) };
        let Expected { md5: expected, algorithm, value, .. } = &self.expected;
        let compared = compare_md5(expected.as_deref(), &md5.finalize())
            .and_then(|()| compare(*algorithm, value.as_deref(), &running.finish()));
        compared.and_then(|()| match &self.sha256 {
            Some(expected) if *expected != sha256.finish() => Err(other_content()),
            _ => Ok(()),
        })
    }

    /// Compares what has arrived, and records why it differs.
    fn compare(&mut self) -> Result<(), Broken> {
        self.compared().map_err(|error| {
            self.fault.set(error);
            Broken
        })
    }
}

impl HttpBody for Verified {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        let frame = match ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(_)) => {
                this.fault.set(crate::error::incomplete("The body was interrupted"));
                return Poll::Ready(Some(Err(Broken)));
            }
            None => return Poll::Ready(this.compare().err().map(Err)),
        };
        if let (Some(data), Some((md5, running, sha256))) = (frame.data_ref(), &mut this.running) {
            md5.update(data);
            running.update(data);
            sha256.update(data);
            this.left = this.left.map(|left| left.saturating_sub(data.len() as u64));
            // Whoever knows the length need not read the end.
            if this.left == Some(0)
                && let Err(broken) = this.compare()
            {
                return Poll::Ready(Some(Err(broken)));
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use http::Request;
    use http_body_util::BodyExt;

    use super::*;

    const TEXT: &[u8] = b"123456789";

    #[tokio::test]
    async fn xml_is_compared_with_its_checksum_and_an_object_is_not() {
        let md5 = STANDARD.encode(Md5::digest(b"other"));
        for (method, target, fails) in [
            ("POST", "/b?delete", true),
            ("PUT", "/b/k?tagging", true),
            ("PUT", "/b/k?partNumber=1&uploadId=x", false),
            ("PUT", "/b/k", false),
            ("PUT", "/b", true),
            ("PUT", "/b/", true),
        ] {
            let request = Request::builder().method(method).uri(target).header("content-md5", &md5);
            let parts = request.body(()).unwrap().into_parts().0;
            let fault = Fault::default();
            let body = verified(Body::from(TEXT), &parts, false, fault.clone()).unwrap();
            assert_eq!(BodyExt::collect(body).await.is_err(), fails, "{method} {target}");
            assert_eq!(fault.take().is_some(), fails);
        }
    }
}
