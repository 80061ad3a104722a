//! A prefix in a bucket with published checkpoints, as `events.anchor = "s3://..."` names it.
//!
//! Keys, region and server are those of the environment (`AWS_...`).

use std::time::Duration;

use forebay_events::store::{AnchorError, AnchorFiles};
use forebay_objects::{Access, Bucket, BucketAddress, Class, Failure, Settings};
use futures_util::{StreamExt as _, TryStreamExt as _};

use super::{Failed, LIMIT, run};

/// Maximum number of names of a prefix.
const NAMES_MAX: usize = (1 << 20) + 16;
/// Number of files that are read at the same time.
const READS: usize = 16;
/// Maximum time of reading all files, or their names.
const LIMIT_ALL: Duration = Duration::from_secs(3_600);

/// Files below a prefix.
#[derive(Debug)]
pub(super) struct Objects {
    address: BucketAddress,
    /// Instead of the bucket of the environment.
    open: Option<Bucket>,
}

impl Objects {
    pub(super) fn new(address: BucketAddress) -> Self {
        Self { address, open: None }
    }

    fn bucket(&self) -> Result<Bucket, Failed> {
        if let Some(bucket) = &self.open {
            return Ok(bucket.clone());
        }
        let environment = crate::buckets::environment();
        let access = Access::with_environment(&Settings::default(), &environment)?;
        Ok(access.bucket(&self.address)?)
    }

    fn failed(&self, act: &'static str, name: &str) -> impl FnOnce(Failed) -> AnchorError {
        let place = if name.is_empty() { self.address() } else { self.address_of(name) };
        move |error| AnchorError::remote(act, place, error)
    }
}

/// Reads an object of at most `size_max` bytes.
async fn read(bucket: &Bucket, name: &str, size_max: usize) -> Result<Option<Vec<u8>>, Failed> {
    let found = bucket.store().get_opts(&bucket.key(name), Default::default()).await;
    let found = match found.map_err(Failure::from) {
        Ok(found) => found,
        Err(failure) if failure.class() == Class::Missing => return Ok(None),
        Err(failure) => return Err(failure.into()),
    };
    if found.meta.size > size_max as u64 {
        return Err(format!("{name} has more than {size_max} bytes").into());
    }
    let bytes = found.bytes().await.map_err(Failure::from)?;
    Ok(Some(bytes.to_vec()))
}

impl AnchorFiles for Objects {
    fn address(&self) -> String {
        format!("s3://{}/{}", self.address.bucket, self.address.key)
    }

    fn names(&self, after: Option<&str>) -> Result<Vec<String>, AnchorError> {
        let list = async {
            let bucket = self.bucket()?;
            let prefix = bucket.prefix().clone();
            let below = (!prefix.as_ref().is_empty()).then_some(&prefix);
            let mut found = match after {
                Some(after) => bucket.store().list_with_offset(below, &bucket.key(after)),
                None => bucket.store().list(below),
            };
            let mut names = Vec::new();
            while let Some(object) = found.try_next().await.map_err(Failure::from)? {
                let mut parts = object.location.prefix_match(&prefix).into_iter().flatten();
                if let (Some(name), None) = (parts.next(), parts.next()) {
                    names.push(name.as_ref().to_owned());
                }
                if names.len() > NAMES_MAX {
                    return Err("it has too many objects".into());
                }
            }
            Ok(names)
        };
        run(LIMIT_ALL, list).map_err(self.failed("list", ""))
    }

    fn read(&self, name: &str, size_max: usize) -> Result<Option<Vec<u8>>, AnchorError> {
        let read = async { read(&self.bucket()?, name, size_max).await };
        run(LIMIT, read).map_err(self.failed("read", name))
    }

    fn read_all(
        &self,
        names: &[String],
        size_max: usize,
    ) -> Result<Vec<Option<Vec<u8>>>, AnchorError> {
        let all = async {
            let bucket = self.bucket()?;
            let reads = names.iter().map(|name| read(&bucket, name, size_max));
            futures_util::stream::iter(reads).buffered(READS).try_collect().await
        };
        run(LIMIT_ALL, all).map_err(self.failed("read", ""))
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<(), AnchorError> {
        let create = async {
            let bucket = self.bucket()?;
            Ok(bucket.create(&bucket.key(name), bytes.to_vec()).await?)
        };
        run(LIMIT, create).map_err(self.failed("write", name))
    }
}
