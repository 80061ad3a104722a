//! An object that is written piece by piece and appears as a whole.
//!
//! A small object is one request; a larger one is an upload of parts that becomes an object with
//! the last request. A killed program leaves an incomplete upload, which the bucket's rule for
//! incomplete uploads removes.

use futures_util::TryStreamExt as _;
use futures_util::stream::FuturesUnordered;
use object_store::path::Path as Key;
use object_store::{MultipartUpload, ObjectStoreExt as _, PutPayload, UploadPart};

use crate::bucket::Bucket;
use crate::error::{Class, Failure};

/// Default size in bytes of one request of an upload; S3 requires at least 5 MiB.
const PART_SIZE: usize = 8 << 20;
/// Maximum number of parts; S3 permits ten thousand.
const PARTS_MAX: u64 = 9_000;

/// An object that is being written. If it is dropped before it is finished, it is aborted.
pub struct Upload {
    bucket: Bucket,
    key: Key,
    is_new: bool,
    part_size: usize,
    requests_max: usize,
    buffer: Vec<u8>,
    upload: Option<Box<dyn MultipartUpload>>,
    running: FuturesUnordered<UploadPart>,
    size: u64,
    is_failed: bool,
}

impl Upload {
    pub(crate) fn new(bucket: Bucket, key: Key) -> Self {
        Self {
            bucket,
            key,
            is_new: false,
            part_size: PART_SIZE,
            requests_max: 1,
            buffer: Vec::new(),
            upload: None,
            running: FuturesUnordered::new(),
            size: 0,
            is_failed: false,
        }
    }

    /// Refuses to replace an object. Where it is an upload of parts, its existence is checked
    /// before the first.
    #[must_use]
    pub fn only_new(mut self) -> Self {
        self.is_new = true;
        self
    }

    /// Sets the maximum number of concurrent requests; each holds a part in memory.
    #[must_use]
    pub fn with_requests(mut self, requests_max: usize) -> Self {
        self.requests_max = requests_max.max(1);
        self
    }

    /// Announces its size in bytes: the parts of a very large object are larger.
    #[must_use]
    pub fn with_size(mut self, size: u64) -> Self {
        let part_size = usize::try_from(size.div_ceil(PARTS_MAX)).unwrap_or(usize::MAX);
        self.part_size = part_size.max(PART_SIZE);
        self
    }

    /// Size in bytes of one request.
    #[must_use]
    pub fn part_size(&self) -> usize {
        self.part_size
    }

    /// Adds bytes and leaves `bytes` empty.
    ///
    /// # Errors
    /// [`Failure`]: the upload was aborted.
    pub async fn write(&mut self, bytes: &mut Vec<u8>) -> Result<(), Failure> {
        self.check()?;
        self.size += bytes.len() as u64;
        self.buffer.append(bytes);
        while self.buffer.len() >= self.part_size {
            let rest = self.buffer.split_off(self.part_size);
            let part = std::mem::replace(&mut self.buffer, rest);
            if let Err(failure) = self.send(part).await {
                self.abort().await;
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Completes the object. Returns its size in bytes.
    ///
    /// # Errors
    /// [`Failure`]: the upload was aborted. [`Class::Conflict`]: the object
    /// exists, and must not be replaced.
    pub async fn finish(mut self) -> Result<u64, Failure> {
        self.check()?;
        let rest = std::mem::take(&mut self.buffer);
        if self.upload.is_none() {
            match self.is_new {
                true => self.bucket.create(&self.key, rest).await?,
                false => self.bucket.put(&self.key, rest).await?,
            }
            return Ok(self.size);
        }
        match self.complete(rest).await {
            Ok(()) => self.upload = None,
            Err(failure) => {
                self.abort().await;
                return Err(failure);
            }
        }
        Ok(self.size)
    }

    /// Sends a part, and starts the upload with the first one.
    async fn send(&mut self, part: Vec<u8>) -> Result<(), Failure> {
        let upload = match &mut self.upload {
            Some(upload) => upload,
            None => {
                if self.is_new {
                    self.bucket.check_absent(&self.key).await?;
                }
                let begun = self.bucket.store().put_multipart(&self.key).await?;
                self.upload.insert(begun)
            }
        };
        self.running.push(upload.put_part(PutPayload::from(part)));
        while self.running.len() >= self.requests_max {
            self.running.try_next().await?;
        }
        Ok(())
    }

    async fn complete(&mut self, rest: Vec<u8>) -> Result<(), Failure> {
        if !rest.is_empty() {
            self.send(rest).await?;
        }
        while self.running.try_next().await?.is_some() {}
        if let Some(upload) = &mut self.upload {
            upload.complete().await?;
        }
        Ok(())
    }

    /// Fails after a failure: what was sent then is gone, and the rest is no object.
    fn check(&self) -> Result<(), Failure> {
        match self.is_failed {
            true => Err(Failure::new(Class::Refused, "the upload was aborted")),
            false => Ok(()),
        }
    }

    async fn abort(&mut self) {
        self.is_failed = true;
        self.running.clear();
        if let Some(upload) = self.upload.take() {
            abort(upload, self.bucket.url(&self.key)).await;
        }
    }
}

/// Aborts an upload; what cannot be aborted is left to the bucket's rule.
async fn abort(mut upload: Box<dyn MultipartUpload>, url: String) {
    if let Err(error) = upload.abort().await {
        let error = Failure::from(error);
        tracing::warn!(%url, %error, "an incomplete upload remains in the bucket");
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(upload) = self.upload.take() else { return };
        let url = self.bucket.url(&self.key);
        // Without a runtime no request can be made; the bucket's rule for incomplete uploads
        // remains.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(abort(upload, url));
        }
    }
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upload").field("key", &self.key).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;
    use crate::testing::run;

    #[test]
    fn an_object_appears_as_a_whole_however_it_was_written() {
        let bucket = Bucket::new(Arc::new(InMemory::new()), "b", Key::default());
        run(async {
            for (name, size, requests) in
                [("a", 10, 1), ("b", 3 * PART_SIZE + 7, 1), ("c", 2 * PART_SIZE, 4)]
            {
                let key = bucket.key(name);
                let content: Vec<u8> = (0..=250_u8).cycle().take(size).collect();
                let mut upload = bucket.upload(key.clone()).with_requests(requests);
                for piece in content.chunks(5 << 20) {
                    upload.write(&mut piece.to_vec()).await.unwrap();
                    assert!(bucket.store().head(&key).await.is_err(), "{name} is there too early");
                }
                assert_eq!(upload.finish().await.unwrap(), size as u64);
                let read = bucket.store().get(&key).await.unwrap().bytes().await.unwrap();
                assert!(read == content, "{name}");
                let mut again = bucket.upload(key).only_new();
                let refused = match again.write(&mut content.clone()).await {
                    Ok(()) => again.finish().await.map(drop),
                    Err(failure) => Err(failure),
                };
                assert_eq!(refused.unwrap_err().class(), Class::Conflict, "{name}");
            }
        });
    }

    #[test]
    fn a_very_large_object_has_no_more_parts_than_s3_permits() {
        let bucket = Bucket::new(Arc::new(InMemory::new()), "b", Key::default());
        let part_size = |size| bucket.upload("x".into()).with_size(size).part_size() as u64;
        assert_eq!(part_size(1), 8 << 20);
        assert!((1_u64 << 40).div_ceil(part_size(1 << 40)) <= 10_000);
    }
}
