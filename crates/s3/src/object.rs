//! What an object has beside its bytes, and where a file keeps it.
//!
//! | of an object | attribute of the file |
//! |---|---|
//! | `x-amz-meta-*` | metadata |
//! | tags | tags |
//! | `Cache-Control`, `Content-Disposition`, `-Encoding`, `-Language`, `Expires` | headers |
//! | ETag, `Content-Type` as sent, checksum, sizes and checksums of parts, time of the request | internal, `s3-*` |
//!
//! A file that was stored over HTTP has none of these: its ETag is the SHA-256 of its bytes and `-1`, as of an
//! upload in one part, so that no client takes it for an MD5; its type is what the server found.
//!
//! Invariant: the attributes belong to the name's current bytes, since every store over any face replaces
//! them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forebay_intake::attributes::{AttributeError, AttributeKind, Attributes};
use forebay_intake::catalogue::FileRecord;
use http::StatusCode;
use s3s::dto::{ETag, Tag, Timestamp};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use url::form_urlencoded;

use crate::algorithm::Algorithm;

/// Maximum size of all names and values of a user's metadata, as in S3.
const METADATA_SIZE_MAX: usize = 2 << 10;
/// Maximum number of tags, as in S3.
const TAGS_MAX: usize = 10;
/// Maximum number of tags of a bucket.
const BUCKET_TAGS_MAX: usize = 50;
/// Maximum number of characters of a tag's value.
const TAG_VALUE_CHARS_MAX: usize = 256;

const ETAG: &str = "s3-etag";
const TYPE: &str = "s3-content-type";
const CHECKSUM: &str = "s3-checksum";
const PARTS: &str = "s3-parts";
const PARTS_CHECKSUMS: &str = "s3-parts-checksums";
const TIME: &str = "s3-time";

/// The type of an object that was sent without one.
const TYPE_UNKNOWN: &str = "binary/octet-stream";

/// Headers that are kept and sent with the object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Headers {
    pub(crate) cache_control: Option<String>,
    pub(crate) content_disposition: Option<String>,
    pub(crate) content_encoding: Option<String>,
    pub(crate) content_language: Option<String>,
    pub(crate) content_type: Option<String>,
    pub(crate) expires: Option<String>,
}

impl Headers {
    /// Leaves out the coding that was of the request, not of the object.
    pub(crate) fn without_chunks(mut self) -> Self {
        if let Some(codings) = self.content_encoding.take() {
            let kept = codings.split(',').map(str::trim);
            let kept: Vec<_> = kept
                .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("aws-chunked"))
                .collect();
            self.content_encoding = (!kept.is_empty()).then(|| kept.join(","));
        }
        self
    }

    fn pairs(&self) -> [(&'static str, Option<&str>); 5] {
        [
            ("cache-control", self.cache_control.as_deref()),
            ("content-disposition", self.content_disposition.as_deref()),
            ("content-encoding", self.content_encoding.as_deref()),
            ("content-language", self.content_language.as_deref()),
            ("expires", self.expires.as_deref()),
        ]
    }
}

/// A stored checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredChecksum {
    pub(crate) algorithm: Algorithm,
    /// Whether it is of the parts' checksums, and not of the bytes.
    pub(crate) composite: bool,
    /// As S3 writes it: Base64, and the number of parts if it is composite.
    pub(crate) text: String,
}

impl StoredChecksum {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let algorithm = Algorithm::parse(words.next()?)?;
        let composite = words.next()? == "COMPOSITE";
        Some(Self { algorithm, composite, text: words.next()?.to_owned() })
    }

    pub(crate) fn print(&self) -> String {
        let kind = if self.composite { "COMPOSITE" } else { "FULL_OBJECT" };
        format!("{} {kind} {}", self.algorithm.name(), self.text)
    }
}

/// Sets what an object is to have.
#[derive(Debug, Clone, Default)]
pub(crate) struct Builder(Attributes);

impl Builder {
    /// Continues with the attributes of a file.
    pub(crate) fn from(attributes: Attributes) -> Self {
        Self(attributes)
    }

    fn set(&mut self, kind: AttributeKind, name: &str, value: &str) -> S3Result<()> {
        self.0.set(kind, name, value).map_err(refused)
    }

    pub(crate) fn etag(&mut self, etag: &str) -> S3Result<()> {
        self.set(AttributeKind::Internal, ETAG, etag)
    }

    /// Distinguishes the same object stored again, which is a new one in S3, with a date of its own and a
    /// version of its own.
    pub(crate) fn time(&mut self, now_ms: i64) -> S3Result<()> {
        // Two may be stored in the same millisecond.
        static STORED: AtomicU64 = AtomicU64::new(0);
        let number = STORED.fetch_add(1, Ordering::Relaxed);
        self.set(AttributeKind::Internal, TIME, &format!("{now_ms}-{number}"))
    }

    pub(crate) fn checksum(&mut self, checksum: &StoredChecksum) -> S3Result<()> {
        self.set(AttributeKind::Internal, CHECKSUM, &checksum.print())
    }

    /// Stores the sizes of parts, if they can be written briefly, as those of one upload can.
    pub(crate) fn parts(&mut self, sizes: &[u64]) {
        // An object whose parts are not known is read as a whole.
        self.0.set(AttributeKind::Internal, PARTS, &encode_parts(sizes)).unwrap_or_default();
    }

    /// Stores the checksums of parts, in their order, if they fit.
    pub(crate) fn parts_checksums(&mut self, algorithm: Algorithm, values: &[&[u8]]) {
        let text = format!("{} {}", algorithm.name(), STANDARD.encode(values.concat()));
        // Of objects of more parts the checksums are not returned, and everything else is.
        self.0.set(AttributeKind::Internal, PARTS_CHECKSUMS, &text).unwrap_or_default();
    }

    /// Forgets what was true of the upload that the bytes came with, and not of the bytes.
    pub(crate) fn forget_upload(&mut self) {
        let is_multipart =
            self.0.get(AttributeKind::Internal, ETAG).is_some_and(|tag| tag.contains('-'));
        let checksum =
            self.0.get(AttributeKind::Internal, CHECKSUM).and_then(StoredChecksum::parse);
        let is_composite = checksum.is_some_and(|checksum| checksum.composite);
        self.0.retain(|kind, name| {
            kind != AttributeKind::Internal
                || !(name == PARTS
                    || name == PARTS_CHECKSUMS
                    || name == ETAG && is_multipart
                    || name == CHECKSUM && is_composite)
        });
    }

    /// Replaces metadata and headers.
    pub(crate) fn describe(
        &mut self,
        headers: &Headers,
        metadata: Option<&HashMap<String, String>>,
    ) -> S3Result<()> {
        self.0.retain(|kind, name| match kind {
            AttributeKind::Metadata | AttributeKind::Header => false,
            AttributeKind::Internal => name != TYPE,
            AttributeKind::Tag => true,
        });
        let none = HashMap::new();
        let metadata = metadata.unwrap_or(&none);
        let size: usize = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
        if size > METADATA_SIZE_MAX {
            return Err(s3_error!(
                MetadataTooLarge,
                "Your metadata headers exceed the maximum allowed metadata size of 2048 bytes"
            ));
        }
        for (name, value) in metadata {
            self.set(AttributeKind::Metadata, name, value)?;
        }
        for (name, value) in headers.pairs() {
            if let Some(value) = value {
                self.set(AttributeKind::Header, name, value)?;
            }
        }
        let kind = headers.content_type.as_deref().unwrap_or(TYPE_UNKNOWN);
        self.set(AttributeKind::Internal, TYPE, kind)
    }

    /// Replaces the tags.
    pub(crate) fn tags(&mut self, tags: &[(String, String)]) -> S3Result<()> {
        self.0.retain(|kind, _| kind != AttributeKind::Tag);
        for (name, value) in tags {
            self.set(AttributeKind::Tag, name, value)?;
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Attributes {
        self.0
    }
}

fn refused(error: AttributeError) -> S3Error {
    match error {
        AttributeError::TooMany
        | AttributeError::ValueSize { .. }
        | AttributeError::NameSize { .. } => {
            s3_error!(MetadataTooLarge, "{error}")
        }
        _ => s3_error!(InvalidArgument, "{error}"),
    }
}

/// An object as clients see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Object<'a>(pub(crate) &'a FileRecord);

impl<'a> Object<'a> {
    fn internal(self, name: &str) -> Option<&'a str> {
        self.0.attributes.get(AttributeKind::Internal, name)
    }

    /// The value of its ETag, without quotes.
    pub(crate) fn etag(self) -> String {
        self.internal(ETAG).map_or_else(|| format!("{}-1", self.0.digest.to_hex()), str::to_owned)
    }

    pub(crate) fn tag(self) -> ETag {
        ETag::Strong(self.etag())
    }

    pub(crate) fn modified_s(self) -> i64 {
        self.0.created_ms.div_euclid(1_000)
    }

    pub(crate) fn modified(self) -> Timestamp {
        timestamp(self.0.created_ms)
    }

    pub(crate) fn size(self) -> i64 {
        i64::try_from(self.0.size).unwrap_or(i64::MAX)
    }

    pub(crate) fn headers(self) -> Headers {
        let header =
            |name: &str| self.0.attributes.get(AttributeKind::Header, name).map(str::to_owned);
        Headers {
            cache_control: header("cache-control"),
            content_disposition: header("content-disposition"),
            content_encoding: header("content-encoding"),
            content_language: header("content-language"),
            content_type: Some(self.internal(TYPE).unwrap_or(&self.0.mime).to_owned()),
            expires: header("expires"),
        }
    }

    pub(crate) fn metadata(self) -> HashMap<String, String> {
        let pairs = self.0.attributes.of(AttributeKind::Metadata);
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    pub(crate) fn tags(self) -> Vec<Tag> {
        tags_in(&self.0.attributes)
    }

    pub(crate) fn checksum(self) -> Option<StoredChecksum> {
        StoredChecksum::parse(self.internal(CHECKSUM)?)
    }

    /// The checksums of its parts, if they are known.
    pub(crate) fn parts_checksums(self) -> Option<(Algorithm, Vec<String>)> {
        let (name, text) = self.internal(PARTS_CHECKSUMS)?.split_once(' ')?;
        let algorithm = Algorithm::parse(name)?;
        let bytes = STANDARD.decode(text).ok()?;
        let values = bytes.chunks(algorithm.size()).map(|value| STANDARD.encode(value)).collect();
        Some((algorithm, values))
    }

    /// The checksum of the part at an index; that of an object without parts is its only one.
    pub(crate) fn part_checksum(self, at: usize) -> Option<StoredChecksum> {
        let whole = self.checksum()?;
        if self.parts().is_none() {
            return (at == 0).then_some(whole);
        }
        let (algorithm, texts) = self.parts_checksums()?;
        let text = texts.into_iter().nth(at)?;
        Some(StoredChecksum { algorithm, composite: whole.composite, text })
    }

    /// The sizes of its parts, if it was uploaded in parts.
    pub(crate) fn parts(self) -> Option<Vec<u64>> {
        let sizes = decode_parts(self.internal(PARTS)?)?;
        // Bytes that were replaced since have other sizes.
        (sizes.iter().sum::<u64>() == self.0.size).then_some(sizes)
    }
}

/// A time of the intake.
pub(crate) fn timestamp(ms: i64) -> Timestamp {
    let since = Duration::from_millis(ms.unsigned_abs());
    let time = if ms < 0 { UNIX_EPOCH.checked_sub(since) } else { UNIX_EPOCH.checked_add(since) };
    Timestamp::from(time.unwrap_or(SystemTime::UNIX_EPOCH))
}

/// Writes sizes, equal ones in sequence once: `8388608x3,17`.
fn encode_parts(sizes: &[u64]) -> String {
    let mut text = String::new();
    for run in sizes.chunk_by(|a, b| a == b) {
        let comma = if text.is_empty() { "" } else { "," };
        let size = run.first().copied().unwrap_or_default();
        text.push_str(&format!("{comma}{size}x{}", run.len()));
    }
    text
}

fn decode_parts(text: &str) -> Option<Vec<u64>> {
    let mut sizes: Vec<u64> = Vec::new();
    for run in text.split(',') {
        let (size, count) = run.split_once('x')?;
        let count: usize = count.parse().ok()?;
        let total = sizes.len().checked_add(count).filter(|total| *total <= 10_000)?;
        sizes.resize(total, size.parse().ok()?);
    }
    Some(sizes)
}

/// Reads the header `x-amz-tagging`.
///
/// # Errors
/// `InvalidTag`.
pub(crate) fn tags_of_header(header: &str) -> S3Result<Vec<(String, String)>> {
    let tags = form_urlencoded::parse(header.as_bytes());
    checked_tags(tags.map(|(name, value)| (name.into(), value.into())), TAGS_MAX)
}

/// Reads the tags of an object from a request's XML.
///
/// # Errors
/// `InvalidTag`.
pub(crate) fn tags_of_set(set: Vec<Tag>) -> S3Result<Vec<(String, String)>> {
    checked_tags(set.into_iter().map(pair), TAGS_MAX)
}

/// Reads the tags of a bucket from a request's XML.
///
/// # Errors
/// `InvalidTag`.
pub(crate) fn bucket_tags_of_set(set: Vec<Tag>) -> S3Result<Vec<(String, String)>> {
    checked_tags(set.into_iter().map(pair), BUCKET_TAGS_MAX)
}

fn pair(tag: Tag) -> (String, String) {
    (tag.key.unwrap_or_default(), tag.value.unwrap_or_default())
}

/// The tags among what is stored with a file or a namespace.
pub(crate) fn tags_in(attributes: &Attributes) -> Vec<Tag> {
    let pairs = attributes.of(AttributeKind::Tag);
    let tag = |(key, value): (&str, &str)| Tag { key: Some(key.into()), value: Some(value.into()) };
    pairs.map(tag).collect()
}

/// Whether S3 permits a character in a tag. One that was set over HTTP may have others.
fn is_of_tag(character: char) -> bool {
    let is_space = character.is_whitespace() && !character.is_control();
    character.is_alphanumeric() || is_space || "_.:/=+-@".contains(character)
}

fn checked_tags(
    tags: impl Iterator<Item = (String, String)>,
    tags_max: usize,
) -> S3Result<Vec<(String, String)>> {
    let mut checked: Vec<(String, String)> = Vec::new();
    for (name, value) in tags {
        if checked.len() == tags_max {
            let mut error =
                s3_error!(InvalidTag, "The number of tags cannot be greater than {tags_max}");
            error.set_code(S3ErrorCode::Custom("BadRequest".into()));
            error.set_status_code(StatusCode::BAD_REQUEST);
            return Err(error);
        }
        let is_known = checked.iter().any(|(known, _)| *known == name);
        if name.is_empty()
            || name.len() > forebay_intake::attributes::ATTRIBUTE_NAME_SIZE_MAX
            || name.starts_with("aws:")
            || !name.chars().all(is_of_tag)
        {
            return Err(s3_error!(InvalidTag, "The TagKey you have provided is invalid"));
        }
        if value.chars().count() > TAG_VALUE_CHARS_MAX || !value.chars().all(is_of_tag) {
            return Err(s3_error!(InvalidTag, "The TagValue you have provided is invalid"));
        }
        if is_known {
            return Err(s3_error!(InvalidTag, "Cannot provide multiple Tags with the same key"));
        }
        checked.push((name, value));
    }
    Ok(checked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chunks_of_a_request_are_no_coding_of_its_object() {
        let of = |coding: &str| {
            let headers =
                Headers { content_encoding: Some(coding.to_owned()), ..Headers::default() };
            headers.without_chunks().content_encoding
        };
        assert_eq!(of("aws-chunked"), None);
        assert_eq!(of("gzip, aws-chunked").as_deref(), Some("gzip"));
        assert_eq!(of("aws-chunked,gzip").as_deref(), Some("gzip"));
        assert_eq!(of("gzip").as_deref(), Some("gzip"));
    }

    #[test]
    fn sizes_of_parts_are_written_briefly_and_read_back() {
        for sizes in [vec![], vec![5], vec![8, 8, 8, 3], vec![1, 2, 1]] {
            let text = encode_parts(&sizes);
            assert_eq!(decode_parts(&text).unwrap_or_default(), sizes, "{text}");
        }
        assert_eq!(encode_parts(&[8 << 20; 10_000]), "8388608x10000");
        for wrong in ["", "x", "5", "5x", "5x10001", "5x9999,5x2", "-5x1"] {
            assert_eq!(decode_parts(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_copy_forgets_the_upload_of_its_source() {
        let mut builder = Builder::default();
        let composite =
            StoredChecksum { algorithm: Algorithm::Sha256, composite: true, text: "AA-2".into() };
        builder.etag("0123-2").unwrap();
        builder.checksum(&composite).unwrap();
        builder.parts(&[5, 5]);
        builder.describe(&Headers::default(), None).unwrap();
        builder.forget_upload();
        let left = builder.finish();
        assert_eq!(left.of(AttributeKind::Internal).collect::<Vec<_>>(), [(TYPE, TYPE_UNKNOWN)]);
        let mut builder = Builder::default();
        builder.etag("0123").unwrap();
        builder.forget_upload();
        assert_eq!(builder.finish().get(AttributeKind::Internal, ETAG), Some("0123"));
    }

    #[test]
    fn metadata_and_tags_have_the_limits_of_s3() {
        let metadata = |size: usize| [("a".to_owned(), "v".repeat(size - 1))].into();
        let describe = |metadata: &HashMap<String, String>| {
            Builder::default().describe(&Headers::default(), Some(metadata))
        };
        assert!(describe(&metadata(METADATA_SIZE_MAX)).is_ok());
        assert!(describe(&metadata(METADATA_SIZE_MAX + 1)).is_err());
        assert_eq!(
            tags_of_header("a=1&b=").unwrap(),
            [("a".into(), "1".into()), ("b".into(), String::new())]
        );
        let many: Vec<String> = (0..11).map(|n| format!("k{n}=v")).collect();
        for wrong in ["=v", "a=1&a=2", "aws:x=1", "a=%0A", &many.join("&")] {
            assert!(tags_of_header(wrong).is_err(), "{wrong}");
        }
    }
}
