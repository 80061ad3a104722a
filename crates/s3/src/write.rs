//! Storing, copying, tagging and deleting objects.

use forebay_intake::catalogue::{FileRecord, Versioning};
use forebay_intake::rules::Sender;
use forebay_intake::{
    Condition, FileCopy, FileDetails, IntakeError, NameKey, NewFile, Put, StoredFile,
};
use futures_util::StreamExt as _;
use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName};
use s3s::dto::{
    CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopySource, DeleteObjectInput,
    DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject, ETagCondition,
    Error, GetObjectTaggingOutput, MetadataDirective, ObjectIdentifier, PutObjectInput,
    PutObjectOutput, Tag, TaggingDirective, Timestamp, TimestampFormat,
};
use s3s::{S3Error, S3Result, TrailingHeaders, s3_error};

use crate::access::Caller;
use crate::chunks::Fault;
use crate::condition::{Conditions, failed, names, seconds};
use crate::empty::only_private;
use crate::error::of_intake;
use crate::fields::{headers_of, refuse_others, set_checksum, source_conditions};
use crate::object::{Builder, Object, StoredChecksum, tags_of_header, tags_of_set};
use crate::read::{OtherHeader, header_of, refuse_encryption};
use crate::service::Service;
use crate::sums::{Expected, Reader};
use crate::versions::{Deleted, unknown};

/// Maximum number of objects that one request deletes.
const DELETED_MAX: usize = 1_000;
/// Number of them that are deleted at a time, and so share a write of the log.
const DELETED_AT_ONCE: usize = 64;

/// What must hold of a name before it is written.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteConditions {
    pub(crate) matches: Option<ETagCondition>,
    pub(crate) none_match: Option<ETagCondition>,
    /// Size of the object, and second in which it was stored.
    pub(crate) size: Option<i64>,
    pub(crate) modified_s: Option<i64>,
}

impl WriteConditions {
    /// Reads `If-Match` and `If-None-Match`.
    ///
    /// # Errors
    /// `InvalidArgument`: one is malformed, or given more than once.
    pub(crate) fn of_headers(headers: &HeaderMap) -> S3Result<Self> {
        let read = |name: &HeaderName| {
            let mut values = headers.get_all(name).iter();
            let Some(value) = values.next() else { return Ok(None) };
            let parsed = ETagCondition::parse_http_header(value.as_bytes()).ok();
            let only = parsed.filter(|_| values.next().is_none());
            only.map(Some)
                .ok_or_else(|| s3_error!(InvalidArgument, "The header {name} is malformed"))
        };
        let (matches, none_match) = (read(&IF_MATCH)?, read(&IF_NONE_MATCH)?);
        Ok(Self { matches, none_match, ..Self::default() })
    }
}

/// What of a request beside its input matters to a write.
pub(crate) struct Beside<'a> {
    pub(crate) headers: &'a HeaderMap,
    pub(crate) trailers: Option<&'a TrailingHeaders>,
    pub(crate) fault: Fault,
    /// `Expires`, if it is no date.
    pub(crate) expires: Option<String>,
    pub(crate) sender: Sender,
}

/// Returns the checksum as XML and headers write it.
pub(crate) fn text_of(value: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(value)
}

/// What a request asks for that this server does not have.
pub(crate) struct Others<'a> {
    pub(crate) acl: Option<&'a str>,
    pub(crate) encryption: Option<&'a str>,
    pub(crate) customer_key: Option<&'a str>,
    pub(crate) storage: Option<&'a str>,
    pub(crate) redirect: Option<&'a str>,
    pub(crate) is_locked: bool,
}

/// Refuses what would silently do nothing.
///
/// # Errors
/// The error that S3 has for it.
pub(crate) fn refuse_others(others: &Others<'_>) -> S3Result<()> {
    let &Others { acl, encryption, customer_key, storage, redirect, is_locked } = others;
    only_private(acl)?;
    refuse_encryption(encryption.or(customer_key))?;
    if storage.is_some_and(|class| class != "STANDARD") {
        return Err(s3_error!(InvalidStorageClass, "Only the storage class STANDARD is supported"));
    }
    if redirect.is_some() {
        return Err(s3_error!(NotImplemented, "Objects cannot redirect"));
    }
    if is_locked {
        return Err(s3_error!(InvalidRequest, "Bucket is missing Object Lock Configuration"));
    }
    Ok(())
}

pub(crate) fn http_date(time: Option<&Timestamp>) -> Option<String> {
    let mut text = Vec::new();
    time?.format(TimestampFormat::HttpDate, &mut text).ok()?;
    String::from_utf8(text).ok()
}

impl Service {
    /// Decides the condition of a write by what the name is now.
    ///
    /// # Errors
    /// It does not hold.
    pub(crate) async fn condition(
        &self,
        key: &NameKey,
        conditions: &WriteConditions,
    ) -> S3Result<Condition> {
        let is_exact = conditions.size.is_some() || conditions.modified_s.is_some();
        match (&conditions.matches, &conditions.none_match) {
            (None, None) if !is_exact => Ok(Condition::None),
            (None, Some(ETagCondition::Any)) => {
                if self.intake.find(key).await.map_err(of_intake)?.is_some() {
                    return Err(failed("If-None-Match"));
                }
                Ok(Condition::Absent)
            }
            (wanted, None) => {
                let found = self.intake.find(key).await.map_err(of_intake)?;
                let Some(found) = found else {
                    return Err(s3_error!(NoSuchKey, "The specified key does not exist."));
                };
                let object = Object(&found.record);
                let wanted = wanted.as_ref();
                if wanted.is_some_and(|wanted| !names(wanted, &object.etag(), false)) {
                    return Err(failed("If-Match"));
                }
                if conditions.size.is_some_and(|size| size != object.size())
                    || conditions.modified_s.is_some_and(|time| time != object.modified_s())
                {
                    return Err(failed("x-amz-if-match-size or x-amz-if-match-last-modified-time"));
                }
                Ok(match wanted {
                    Some(ETagCondition::Any) if !is_exact => Condition::Present,
                    _ => Condition::OneOf(vec![found.record.digest]),
                })
            }
            _ => Err(s3_error!(
                NotImplemented,
                "A write can have If-Match with an ETag or *, or If-None-Match with *"
            )),
        }
    }

    /// The error of a write whose condition held when it was decided.
    pub(crate) fn raced(error: IntakeError, condition: &Condition) -> S3Error {
        match (error, condition) {
            (IntakeError::Precondition { .. }, Condition::Absent) => failed("If-None-Match"),
            (IntakeError::Precondition { .. }, Condition::OneOf(_) | Condition::Present) => {
                s3_error!(
                    ConditionalRequestConflict,
                    "The conditional request cannot succeed due to a conflicting operation against this \
                 resource."
                )
            }
            (error, _) => of_intake(error),
        }
    }

    pub(crate) async fn put_object(
        &self,
        mut input: PutObjectInput,
        beside: Beside<'_>,
    ) -> S3Result<(PutObjectOutput, Option<OtherHeader>)> {
        refuse_others!(input)?;
        if input.write_offset_bytes.is_some() {
            return Err(s3_error!(NotImplemented, "Objects cannot be appended to"));
        }
        let expected = Expected::of(beside.headers)?;
        let key = self.key(&input.bucket, &input.key)?;
        self.bucket(&input.bucket).await?;
        let tags = input.tagging.as_deref().map(tags_of_header).transpose()?;
        let conditions = WriteConditions {
            matches: input.if_match.take(),
            none_match: input.if_none_match.take(),
            ..WriteConditions::default()
        };
        let condition = self.condition(&key, &conditions).await?;
        let mut builder = Builder::default();
        let headers = headers_of!(input, beside.expires);
        builder.describe(&headers, input.metadata.as_ref())?;
        builder.tags(&tags.unwrap_or_default())?;

        let declared = input.content_length.and_then(|size| u64::try_from(size).ok());
        let mut reader = Reader::new(input.body.take(), expected, beside.fault);
        let upload = self.intake.receive(&mut reader, declared).await.map_err(of_intake)?;
        let received = reader.finish(beside.trailers)?;
        let etag = hex::encode(received.md5);
        let text = text_of(&received.value);
        let checksum = StoredChecksum { algorithm: received.algorithm, composite: false, text };
        builder.etag(&etag)?;
        builder.checksum(&checksum)?;
        builder.time(self.intake.now_ms())?;
        let new = NewFile {
            classified: upload.classify(&key.1).await,
            key,
            comment: String::new(),
            attributes: builder.finish(),
            condition: condition.clone(),
            idempotency: None,
            is_routed: false,
            sender: beside.sender,
        };
        let put = self.intake.put(new, upload).await;
        let file = put.map_err(|error| Self::raced(error, &condition))?.file;
        let mut output = PutObjectOutput {
            version_id: self.stored(&file).await?,
            e_tag: Some(s3s::dto::ETag::Strong(etag)),
            size: i64::try_from(received.size).ok(),
            ..PutObjectOutput::default()
        };
        set_checksum!(output, &checksum);
        Ok((output, header_of(&checksum)))
    }

    /// Finds the source of a copy, if the caller may read it and its conditions hold.
    ///
    /// # Errors
    /// They do not.
    pub(crate) async fn source(
        &self,
        source: &CopySource,
        conditions: &Conditions,
        caller: Option<&Caller>,
    ) -> S3Result<StoredFile> {
        let CopySource::Bucket { bucket, key, version_id } = source else {
            return Err(s3_error!(NotImplemented, "Access points are not supported"));
        };
        if let Some(caller) = caller {
            caller.may_read(bucket)?;
        }
        let file = self.object(bucket, key, version_id.as_deref()).await?;
        let object = Object(&file.record);
        conditions.check_source(&object.etag(), object.modified_s())?;
        Ok(file)
    }

    pub(crate) async fn copy_object(
        &self,
        mut input: CopyObjectInput,
        conditions: WriteConditions,
        expires: Option<String>,
        caller: Option<&Caller>,
    ) -> S3Result<CopyObjectOutput> {
        refuse_others!(input)?;
        let to = self.key(&input.bucket, &input.key)?;
        self.bucket(&input.bucket).await?;
        let of_source = source_conditions!(input);
        let file = self.source(&input.copy_source, &of_source, caller).await?;
        let condition = self.condition(&to, &conditions).await?;
        let replaces =
            is_replace(input.metadata_directive.as_ref().map(MetadataDirective::as_str))?;
        let replaces_tags =
            is_replace(input.tagging_directive.as_ref().map(TaggingDirective::as_str))?;
        let from = (file.record.namespace.clone(), file.record.name.clone());
        let source = self.version_of(&from.0, file.record.id).await?;
        if from == to
            && self.is_current(&from, file.record.id).await?
            && !replaces
            && input.storage_class.is_none()
        {
            return Err(s3_error!(
                InvalidRequest,
                "This copy request is illegal because it is trying to copy an object to itself without \
                 changing the object's metadata, storage class, website redirect location or encryption \
                 attributes."
            ));
        }
        let mut builder = Builder::from(file.record.attributes.clone());
        if from != to {
            builder.forget_upload();
        }
        if replaces {
            builder.describe(&headers_of!(input, expires), input.metadata.as_ref())?;
        } else {
            // The type is kept even where only the server had found it.
            let found = Object(&file.record);
            builder.describe(&found.headers(), Some(&found.metadata()))?;
        }
        if replaces_tags {
            let tags = input.tagging.as_deref().map(tags_of_header).transpose()?;
            builder.tags(&tags.unwrap_or_default())?;
        }
        builder.time(self.intake.now_ms())?;
        let copy = FileCopy {
            from,
            to,
            // The bytes whose conditions were checked.
            source: Condition::OneOf(vec![file.record.digest]),
            condition,
            comment: None,
            attributes: Some(builder.finish()),
            idempotency: None,
        };
        let put = self.copy(copy, file.record.id).await?;
        Ok(CopyObjectOutput {
            copy_object_result: Some(copied(Object(&put.file))),
            copy_source_version_id: source,
            version_id: self.stored(&put.file).await?,
            ..CopyObjectOutput::default()
        })
    }

    /// Whether a name refers to the file with this id now.
    async fn is_current(&self, key: &NameKey, id: u64) -> S3Result<bool> {
        let current = self.intake.find(key).await.map_err(of_intake)?;
        Ok(current.is_some_and(|current| current.record.id == id))
    }

    /// Copies the version of a file with this id, which may be gone by now.
    pub(crate) async fn copy(&self, copy: FileCopy, id: u64) -> S3Result<Put> {
        let (condition, to) = (copy.condition.clone(), copy.to.clone());
        let done = match self.is_current(&copy.from, id).await? {
            true => self.intake.copy(copy).await,
            false => self.intake.copy_version(copy, id).await,
        };
        match done {
            Ok(put) => Ok(put),
            // It was the source that failed where the destination is still as it has to be.
            Err(IntakeError::Precondition { .. }) if self.holds(&to, &condition).await? => {
                Err(s3_error!(
                    ConditionalRequestConflict,
                    "The source of the copy was changed meanwhile"
                ))
            }
            Err(error) => Err(Self::raced(error, &condition)),
        }
    }

    /// Whether a condition holds for a name now.
    async fn holds(&self, key: &NameKey, condition: &Condition) -> S3Result<bool> {
        let found = self.intake.find(key).await.map_err(of_intake)?;
        Ok(match condition {
            Condition::None => true,
            Condition::Absent => found.is_none(),
            Condition::Present => found.is_some(),
            Condition::OneOf(digests) => {
                found.is_some_and(|found| digests.contains(&found.record.digest))
            }
            // Writes have no others.
            _ => false,
        })
    }

    pub(crate) async fn tagging(
        &self,
        bucket: &str,
        key: &str,
        version: Option<&str>,
    ) -> S3Result<GetObjectTaggingOutput> {
        let file = self.object(bucket, key, version).await?;
        let version_id = self.version_of(&file.record.namespace, file.record.id).await?;
        Ok(GetObjectTaggingOutput { tag_set: Object(&file.record).tags(), version_id })
    }

    /// Replaces the tags of an object or of one of its versions, and returns the id of the version. Where
    /// versions are kept it stays the same one.
    pub(crate) async fn set_tags(
        &self,
        bucket: &str,
        key: &str,
        version: Option<&str>,
        tags: Vec<Tag>,
    ) -> S3Result<Option<String>> {
        let tags = tags_of_set(tags)?;
        let file = self.object(bucket, key, version).await?.record;
        let key = (file.namespace.clone(), file.name.clone());
        let ids = self.ids_of(&key.0).await?;
        let mut refused = None;
        let mut attributes = |file: &FileRecord| {
            let mut builder = Builder::from(file.attributes.clone());
            builder.tags(&tags).map(|()| builder.finish()).map_err(|error| {
                let text = error.message().unwrap_or_default().to_owned();
                refused = Some(error);
                IntakeError::rejected("tags", text)
            })
        };
        let changed = if ids.versioning == Versioning::Off {
            let change = |file: &FileRecord| {
                let attributes = attributes(file)?;
                Ok(FileDetails { comment: file.comment.clone(), attributes })
            };
            let changed = self.intake.change_details(&key, Condition::None, None, change).await;
            changed.map(|_| ())
        } else {
            match self.intake.amend_version(&key, file.id, attributes).await {
                Ok(None) => return Err(unknown()),
                amended => amended.map(|_| ()),
            }
        };
        changed.map_err(|error| refused.unwrap_or_else(|| of_intake(error)))?;
        Ok(ids.id(file.id))
    }

    pub(crate) async fn delete_object(
        &self,
        input: DeleteObjectInput,
    ) -> S3Result<DeleteObjectOutput> {
        self.bucket(&input.bucket).await?;
        // A key that cannot exist is deleted already.
        let Ok(key) = self.key(&input.bucket, &input.key) else {
            return Ok(DeleteObjectOutput::default());
        };
        let conditions = WriteConditions {
            matches: input.if_match,
            none_match: None,
            size: input.if_match_size,
            modified_s: input.if_match_last_modified_time.as_ref().map(seconds),
        };
        let condition = self.condition(&key, &conditions).await?;
        let Deleted { marker, version } =
            self.delete_version(&key, input.version_id.as_deref(), condition).await?;
        Ok(DeleteObjectOutput {
            delete_marker: marker.then_some(true),
            version_id: version,
            request_charged: None,
        })
    }

    pub(crate) async fn delete_objects(
        &self,
        input: DeleteObjectsInput,
    ) -> S3Result<DeleteObjectsOutput> {
        self.bucket(&input.bucket).await?;
        let objects = input.delete.objects;
        if objects.is_empty() || objects.len() > DELETED_MAX {
            return Err(s3_error!(MalformedXML, "A request deletes 1 to 1000 objects"));
        }
        if objects.iter().any(|object| object.key.is_empty()) {
            return Err(s3_error!(MalformedXML, "A key to delete must not be empty"));
        }
        let quiet = input.delete.quiet.unwrap_or(false);
        let bucket = input.bucket.as_str();
        let results: Vec<(ObjectIdentifier, S3Result<Deleted>)> =
            futures_util::stream::iter(objects)
                .map(|object| async move {
                    let deleted = self.delete_listed(bucket, &object).await;
                    (object, deleted)
                })
                .buffered(DELETED_AT_ONCE)
                .collect()
                .await;
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for (object, result) in results {
            match result {
                Ok(_) if quiet => {}
                Ok(Deleted { marker, version }) => deleted.push(DeletedObject {
                    delete_marker: marker.then_some(true),
                    delete_marker_version_id: version.filter(|_| marker),
                    key: Some(object.key),
                    version_id: object.version_id,
                }),
                Err(error) => errors.push(Error {
                    code: Some(error.code().as_str().to_owned()),
                    key: Some(object.key),
                    message: error.message().map(str::to_owned),
                    version_id: object.version_id,
                }),
            }
        }
        Ok(DeleteObjectsOutput {
            deleted: Some(deleted),
            errors: Some(errors),
            request_charged: None,
        })
    }

    async fn delete_listed(&self, bucket: &str, object: &ObjectIdentifier) -> S3Result<Deleted> {
        let Ok(key) = self.key(bucket, &object.key) else { return Ok(Deleted::default()) };
        let matches = object.e_tag.clone().map(ETagCondition::ETag);
        let conditions = WriteConditions {
            matches,
            none_match: None,
            size: object.size,
            modified_s: object.last_modified_time.as_ref().map(seconds),
        };
        let condition = self.condition(&key, &conditions).await?;
        self.delete_version(&key, object.version_id.as_deref(), condition).await
    }

    /// Gives a name to assembled bytes.
    pub(crate) async fn put_assembled(
        &self,
        key: NameKey,
        attributes: forebay_intake::attributes::Attributes,
        condition: Condition,
        upload: forebay_intake::upload::Upload,
        sender: Sender,
    ) -> S3Result<Put> {
        let new = NewFile {
            classified: upload.classify(&key.1).await,
            key,
            comment: String::new(),
            attributes,
            condition: condition.clone(),
            idempotency: None,
            is_routed: false,
            sender,
        };
        self.intake.put(new, upload).await.map_err(|error| Self::raced(error, &condition))
    }
}

/// What a copy is answered with.
fn copied(object: Object<'_>) -> CopyObjectResult {
    let mut result = CopyObjectResult {
        e_tag: Some(object.tag()),
        last_modified: Some(object.modified()),
        ..CopyObjectResult::default()
    };
    if let Some(checksum) = object.checksum() {
        set_checksum!(result, &checksum);
    }
    result
}

/// Whether a directive replaces.
fn is_replace(directive: Option<&str>) -> S3Result<bool> {
    match directive {
        None | Some("COPY") => Ok(false),
        Some("REPLACE") => Ok(true),
        Some(_) => Err(s3_error!(InvalidArgument, "Unknown metadata or tagging directive.")),
    }
}
