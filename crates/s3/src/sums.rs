//! Checksums of bodies: computed while they are read, compared before anything is acknowledged.
//!
//! `s3s` parses `Content-MD5`, `x-amz-checksum-*` and their trailers, and compares none of them. An object is
//! read through a [`Reader`], which also computes the MD5 for its ETag, and a checksum to store: the one that
//! the client sent or named, else CRC64NVME, as S3 does. Other bodies, which are XML, pass through
//! [`verified`](crate::verified::verified).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use forebay_intake::IntakeError;
use forebay_intake::upload::Source;
use futures_util::StreamExt as _;
use http::{HeaderMap, HeaderName, StatusCode};
use md5::{Digest as _, Md5};
use s3s::dto::StreamingBlob;
use s3s::{S3Error, S3ErrorCode, S3Result, TrailingHeaders, s3_error};

use crate::algorithm::{Algorithm, Running};
use crate::chunks::Fault;

/// What the headers of a request say of its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) md5: Option<Vec<u8>>,
    pub(crate) algorithm: Algorithm,
    /// Whether the client chose it.
    pub(crate) chosen: bool,
    pub(crate) value: Option<Vec<u8>>,
    /// A trailer has to bring the value.
    trailer: bool,
}

impl Expected {
    /// Reads the headers of a request.
    ///
    /// # Errors
    /// A value is malformed, or there are several checksums.
    pub(crate) fn of(headers: &HeaderMap) -> S3Result<Self> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let md5 = match headers.get("content-md5") {
            None => None,
            Some(_) => {
                let decoded = text("content-md5").and_then(|value| STANDARD.decode(value).ok());
                let md5 = decoded.filter(|value| value.len() == 16);
                Some(md5.ok_or_else(|| {
                    s3_error!(InvalidDigest, "The Content-MD5 you specified is not valid.")
                })?)
            }
        };
        let mut given = None;
        for algorithm in Algorithm::ALL {
            if headers.contains_key(algorithm.header()) {
                if given.is_some() {
                    return Err(several());
                }
                let value = text(algorithm.header()).unwrap_or_default();
                given = Some((algorithm, algorithm.decode(value)?));
            }
        }
        let announced = announced(text("x-amz-trailer").unwrap_or_default())?;
        let named = ["x-amz-sdk-checksum-algorithm", "x-amz-checksum-algorithm"]
            .into_iter()
            .find_map(|name| headers.get(name))
            .map(|value| value.to_str().ok().and_then(Algorithm::parse).ok_or_else(unsupported))
            .transpose()?;
        let sent = given.as_ref().map(|(algorithm, _)| *algorithm).or(announced);
        if let (Some(sent), Some(named)) = (sent, named)
            && sent != named
        {
            return Err(s3_error!(
                InvalidRequest,
                "Value for x-amz-sdk-checksum-algorithm header is invalid."
            ));
        }
        let (algorithm, value, trailer, chosen) = match (given, announced, named) {
            (Some((algorithm, value)), ..) => (algorithm, Some(value), false, true),
            (None, Some(algorithm), _) => (algorithm, None, true, true),
            (None, None, Some(algorithm)) => (algorithm, None, false, true),
            (None, None, None) => (Algorithm::Crc64Nvme, None, false, false),
        };
        Ok(Self { md5, algorithm, chosen, value, trailer })
    }

    /// Checks that a client did not choose another checksum than the upload has.
    ///
    /// # Errors
    /// `InvalidRequest`.
    pub(crate) fn check_algorithm(&self, algorithm: Algorithm) -> S3Result<()> {
        if !self.chosen || self.algorithm == algorithm {
            return Ok(());
        }
        Err(s3_error!(
            InvalidRequest,
            "Checksum Type mismatch occurred, expected checksum Type: {}, actual checksum Type: {}",
            algorithm.name(),
            self.algorithm.name()
        ))
    }

    /// Computes another checksum unless the client chose one.
    pub(crate) fn or_else(mut self, algorithm: Option<Algorithm>) -> Self {
        if let (false, Some(algorithm)) = (self.chosen, algorithm) {
            self.algorithm = algorithm;
        }
        self
    }
}

/// Reads which checksum the trailers are to bring. One that is not known would not be compared.
fn announced(trailers: &str) -> S3Result<Option<Algorithm>> {
    let mut announced = None;
    for name in trailers.split(',').map(str::trim) {
        if !name.to_ascii_lowercase().starts_with("x-amz-checksum-") {
            continue;
        }
        let Some(algorithm) = Algorithm::of_header(name) else {
            return Err(s3_error!(InvalidRequest, "This server does not know the checksum {name}"));
        };
        if announced.replace(algorithm).is_some() {
            return Err(several());
        }
    }
    Ok(announced)
}

/// A request names a checksum that is not known.
pub(crate) fn unsupported() -> S3Error {
    let known = Algorithm::ALL.map(Algorithm::name).join(", ");
    s3_error!(
        InvalidRequest,
        "Checksum algorithm provided is unsupported. Please try again with any of the valid types: [{known}]"
    )
}

fn several() -> S3Error {
    s3_error!(
        InvalidRequest,
        "Expecting a single x-amz-checksum- header. Multiple checksum types are not allowed."
    )
}

/// A body that was received as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) md5: [u8; 16],
    pub(crate) algorithm: Algorithm,
    pub(crate) value: Vec<u8>,
    pub(crate) size: u64,
}

/// Reads the body of an object.
pub(crate) struct Reader {
    body: Option<StreamingBlob>,
    expected: Expected,
    md5: Md5,
    running: Running,
    size: u64,
    fault: Fault,
}

impl Reader {
    pub(crate) fn new(body: Option<StreamingBlob>, expected: Expected, fault: Fault) -> Self {
        let running = Running::new(expected.algorithm);
        Self { body, expected, md5: Md5::new(), running, size: 0, fault }
    }

    /// Compares what was read with what was announced.
    ///
    /// # Errors
    /// `BadDigest`, or a trailer is missing.
    pub(crate) fn finish(self, trailers: Option<&TrailingHeaders>) -> S3Result<Received> {
        let Expected { md5, algorithm, value, trailer, .. } = self.expected;
        let found: [u8; 16] = self.md5.finalize().into();
        let computed = self.running.finish();
        compare_md5(md5.as_deref(), &found)?;
        let arrived =
            trailers.and_then(|trailers| trailers.read(|arrived| sent(arrived, algorithm)));
        let value = match (value, arrived.transpose()?.flatten()) {
            (_, Some(text)) => Some(algorithm.decode(&text)?),
            (None, None) if trailer => {
                return Err(malformed("The trailer that the request announced did not arrive"));
            }
            (value, None) => value,
        };
        compare(algorithm, value.as_deref(), &computed)?;
        Ok(Received { md5: found, algorithm, value: computed, size: self.size })
    }
}

/// Returns the checksum that trailers bring.
///
/// # Errors
/// `MalformedTrailerError`: they bring another one, which no header announced and nothing has computed.
fn sent(trailers: &HeaderMap, algorithm: Algorithm) -> S3Result<Option<String>> {
    let others = trailers.keys().map(HeaderName::as_str).filter(|name| *name != algorithm.header());
    if others.into_iter().any(|name| name.starts_with("x-amz-checksum-")) {
        return Err(malformed("A trailer has a checksum that x-amz-trailer does not announce"));
    }
    let value = trailers.get(algorithm.header());
    Ok(value.map(|value| value.to_str().unwrap_or_default().to_owned()))
}

fn malformed(why: &'static str) -> S3Error {
    let code = S3ErrorCode::Custom("MalformedTrailerError".into());
    let mut error = S3Error::with_message(code, why);
    error.set_status_code(StatusCode::BAD_REQUEST);
    error
}

impl Source for Reader {
    async fn next(&mut self) -> Result<Option<Bytes>, IntakeError> {
        loop {
            let Some(body) = &mut self.body else { return Ok(None) };
            match body.next().await {
                None => {
                    self.body = None;
                    return Ok(None);
                }
                Some(Ok(bytes)) if bytes.is_empty() => {}
                Some(Ok(bytes)) => {
                    self.md5.update(&bytes);
                    self.running.update(&bytes);
                    self.size += bytes.len() as u64;
                    return Ok(Some(bytes));
                }
                Some(Err(error)) => {
                    self.body = None;
                    let text = error.to_string();
                    self.fault.set(broken(&text));
                    return Err(IntakeError::Body {
                        message: format!("the body broke off after {} bytes", self.size),
                        slow: false,
                    });
                }
            }
        }
    }
}

/// What a request is answered whose body `s3s` found to be wrong: it says so in words only.
pub(crate) fn broken(error: &str) -> S3Error {
    if error.contains("Sha256Mismatch") {
        return other_content();
    }
    if error.contains("SignatureMismatch") {
        return s3_error!(SignatureDoesNotMatch, "The signature of a chunk does not match");
    }
    s3_error!(IncompleteBody, "The body ended early, or is not framed as it declares")
}

/// The body is not what was signed.
pub(crate) fn other_content() -> S3Error {
    let mut error = S3Error::with_message(
        S3ErrorCode::Custom("XAmzContentSHA256Mismatch".into()),
        "The provided 'x-amz-content-sha256' header does not match what was computed.",
    );
    error.set_status_code(StatusCode::BAD_REQUEST);
    error
}

pub(crate) fn compare_md5(expected: Option<&[u8]>, found: &[u8]) -> S3Result<()> {
    if expected.is_none_or(|expected| expected == found) {
        return Ok(());
    }
    Err(s3_error!(BadDigest, "The Content-MD5 you specified did not match what we received."))
}

pub(crate) fn compare(algorithm: Algorithm, expected: Option<&[u8]>, found: &[u8]) -> S3Result<()> {
    if expected.is_none_or(|expected| expected == found) {
        return Ok(());
    }
    let name = algorithm.name();
    Err(s3_error!(BadDigest, "The {name} you specified did not match the calculated checksum."))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const TEXT: &[u8] = b"123456789";

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        all.iter().map(pair).collect()
    }

    async fn read(all: &[(&'static str, &str)]) -> Result<Received, S3ErrorCode> {
        let expected = Expected::of(&headers(all)).map_err(|error| error.code().clone())?;
        let body = StreamingBlob::from(s3s::Body::from(Bytes::from_static(TEXT)));
        let mut reader = Reader::new(Some(body), expected, Fault::default());
        while Source::next(&mut reader).await.unwrap().is_some() {}
        reader.finish(None).map_err(|error| error.code().clone())
    }

    #[tokio::test]
    async fn a_wrong_checksum_or_md5_is_a_bad_digest() {
        let md5 = STANDARD.encode(Md5::digest(TEXT));
        let crc = STANDARD.encode(Algorithm::Crc32.of(TEXT));
        let received =
            read(&[("content-md5", &md5), ("x-amz-checksum-crc32", &crc)]).await.unwrap();
        assert_eq!((received.algorithm, received.size), (Algorithm::Crc32, 9));
        let other = STANDARD.encode(Md5::digest(b"other"));
        assert_eq!(read(&[("content-md5", &other)]).await, Err(S3ErrorCode::BadDigest));
        assert_eq!(
            read(&[("x-amz-checksum-crc32", "AAAAAA==")]).await,
            Err(S3ErrorCode::BadDigest)
        );
        assert_eq!(read(&[("content-md5", "x")]).await, Err(S3ErrorCode::InvalidDigest));
        let other =
            [("x-amz-checksum-crc32", crc.as_str()), ("x-amz-sdk-checksum-algorithm", "SHA1")];
        assert_eq!(read(&other).await, Err(S3ErrorCode::InvalidRequest));
        assert_eq!(
            read(&[("x-amz-checksum-crc32", "AAAA")]).await,
            Err(S3ErrorCode::InvalidRequest)
        );
        let two = [("x-amz-checksum-crc32", crc.as_str()), ("x-amz-checksum-sha1", "AAAA")];
        assert_eq!(read(&two).await, Err(S3ErrorCode::InvalidRequest));
        assert_eq!(read(&[]).await.unwrap().algorithm, Algorithm::Crc64Nvme);
    }

    #[tokio::test]
    async fn an_announced_trailer_that_does_not_arrive_fails_the_upload() {
        let code = read(&[("x-amz-trailer", "x-amz-checksum-crc32")]).await.unwrap_err();
        assert_eq!(code.as_str(), "MalformedTrailerError");
        assert!(read(&[("x-amz-trailer", "")]).await.is_ok());
    }

    #[tokio::test]
    async fn a_checksum_that_would_not_be_compared_is_refused() {
        for headers in [
            [("x-amz-trailer", "x-amz-checksum-blake3")],
            [("x-amz-trailer", "x-amz-checksum-crc32, X-Amz-Checksum-New")],
            [("x-amz-trailer", "x-amz-checksum-crc32,x-amz-checksum-sha1")],
            [("x-amz-sdk-checksum-algorithm", "BLAKE3")],
        ] {
            assert_eq!(read(&headers).await, Err(S3ErrorCode::InvalidRequest), "{headers:?}");
        }
    }

    #[tokio::test]
    async fn every_known_checksum_is_compared() {
        for algorithm in Algorithm::ALL {
            let right = STANDARD.encode(algorithm.of(TEXT));
            let received = read(&[(algorithm.header(), &right)]).await.unwrap();
            assert_eq!((received.algorithm, received.value), (algorithm, algorithm.of(TEXT)));
            let wrong = STANDARD.encode(algorithm.of(b"other"));
            let answer = read(&[(algorithm.header(), &wrong)]).await;
            assert_eq!(answer, Err(S3ErrorCode::BadDigest), "{}", algorithm.name());
        }
    }
}
