//! Versions of objects: whether a bucket keeps them, which id each has, and how one is found and erased.
//!
//! The id of a version is that of the file, in decimals. An object of a bucket without versions, and one that
//! was stored while they were suspended, has the id `null`.
//!
//! Invariants: an id names the same bytes for ever; what is erased was named by its id, or is the only one.

use forebay_intake::catalogue::{NamespaceRecord, Versioning};
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

/// Maximum number of earlier versions among which one with bytes is looked for.
const LOOKED_AT_MAX: usize = 100;

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

fn unknown() -> S3Error {
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

/// The id of the version with a number in a bucket; `None` if the bucket has no versions.
pub(crate) fn version_id(versioning: Versioning, id: u64) -> Option<String> {
    match versioning {
        Versioning::Off => None,
        Versioning::Suspended { at } if id >= at => Some(NULL.to_owned()),
        Versioning::On | Versioning::Suspended { .. } => Some(id.to_string()),
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
    /// What becomes of objects of a bucket that are replaced or deleted.
    pub(crate) async fn versioning_of(&self, namespace: &Namespace) -> S3Result<Versioning> {
        let record = self.intake.namespace_record(namespace).await.map_err(of_intake)?;
        Ok(record.as_ref().map_or(Versioning::Off, NamespaceRecord::versioning))
    }

    /// The id of the version that a file is; `None` if its bucket has no versions.
    pub(crate) async fn version_of(
        &self,
        namespace: &Namespace,
        id: u64,
    ) -> S3Result<Option<String>> {
        Ok(version_id(self.versioning_of(namespace).await?, id))
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
        let Some(file) = self.intake.find(&key).await.map_err(of_intake)? else {
            self.bucket(bucket).await?;
            return Err(self.without_object(&key, wanted?).await?);
        };
        if wanted? == Wanted::Null {
            let id = self.version_of(&key.0, file.record.id).await?;
            if id.is_some_and(|id| id != NULL) {
                return Err(unknown());
            }
        }
        Ok(file)
    }

    /// The error for a name that does not exist now.
    async fn without_object(&self, key: &NameKey, wanted: Wanted) -> S3Result<S3Error> {
        if wanted == Wanted::Null {
            return Ok(unknown());
        }
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
            Wanted::Null => match self.intake.find(key).await.map_err(of_intake)? {
                None => return self.without_null(key).await,
                Some(file) => match self.version_of(&key.0, file.record.id).await?.as_deref() {
                    None => None,
                    Some(NULL) => Some(file.record.id),
                    Some(_) => return self.without_null(key).await,
                },
            },
        };
        let Some(id) = numbered else {
            let deleted = self.intake.delete(key, condition.clone(), None).await;
            let deleted = deleted.map_err(|error| Self::raced(error, &condition))?;
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
    /// `NoSuchVersion`: the key has versions with numbers. One of them may have been stored as `null` before
    /// versions were enabled again, so its client must not take it for deleted.
    async fn without_null(&self, key: &NameKey) -> S3Result<Deleted> {
        let history = self.intake.versions(key, None, LOOKED_AT_MAX).await.map_err(of_intake)?;
        let has_bytes = history.current.is_some()
            || history.more
            || history.versions.iter().any(|version| !version.is_deletion);
        if has_bytes { Err(unknown()) } else { Ok(null_deleted()) }
    }

    pub(crate) async fn versioning(&self, bucket: &str) -> S3Result<GetBucketVersioningOutput> {
        let namespace = self.bucket(bucket).await?;
        let status = match self.versioning_of(&namespace).await? {
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
            let versioning = match record.versioning() {
                _ if is_on => Versioning::On,
                Versioning::On => Versioning::Suspended { at: end },
                // Nothing that is there has a number.
                Versioning::Off => Versioning::Suspended { at: 0 },
                suspended @ Versioning::Suspended { .. } => suspended,
            };
            Ok(NamespaceRecord::with_versioning(record.attributes, versioning)?)
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
        assert_eq!(version_id(Versioning::Off, 9), None);
        assert_eq!(version_id(Versioning::On, 9).as_deref(), Some("9"));
        let suspended = Versioning::Suspended { at: 9 };
        assert_eq!(version_id(suspended, 8).as_deref(), Some("8"));
        assert_eq!(version_id(suspended, 9).as_deref(), Some("null"));
    }
}
