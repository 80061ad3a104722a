//! Versions of objects: whether a bucket keeps them, which id each has, and how one is found and erased.
//!
//! The id of a version is that of the file, in decimals. An object of a bucket without versions, and one that
//! was stored while they were suspended, has the id `null`; the latter keeps it, since the bucket remembers
//! which ids were assigned in that time.
//!
//! Invariants: a number names the same bytes for ever; what is erased was named by its id, or is the only one.

use std::ops::Range;

use forebay_intake::attributes::{AttributeError, AttributeKind, Attributes};
use forebay_intake::catalogue::{FileRecord, NamespaceRecord, Versioning};
use forebay_intake::names::Namespace;
use forebay_intake::{Condition, Deletion, NameKey, StoredFile};
use http::{HeaderMap, HeaderName, HeaderValue};
use s3s::dto::{
    BucketVersioningStatus, GetBucketVersioningOutput, MFADelete, PutBucketVersioningInput,
    PutBucketVersioningOutput,
};
use s3s::{S3Error, S3Result, s3_error};

use crate::error::of_intake;
use crate::service::Service;

/// Id of a version that has no number.
pub(crate) const NULL: &str = "null";

/// Number of earlier versions that are read at a time.
const LOOKED_AT_MAX: usize = 100;
/// Maximum number of times of suspension that are remembered, the newest ones.
const NULLS_MAX: usize = 16;

const DELETE_MARKER: HeaderName = HeaderName::from_static("x-amz-delete-marker");
const VERSION_ID: HeaderName = HeaderName::from_static("x-amz-version-id");

/// What a client names by a version id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The object as it is now.
    Current,
    /// The version without a number.
    Null,
    /// The version with this number.
    Numbered(u64),
}

/// What a delete did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Deleted {
    /// Whether a delete marker was made, or was erased.
    pub(crate) marker: bool,
    /// Id of the marker that was made, or of the version that was erased.
    pub(crate) version: Option<String>,
}

pub(crate) fn unknown() -> S3Error {
    s3_error!(NoSuchVersion, "The specified version does not exist.")
}

pub(crate) fn missing() -> S3Error {
    s3_error!(NoSuchKey, "The specified key does not exist.")
}

impl Wanted {
    /// Reads a version id.
    ///
    /// # Errors
    /// `NoSuchVersion`: no version has such an id.
    pub(crate) fn parse(id: Option<&str>) -> S3Result<Self> {
        match id {
            None => Ok(Self::Current),
            Some(NULL) => Ok(Self::Null),
            // One spelling, so that an id is compared as a text.
            Some(id) => match id.parse::<u64>() {
                Ok(number) if number.to_string() == id => Ok(Self::Numbered(number)),
                _ => Err(unknown()),
            },
        }
    }
}

/// Which versions of a bucket have numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) versioning: Versioning,
    /// Ids that were assigned while versions were suspended, before they were enabled again.
    nulls: Vec<Range<u64>>,
}

impl Ids {
    /// Name of the internal attribute of a namespace with [`Ids::nulls`].
    const NULLS: &str = "s3-nulls";

    fn of(record: Option<&NamespaceRecord>) -> Self {
        let versioning = record.map_or(Versioning::Off, NamespaceRecord::versioning);
        let text = record.and_then(|r| r.attributes.get(AttributeKind::Internal, Self::NULLS));
        let parse = |range: &str| {
            let (start, end) = range.split_once('-')?;
            Some(start.parse().ok()?..end.parse().ok()?)
        };
        let nulls = text.unwrap_or_default().split(',').filter_map(parse).collect();
        Self { versioning, nulls }
    }

    /// Stores that what has been stored since `at` has no number.
    fn remember(
        mut self,
        mut attributes: Attributes,
        at: u64,
        end: u64,
    ) -> Result<Attributes, AttributeError> {
        self.nulls.push(at..end);
        let forgotten = self.nulls.len().saturating_sub(NULLS_MAX);
        let kept = self.nulls.iter().skip(forgotten);
        let texts: Vec<_> = kept.map(|ids| format!("{}-{}", ids.start, ids.end)).collect();
        attributes.set(AttributeKind::Internal, Self::NULLS, &texts.join(","))?;
        Ok(attributes)
    }

    /// Whether a version that was replaced has no number.
    pub(crate) fn was_null(&self, id: u64) -> bool {
        self.nulls.iter().any(|ids| ids.contains(&id))
    }

    /// The id of the version with a number; `None` if the bucket has no versions.
    pub(crate) fn id(&self, id: u64) -> Option<String> {
        match self.versioning {
            Versioning::Off => None,
            Versioning::Suspended { at } if id >= at => Some(NULL.to_owned()),
            _ if self.was_null(id) => Some(NULL.to_owned()),
            Versioning::On | Versioning::Suspended { .. } => Some(id.to_string()),
        }
    }
}

/// Describes a deletion in the headers of an error.
fn with_marker(mut error: S3Error, version: &str) -> S3Error {
    let mut headers = HeaderMap::new();
    headers.insert(DELETE_MARKER, HeaderValue::from_static("true"));
    if let Ok(version) = HeaderValue::from_str(version) {
        headers.insert(VERSION_ID, version);
    }
    error.set_headers(headers);
    error
}

impl Service {
    /// Which versions of a bucket have numbers, and what becomes of objects that are replaced or deleted.
    pub(crate) async fn ids_of(&self, namespace: &Namespace) -> S3Result<Ids> {
        let record = self.intake.namespace_record(namespace).await.map_err(of_intake)?;
        Ok(Ids::of(record.as_ref()))
    }

    /// Finds the newest version without a number of a key.
    pub(crate) async fn null_version(&self, key: &NameKey, ids: &Ids) -> S3Result<Option<u64>> {
        if let Some(current) = self.intake.find(key).await.map_err(of_intake)? {
            let id = current.record.id;
            if ids.id(id).is_none_or(|id| id == NULL) {
                return Ok(Some(id));
            }
        }
        let oldest = ids.nulls.iter().map(|ids| ids.start).min();
        let (mut before, Some(oldest)) = (ids.nulls.iter().map(|ids| ids.end).max(), oldest) else {
            return Ok(None);
        };
        loop {
            let page = self.intake.versions(key, before, LOOKED_AT_MAX).await.map_err(of_intake)?;
            let mut kept = page.versions.iter().filter(|version| !version.is_deletion);
            if let Some(found) = kept.find(|version| ids.was_null(version.file.id)) {
                return Ok(Some(found.file.id));
            }
            before = page.versions.last().map(|last| last.file.id).filter(|id| *id > oldest);
            if before.is_none() || !page.more {
                return Ok(None);
            }
        }
    }

    /// The id of the version that a file is; `None` if its bucket has no versions.
    pub(crate) async fn version_of(
        &self,
        namespace: &Namespace,
        id: u64,
    ) -> S3Result<Option<String>> {
        Ok(self.ids_of(namespace).await?.id(id))
    }

    /// The id of the version that was just stored. A version without a number replaces an earlier one.
    pub(crate) async fn stored(&self, file: &FileRecord) -> S3Result<Option<String>> {
        let ids = self.ids_of(&file.namespace).await?;
        let version = ids.id(file.id);
        if version.as_deref() == Some(NULL) {
            let key = (file.namespace.clone(), file.name.clone());
            self.erase_nulls(&key, &ids, file.id).await?;
        }
        Ok(version)
    }

    /// Erases the states without a number that a key had before the one with this id: it has at most one.
    async fn erase_nulls(&self, key: &NameKey, ids: &Ids, id: u64) -> S3Result<()> {
        let Versioning::Suspended { at } = ids.versioning else { return Ok(()) };
        for nulls in ids.nulls.iter().cloned().chain(std::iter::once(at..id)) {
            let mut before = Some(nulls.end.min(id));
            while before.is_some() {
                let page = self.intake.versions(key, before, LOOKED_AT_MAX).await;
                let page = page.map_err(of_intake)?;
                let found: Vec<u64> = page.versions.iter().map(|version| version.file.id).collect();
                let erased: Vec<u64> =
                    found.iter().copied().filter(|id| nulls.contains(id)).collect();
                // Those that are left are below the range.
                let is_last = !page.more || erased.len() < found.len();
                self.intake.erase_versions(key, &erased).await.map_err(of_intake)?;
                before = found.last().copied().filter(|_| !is_last);
            }
        }
        Ok(())
    }

    /// Finds a version of an object.
    ///
    /// # Errors
    /// `NoSuchKey`, `NoSuchBucket`, `NoSuchVersion`; `MethodNotAllowed` if it is a delete marker.
    pub(crate) async fn object(
        &self,
        bucket: &str,
        key: &str,
        version: Option<&str>,
    ) -> S3Result<StoredFile> {
        let Ok(key) = self.key(bucket, key) else {
            self.bucket(bucket).await?;
            return Err(missing());
        };
        let wanted = Wanted::parse(version);
        if let Ok(Wanted::Numbered(id)) = wanted {
            let found = self.intake.find_version(&key, id).await.map_err(of_intake)?;
            return match found {
                Some(file) => Ok(file),
                None => Err(self.without_version(bucket, &key, id).await?),
            };
        }
        if let Ok(Wanted::Null) = wanted {
            let found = self.null_version(&key, &self.ids_of(&key.0).await?).await?;
            let found = match found {
                Some(id) => self.intake.find_version(&key, id).await.map_err(of_intake)?,
                None => None,
            };
            if found.is_none() {
                self.bucket(bucket).await?;
            }
            return found.ok_or_else(unknown);
        }
        let Some(file) = self.intake.find(&key).await.map_err(of_intake)? else {
            self.bucket(bucket).await?;
            wanted?;
            return Err(self.without_object(&key).await?);
        };
        wanted?;
        Ok(file)
    }

    /// The error for a name that does not exist now.
    async fn without_object(&self, key: &NameKey) -> S3Result<S3Error> {
        let history = self.intake.versions(key, None, 1).await.map_err(of_intake)?;
        let newest = history.versions.first().filter(|newest| newest.is_deletion);
        let marked = newest.map(|newest| with_marker(missing(), &newest.file.id.to_string()));
        Ok(marked.unwrap_or_else(missing))
    }

    /// The error for a number that no version of an object has.
    async fn without_version(&self, bucket: &str, key: &NameKey, id: u64) -> S3Result<S3Error> {
        self.bucket(bucket).await?;
        let before = id.saturating_add(1);
        let history = self.intake.versions(key, Some(before), 1).await.map_err(of_intake)?;
        let found = history.versions.first().filter(|found| found.file.id == id);
        let is_marker = found.is_some_and(|found| found.is_deletion);
        if !is_marker {
            return Ok(unknown());
        }
        let text = "The specified method is not allowed against this resource.";
        Ok(with_marker(s3_error!(MethodNotAllowed, "{text}"), &id.to_string()))
    }

    /// Deletes an object, or erases one of its versions.
    pub(crate) async fn delete_version(
        &self,
        key: &NameKey,
        version: Option<&str>,
        condition: Condition,
    ) -> S3Result<Deleted> {
        let numbered = match Wanted::parse(version)? {
            Wanted::Numbered(id) => Some(id),
            Wanted::Current => None,
            Wanted::Null => {
                let ids = self.ids_of(&key.0).await?;
                match self.null_version(key, &ids).await? {
                    None => return self.without_null(key).await,
                    Some(_) if ids.versioning == Versioning::Off => None,
                    found => found,
                }
            }
        };
        let Some(id) = numbered else {
            let deleted = self.intake.delete(key, condition.clone(), None).await;
            let deleted = deleted.map_err(|error| Self::raced(error, &condition))?;
            if let Some(Deletion { id, .. }) = deleted {
                self.erase_nulls(key, &self.ids_of(&key.0).await?, id).await?;
            }
            return Ok(match deleted {
                Some(Deletion { id, keeps: true }) => {
                    Deleted { marker: true, version: Some(id.to_string()) }
                }
                _ => Deleted { version: version.map(str::to_owned), ..Deleted::default() },
            });
        };
        let erased = self.intake.erase_version(key, id).await.map_err(of_intake)?;
        let marker = erased.is_some_and(|erased| erased.is_deletion);
        Ok(Deleted { marker, version: version.map(str::to_owned) })
    }

    /// Deletes the version without a number of a key that has none.
    ///
    /// # Errors
    /// `NoSuchVersion`: the key has versions with numbers. One of them may have been `null` before versions were
    /// enabled, so its client must not take it for deleted.
    async fn without_null(&self, key: &NameKey) -> S3Result<Deleted> {
        let history = self.intake.versions(key, None, LOOKED_AT_MAX).await.map_err(of_intake)?;
        let has_bytes = history.current.is_some()
            || history.more
            || history.versions.iter().any(|version| !version.is_deletion);
        if has_bytes { Err(unknown()) } else { Ok(null_deleted()) }
    }

    pub(crate) async fn versioning(&self, bucket: &str) -> S3Result<GetBucketVersioningOutput> {
        let namespace = self.bucket(bucket).await?;
        let status = match self.ids_of(&namespace).await?.versioning {
            Versioning::Off => None,
            Versioning::On => Some(BucketVersioningStatus::ENABLED),
            Versioning::Suspended { .. } => Some(BucketVersioningStatus::SUSPENDED),
        };
        let status = status.map(BucketVersioningStatus::from_static);
        Ok(GetBucketVersioningOutput { status, ..GetBucketVersioningOutput::default() })
    }

    pub(crate) async fn put_versioning(
        &self,
        input: PutBucketVersioningInput,
    ) -> S3Result<PutBucketVersioningOutput> {
        let namespace = self.bucket(&input.bucket).await?;
        let asked = input.versioning_configuration;
        if asked.mfa_delete.as_ref().map(MFADelete::as_str) == Some(MFADelete::ENABLED) {
            return Err(s3_error!(NotImplemented, "Deletion by a second factor is not supported"));
        }
        let is_on = match asked.status.as_ref().map(BucketVersioningStatus::as_str) {
            Some(BucketVersioningStatus::ENABLED) => true,
            Some(BucketVersioningStatus::SUSPENDED) => false,
            _ => {
                return Err(s3_error!(
                    IllegalVersioningConfigurationException,
                    "The status is not known"
                ));
            }
        };
        let change = |attributes, end| {
            let record =
                NamespaceRecord { namespace: namespace.clone(), created_ms: 0, attributes };
            let ids = Ids::of(Some(&record));
            let mut attributes = record.attributes;
            let versioning = match ids.versioning {
                Versioning::Suspended { at } if is_on && at < end => {
                    attributes = ids.remember(attributes, at, end)?;
                    Versioning::On
                }
                _ if is_on => Versioning::On,
                Versioning::On => Versioning::Suspended { at: end },
                // Nothing that is there has a number.
                Versioning::Off => Versioning::Suspended { at: 0 },
                suspended @ Versioning::Suspended { .. } => suspended,
            };
            Ok(NamespaceRecord::with_versioning(attributes, versioning)?)
        };
        match self.intake.change_namespace(&namespace, change).await {
            Ok(_) => Ok(PutBucketVersioningOutput::default()),
            Err(error) => Err(of_intake(error)),
        }
    }
}

/// There is no version without a number to erase.
fn null_deleted() -> Deleted {
    Deleted { marker: false, version: Some(NULL.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_spelling() {
        assert_eq!(Wanted::parse(None).unwrap(), Wanted::Current);
        assert_eq!(Wanted::parse(Some("null")).unwrap(), Wanted::Null);
        assert_eq!(Wanted::parse(Some("4096")).unwrap(), Wanted::Numbered(4_096));
        for wrong in ["", "04096", "+4096", "-1", "4096 ", "v1", "18446744073709551616"] {
            assert!(Wanted::parse(Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_stored_while_versions_are_suspended_has_no_number() {
        let ids = |versioning, nulls: &[Range<u64>]| Ids { versioning, nulls: nulls.to_vec() };
        assert_eq!(ids(Versioning::Off, &[]).id(9), None);
        assert_eq!(ids(Versioning::On, &[]).id(9).as_deref(), Some("9"));
        let suspended = ids(Versioning::Suspended { at: 9 }, &[]);
        assert_eq!(suspended.id(8).as_deref(), Some("8"));
        assert_eq!(suspended.id(9).as_deref(), Some("null"));
        let again = ids(Versioning::On, &[3..5, 9..12]);
        let found = [2, 3, 4, 5, 9, 11, 12].map(|id| again.id(id).unwrap());
        assert_eq!(found, ["2", "null", "null", "5", "null", "null", "12"]);
    }

    #[test]
    fn the_newest_times_of_suspension_are_remembered() {
        let mut record = NamespaceRecord {
            namespace: Namespace::parse("b").unwrap(),
            created_ms: 0,
            attributes: Attributes::default(),
        };
        for n in 0..40 {
            let ids = Ids::of(Some(&record));
            record.attributes = ids.remember(record.attributes, n * 10, n * 10 + 5).unwrap();
        }
        let ids = Ids::of(Some(&record));
        assert_eq!((ids.nulls.len(), ids.nulls.last()), (NULLS_MAX, Some(&(390..395))));
    }
}
