//! A prefix in a bucket of S3, or of a server that speaks its protocol.
//!
//! An object appears whole or not at all. Every body is sent with its SHA-256, which the server compares before the
//! object exists. Who holds the prefix is in `lease`.
//!
//! Invariant: memory is limited by the number of threads, each with one chunk.

use std::fs::File;
use std::io::{Read, Seek as _};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use bytes::{Buf as _, Bytes};
use forebay_objects::{Addressing, Bucket, Class, Failure};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use tokio::runtime::Runtime;

use super::lease::{self, Lease};
use super::{Hold, Purpose, Target};
use crate::buckets::{S3Options, prefix_in_bucket, refused};

/// Number of threads that send or fetch a chunk each.
const WORKERS: usize = 8;
/// Maximum size of a list that is one request, which can be conditional. A larger one is an upload in parts.
const AT_ONCE_MAX: u64 = 32 << 20;
/// Number of concurrent requests of an upload in parts.
const UPLOADS: usize = 4;
/// How often the request that makes a backup is attempted: a lost answer must not lose the backup.
const PUBLISH_ATTEMPTS: usize = 3;

/// A prefix in a bucket.
#[derive(Debug)]
pub(crate) struct S3 {
    runtime: Arc<Runtime>,
    bucket: Bucket,
}

impl S3 {
    /// Parses a URL, `s3://BUCKET/PREFIX`. Nothing is sent.
    ///
    /// # Errors
    /// The URL or the options are not valid (exit code 2).
    pub(crate) fn new(url: &str, options: &S3Options) -> anyhow::Result<Self> {
        let address = prefix_in_bucket(url)?;
        let access = options.access(Addressing::Host)?.with_checksums();
        let bucket = access.bucket(&address).map_err(refused)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("backup-s3")
            .enable_all()
            .build()
            .context("cannot start the network runtime")?;
        Ok(Self::with(Arc::new(runtime), bucket))
    }

    /// A prefix that is open.
    pub(super) fn with(runtime: Arc<Runtime>, bucket: Bucket) -> Self {
        Self { runtime, bucket }
    }

    fn wait<T>(
        &self,
        act: &str,
        name: &str,
        request: impl Future<Output = Result<T, Failure>>,
    ) -> anyhow::Result<T> {
        let done = self.runtime.block_on(request);
        done.with_context(|| format!("cannot {act} {}", self.shown(name)))
    }

    /// Creates an object of a file, in one request if it is not too large.
    async fn send(&self, name: &str, mut file: File) -> anyhow::Result<()> {
        let key = self.bucket.key(name);
        let size = file.metadata().context("cannot inspect a temporary file")?.len();
        file.rewind().context("cannot read a temporary file")?;
        if size <= AT_ONCE_MAX {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).context("cannot read a temporary file")?;
            return Ok(self.create(name, bytes).await?);
        }
        let upload = self.bucket.upload(key).only_new().with_requests(UPLOADS).with_size(size);
        let mut upload = upload;
        let part_size = upload.part_size() as u64;
        loop {
            let mut part = Vec::new();
            let read = (&mut file).take(part_size).read_to_end(&mut part);
            if read.context("cannot read a temporary file")? == 0 {
                break;
            }
            upload.write(&mut part).await?;
        }
        upload.finish().await?;
        Ok(())
    }

    /// Creates an object. A request that met the effect of its own first attempt has succeeded.
    async fn create(&self, name: &str, bytes: Vec<u8>) -> Result<(), Failure> {
        let key = self.bucket.key(name);
        let mut attempt = 1;
        loop {
            // Conditional, and if there is such an object its bytes are compared.
            match self.bucket.replace(&key, bytes.clone(), None).await {
                Ok(_) => return Ok(()),
                Err(failure) if failure.class() == Class::Unsupported => {
                    return self.bucket.create(&key, bytes).await;
                }
                Err(failure) if failure.is_retryable() && attempt < PUBLISH_ATTEMPTS => {
                    attempt += 1;
                }
                Err(failure) => return Err(failure),
            }
        }
    }
}

impl Target for S3 {
    fn shown(&self, name: &str) -> String {
        self.bucket.url(&self.bucket.key(name))
    }

    fn workers(&self) -> usize {
        WORKERS
    }

    fn is_checked(&self) -> bool {
        true
    }

    fn is_empty(&self) -> anyhow::Result<bool> {
        let found = async {
            let mut items = self.bucket.items("");
            while let Some(item) = items.try_next().await? {
                if !lease::is_lock(&item.name) {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        self.wait("list", "", found)
    }

    fn hold(&self, purpose: Purpose) -> anyhow::Result<Box<dyn Hold>> {
        let lease = Lease::acquire(Arc::clone(&self.runtime), self.bucket.clone(), purpose)?;
        Ok(Box::new(lease))
    }

    fn read(&self, name: &str, size_max: usize, _: bool) -> anyhow::Result<Option<Vec<u8>>> {
        let size_max = u64::try_from(size_max).unwrap_or(u64::MAX);
        let read = self.wait("read", name, self.bucket.read(name, size_max))?;
        Ok(read.map(Vec::from))
    }

    fn open(&self, name: &str) -> anyhow::Result<Option<Box<dyn Read + '_>>> {
        let pieces = self.wait("read", name, self.bucket.pieces(name))?;
        let reader = pieces.map(|pieces| PieceReader {
            runtime: &self.runtime,
            pieces,
            piece: Bytes::new(),
        });
        Ok(reader.map(|reader| Box::new(reader) as Box<dyn Read>))
    }

    fn size(&self, name: &str) -> anyhow::Result<Option<u64>> {
        let found = self.wait("find", name, self.bucket.find(name))?;
        Ok(found.map(|item| item.size))
    }

    fn list(
        &self,
        below: &str,
        each: &mut dyn FnMut(&str, u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut items = self.bucket.items(below);
        while let Some(item) = self.wait("list", below, items.try_next())? {
            each(&item.name, item.size)?;
        }
        Ok(())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        let key = self.bucket.key(name);
        self.wait("store", name, self.bucket.put(&key, bytes.to_vec()))
    }

    fn sync(&self) -> anyhow::Result<()> {
        // An object is durable when its request is answered.
        Ok(())
    }

    fn scratch(&self) -> anyhow::Result<File> {
        tempfile::tempfile().context("cannot create a temporary file")
    }

    fn publish(&self, name: &str, file: File) -> anyhow::Result<()> {
        let sent = self.runtime.block_on(self.send(name, file));
        sent.with_context(|| format!("cannot store {}", self.shown(name)))
    }

    fn remove(&self, names: &[String]) -> anyhow::Result<()> {
        ensure!(names.iter().all(|name| !name.is_empty()), "an object without a name");
        let first = names.first().map(String::as_str).unwrap_or_default();
        self.wait("remove objects such as", first, self.bucket.remove(names))
    }
}

/// Reads an object that arrives in pieces.
struct PieceReader<'a> {
    runtime: &'a Runtime,
    pieces: BoxStream<'static, Result<Bytes, Failure>>,
    piece: Bytes,
}

impl Read for PieceReader<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        while self.piece.is_empty() {
            match self.runtime.block_on(self.pieces.next()) {
                Some(piece) => self.piece = piece.map_err(std::io::Error::other)?,
                None => return Ok(0),
            }
        }
        let size = self.piece.len().min(to.len());
        let (to, _) = to.split_at_mut(size);
        self.piece.copy_to_slice(to);
        Ok(size)
    }
}
