//! Reading objects: whole, in ranges and in parts, under conditions.

use std::ops::Range;

use forebay_intake::names::FileName;
use forebay_intake::upload::FileBytes;
use forebay_intake::{NameKey, StoredFile};
use http::header::EXPIRES;
use http::{HeaderName, HeaderValue};
use s3s::dto::{
    Checksum, ChecksumType, GetObjectAttributesInput, GetObjectAttributesOutput,
    GetObjectAttributesParts, GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput,
    ObjectAttributes, ObjectPart, StorageClass, StreamingBlob, Timestamp, TimestampFormat,
};
use s3s::{S3Result, s3_error};

use crate::algorithm::Algorithm;
use crate::condition::Conditions;
use crate::error::of_intake;
use crate::fields::set_checksum;
use crate::object::{Object, StoredChecksum};
use crate::service::Service;

/// The part of an object to be sent.
struct Wanted {
    range: Range<u64>,
    /// Whether it is less than the whole.
    partial: bool,
    /// The index of the part that was asked for.
    part: Option<usize>,
    parts_count: Option<i32>,
}

/// What GET and HEAD say of an object, after their conditions were checked, and the range that is wanted. Their
/// inputs and outputs have the same fields and no type in common.
macro_rules! described {
    ($output:ident, $object:expr, $input:expr) => {{
        let (object, input) = ($object, $input);
        let conditions = Conditions {
            matches: input.if_match,
            none_match: input.if_none_match,
            modified_since: input.if_modified_since,
            unmodified_since: input.if_unmodified_since,
        };
        conditions.check(&object.etag(), object.modified_s())?;
        let wanted = wanted(object, input.range, input.part_number)?;
        let checksum = wanted.checksum(object).filter(|_| input.checksum_mode.is_some());
        let headers = object.headers();
        let mut output = $output {
            accept_ranges: Some("bytes".to_owned()),
            cache_control: headers.cache_control,
            content_disposition: headers.content_disposition,
            content_encoding: headers.content_encoding,
            content_language: headers.content_language,
            content_length: i64::try_from(wanted.range.end - wanted.range.start).ok(),
            content_range: content_range(&wanted, object.0.size),
            content_type: headers.content_type,
            e_tag: Some(object.tag()),
            expires: headers.expires.as_deref().and_then(date),
            last_modified: Some(object.modified()),
            metadata: Some(object.metadata()),
            parts_count: wanted.parts_count,
            ..$output::default()
        };
        if let Some(checksum) = &checksum {
            set_checksum!(output, checksum);
        }
        let mut others = Vec::from_iter(checksum.as_ref().and_then(header_of));
        // One that is no date has no field.
        if let (None, Some(text)) = (&output.expires, headers.expires) {
            others.extend(HeaderValue::try_from(text).ok().map(|text| (EXPIRES, text)));
        }
        (output, wanted, others)
    }};
}

impl Wanted {
    /// The checksum of what is wanted, if it is known.
    fn checksum(&self, object: Object<'_>) -> Option<StoredChecksum> {
        match self.part {
            Some(at) => object.part_checksum(at),
            None if self.partial => None,
            None => object.checksum(),
        }
    }
}

/// A header for which outputs have no field.
pub(crate) type OtherHeader = (HeaderName, HeaderValue);

/// The header of a checksum for which outputs have no field.
pub(crate) fn header_of(checksum: &StoredChecksum) -> Option<OtherHeader> {
    if checksum.algorithm.has_fields() {
        return None;
    }
    let name = HeaderName::from_static(checksum.algorithm.header());
    Some((name, HeaderValue::from_str(&checksum.text).ok()?))
}

impl Service {
    /// Returns the name of an object, which may exist.
    ///
    /// # Errors
    /// `InvalidArgument`, `KeyTooLongError`: there cannot be such an object.
    pub(crate) fn key(&self, bucket: &str, key: &str) -> S3Result<NameKey> {
        let namespace = forebay_intake::names::Namespace::parse(bucket);
        let namespace = namespace.map_err(|error| s3_error!(InvalidBucketName, "{error}"))?;
        let name = FileName::parse_object(key).map_err(|error| of_intake(error.into()))?;
        Ok((namespace, name))
    }

    pub(crate) async fn get_object(
        &self,
        input: GetObjectInput,
    ) -> S3Result<(GetObjectOutput, Vec<OtherHeader>)> {
        refuse_encryption(input.sse_customer_algorithm.as_deref())?;
        let file = self.object(&input.bucket, &input.key, input.version_id.as_deref()).await?;
        let object = Object(&file.record);
        let (mut output, wanted, others) = described!(GetObjectOutput, object, input);
        output.version_id = self.version_of(&file.record.namespace, file.record.id).await?;
        output.tag_count = count(object.tags().len()).filter(|count| *count > 0);
        self.intake.sent(wanted.range.end - wanted.range.start);
        output.body = Some(self.bytes(&file, wanted.range)?);
        Ok((output, others))
    }

    /// Returns what HEAD says of an object, and what its output has no field for: the number of tags, and
    /// some headers.
    pub(crate) async fn head_object(
        &self,
        input: HeadObjectInput,
    ) -> S3Result<(HeadObjectOutput, usize, Vec<OtherHeader>)> {
        refuse_encryption(input.sse_customer_algorithm.as_deref())?;
        let file = self.object(&input.bucket, &input.key, input.version_id.as_deref()).await?;
        let object = Object(&file.record);
        let (mut output, _, others) = described!(HeadObjectOutput, object, input);
        output.version_id = self.version_of(&file.record.namespace, file.record.id).await?;
        Ok((output, object.tags().len(), others))
    }

    pub(crate) async fn attributes(
        &self,
        input: GetObjectAttributesInput,
    ) -> S3Result<GetObjectAttributesOutput> {
        let file = self.object(&input.bucket, &input.key, input.version_id.as_deref()).await?;
        let object = Object(&file.record);
        // Several may stand in one header.
        let asked: Vec<String> = input
            .object_attributes
            .iter()
            .flat_map(|names| names.as_str().split(',').map(|name| name.trim().to_owned()))
            .collect();
        let known = [
            ObjectAttributes::CHECKSUM,
            ObjectAttributes::ETAG,
            ObjectAttributes::OBJECT_PARTS,
            ObjectAttributes::OBJECT_SIZE,
            ObjectAttributes::STORAGE_CLASS,
        ];
        if asked.iter().any(|name| !known.contains(&name.as_str())) {
            return Err(s3_error!(InvalidArgument, "Invalid attribute name specified."));
        }
        let wants = |name: &str| asked.iter().any(|asked| asked == name);
        let mut output = GetObjectAttributesOutput {
            last_modified: Some(object.modified()),
            version_id: self.version_of(&file.record.namespace, file.record.id).await?,
            ..GetObjectAttributesOutput::default()
        };
        if wants(ObjectAttributes::ETAG) {
            output.e_tag = Some(object.tag());
        }
        if wants(ObjectAttributes::OBJECT_SIZE) {
            output.object_size = Some(object.size());
        }
        if wants(ObjectAttributes::STORAGE_CLASS) {
            output.storage_class = Some(StorageClass::from_static(StorageClass::STANDARD));
        }
        if wants(ObjectAttributes::CHECKSUM)
            && let Some(checksum) = object.checksum()
        {
            output.checksum = Some(Checksum {
                checksum_crc32: of_kind(&checksum, Algorithm::Crc32),
                checksum_crc32c: of_kind(&checksum, Algorithm::Crc32c),
                checksum_crc64nvme: of_kind(&checksum, Algorithm::Crc64Nvme),
                checksum_sha1: of_kind(&checksum, Algorithm::Sha1),
                checksum_sha256: of_kind(&checksum, Algorithm::Sha256),
                checksum_type: Some(kind(&checksum)),
            });
        }
        if wants(ObjectAttributes::OBJECT_PARTS)
            && let Some(sizes) = object.parts()
        {
            output.object_parts =
                Some(parts_page(object, &sizes, input.max_parts, input.part_number_marker));
        }
        Ok(output)
    }

    /// Returns bytes of an object as a body.
    pub(crate) fn bytes(&self, file: &StoredFile, range: Range<u64>) -> S3Result<StreamingBlob> {
        let body = match self.intake.read(file).map_err(of_intake)? {
            FileBytes::Memory(bytes) => {
                let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).min(bytes.len());
                s3s::Body::from(bytes.slice(at(range.start)..at(range.end)))
            }
            FileBytes::File(reader) => {
                let body = self.sending.body(reader, range, file.record.digest);
                s3s::Body::http_body_unsync(body)
            }
        };
        Ok(StreamingBlob::from(body))
    }
}

/// Refuses keys for encryption, which would be thrown away.
pub(crate) fn refuse_encryption(algorithm: Option<&str>) -> S3Result<()> {
    match algorithm {
        None => Ok(()),
        Some(_) => Err(s3_error!(NotImplemented, "Server-side encryption is not supported")),
    }
}

fn wanted(
    object: Object<'_>,
    range: Option<s3s::dto::Range>,
    part: Option<i32>,
) -> S3Result<Wanted> {
    let size = object.0.size;
    match (range, part) {
        (Some(_), Some(_)) => Err(s3_error!(
            InvalidRequest,
            "Cannot specify both Range header and partNumber query parameter"
        )),
        (None, None) => {
            Ok(Wanted { range: 0..size, partial: false, part: None, parts_count: None })
        }
        (Some(range), None) => {
            let range =
                range.check(size).ok().filter(|range| !range.is_empty()).ok_or_else(|| {
                    s3_error!(InvalidRange, "The requested range is not satisfiable")
                })?;
            Ok(Wanted { range, partial: true, part: None, parts_count: None })
        }
        (None, Some(number)) => {
            let at = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
            let at =
                at.ok_or_else(|| s3_error!(InvalidArgument, "Part numbers are from 1 to 10000"))?;
            let sizes = object.parts();
            let parts_count = sizes.as_ref().and_then(|sizes| count(sizes.len()));
            let sizes = sizes.unwrap_or_else(|| vec![size]);
            let Some(length) = sizes.get(at) else {
                let mut error =
                    s3_error!(InvalidRange, "The requested partnumber is not satisfiable");
                error.set_code(s3s::S3ErrorCode::Custom("InvalidPartNumber".into()));
                error.set_status_code(http::StatusCode::RANGE_NOT_SATISFIABLE);
                return Err(error);
            };
            let start: u64 = sizes.iter().take(at).sum();
            Ok(Wanted { range: start..start + length, partial: true, part: Some(at), parts_count })
        }
    }
}

fn content_range(wanted: &Wanted, size: u64) -> Option<String> {
    let last = wanted.range.end.checked_sub(1)?;
    (wanted.partial && size > 0).then(|| format!("bytes {}-{last}/{size}", wanted.range.start))
}

fn count(count: usize) -> Option<i32> {
    i32::try_from(count).ok()
}

fn date(text: &str) -> Option<Timestamp> {
    Timestamp::parse(TimestampFormat::HttpDate, text).ok()
}

/// The text of a checksum, if it is of this algorithm.
pub(crate) fn of_kind(checksum: &StoredChecksum, algorithm: Algorithm) -> Option<String> {
    (checksum.algorithm == algorithm).then(|| checksum.text.clone())
}

/// What a checksum is of.
pub(crate) fn kind(checksum: &StoredChecksum) -> ChecksumType {
    ChecksumType::from_static(if checksum.composite {
        ChecksumType::COMPOSITE
    } else {
        ChecksumType::FULL_OBJECT
    })
}

fn parts_page(
    object: Object<'_>,
    sizes: &[u64],
    max: Option<i32>,
    marker: Option<i32>,
) -> GetObjectAttributesParts {
    let max = max.and_then(|max| usize::try_from(max).ok()).unwrap_or(1_000).min(1_000);
    let after = marker.and_then(|marker| usize::try_from(marker).ok()).unwrap_or(0);
    let checksums = object.parts_checksums();
    let page: Vec<ObjectPart> = (after..sizes.len())
        .take(max)
        .map(|at| {
            let checksum = checksums
                .as_ref()
                .and_then(|(algorithm, texts)| Some((*algorithm, texts.get(at)?)));
            let of = |wanted| {
                checksum.filter(|(algorithm, _)| *algorithm == wanted).map(|(_, text)| text.clone())
            };
            ObjectPart {
                checksum_crc32: of(Algorithm::Crc32),
                checksum_crc32c: of(Algorithm::Crc32c),
                checksum_crc64nvme: of(Algorithm::Crc64Nvme),
                checksum_sha1: of(Algorithm::Sha1),
                checksum_sha256: of(Algorithm::Sha256),
                part_number: count(at + 1),
                size: sizes.get(at).and_then(|size| i64::try_from(*size).ok()),
            }
        })
        .collect();
    let last = page.last().and_then(|part| part.part_number);
    GetObjectAttributesParts {
        is_truncated: Some(after + page.len() < sizes.len()),
        max_parts: count(max),
        next_part_number_marker: last,
        part_number_marker: marker,
        parts: Some(page),
        total_parts_count: count(sizes.len()),
    }
}
