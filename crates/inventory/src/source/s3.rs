//! Buckets of S3, or of a compatible server.
//!
//! The caller provides the access: nothing is read from the environment here.

use std::fmt;
use std::sync::Arc;

use forebay_objects::{Access, Failure};
use object_store::ObjectStore;
use tokio::runtime::Runtime;

use super::location::Remote;
use super::{SourceError, Within};

/// Connection to buckets. Must not be dropped, nor a source that uses it, from asynchronous code:
/// that ends the thread that transfers the bytes.
#[derive(Clone)]
pub struct S3 {
    stores: Stores,
    pub(crate) runtime: Arc<Runtime>,
    within: Within,
}

/// Opens the store of a bucket, by the bucket's name.
type Open = dyn Fn(&str) -> Result<Arc<dyn ObjectStore>, Failure> + Send + Sync;

#[derive(Clone)]
enum Stores {
    Access(Box<Access>),
    Given(Arc<Open>),
}

impl S3 {
    /// Connects to buckets of any name.
    ///
    /// # Errors
    /// The system refuses a thread for the requests.
    pub fn new(access: Access) -> Result<Self, SourceError> {
        Ok(Self {
            stores: Stores::Access(Box::new(access)),
            runtime: runtime()?,
            within: Within::default(),
        })
    }

    /// Connects to buckets through stores that `open` opens by bucket name. They can be read but
    /// not listed as a source: an [`ObjectStore`] does not report storage classes.
    ///
    /// # Errors
    /// The system refuses a thread for the requests.
    pub fn with_stores(
        open: impl Fn(&str) -> Result<Arc<dyn ObjectStore>, Failure> + Send + Sync + 'static,
    ) -> Result<Self, SourceError> {
        Ok(Self {
            stores: Stores::Given(Arc::new(open)),
            runtime: runtime()?,
            within: Within::default(),
        })
    }

    /// The same, restricted to these locations, even if a manifest refers to others.
    #[must_use]
    pub fn within(self, within: Within) -> Self {
        Self { within, ..self }
    }

    /// A bucket's store.
    pub(crate) fn remote(&self, bucket: &str) -> Result<Remote, SourceError> {
        let store = match &self.stores {
            Stores::Access(access) => access.store(bucket).map_err(Failure::from),
            Stores::Given(open) => open(bucket),
        };
        let store = store.map_err(|source| SourceError::Store {
            act: "reach",
            location: format!("s3://{bucket}"),
            source,
        })?;
        Ok(Remote {
            store,
            bucket: bucket.into(),
            runtime: Arc::clone(&self.runtime),
            within: self.within.clone(),
        })
    }

    /// The access, if buckets are not opened by the caller.
    pub(crate) fn access(&self) -> Option<&Access> {
        match &self.stores {
            Stores::Access(access) => Some(access),
            Stores::Given(_) => None,
        }
    }
}

impl fmt::Debug for S3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3").finish_non_exhaustive()
    }
}

/// One thread that transfers bytes; waiting threads bring their own.
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
