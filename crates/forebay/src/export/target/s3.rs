//! Parts in a bucket of S3 or of a compatible server, of which none replaces an object.

use std::io::Read as _;

use anyhow::Context as _;
use forebay_objects::{Addressing, Bucket, Class, Failure};
use futures_util::TryStreamExt as _;
use tempfile::NamedTempFile;
use tokio::runtime::Runtime;

use super::{Staged, is_ours};
use crate::buckets::{S3Options, prefix_in_bucket, refused};

/// Number of concurrent requests of one upload.
const UPLOADS: usize = 4;

/// A prefix in a bucket.
pub(crate) struct S3 {
    runtime: Runtime,
    bucket: Bucket,
}

impl S3 {
    /// Parses a URL, `s3://BUCKET/PREFIX`.
    ///
    /// # Errors
    /// The URL or the options are not valid (exit code 2).
    pub(crate) fn open(url: &str, options: &S3Options) -> anyhow::Result<Self> {
        let address = prefix_in_bucket(url)?;
        let bucket = options.access(Addressing::Host)?.bucket(&address).map_err(refused)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the network runtime")?;
        Ok(Self { runtime, bucket })
    }

    /// Returns an object of an earlier export.
    pub(super) fn first_part(&self) -> anyhow::Result<Option<String>> {
        let prefix = self.bucket.prefix();
        let found = self.runtime.block_on(async {
            let below = (!prefix.as_ref().is_empty()).then_some(prefix);
            let mut objects = self.bucket.store().list(below);
            while let Some(object) = objects.try_next().await? {
                let first = object.location.prefix_match(prefix).and_then(|mut it| it.next());
                let ours = first.is_some_and(|name| is_ours(name.as_ref()));
                if ours {
                    return Ok(Some(object.location));
                }
            }
            Ok::<_, Failure>(None)
        });
        let found = found.with_context(|| format!("cannot list {}", self.bucket.url(prefix)))?;
        Ok(found.map(|path| self.bucket.url(&path)))
    }

    pub(super) fn temporary(&self) -> anyhow::Result<NamedTempFile> {
        tempfile::Builder::new()
            .prefix("forebay-export-")
            .tempfile()
            .context("cannot create a temporary file")
    }

    pub(super) fn put(&self, mut staged: Staged, path: &str) -> anyhow::Result<()> {
        let stored = self.runtime.block_on(self.send(&mut staged, path));
        let url = || self.bucket.url(&self.bucket.key(path));
        stored.map_err(|error| match error.downcast_ref::<Failure>().map(Failure::class) {
            Some(Class::Conflict) => {
                anyhow::anyhow!("{} already exists; an export replaces no objects", url())
            }
            _ => error.context(format!("cannot store {}", url())),
        })
    }

    async fn send(&self, staged: &mut Staged, path: &str) -> anyhow::Result<()> {
        let upload = self.bucket.upload(self.bucket.key(path)).only_new();
        let mut upload = upload.with_requests(UPLOADS).with_size(staged.bytes());
        let part_size = upload.part_size() as u64;
        let file = staged.rewound()?;
        loop {
            let mut part = Vec::new();
            if file.by_ref().take(part_size).read_to_end(&mut part)? == 0 {
                break;
            }
            upload.write(&mut part).await?;
        }
        upload.finish().await?;
        Ok(())
    }
}
