//! Uploads in parts, on the intake's store of unfinished uploads.
//!
//! ```text
//! Create      an upload of the kind Multipart; its attributes are the object's
//! UploadPart  an upload of the kind Part, sealed with a note: MD5 and checksum
//! Copy        a Part without bytes whose attributes name a blob and a range of it
//! Complete    the bytes are put together and given their name, then the group is finished, then its parts
//!             are removed; a repetition finds the result
//! ```
//!
//! A copied part costs no bytes until the upload is completed, and none at all if the parts are one whole
//! object. If the object that it was copied from is replaced or deleted before that, the upload cannot be
//! completed.
//!
//! Invariants: a part counts only once it is sealed, and of several with one number the one that was sealed
//! last; a completed upload is an object before it is forgotten as an upload; open uploads are in no listing
//! of objects.

use std::collections::BTreeMap;

use forebay_intake::attributes::Attributes;
use forebay_intake::rules::Sender;
use forebay_intake::upload::FileBytes;
use forebay_intake::uploads::{NewUpload, UploadError, UploadId, UploadKind, UploadStatus};
use forebay_intake::{Condition, FileCopy, NameKey, Put, StoredFile};
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, ChecksumType,
    CompleteMultipartUploadInput, CompleteMultipartUploadOutput, CompletedPart, CopyPartResult,
    CreateMultipartUploadInput, CreateMultipartUploadOutput, ETag, UploadPartCopyInput,
    UploadPartCopyOutput, UploadPartInput, UploadPartOutput,
};
use s3s::{S3Error, S3Result, s3_error};

use crate::access::Caller;
use crate::algorithm::Algorithm;
use crate::assembly::{Piece, Pieces, Turn};
use crate::error::of_intake;
use crate::fields::{headers_of, refuse_others, set_checksum, source_conditions};
use crate::joined::{
    algorithm, check_type, checksum_type, compare_checksum, composite, joined_checksum,
};
use crate::object::{Builder, StoredChecksum, tags_of_header};
use crate::parts::{
    Bytes, Copied, PARTS_MAX, Part, check_part, copied_range, joined_etag, listed_etag, note,
    part_number, parts_checksums, whole_copy,
};
use crate::service::Service;
use crate::sums::{Expected, Reader, unsupported};
use crate::write::{Beside, WriteConditions, text_of};

/// How long an upload is kept after its last change: seven days.
const KEPT_MS: u64 = 7 * 24 * 3_600_000;

/// Minimum size of every part but the last.
const PART_SIZE_MIN: u64 = 5 << 20;

/// Copies of at most this size are copied at once: they may be of bytes in the log.
const COPIED_MAX: u64 = 64 << 10;

const BUCKET: &str = "bucket";

const KEY: &str = "key";

const OBJECT: &str = "object";

const ALGORITHM: &str = "checksum-algorithm";

const COMPOSITE: &str = "checksum-composite";

pub(crate) fn no_such_upload() -> S3Error {
    s3_error!(
        NoSuchUpload,
        "The specified multipart upload does not exist. The upload ID may be invalid, or the upload may have been \
         aborted or completed."
    )
}

/// Converts an error of an upload.
pub(crate) fn of_upload(error: UploadError) -> S3Error {
    match error {
        // An interrupted one is being completed or aborted.
        UploadError::NotFound { .. }
        | UploadError::Finished { .. }
        | UploadError::Interrupted { .. } => no_such_upload(),
        UploadError::TooMany { .. } | UploadError::NoRoom { .. } | UploadError::InUse { .. } => {
            s3_error!(SlowDown, "{error}")
        }
        UploadError::TooLarge { .. } | UploadError::TooLong { .. } => {
            s3_error!(EntityTooLarge, "{error}")
        }
        UploadError::Attributes { .. } => s3_error!(MetadataTooLarge, "{error}"),
        UploadError::Source { source, .. } => of_intake(*source),
        error => of_intake(error.into()),
    }
}

/// An upload in parts.
pub(crate) struct Group {
    pub(crate) id: UploadId,
    pub(crate) status: UploadStatus,
    /// The checksum that its client chose.
    pub(crate) algorithm: Option<Algorithm>,
    /// Whether the checksum of the object is of those of its parts.
    pub(crate) composite: bool,
}

impl Service {
    pub(crate) async fn create_upload(
        &self,
        mut input: CreateMultipartUploadInput,
        expires: Option<String>,
    ) -> S3Result<CreateMultipartUploadOutput> {
        refuse_others!(input)?;
        self.key(&input.bucket, &input.key)?;
        self.bucket(&input.bucket).await?;
        let tags = input.tagging.as_deref().map(tags_of_header).transpose()?;
        let headers = headers_of!(input, expires);
        let mut builder = Builder::default();
        builder.describe(&headers, input.metadata.as_ref())?;
        builder.tags(&tags.unwrap_or_default())?;
        let algorithm = match &input.checksum_algorithm {
            None => None,
            Some(name) => {
                let algorithm = Algorithm::parse(name.as_str()).ok_or_else(unsupported)?;
                algorithm.check_of_parts()?;
                Some(algorithm)
            }
        };
        let asked = input.checksum_type.as_ref().map(ChecksumType::as_str);
        let composite = composite(algorithm, asked)?;
        let mut attributes: BTreeMap<String, String> = [
            (BUCKET.to_owned(), input.bucket.clone()),
            (KEY.to_owned(), input.key.clone()),
            (OBJECT.to_owned(), hex::encode(builder.finish().to_bytes())),
        ]
        .into();
        if let Some(algorithm) = algorithm {
            attributes.insert(ALGORITHM.to_owned(), algorithm.name().to_owned());
            attributes.insert(COMPOSITE.to_owned(), composite.to_string());
        }
        let new =
            NewUpload { kind: UploadKind::Multipart, length: None, kept_ms: KEPT_MS, attributes };
        let id = self.intake.uploads().create(new).await.map_err(of_upload)?;
        Ok(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            checksum_algorithm: algorithm.map(self::algorithm),
            checksum_type: algorithm.map(|_| checksum_type(composite)),
            upload_id: Some(id.to_string()),
            ..CreateMultipartUploadOutput::default()
        })
    }

    /// Finds an upload of this object.
    ///
    /// # Errors
    /// `NoSuchUpload`.
    pub(crate) async fn upload(&self, bucket: &str, key: &str, id: &str) -> S3Result<Group> {
        self.bucket(bucket).await?;
        let id: UploadId = id.parse().map_err(|_| no_such_upload())?;
        let status = self.intake.uploads().status(id).await.map_err(of_upload)?;
        let attribute = |name: &str| status.new.attributes.get(name).map(String::as_str);
        if status.new.kind != UploadKind::Multipart
            || attribute(BUCKET) != Some(bucket)
            || attribute(KEY) != Some(key)
        {
            return Err(no_such_upload());
        }
        let algorithm = attribute(ALGORITHM).and_then(Algorithm::parse);
        let composite = attribute(COMPOSITE) == Some("true");
        Ok(Group { id, algorithm, composite, status })
    }

    /// The same, unless it is completed.
    pub(crate) async fn open_upload(&self, bucket: &str, key: &str, id: &str) -> S3Result<Group> {
        let group = self.upload(bucket, key, id).await?;
        if group.status.result.is_some() { Err(no_such_upload()) } else { Ok(group) }
    }

    pub(crate) async fn upload_part(
        &self,
        mut input: UploadPartInput,
        beside: Beside<'_>,
    ) -> S3Result<UploadPartOutput> {
        crate::read::refuse_encryption(input.sse_customer_algorithm.as_deref())?;
        let number = part_number(input.part_number)?;
        let expected = Expected::of(beside.headers)?;
        expected.algorithm.check_of_parts()?;
        let group = self.open_upload(&input.bucket, &input.key, &input.upload_id).await?;
        if let Some(algorithm) = group.algorithm {
            expected.check_algorithm(algorithm)?;
        }
        let expected = expected.or_else(group.algorithm);
        let length = input.content_length.and_then(|size| u64::try_from(size).ok());
        let kind = UploadKind::Part { group: group.id, number };
        let new = NewUpload { kind, length, kept_ms: KEPT_MS, attributes: BTreeMap::new() };
        let uploads = self.intake.uploads();
        let id = uploads.create(new).await.map_err(of_upload)?;
        let mut reader = Reader::new(input.body.take(), expected, beside.fault);
        let received = async {
            uploads.append(id, 0, &mut reader, None).await.map_err(of_upload)?;
            let received = reader.finish(beside.trailers)?;
            let note = note(received.md5, received.algorithm, &received.value);
            uploads.seal(id, note).await.map_err(of_upload)?;
            // It may have been completed or aborted meanwhile.
            self.open_upload(&input.bucket, &input.key, &input.upload_id).await?;
            Ok(received)
        };
        let received = match received.await {
            Ok(received) => received,
            Err(error) => {
                self.drop_part(id).await;
                return Err(error);
            }
        };
        self.drop_others(group.id, number, id).await;
        let (algorithm, text) = (received.algorithm, text_of(&received.value));
        let of = |wanted| (wanted == algorithm).then(|| text.clone());
        Ok(UploadPartOutput {
            checksum_crc32: of(Algorithm::Crc32),
            checksum_crc32c: of(Algorithm::Crc32c),
            checksum_crc64nvme: of(Algorithm::Crc64Nvme),
            checksum_sha1: of(Algorithm::Sha1),
            checksum_sha256: of(Algorithm::Sha256),
            e_tag: Some(ETag::Strong(hex::encode(received.md5))),
            ..UploadPartOutput::default()
        })
    }

    /// Removes a part that is not acknowledged. What cannot be removed now expires.
    async fn drop_part(&self, id: UploadId) {
        if let Err(error) = self.intake.uploads().remove(id).await {
            tracing::debug!(%error, "could not remove a part that failed");
        }
    }

    /// Removes the parts with this number that were sent before.
    async fn drop_others(&self, group: UploadId, number: u32, newest: UploadId) {
        let parts = self.intake.uploads().parts(group, number.checked_sub(1), 100).await;
        for status in parts.unwrap_or_default() {
            let same = UploadKind::Part { group, number } == status.new.kind;
            // One that is not complete may be about to be.
            if same && status.id != newest && Part::of(&status).is_some() {
                self.drop_part(status.id).await;
            }
        }
    }

    pub(crate) async fn copy_part(
        &self,
        mut input: UploadPartCopyInput,
        caller: Option<&Caller>,
    ) -> S3Result<UploadPartCopyOutput> {
        let number = part_number(input.part_number)?;
        let group = self.open_upload(&input.bucket, &input.key, &input.upload_id).await?;
        let conditions = source_conditions!(input);
        let file = self.source(&input.copy_source, &conditions, caller).await?;
        let copy_source_version_id =
            self.version_of(&file.record.namespace, file.record.id).await?;
        let (start, end) = copied_range(input.copy_source_range.as_deref(), file.record.size)?;
        let copied = Copied {
            bucket: file.record.namespace.as_str().to_owned(),
            key: file.record.name.as_str().to_owned(),
            version: file.record.id,
            digest: file.record.digest,
            start,
            end,
        };
        let kind = UploadKind::Part { group: group.id, number };
        let uploads = self.intake.uploads();
        let (id, etag) = if end - start > COPIED_MAX {
            let attributes = copied.attributes();
            let new = NewUpload { kind, length: Some(0), kept_ms: KEPT_MS, attributes };
            (uploads.create(new).await.map_err(of_upload)?, copied.etag())
        } else {
            let new =
                NewUpload { kind, length: None, kept_ms: KEPT_MS, attributes: BTreeMap::new() };
            let id = uploads.create(new).await.map_err(of_upload)?;
            let expected = Expected::of(&http::HeaderMap::new())?.or_else(group.algorithm);
            let body = self.bytes(&file, start..end)?;
            let mut reader = Reader::new(Some(body), expected, crate::chunks::Fault::default());
            uploads.append(id, 0, &mut reader, None).await.map_err(of_upload)?;
            let received = reader.finish(None)?;
            let note = note(received.md5, received.algorithm, &received.value);
            uploads.seal(id, note).await.map_err(of_upload)?;
            (id, hex::encode(received.md5))
        };
        self.drop_others(group.id, number, id).await;
        let result = CopyPartResult {
            e_tag: Some(ETag::Strong(etag)),
            last_modified: Some(crate::object::timestamp(self.intake.now_ms())),
            ..CopyPartResult::default()
        };
        Ok(UploadPartCopyOutput {
            copy_part_result: Some(result),
            copy_source_version_id,
            ..UploadPartCopyOutput::default()
        })
    }

    pub(crate) async fn abort_upload(
        &self,
        input: AbortMultipartUploadInput,
    ) -> S3Result<AbortMultipartUploadOutput> {
        let group = self.open_upload(&input.bucket, &input.key, &input.upload_id).await?;
        self.intake.uploads().remove(group.id).await.map_err(of_upload)?;
        Ok(AbortMultipartUploadOutput::default())
    }

    /// Returns the complete parts of an upload, by number.
    pub(crate) async fn parts(&self, group: UploadId) -> S3Result<Vec<Part>> {
        let mut newest = BTreeMap::<u32, Part>::new();
        let mut after = None;
        loop {
            // More than the parts that one number can have.
            let limit = 1_000;
            let page = self.intake.uploads().parts(group, after, limit).await.map_err(of_upload)?;
            let is_last = page.len() < limit;
            let mut last = after;
            for status in &page {
                if let UploadKind::Part { number, .. } = status.new.kind {
                    last = Some(number);
                }
                let Some(part) = Part::of(status) else { continue };
                let known = newest.get(&part.number);
                if known.is_none_or(|known| known.modified_ms <= part.modified_ms) {
                    newest.insert(part.number, part);
                }
            }
            if is_last || last == after {
                return Ok(newest.into_values().collect());
            }
            // The last number may have more parts on the next page.
            after = last.and_then(|last| last.checked_sub(1)).max(after.map(|after| after + 1));
        }
    }

    pub(crate) async fn complete_upload(
        &self,
        input: CompleteMultipartUploadInput,
        caller: Option<&Caller>,
    ) -> S3Result<CompleteMultipartUploadOutput> {
        let key = self.key(&input.bucket, &input.key)?;
        let turn = Turn::of(self, &input.upload_id)?;
        let _turn = turn.lock.lock().await;
        let group = self.upload(&input.bucket, &input.key, &input.upload_id).await?;
        let asked = input.multipart_upload.as_ref().and_then(|asked| asked.parts.as_deref());
        let asked = asked.unwrap_or_default();
        if let Some(result) = &group.status.result {
            let text = String::from_utf8_lossy(result).into_owned();
            // A request that is sent again has the same parts.
            if text.split('\n').next() != listed_etag(asked).as_deref() {
                return Err(no_such_part());
            }
            return Ok(completed(&input, &text));
        }
        check_type(&input, &group)?;
        let parts = self.chosen_parts(&group, asked).await?;
        let size: u64 = parts.iter().map(|part| part.size).sum();
        if input.mpu_object_size.is_some_and(|declared| u64::try_from(declared) != Ok(size)) {
            return Err(s3_error!(
                InvalidRequest,
                "The provided 'x-amz-mp-object-size' header does not match what was computed"
            ));
        }
        let conditions = WriteConditions {
            matches: input.if_match.clone(),
            none_match: input.if_none_match.clone(),
            ..WriteConditions::default()
        };
        let condition = self.condition(&key, &conditions).await?;
        let etag = joined_etag(&parts);
        let checksum = joined_checksum(&group, &parts);
        compare_checksum(&input, checksum.as_ref())?;
        let object = Assembled {
            key,
            attributes: self.assembled_attributes(&group, &parts, &etag, checksum.as_ref())?,
            condition,
            size,
            sender: Caller::sender(caller),
        };
        let whole = match whole_copy(&parts) {
            Some(whole) => {
                if let Some(caller) = caller {
                    caller.may_read(&whole.bucket)?;
                }
                Some(self.copied_file(whole).await?).filter(|file| file.record.size == size)
            }
            None => None,
        };
        let put = match whole {
            Some(file) => self.copy(object.copy_of(&file), file.record.id).await?,
            None => self.assemble(object, parts).await?,
        };
        let version = self.stored(&put.file).await?;
        let result = serialise(&etag, checksum.as_ref(), version.as_deref());
        let uploads = self.intake.uploads();
        uploads.finish(group.id, result.as_bytes()).await.map_err(of_upload)?;
        if let Err(error) = uploads.remove_parts(group.id).await {
            // The object exists; parts that stay expire.
            tracing::warn!(%error, "could not remove the parts of a completed upload");
        }
        Ok(completed(&input, &result))
    }

    /// What the object of an upload has beside its bytes.
    fn assembled_attributes(
        &self,
        group: &Group,
        parts: &[Part],
        etag: &str,
        checksum: Option<&StoredChecksum>,
    ) -> S3Result<Attributes> {
        let stored =
            group.status.new.attributes.get(OBJECT).and_then(|text| hex::decode(text).ok());
        let stored = stored.and_then(|bytes| Attributes::decode(&bytes).ok());
        let mut builder = Builder::from(stored.ok_or_else(|| {
            s3_error!(InternalError, "What was stored of the upload cannot be read; abort it")
        })?);
        builder.etag(etag)?;
        builder.time(self.intake.now_ms())?;
        builder.parts(&parts.iter().map(|part| part.size).collect::<Vec<_>>());
        if let Some(checksum) = checksum {
            builder.checksum(checksum)?;
        }
        // Those that a client sent without having chosen an algorithm are not kept.
        if group.algorithm.is_some()
            && let Some((algorithm, values)) = parts_checksums(parts)
        {
            builder.parts_checksums(algorithm, &values);
        }
        Ok(builder.finish())
    }

    /// Returns the parts that a client lists, in its order.
    async fn chosen_parts(&self, group: &Group, asked: &[CompletedPart]) -> S3Result<Vec<Part>> {
        if asked.is_empty() || asked.len() > PARTS_MAX as usize {
            return Err(s3_error!(MalformedXML, "The list of parts must have 1 to 10000 parts"));
        }
        let stored = self.parts(group.id).await?;
        let mut chosen: Vec<Part> = Vec::with_capacity(asked.len());
        let needed = group.algorithm.filter(|_| group.composite);
        for asked in asked {
            let number = asked.part_number.and_then(|number| u32::try_from(number).ok());
            let number = number.filter(|number| (1..=PARTS_MAX).contains(number));
            let number = number
                .ok_or_else(|| s3_error!(InvalidArgument, "PartNumber must be from 1 to 10000"))?;
            if chosen.last().is_some_and(|last| last.number >= number) {
                return Err(s3_error!(
                    InvalidPartOrder,
                    "The list of parts was not in ascending order. Parts must be ordered by part number."
                ));
            }
            let at = stored
                .binary_search_by_key(&number, |part| part.number)
                .map_err(|_| no_such_part())?;
            let part = stored.get(at).ok_or_else(no_such_part)?;
            if asked.e_tag.as_ref().is_none_or(|tag| tag.value() != part.etag) {
                return Err(no_such_part());
            }
            check_part(asked, part, needed)?;
            chosen.push(part.clone());
        }
        let all_but_last = chosen.split_last().map(|(_, before)| before).unwrap_or_default();
        if let Some(small) = all_but_last.iter().find(|part| part.size < PART_SIZE_MIN) {
            return Err(s3_error!(
                EntityTooSmall,
                "Your proposed upload is smaller than the minimum allowed size: part {} has {} bytes of at \
                 least {PART_SIZE_MIN}",
                small.number,
                small.size
            ));
        }
        Ok(chosen)
    }

    async fn copied_file(&self, copied: &Copied) -> S3Result<StoredFile> {
        let gone = || {
            s3_error!(
                InvalidPart,
                "The object that a part was copied from was changed before the upload was completed"
            )
        };
        let key = self.key(&copied.bucket, &copied.key)?;
        let found = self.intake.find_version(&key, copied.version).await.map_err(of_intake)?;
        let found = match found {
            Some(file) => Some(file),
            None => self.intake.find(&key).await.map_err(of_intake)?,
        };
        found.filter(|file| file.record.digest == copied.digest).ok_or_else(gone)
    }

    async fn assemble(&self, object: Assembled, parts: Vec<Part>) -> S3Result<Put> {
        let Assembled { key, attributes, condition, size, sender } = object;
        let mut pieces = Vec::with_capacity(parts.len());
        for part in parts {
            pieces.push(match part.bytes {
                Bytes::Upload(id) => Piece::Upload(self.intake.uploads().bytes(id, part.size)),
                Bytes::Copied(copied) => {
                    let file = self.copied_file(&copied).await?;
                    match self.intake.read(&file).map_err(of_intake)? {
                        FileBytes::File(reader) => Piece::File(reader, copied.start, copied.end),
                        FileBytes::Memory(bytes) => {
                            let at =
                                |n: u64| usize::try_from(n).unwrap_or(usize::MAX).min(bytes.len());
                            Piece::Memory(bytes.slice(at(copied.start)..at(copied.end)))
                        }
                    }
                }
            });
        }
        pieces.reverse();
        let mut source = Pieces(pieces);
        let upload = self.intake.receive(&mut source, Some(size)).await.map_err(of_intake)?;
        if upload.size() != size {
            return Err(s3_error!(InternalError, "The parts do not have the bytes that they had"));
        }
        self.put_assembled(key, attributes, condition, upload, sender).await
    }
}

/// An object that is put together.
struct Assembled {
    key: NameKey,
    attributes: Attributes,
    condition: Condition,
    size: u64,
    sender: Sender,
}

impl Assembled {
    /// The same as a copy of a whole object.
    fn copy_of(self, whole: &StoredFile) -> FileCopy {
        FileCopy {
            from: (whole.record.namespace.clone(), whole.record.name.clone()),
            to: self.key,
            source: Condition::OneOf(vec![whole.record.digest]),
            condition: self.condition,
            comment: Some(String::new()),
            attributes: Some(self.attributes),
            idempotency: None,
        }
    }
}

/// What a completed upload is remembered by.
fn serialise(etag: &str, checksum: Option<&StoredChecksum>, version: Option<&str>) -> String {
    let checksum = checksum.map(StoredChecksum::print).unwrap_or_default();
    format!("{etag}\n{checksum}\n{}", version.unwrap_or_default())
}

fn no_such_part() -> S3Error {
    s3_error!(
        InvalidPart,
        "One or more of the specified parts could not be found. The part may not have been uploaded, or \
         the specified entity tag may not match the part's entity tag."
    )
}

fn completed(input: &CompleteMultipartUploadInput, result: &str) -> CompleteMultipartUploadOutput {
    let mut lines = result.split('\n');
    let mut next = || lines.next().unwrap_or_default();
    let (etag, checksum, version) = (next(), next(), next());
    let mut output = CompleteMultipartUploadOutput {
        bucket: Some(input.bucket.clone()),
        e_tag: Some(ETag::Strong(etag.to_owned())),
        key: Some(input.key.clone()),
        location: Some(format!("/{}/{}", input.bucket, input.key)),
        version_id: (!version.is_empty()).then(|| version.to_owned()),
        ..CompleteMultipartUploadOutput::default()
    };
    if let Some(checksum) = StoredChecksum::parse(checksum) {
        set_checksum!(output, &checksum);
    }
    output
}

/// The name of an object, for the listing of uploads.
pub(crate) fn object_of(status: &UploadStatus) -> Option<(&str, &str)> {
    let attributes = &status.new.attributes;
    Some((attributes.get(BUCKET)?, attributes.get(KEY)?))
}
