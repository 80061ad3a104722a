//! Buckets of S3, or of a server that speaks as it does.
//!
//! Where it is and with which key it is asked is for the caller to say: nothing is read from the
//! environment here.

use std::fmt;
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::aws::AmazonS3Builder;
use tokio::runtime::Runtime;

use super::SourceError;
use super::place::Remote;

/// How buckets are reached. Not to be dropped, and no source that uses it, from within asynchronous
/// code: it ends the thread that moves the bytes.
#[derive(Clone)]
pub struct S3 {
    stores: Stores,
    pub(crate) runtime: Arc<Runtime>,
}

/// Opens the store of a bucket, by the bucket's name.
type Open = dyn Fn(&str) -> object_store::Result<Arc<dyn ObjectStore>> + Send + Sync;

#[derive(Clone)]
enum Stores {
    Builder(Box<AmazonS3Builder>),
    Given(Arc<Open>),
}

impl S3 {
    /// Reaches buckets with the endpoint, region and credentials of `builder`; its bucket does not
    /// matter.
    ///
    /// # Errors
    /// When the system refuses a thread for the requests.
    pub fn new(builder: AmazonS3Builder) -> Result<Self, SourceError> {
        Ok(Self { stores: Stores::Builder(Box::new(builder)), runtime: runtime()? })
    }

    /// Reaches buckets through stores that `open` opens by the name of the bucket. They can be read
    /// from but not listed as a source: an [`ObjectStore`] does not tell storage classes.
    ///
    /// # Errors
    /// When the system refuses a thread for the requests.
    pub fn with_stores(
        open: impl Fn(&str) -> object_store::Result<Arc<dyn ObjectStore>> + Send + Sync + 'static,
    ) -> Result<Self, SourceError> {
        Ok(Self { stores: Stores::Given(Arc::new(open)), runtime: runtime()? })
    }

    /// A bucket's store.
    pub(crate) fn remote(&self, bucket: &str) -> Result<Remote, SourceError> {
        let store = match &self.stores {
            Stores::Builder(builder) => {
                let store = builder.as_ref().clone().with_bucket_name(bucket).build();
                store.map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
            }
            Stores::Given(open) => open(bucket),
        };
        let store = store.map_err(|source| SourceError::Store {
            act: "reach",
            location: format!("s3://{bucket}"),
            source,
        })?;
        Ok(Remote { store, bucket: bucket.into(), runtime: Arc::clone(&self.runtime) })
    }

    /// What buckets are reached with, if that is known.
    pub(crate) fn builder(&self) -> Option<&AmazonS3Builder> {
        match &self.stores {
            Stores::Builder(builder) => Some(builder),
            Stores::Given(_) => None,
        }
    }
}

impl fmt::Debug for S3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3").finish_non_exhaustive()
    }
}

/// One thread that moves bytes; those who wait for them bring their own.
fn runtime() -> Result<Arc<Runtime>, SourceError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("forebay-inventory-s3")
        .enable_all()
        .build();
    let runtime = runtime.map_err(|source| SourceError::Io {
        act: "start a thread for",
        path: "requests".into(),
        source,
    })?;
    Ok(Arc::new(runtime))
}
