//! Reading, listing and removing objects below a prefix, for callers that keep many of them.
//!
//! Invariant: nothing is read into memory without a limit.

use std::ops::Range;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::{Error, GetResult, ObjectStoreExt as _};

use crate::bucket::{Bucket, Version};
use crate::error::{Class, Failure};

/// An object, as a server describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its name below the prefix.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// When it was written, by the clock of the server, in milliseconds since 1970.
    pub written_ms: i64,
}

impl Bucket {
    /// Describes an object; `None` if it does not exist.
    ///
    /// # Errors
    /// [`Failure`]: the request failed.
    pub async fn find(&self, name: &str) -> Result<Option<Item>, Failure> {
        match self.store().head(&self.key(name)).await {
            Ok(found) => Ok(Some(Item {
                name: name.to_owned(),
                size: found.size,
                written_ms: found.last_modified.timestamp_millis(),
            })),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads an object of at most `size_max` bytes; `None` if it does not exist.
    ///
    /// # Errors
    /// [`Failure`]: the request failed, or the object is larger.
    pub async fn read(&self, name: &str, size_max: u64) -> Result<Option<Bytes>, Failure> {
        let Some(found) = self.get(name).await? else { return Ok(None) };
        let size = found.meta.size;
        if size > size_max {
            let reason = format!("it has {size} bytes, more than {size_max}");
            return Err(Failure::new(Class::Refused, reason));
        }
        Ok(Some(found.bytes().await?))
    }

    /// Reads an object piece by piece; `None` if it does not exist.
    ///
    /// # Errors
    /// [`Failure`]: the request failed. So can every piece.
    pub async fn pieces(
        &self,
        name: &str,
    ) -> Result<Option<BoxStream<'static, Result<Bytes, Failure>>>, Failure> {
        let found = self.get(name).await?;
        Ok(found.map(|found| found.into_stream().map_err(Failure::from).boxed()))
    }

    /// Reads an object of at most `size_max` bytes with its version; `None` if it does not exist.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn load(
        &self,
        name: &str,
        size_max: u64,
    ) -> Result<Option<(Bytes, Version)>, Failure> {
        let Some(found) = self.get(name).await? else { return Ok(None) };
        let size = found.meta.size;
        if size > size_max {
            let reason = format!("it has {size} bytes, more than {size_max}");
            return Err(Failure::new(Class::Refused, reason));
        }
        let version =
            Version { tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
        Ok(Some((found.bytes().await?, version)))
    }

    /// Reads a range of an object.
    ///
    /// # Errors
    /// [`Class::Missing`]: there is no such object. Otherwise the request failed, or the object is shorter.
    pub async fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes, Failure> {
        Ok(self.store().get_range(&self.key(name), range).await?)
    }

    async fn get(&self, name: &str) -> Result<Option<GetResult>, Failure> {
        match self.store().get(&self.key(name)).await {
            Ok(found) => Ok(Some(found)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Lists the objects below a name, which may be empty, in no promised order.
    #[must_use]
    pub fn items(&self, below: &str) -> BoxStream<'static, Result<Item, Failure>> {
        let prefix = self.prefix().clone();
        let below = self.key(below);
        let below = (!below.as_ref().is_empty()).then_some(below);
        let found = self.store().list(below.as_ref()).map(move |found| {
            let found = found?;
            let parts: Vec<_> =
                found.location.prefix_match(&prefix).into_iter().flatten().collect();
            let name: Vec<_> = parts.iter().map(AsRef::as_ref).collect();
            let written_ms = found.last_modified.timestamp_millis();
            Ok(Item { name: name.join("/"), size: found.size, written_ms })
        });
        found.boxed()
    }

    /// Removes objects, up to 1,000 with each request. That one does not exist is no error.
    ///
    /// # Errors
    /// [`Failure`]: some may have been removed.
    pub async fn remove(&self, names: &[String]) -> Result<(), Failure> {
        let keys: Vec<_> = names.iter().map(|name| Ok(self.key(name))).collect();
        let mut removed = self.store().delete_stream(futures_util::stream::iter(keys).boxed());
        while let Some(removed) = removed.next().await {
            match removed {
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;
    use crate::testing::run;

    #[test]
    fn objects_are_found_read_listed_and_removed_by_their_names_below_the_prefix() {
        let bucket = Bucket::new(Arc::new(InMemory::new()), "b", "some/where".into());
        run(async {
            for name in ["a", "d/b", "d/c"] {
                bucket.put(&bucket.key(name), name.as_bytes().to_vec()).await.unwrap();
            }
            bucket.put(&"some/wherever".into(), vec![1]).await.unwrap();
            assert_eq!(bucket.find("d/b").await.unwrap().unwrap().size, 3);
            assert_eq!(bucket.find("x").await.unwrap(), None);
            assert_eq!(bucket.read("d/c", 3).await.unwrap().unwrap(), "d/c");
            assert!(bucket.read("d/c", 2).await.is_err());
            assert_eq!(bucket.read("x", 1).await.unwrap(), None);
            let (loaded, version) = bucket.load("d/c", 3).await.unwrap().unwrap();
            assert_eq!(loaded, "d/c");
            bucket.replace(&bucket.key("d/c"), b"d/c".to_vec(), Some(&version)).await.unwrap();
            assert_eq!(bucket.read_range("d/c", 1..3).await.unwrap(), "/c");
            let missing = bucket.read_range("x", 0..1).await.unwrap_err();
            assert_eq!(missing.class(), Class::Missing);
            assert!(
                bucket.load("d/c", 2).await.is_err()
                    && bucket.load("x", 1).await.unwrap().is_none()
            );
            let pieces = bucket.pieces("a").await.unwrap().unwrap();
            let pieces: Vec<Bytes> = pieces.try_collect().await.unwrap();
            assert_eq!(pieces.concat(), b"a");
            assert!(bucket.pieces("x").await.unwrap().is_none());
            let names = async |below| {
                let items: Vec<Item> = bucket.items(below).try_collect().await.unwrap();
                let mut names: Vec<_> = items.into_iter().map(|item| item.name).collect();
                names.sort();
                names
            };
            assert_eq!(names("").await, ["a", "d/b", "d/c"]);
            assert_eq!(names("d").await, ["d/b", "d/c"]);
            bucket.remove(&["d/b".to_owned(), "missing".to_owned()]).await.unwrap();
            assert_eq!(names("").await, ["a", "d/c"]);
            for name in ["a", "missing"] {
                bucket.remove(&[name.to_owned()]).await.unwrap();
            }
            assert_eq!(names("").await, ["d/c"]);
        });
    }
}
