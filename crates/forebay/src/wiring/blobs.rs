//! Object storage for the blobs of the intake: `intake.blobs = "s3://..."`, through `forebay-objects`.
//!
//! Requests run on a separate runtime, so that they go on while the threads of the server are busy, and callers that
//! block can wait for them.
//!
//! Invariants: every request ends; a body is sent with its SHA-256, which the server compares.

use std::fmt;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use forebay_intake::ObjectStorageOptions;
use forebay_intake::blobs::storage::{ObjectStorage, StorageError, Tag};
use forebay_objects::{
    Access, Addressing, Bucket, BucketAddress, Class, Failure, Profile, Settings, Version,
};
use futures_util::TryStreamExt as _;
use tokio::runtime::{Builder, Runtime};

use crate::config::Config;

/// Maximum time of a request with its body.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);
/// Maximum time of an operation with its retries; an upload of parts has it for each.
const LIMIT: Duration = Duration::from_secs(100);
/// Maximum time of a complete listing.
const LIST_LIMIT: Duration = Duration::from_secs(3_600);
/// Parts of a large blob that are sent at the same time; each takes 8 MiB of memory or more.
const PARTS: usize = 2;

/// Returns the configured object storage of the intake; `None` if there is none.
///
/// # Errors
/// The settings lead to no connection.
pub(crate) fn options(config: &Config) -> anyhow::Result<Option<ObjectStorageOptions>> {
    let from = &config.intake;
    let (address, key) = match (&from.blobs, &from.blobs_from) {
        (Some(address), None) => (address, "intake.blobs"),
        (None, Some(address)) => (address, "intake.blobs_from"),
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => anyhow::bail!(
            "{} and {} are both set; leave intake.blobs empty to move files to the data directory",
            config.sources.named("intake.blobs"),
            config.sources.named("intake.blobs_from"),
        ),
    };
    let storage = open(config, &address.0).with_context(|| {
        format!("cannot use {} for the bytes of files", config.sources.named(key))
    })?;
    Ok(Some(ObjectStorageOptions {
        is_written: from.blobs.is_some(),
        inline_max: usize::try_from(from.blobs_inline_max.0).unwrap_or(usize::MAX),
        pack_wait: from.blobs_pack_wait.get(),
        cache_size: from.blobs_cache.0.max(CACHE_MIN),
        keep: from.blobs_keep.get(),
        ..ObjectStorageOptions::new(storage)
    }))
}

fn open(config: &Config, address: &BucketAddress) -> anyhow::Result<Arc<dyn ObjectStorage>> {
    let environment = crate::buckets::environment();
    let from = &config.intake;
    let profile = from.blobs_profile.as_deref();
    let settings = Settings {
        endpoint: from.blobs_endpoint.clone(),
        region: from.blobs_region.clone(),
        keys: None,
        profile: profile.map(|name| Profile::load(name, &environment)).transpose()?,
        addressing: if from.blobs_path_style { Addressing::Path } else { Addressing::Auto },
        allow_http: from.blobs_allow_http,
    };
    let access = Access::with_environment(&settings, &environment)?;
    Ok(Arc::new(BucketStorage::new(&access, address)?))
}

/// Smallest cache: less would not hold what is read at the same time.
const CACHE_MIN: u64 = 16 << 20;

/// A prefix in a bucket.
pub(crate) struct BucketStorage {
    bucket: Bucket,
    url: String,
    /// `None` once it is dropped.
    runtime: Option<Runtime>,
}

impl BucketStorage {
    /// Prepares a prefix. Nothing is sent.
    pub(crate) fn new(access: &Access, address: &BucketAddress) -> anyhow::Result<Self> {
        let access = access.clone().with_checksums().with_request_limit(REQUEST_LIMIT);
        let bucket = access.bucket(address)?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("forebay-blobs")
            .enable_all()
            .build()
            .context("cannot start a thread")?;
        let url = bucket.url(bucket.prefix()).trim_end_matches('/').to_owned();
        Ok(Self { bucket, url, runtime: Some(runtime) })
    }

    /// Waits for an operation.
    fn run<T>(
        &self,
        limit: Duration,
        operation: impl Future<Output = Result<T, StorageError>>,
    ) -> Result<T, StorageError> {
        let away = |reason: String| StorageError::Away { reason };
        let Some(runtime) = &self.runtime else { return Err(away("it was closed".to_owned())) };
        runtime.block_on(async {
            let ended = tokio::time::timeout(limit, operation).await;
            ended.unwrap_or_else(|_| Err(away(format!("no answer within {} s", limit.as_secs()))))
        })
    }
}

impl fmt::Debug for BucketStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketStorage").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Drop for BucketStorage {
    fn drop(&mut self) {
        // Dropping it would wait, where that may not be allowed.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What a failure means to the intake.
fn storage_error(failure: Failure) -> StorageError {
    let reason = failure.to_string();
    match failure.class() {
        Class::Unreachable | Class::Transient => StorageError::Away { reason },
        Class::Missing => StorageError::Missing,
        Class::Conflict => StorageError::Conflict,
        _ => StorageError::Refused { reason },
    }
}

/// Of a failed request for a whole prefix: that there is no bucket is not that an object is missing.
fn of_prefix(failure: Failure) -> StorageError {
    match storage_error(failure.clone()) {
        StorageError::Missing => StorageError::Refused { reason: failure.to_string() },
        other => other,
    }
}

impl ObjectStorage for BucketStorage {
    fn url(&self) -> String {
        self.url.clone()
    }

    fn put(&self, name: &str, bytes: Bytes) -> Result<(), StorageError> {
        let key = self.bucket.key(name);
        let put = async { self.bucket.put(&key, bytes).await.map_err(of_prefix) };
        self.run(LIMIT, put)
    }

    fn upload(
        &self,
        name: &str,
        size: u64,
        next: &mut dyn FnMut() -> io::Result<Option<Bytes>>,
    ) -> Result<(), StorageError> {
        let upload = self.bucket.upload(self.bucket.key(name));
        let mut upload = Some(upload.with_size(size).with_requests(PARTS));
        loop {
            // Outside of the runtime: it reads from a disk.
            let part = next().map_err(StorageError::Source);
            let sent = match (part, upload.take()) {
                (Ok(Some(part)), Some(mut open)) => {
                    let write = async {
                        open.write(&mut part.into()).await.map_err(of_prefix)?;
                        Ok(open)
                    };
                    self.run(LIMIT, write).map(|open| upload = Some(open))
                }
                (Ok(None), Some(open)) => {
                    let finish = async { open.finish().await.map_err(of_prefix) };
                    let finished = self.run(LIMIT, finish)?;
                    return match finished == size {
                        true => Ok(()),
                        false => Err(StorageError::Refused {
                            reason: format!("{finished} bytes were sent, expected {size}"),
                        }),
                    };
                }
                (Err(error), open) => {
                    // It is aborted, for which it needs the runtime.
                    self.run(LIMIT, async {
                        drop(open);
                        Ok(())
                    })?;
                    Err(error)
                }
                (Ok(_), None) => Err(StorageError::Away { reason: "it was aborted".to_owned() }),
            };
            sent?;
        }
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<Bytes, StorageError> {
        let read = async { self.bucket.read_range(name, range).await.map_err(storage_error) };
        self.run(LIMIT, read)
    }

    fn load(&self, name: &str, size_max: u64) -> Result<Option<(Bytes, Tag)>, StorageError> {
        let load = async { self.bucket.load(name, size_max).await.map_err(of_prefix) };
        let found = self.run(LIMIT, load)?;
        Ok(found.map(|(bytes, Version { tag, version })| (bytes, Tag { tag, version })))
    }

    fn replace(&self, name: &str, bytes: Bytes, was: Option<&Tag>) -> Result<Tag, StorageError> {
        let key = self.bucket.key(name);
        let was = was.cloned().map(|Tag { tag, version }| Version { tag, version });
        let replace = async {
            let replaced = self.bucket.replace(&key, bytes.to_vec(), was.as_ref()).await;
            replaced.map_err(of_prefix)
        };
        self.run(LIMIT, replace).map(|Version { tag, version }| Tag { tag, version })
    }

    fn list(&self, below: &str, each: &mut dyn FnMut(&str, u64)) -> Result<(), StorageError> {
        let list = async {
            let mut items = self.bucket.items(below);
            while let Some(item) = items.try_next().await.map_err(of_prefix)? {
                each(&item.name, item.size);
            }
            Ok(())
        };
        self.run(LIST_LIMIT, list)
    }

    fn remove(&self, name: &str) -> Result<(), StorageError> {
        let names = [name.to_owned()];
        let remove = async { self.bucket.remove(&names).await.map_err(of_prefix) };
        self.run(LIMIT, remove)
    }
}

#[cfg(test)]
mod tests;
