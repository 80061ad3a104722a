//! A prefix in a bucket as the place of a destination.
//!
//! ```text
//! PREFIX/STREAM/part-*.parquet           what readers see
//! PREFIX/_forebay/STREAM/ledger.json     the ledger, replaced only if unchanged
//! PREFIX/_forebay/STREAM/{next,dead}/
//! ```
//!
//! An object appears with the last request of its upload, so nothing is staged. A bucket has no
//! locks: the tag of the ledger distinguishes two concurrent runs, and the one that did not write
//! it last fails with its next commit. The files of a `replace` are copied when the load ends,
//! object by object: until that is done, readers that ignore the ledger see the old and the new.

use std::collections::HashSet;
use std::sync::LazyLock;

use forebay_sdk::error::ConnectorError;

use crate::{Bucket, Class, Failure, Upload};
use async_trait::async_trait;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use object_store::path::Path as Key;
use object_store::{Error, ObjectStoreExt as _};
use parking_lot::Mutex;

use super::ledger::LEDGER_SIZE_MAX;
use super::location::{self, Listed, Location};
use super::store::{Room, Staged, Store, Version};

type Result<T> = std::result::Result<T, ConnectorError>;

/// Maximum number of concurrent requests.
const REQUESTS: usize = 8;

/// The streams that this process writes.
static CLAIMED: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);

/// The prefix of a stream.
#[derive(Debug, Clone)]
pub(super) struct BucketStore {
    root: Bucket,
    directory: String,
}

/// A claim on a stream, by its address.
struct Claimed(String);

impl Drop for Claimed {
    fn drop(&mut self) {
        CLAIMED.lock().remove(&self.0);
    }
}

/// An object that is being written.
struct StagedObject {
    upload: Upload,
    /// In messages.
    bucket: Bucket,
    key: Key,
}

impl BucketStore {
    /// The prefix of a stream below that of `root`.
    pub(super) fn new(root: Bucket, directory: &str) -> Self {
        Self { root, directory: directory.to_owned() }
    }

    fn prefix(&self, room: Room) -> Key {
        let own = |name: &str| self.root.key("_forebay").join(&*self.directory).join(name);
        match room {
            Room::Shown => self.root.key(&self.directory),
            Room::Next => own("next"),
            Room::Dead => own("dead"),
            Room::Staging => own("staging"),
            Room::Segments => own("segments"),
            Room::Removed => own("removed"),
        }
    }

    /// The error of a failed request.
    fn failed(&self, act: &'static str, key: &Key, error: impl Into<Failure>) -> ConnectorError {
        location::failed(&self.root, act, key, error)
    }

    fn ledger_key(&self) -> Key {
        self.root.key("_forebay").join(&*self.directory).join("ledger.json")
    }
}

#[async_trait]
impl Store for BucketStore {
    fn place(&self, room: Room) -> Location {
        Location::Bucket(self.root.at(self.prefix(room)))
    }

    fn display(&self, room: Room, name: &str) -> String {
        let prefix = self.prefix(room);
        let key = if name.is_empty() { prefix } else { prefix.join(name) };
        self.root.url(&key)
    }

    async fn claim(&self) -> Result<Box<dyn std::any::Any + Send + Sync>> {
        let address = self.display(Room::Shown, "");
        match CLAIMED.lock().insert(address.clone()) {
            true => Ok(Box::new(Claimed(address))),
            false => Err(ConnectorError::Busy {
                act: format!("write to {address}"),
                source: "another run is writing there".into(),
            }),
        }
    }

    async fn ledger(&self) -> Result<Option<(Vec<u8>, Version)>> {
        let key = self.ledger_key();
        let failed = |error| self.failed("read", &key, error);
        let answer = match self.root.store().get(&key).await {
            Ok(answer) => answer,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        if answer.meta.size > LEDGER_SIZE_MAX {
            let found = format!("it is larger than {LEDGER_SIZE_MAX} bytes: not a ledger");
            return Err(ConnectorError::data(self.root.url(&key), found));
        }
        let version =
            Version { tag: answer.meta.e_tag.clone(), version: answer.meta.version.clone() };
        let bytes = answer.bytes().await.map_err(failed)?;
        Ok(Some((bytes.to_vec(), version)))
    }

    async fn put_ledger(&self, bytes: Vec<u8>, was: Option<&Version>) -> Result<Version> {
        let key = self.ledger_key();
        let put = self.root.replace(&key, bytes, was).await;
        put.map_err(|failure| match failure.class() {
            Class::Conflict => ConnectorError::Refused {
                act: format!("replace {}", self.root.url(&key)),
                source: "another run replaced it in the meantime; the files of that run are valid"
                    .into(),
            },
            Class::Unsupported => ConnectorError::unsupported(
                format!("{} does not support conditional writes", self.root.url(&key)),
                "use a server that supports If-Match, so that two runs cannot overwrite each \
                 other's ledger",
            ),
            _ => self.failed("replace", &key, failure),
        })
    }

    async fn stage(&self, room: Room, name: &str) -> Result<Box<dyn Staged>> {
        let key = self.prefix(room).join(name);
        let upload = self.root.upload(key.clone());
        Ok(Box::new(StagedObject { upload, bucket: self.root.clone(), key }))
    }

    async fn list(&self, room: Room) -> Result<Vec<Listed>> {
        let prefix = self.prefix(room);
        let objects = self.root.store().list(Some(&prefix));
        let listed = objects.map_ok(|meta| location::listed(&prefix, meta));
        let listed = listed.try_collect::<Vec<_>>().await;
        let listed = listed.map_err(|error| self.failed("list", &prefix, error))?;
        let direct = |file: &Listed| !file.name.is_empty() && !file.name.contains('/');
        Ok(listed.into_iter().flatten().filter(direct).collect())
    }

    async fn remove(&self, room: Room, names: Vec<String>) -> Result<()> {
        let prefix = self.prefix(room);
        let remove = |name: String| {
            let key = prefix.clone().join(name);
            async move {
                match self.root.store().delete(&key).await {
                    Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
                    Err(error) => Err(self.failed("remove", &key, error)),
                }
            }
        };
        stream::iter(names).map(remove).buffer_unordered(REQUESTS).try_collect().await
    }

    async fn switch(&self, names: Vec<String>) -> Result<()> {
        let waiting: HashSet<String> =
            self.list(Room::Next).await?.into_iter().map(|file| file.name).collect();
        let names: Vec<String> = names.into_iter().filter(|name| waiting.contains(name)).collect();
        let (next, shown) = (self.prefix(Room::Next), self.prefix(Room::Shown));
        let copy = |name: String| {
            let (from, to) = (next.clone().join(&*name), shown.clone().join(name));
            async move {
                let copied = self.root.store().copy(&from, &to).await;
                copied.map_err(|error| self.failed("copy", &from, error))
            }
        };
        let copies = stream::iter(names.clone()).map(copy).buffer_unordered(REQUESTS);
        copies.try_collect::<()>().await?;
        self.remove(Room::Next, names).await
    }
}

impl StagedObject {
    fn failed(bucket: &Bucket, key: &Key, failure: Failure) -> ConnectorError {
        location::failed(bucket, "write", key, failure)
    }
}

#[async_trait]
impl Staged for StagedObject {
    async fn write(&mut self, bytes: &mut Vec<u8>) -> Result<()> {
        let written = self.upload.write(bytes).await;
        written.map_err(|failure| Self::failed(&self.bucket, &self.key, failure))
    }

    async fn publish(self: Box<Self>) -> Result<u64> {
        let Self { upload, bucket, key } = *self;
        upload.finish().await.map_err(|failure| Self::failed(&bucket, &key, failure))
    }
}
