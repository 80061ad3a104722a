//! Checksums of bodies: computed while they are read, compared before anything is acknowledged.
//!
//! `s3s` parses `Content-MD5`, `x-amz-checksum-*` and their trailers, and compares none of them. An object is
//! read through a [`Reader`], which also computes the MD5 for its ETag, and a checksum to store: the one that
//! the client sent or named, else CRC64NVME, as S3 does. Other bodies, which are XML, pass through
//! [`verified`](crate::verified::verified).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use forebay_intake::IntakeError;
use forebay_intake::upload::Source;
use futures_util::StreamExt as _;
use http::{HeaderMap, StatusCode};
use md5::{Digest as _, Md5};
use s3s::crypto::Checksum as _;
use s3s::dto::StreamingBlob;
use s3s::{S3Error, S3ErrorCode, S3Result, TrailingHeaders, s3_error};

use crate::chunks::Fault;

/// Checksums of S3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
}

impl Algorithm {
    const ALL: [Self; 5] = [Self::Crc32, Self::Crc32c, Self::Crc64Nvme, Self::Sha1, Self::Sha256];

    /// Its name in `ChecksumAlgorithm`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
        }
    }

    /// The header that carries it.
    fn header(self) -> &'static str {
        match self {
            Self::Crc32 => "x-amz-checksum-crc32",
            Self::Crc32c => "x-amz-checksum-crc32c",
            Self::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Self::Sha1 => "x-amz-checksum-sha1",
            Self::Sha256 => "x-amz-checksum-sha256",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }

    /// Its code in notes of parts.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Crc32 => 1,
            Self::Crc32c => 2,
            Self::Crc64Nvme => 3,
            Self::Sha1 => 4,
            Self::Sha256 => 5,
        }
    }

    pub(crate) fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.code() == code)
    }

    pub(crate) fn size(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme => 8,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// The CRC, if it is one: those of parts can be combined.
    fn crc(self) -> Option<CrcAlgorithm> {
        match self {
            Self::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
            Self::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
            Self::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
            Self::Sha1 | Self::Sha256 => None,
        }
    }

    /// Returns the checksum of two parts together; `None` if it is not a CRC, or they are no checksums.
    pub(crate) fn combine(self, first: &[u8], second: &[u8], second_size: u64) -> Option<Vec<u8>> {
        let value = |bytes: &[u8]| {
            let mut whole = [0; 8];
            let at = whole.len().checked_sub(bytes.len())?;
            whole.get_mut(at..)?.copy_from_slice(bytes);
            Some(u64::from_be_bytes(whole))
        };
        let (first, second) = (value(first)?, value(second)?);
        let whole = crc_fast::checksum_combine(self.crc()?, first, second, second_size);
        Some(whole.to_be_bytes()[8 - self.size()..].to_vec())
    }

    /// Returns the checksum of bytes in memory.
    pub(crate) fn of(self, bytes: &[u8]) -> Vec<u8> {
        let mut running = Running::new(self);
        running.update(bytes);
        running.finish()
    }

    /// Reads a value as headers and XML carry it.
    ///
    /// # Errors
    /// `InvalidRequest`: it is not Base64 of this checksum's size.
    pub(crate) fn decode(self, text: &str) -> S3Result<Vec<u8>> {
        let decoded = STANDARD.decode(text).ok().filter(|value| value.len() == self.size());
        decoded.ok_or_else(|| {
            s3_error!(InvalidRequest, "Value for {} header is invalid.", self.header())
        })
    }
}

/// A checksum being computed.
pub(crate) enum Running {
    Crc(Algorithm, crc_fast::Digest),
    Sha1(s3s::crypto::Sha1),
    Sha256(s3s::crypto::Sha256),
}

impl Running {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        match algorithm.crc() {
            Some(crc) => Self::Crc(algorithm, crc_fast::Digest::new(crc)),
            None if algorithm == Algorithm::Sha1 => Self::Sha1(s3s::crypto::Sha1::new()),
            None => Self::Sha256(s3s::crypto::Sha256::new()),
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc(_, digest) => digest.update(bytes),
            Self::Sha1(digest) => digest.update(bytes),
            Self::Sha256(digest) => digest.update(bytes),
        }
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        match self {
            Self::Crc(algorithm, digest) => {
                digest.finalize().to_be_bytes()[8 - algorithm.size()..].to_vec()
            }
            Self::Sha1(digest) => digest.finalize().as_ref().to_vec(),
            Self::Sha256(digest) => digest.finalize().as_ref().to_vec(),
        }
    }
}

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
                    return Err(s3_error!(
                        InvalidRequest,
                        "Expecting a single x-amz-checksum- header. Multiple checksum types are not \
                         allowed."
                    ));
                }
                let value = text(algorithm.header()).unwrap_or_default();
                given = Some((algorithm, algorithm.decode(value)?));
            }
        }
        let announced = text("x-amz-trailer").unwrap_or_default().split(',').map(str::trim);
        let announced = announced
            .filter_map(|name| Algorithm::ALL.into_iter().find(|known| known.header() == name))
            .next();
        let named = ["x-amz-sdk-checksum-algorithm", "x-amz-checksum-algorithm"]
            .into_iter()
            .find_map(|name| Algorithm::parse(text(name)?));
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
        let arrived = trailers.and_then(|trailers| {
            trailers.read(|headers| {
                headers.get(algorithm.header()).map(|value| value.to_str().unwrap_or("").to_owned())
            })
        });
        let value = match (value, arrived.flatten()) {
            (_, Some(text)) => Some(algorithm.decode(&text)?),
            (None, None) if trailer => {
                let mut error = S3Error::with_message(
                    S3ErrorCode::Custom("MalformedTrailerError".into()),
                    "The trailer that the request announced did not arrive",
                );
                error.set_status_code(StatusCode::BAD_REQUEST);
                return Err(error);
            }
            (value, None) => value,
        };
        compare(algorithm, value.as_deref(), &computed)?;
        Ok(Received { md5: found, algorithm, value: computed, size: self.size })
    }
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
fn broken(error: &str) -> S3Error {
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
    use http::{HeaderName, HeaderValue};

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

    #[test]
    fn checksums_are_those_of_the_standards() {
        for (algorithm, value) in [
            (Algorithm::Crc32, "cbf43926"),
            (Algorithm::Crc32c, "e3069283"),
            (Algorithm::Crc64Nvme, "ae8b14860a799888"),
            (Algorithm::Sha1, "f7c3bc1d808e04732adf679965ccc34ca7ae3441"),
        ] {
            assert_eq!(hex::encode(algorithm.of(TEXT)), value);
        }
    }

    #[test]
    fn checksums_of_parts_combine_to_that_of_the_whole() {
        for algorithm in [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64Nvme] {
            let (first, second) = TEXT.split_at(4);
            let whole = algorithm.combine(&algorithm.of(first), &algorithm.of(second), 5);
            assert_eq!(whole, Some(algorithm.of(TEXT)));
        }
        assert_eq!(Algorithm::Sha1.combine(&[0; 20], &[0; 20], 1), None);
        assert_eq!(Algorithm::Crc32.combine(&[0; 9], &[0; 4], 1), None);
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
}
