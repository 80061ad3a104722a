//! The content of a request: how it is encoded, and the digests declared for it.
//!
//! `Content-Encoding` is undone, so that what is stored are the bytes themselves. `Content-Digest`,
//! `Repr-Digest` (RFC 9530) and `Content-MD5` are compared with the bytes as they arrive, before
//! they are decoded.
//!
//! Invariants: the end of the content is reported only after every declared digest was found right
//! and the encoding was complete; decoded bytes are made a limited piece at a time, whatever the
//! encoded ones expand to; an encoding or algorithm that is not known is refused, never ignored.

use std::collections::VecDeque;
use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::{Buf as _, Bytes};
use forebay_base::compression::{Compression, Decompressor};
use forebay_intake::IntakeError;
use forebay_intake::upload::Source;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_RANGE};
use md5::Md5;
use sha2::digest::DynDigest;
use sha2::{Sha256, Sha512};

/// Decoded bytes returned at a time, at most.
const PIECE_SIZE: usize = 64 << 10;

/// A source whose digests are checked and whose encoding is undone.
pub(super) struct Content<S> {
    source: S,
    checks: Vec<Check>,
    decoder: Option<Decoder>,
}

impl<S> Content<S> {
    /// * `headers`: those of the request, or of a part of a multipart body.
    ///
    /// # Errors
    /// `content_range`: it is a part of what is meant; `encoding`: it is not known; `digest`: a header is
    /// malformed, or has no algorithm that is known.
    pub(super) fn new(headers: &HeaderMap, source: S) -> Result<Self, IntakeError> {
        if headers.contains_key(CONTENT_RANGE) {
            let text = "a part cannot be stored: send the whole body, without Content-Range";
            return Err(IntakeError::rejected("content_range", text));
        }
        Ok(Self { source, checks: checks(headers)?, decoder: decoder(headers)? })
    }

    /// Returns whether the bytes differ from those that arrive.
    pub(super) fn is_encoded(&self) -> bool {
        self.decoder.is_some()
    }

    /// Returns whether a digest was declared.
    pub(super) fn has_digest(&self) -> bool {
        !self.checks.is_empty()
    }
}

impl<S: Source + Send> Source for Content<S> {
    async fn next(&mut self) -> Result<Option<Bytes>, IntakeError> {
        loop {
            if let Some(decoder) = &mut self.decoder
                && let Some(bytes) = decoder.decoded().map_err(malformed)?
            {
                return Ok(Some(bytes));
            }
            let Some(bytes) = self.source.next().await? else {
                if let Some(decoder) = &self.decoder {
                    decoder.end().map_err(malformed)?;
                }
                self.checks.drain(..).try_for_each(Check::finish)?;
                return Ok(None);
            };
            for check in &mut self.checks {
                check.hash.update(&bytes);
            }
            match &mut self.decoder {
                Some(decoder) => decoder.push(bytes),
                None => return Ok(Some(bytes)),
            }
        }
    }
}

fn malformed(error: io::Error) -> IntakeError {
    IntakeError::rejected(
        "encoded_body",
        format!("the body is not what Content-Encoding says, or was cut: {error}"),
    )
}

/// A digest that the content must have.
struct Check {
    header: &'static str,
    hash: Box<dyn DynDigest + Send + Sync>,
    wanted: Vec<u8>,
}

impl Check {
    fn finish(self) -> Result<(), IntakeError> {
        let found = self.hash.finalize();
        if *found == *self.wanted {
            return Ok(());
        }
        Err(IntakeError::rejected(
            "digest_mismatch",
            format!(
                "the body does not have the digest of {}: it is {}; nothing was stored",
                self.header,
                BASE64.encode(found)
            ),
        ))
    }
}

/// Reads the headers that declare a digest.
fn checks(headers: &HeaderMap) -> Result<Vec<Check>, IntakeError> {
    let mut checks = Vec::new();
    for header in ["content-digest", "repr-digest"] {
        let mut members = headers.get_all(header).iter().peekable();
        if members.peek().is_none() {
            continue;
        }
        let before = checks.len();
        for member in members.flat_map(|value| value.as_bytes().split(|&byte| byte == b',')) {
            let member = std::str::from_utf8(member).ok().map(str::trim);
            let (algorithm, value) =
                member.and_then(|member| member.split_once('=')).ok_or_else(|| wrong(header))?;
            let hash: Box<dyn DynDigest + Send + Sync> = match algorithm.trim() {
                "sha-256" => Box::new(Sha256::default()),
                "sha-512" => Box::new(Sha512::default()),
                "md5" => Box::new(Md5::default()),
                _ => continue,
            };
            let value = value.strip_prefix(':').and_then(|value| value.strip_suffix(':'));
            checks.push(check(header, hash, value)?);
        }
        if checks.len() == before {
            let text = format!("{header} has no algorithm that is known: send sha-256 or sha-512");
            return Err(IntakeError::rejected("digest", text));
        }
    }
    if let Some(value) = headers.get("content-md5") {
        let value = value.to_str().ok().map(str::trim);
        checks.push(check("content-md5", Box::new(Md5::default()), value)?);
    }
    Ok(checks)
}

fn check(
    header: &'static str,
    hash: Box<dyn DynDigest + Send + Sync>,
    value: Option<&str>,
) -> Result<Check, IntakeError> {
    let wanted = value.and_then(|value| BASE64.decode(value).ok());
    let wanted = wanted.filter(|wanted| wanted.len() == hash.output_size());
    Ok(Check { header, hash, wanted: wanted.ok_or_else(|| wrong(header))? })
}

fn wrong(header: &str) -> IntakeError {
    let expected = match header {
        "content-md5" => "the MD5 in Base64",
        _ => "like sha-256=:<Base64>:",
    };
    IntakeError::rejected("digest", format!("the header {header} must be {expected}"))
}

fn decoder(headers: &HeaderMap) -> Result<Option<Decoder>, IntakeError> {
    let refuse = |found: &str| {
        let found: String = found.chars().take(60).collect();
        IntakeError::rejected(
            "encoding",
            format!("Content-Encoding {found:?} is not supported: send gzip, zstd or none"),
        )
    };
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    let Some(first) = encodings.next() else { return Ok(None) };
    let word = first.to_str().unwrap_or("?").trim().to_ascii_lowercase();
    if encodings.next().is_some() {
        return Err(refuse("several"));
    }
    if matches!(word.as_str(), "" | "identity") {
        return Ok(None);
    }
    let compression = Compression::from_name(&word).ok_or_else(|| refuse(&word))?;
    let decompressor = Decompressor::new(compression)
        .map_err(|source| IntakeError::Blob { act: "decode", source })?;
    Ok(Some(Decoder { decompressor, input: VecDeque::new(), full: false }))
}

/// Bytes being decoded.
struct Decoder {
    decompressor: Decompressor,
    /// Encoded bytes not yet decoded.
    input: VecDeque<Bytes>,
    /// Whether the last piece was full, so that there may be more without further input.
    full: bool,
}

impl Decoder {
    fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.input.push_back(bytes);
        }
    }

    /// Decodes up to [`PIECE_SIZE`] bytes; `None` if more encoded ones are needed.
    fn decoded(&mut self) -> io::Result<Option<Bytes>> {
        let mut piece = Vec::new();
        let mut size = 0;
        while size < PIECE_SIZE && (self.full || !self.input.is_empty()) {
            piece.resize(PIECE_SIZE, 0);
            let input = self.input.front_mut();
            let encoded = input.as_deref().map_or(&[][..], |bytes| bytes);
            let room = piece.get_mut(size..).unwrap_or_default();
            let step = self.decompressor.step(encoded, room)?;
            size += step.written;
            self.full = size == PIECE_SIZE;
            if let Some(input) = input {
                input.advance(step.read);
            }
            if self.input.front().is_some_and(Bytes::is_empty) {
                self.input.pop_front();
            }
        }
        piece.truncate(size);
        Ok((size > 0).then(|| piece.into()))
    }

    /// Checks that the encoding is complete.
    fn end(&self) -> io::Result<()> {
        if self.decompressor.is_complete() {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, "its end is missing"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use http::HeaderValue;

    use super::*;

    struct Pieces(VecDeque<Bytes>);

    impl Source for Pieces {
        async fn next(&mut self) -> Result<Option<Bytes>, IntakeError> {
            Ok(self.0.pop_front())
        }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (http::HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
            })
            .collect()
    }

    /// What content of these headers gives, and the largest piece.
    async fn read(
        pairs: &[(&'static str, &str)],
        bytes: &[u8],
        step: usize,
    ) -> Result<(Vec<u8>, usize), IntakeError> {
        let pieces = bytes.chunks(step).map(Bytes::copy_from_slice).collect();
        let mut content = Content::new(&headers(pairs), Pieces(pieces))?;
        let (mut all, mut largest) = (Vec::new(), 0);
        while let Some(piece) = content.next().await? {
            largest = largest.max(piece.len());
            all.extend_from_slice(&piece);
        }
        Ok((all, largest))
    }

    fn code(result: Result<(Vec<u8>, usize), IntakeError>) -> &'static str {
        match result {
            Err(IntakeError::Rejected { code, .. }) => code,
            other => panic!("{other:?}"),
        }
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[tokio::test]
    async fn encoded_content_is_decoded_however_it_is_cut_into_pieces() {
        let plain: Vec<u8> = (0..300_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let mut twice = gzip(&plain[..1_000]);
        twice.extend(gzip(&plain[1_000..]));
        for (name, encoded) in [
            ("gzip", gzip(&plain)),
            ("X-GZIP", twice),
            ("zstd", zstd::encode_all(&plain[..], 1).unwrap()),
            ("identity", plain.clone()),
        ] {
            for step in [1_000_000, 4_096, 7] {
                let (found, _) = read(&[("content-encoding", name)], &encoded, step).await.unwrap();
                assert!(found == plain, "{name} in steps of {step}");
            }
        }
    }

    #[tokio::test]
    async fn what_expands_a_thousandfold_is_returned_in_small_pieces() {
        let zeros = vec![0; 32 << 20];
        for (name, encoded) in
            [("gzip", gzip(&zeros)), ("zstd", zstd::encode_all(&zeros[..], 19).unwrap())]
        {
            let (found, largest) =
                read(&[("content-encoding", name)], &encoded, 1 << 20).await.unwrap();
            assert_eq!(found.len(), zeros.len());
            assert!(largest <= PIECE_SIZE, "{name}: {largest}");
        }
    }

    #[tokio::test]
    async fn content_that_is_cut_or_altered_or_of_another_encoding_is_refused() {
        let plain = b"some words and some more words".repeat(50);
        for (name, encoded) in
            [("gzip", gzip(&plain)), ("zstd", zstd::encode_all(&plain[..], 1).unwrap())]
        {
            for cut in 0..encoded.len() {
                let read = read(&[("content-encoding", name)], &encoded[..cut], 16).await;
                assert_eq!(code(read), "encoded_body", "{name} cut at {cut}");
            }
            assert_eq!(code(read(&[("content-encoding", name)], &plain, 16).await), "encoded_body");
        }
        let mut flipped = gzip(&plain);
        let at = flipped.len() - 6;
        flipped[at] ^= 1;
        let read_flipped = read(&[("content-encoding", "gzip")], &flipped, 16).await;
        assert_eq!(code(read_flipped), "encoded_body");
        for name in ["br", "gzip, gzip", "deflate", "\u{1}"] {
            if HeaderValue::from_str(name).is_ok() {
                let read = read(&[("content-encoding", name)], &plain, 16).await;
                assert_eq!(code(read), "encoding");
            }
        }
    }

    #[tokio::test]
    async fn declared_digests_are_those_of_the_bytes_that_arrive() {
        let sha = |bytes: &[u8]| {
            let mut hash = Sha256::default();
            DynDigest::update(&mut hash, bytes);
            format!("sha-256=:{}:", BASE64.encode(Box::new(hash).finalize()))
        };
        let right = sha(b"hello");
        let md5 = "XUFAKrxLKna5cZ2REBfFkg==";
        for pairs in [
            vec![("content-digest", right.as_str())],
            vec![("repr-digest", right.as_str()), ("content-md5", md5)],
            vec![("content-digest", &*format!("crc32c=:AAAA:, md5=:{md5}: , {right}"))],
        ] {
            assert_eq!(read(&pairs, b"hello", 2).await.unwrap().0, b"hello");
            assert_eq!(code(read(&pairs, b"hellO", 2).await), "digest_mismatch");
            assert_eq!(code(read(&pairs, b"hell", 2).await), "digest_mismatch");
        }
        let encoded = gzip(b"hello");
        let of_encoded = sha(&encoded);
        let pairs = [("content-encoding", "gzip"), ("content-digest", &of_encoded)];
        assert_eq!(read(&pairs, &encoded, 3).await.unwrap().0, b"hello");
        for (name, value) in [
            ("content-digest", "sha-256=AAAA"),
            ("content-digest", "sha-256=:AAAA:"),
            ("content-digest", "sha-256"),
            ("content-digest", "crc32c=:AAAA:"),
            ("content-digest", ""),
            ("content-md5", "5d41402abc4b2a76b9719d911017c592"),
        ] {
            assert_eq!(code(read(&[(name, value)], b"hello", 5).await), "digest", "{value}");
        }
    }
}
