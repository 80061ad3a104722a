//! A prefix in a bucket, and writes to it that replace nothing by accident.

use std::sync::Arc;

use bytes::Bytes;
use object_store::path::{Path as Key, PathPart};
use object_store::{
    Error, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, UpdateVersion,
};

use crate::error::{Class, Failure};
use crate::upload::Upload;

/// A prefix in a bucket. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Bucket {
    store: Arc<dyn ObjectStore>,
    name: Arc<str>,
    prefix: Key,
}

/// The version of an object, as the server names it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Version {
    /// Its entity tag.
    pub tag: Option<String>,
    /// Its version, in a bucket that keeps several.
    pub version: Option<String>,
}

impl Bucket {
    /// A prefix in the bucket that `store` accesses.
    #[must_use]
    pub fn new(store: Arc<dyn ObjectStore>, name: &str, prefix: Key) -> Self {
        Self { store, name: name.into(), prefix }
    }

    /// Another prefix in the same bucket.
    #[must_use]
    pub fn at(&self, prefix: Key) -> Self {
        Self { prefix, ..self.clone() }
    }

    /// The store of the whole bucket.
    #[must_use]
    pub fn store(&self) -> &dyn ObjectStore {
        &*self.store
    }

    /// The store of the whole bucket, to keep.
    #[cfg(feature = "delta")]
    pub(crate) fn shared(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.store)
    }

    /// The prefix.
    #[must_use]
    pub fn prefix(&self) -> &Key {
        &self.prefix
    }

    /// The key of a name below the prefix. Parts that are valid in keys are used unchanged.
    #[must_use]
    pub fn key(&self, name: &str) -> Key {
        let parts = name.split('/').filter(|part| !part.is_empty());
        parts.fold(self.prefix.clone(), |key, part| match PathPart::parse(part) {
            Ok(part) => key.join(part),
            Err(_) => key.join(part),
        })
    }

    /// The name of a key in messages.
    #[must_use]
    pub fn url(&self, key: &Key) -> String {
        format!("s3://{}/{key}", self.name)
    }

    /// Writes an object as a whole, whatever was there.
    ///
    /// # Errors
    /// [`Failure`]: the object is as it was, or, if no answer came, perhaps replaced.
    pub async fn put(&self, key: &Key, bytes: impl Into<PutPayload>) -> Result<(), Failure> {
        self.store.put(key, bytes.into()).await?;
        Ok(())
    }

    /// Creates an object as a whole. On a server without conditional writes it is checked before
    /// whether the object exists, as the best that can be done.
    ///
    /// # Errors
    /// [`Class::Conflict`]: it exists, and is unchanged. Otherwise as [`put`](Self::put).
    pub async fn create(&self, key: &Key, bytes: Vec<u8>) -> Result<(), Failure> {
        let bytes = PutPayload::from(bytes);
        let created = self.store.put_opts(key, bytes.clone(), PutMode::Create.into()).await;
        match created.map_err(Failure::from) {
            Err(failure) if failure.class() == Class::Unsupported => {
                self.check_absent(key).await?;
                self.put(key, bytes).await
            }
            created => created.map(drop),
        }
    }

    /// Replaces an object of this version, or creates it if there was none. Returns its new version.
    ///
    /// The object may already have these bytes: a request that is repeated because its answer was
    /// lost meets its own effect, and that counts as done. Bytes that two writers may both send must
    /// therefore differ, for example by an id of the writer.
    ///
    /// # Errors
    /// [`Class::Conflict`]: it has other bytes and is not of this version; it is unchanged.
    /// [`Class::Unsupported`]:
    /// the server has no conditional writes; nothing was written. Otherwise as [`put`](Self::put).
    pub async fn replace(
        &self,
        key: &Key,
        bytes: Vec<u8>,
        was: Option<&Version>,
    ) -> Result<Version, Failure> {
        let mode = match was.cloned() {
            None => PutMode::Create,
            Some(Version { tag, version }) => {
                PutMode::Update(UpdateVersion { e_tag: tag, version })
            }
        };
        let options = PutOptions { mode, ..PutOptions::default() };
        let bytes = PutPayload::from(bytes);
        match self.store.put_opts(key, bytes.clone(), options).await.map_err(Failure::from) {
            Ok(put) => Ok(Version { tag: put.e_tag, version: put.version }),
            Err(failure) if failure.class() == Class::Conflict => {
                self.version_with(key, &bytes).await?.ok_or(failure)
            }
            Err(failure) => Err(failure),
        }
    }

    /// The version of an object if it has exactly these bytes.
    async fn version_with(
        &self,
        key: &Key,
        bytes: &PutPayload,
    ) -> Result<Option<Version>, Failure> {
        let found = match self.store.get(key).await {
            Ok(found) if found.meta.size == bytes.content_length() as u64 => found,
            Ok(_) | Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let meta = found.meta.clone();
        let is_equal = found.bytes().await? == Bytes::from(bytes.clone());
        Ok(is_equal.then_some(Version { tag: meta.e_tag, version: meta.version }))
    }

    /// Fails if there is such an object.
    ///
    /// # Errors
    /// [`Class::Conflict`]: there is one. Otherwise the request failed.
    pub(crate) async fn check_absent(&self, key: &Key) -> Result<(), Failure> {
        match self.store.head(key).await {
            Ok(_) => Err(Failure::new(Class::Conflict, "it existed before it was written")),
            Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Starts an object that appears as a whole when it is finished, and replaces what was there.
    #[must_use]
    pub fn upload(&self, key: Key) -> Upload {
        Upload::new(self.clone(), key)
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;
    use crate::testing::run;

    fn bucket() -> Bucket {
        Bucket::new(Arc::new(InMemory::new()), "b", "some/where".into())
    }

    #[test]
    fn a_name_is_below_the_prefix_and_its_parts_are_kept() {
        let bucket = bucket();
        assert_eq!(bucket.url(&bucket.key("a/b.csv")), "s3://b/some/where/a/b.csv");
        assert_eq!(bucket.key("/x//y/").as_ref(), "some/where/x/y");
        assert_eq!(bucket.at("else".into()).key("a").as_ref(), "else/a");
    }

    #[test]
    fn an_object_is_created_once_and_replaced_only_as_the_version_that_was_read() {
        let bucket = bucket();
        let key = bucket.key("x");
        run(async {
            bucket.create(&key, b"one".to_vec()).await.unwrap();
            let again = bucket.create(&key, b"two".to_vec()).await.unwrap_err();
            assert_eq!(again.class(), Class::Conflict, "{again}");
            let ledger = bucket.key("ledger");
            let first = bucket.replace(&ledger, b"1".to_vec(), None).await.unwrap();
            let second = bucket.replace(&ledger, b"2".to_vec(), Some(&first)).await.unwrap();
            assert_ne!(first, second);
            for was in [None, Some(&first)] {
                let lost = bucket.replace(&ledger, b"3".to_vec(), was).await.unwrap_err();
                assert_eq!(lost.class(), Class::Conflict, "{lost}");
            }
            let read = bucket.store().get(&ledger).await.unwrap().bytes().await.unwrap();
            assert_eq!(&*read, b"2");
        });
    }

    #[test]
    fn a_replacement_that_is_repeated_after_a_lost_answer_is_done_not_a_conflict() {
        let bucket = bucket();
        let key = bucket.key("ledger");
        run(async {
            let created = bucket.replace(&key, b"1".to_vec(), None).await.unwrap();
            assert_eq!(bucket.replace(&key, b"1".to_vec(), None).await.unwrap(), created);
            let replaced = bucket.replace(&key, b"22".to_vec(), Some(&created)).await.unwrap();
            let again = bucket.replace(&key, b"22".to_vec(), Some(&created)).await.unwrap();
            assert_eq!(again, replaced);
            // The same number of other bytes is another's.
            let lost = bucket.replace(&key, b"33".to_vec(), Some(&created)).await.unwrap_err();
            assert_eq!(lost.class(), Class::Conflict, "{lost}");
        });
    }
}
