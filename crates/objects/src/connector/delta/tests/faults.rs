//! A store in memory that fails at one operation, before or after it had its effect.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use object_store::memory::InMemory;
use object_store::path::Path as Key;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// When the store fails: at the operation of this number, before or after its effect.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    at: usize,
    is_after: bool,
    /// Whether it works again afterwards, as if only an answer was lost.
    is_once: bool,
    steps: Arc<AtomicUsize>,
    is_hit: Arc<AtomicBool>,
}

impl Fault {
    pub(super) fn never() -> Self {
        Self::at(usize::MAX, false, false)
    }

    pub(super) fn at(at: usize, is_after: bool, is_once: bool) -> Self {
        Self { at, is_after, is_once, steps: Arc::default(), is_hit: Arc::default() }
    }

    /// Whether it has failed.
    pub(super) fn is_hit(&self) -> bool {
        self.is_hit.load(Ordering::Relaxed)
    }

    fn gone(&self) -> Error {
        self.is_hit.store(true, Ordering::Relaxed);
        Error::Generic { store: "test", source: "killed".into() }
    }

    /// Takes a step.
    async fn step<T>(&self, act: impl Future<Output = Result<T>>) -> Result<T> {
        let number = self.steps.fetch_add(1, Ordering::Relaxed);
        match number.cmp(&self.at) {
            std::cmp::Ordering::Less => act.await,
            std::cmp::Ordering::Equal if self.is_after => act.await.and(Err(self.gone())),
            std::cmp::Ordering::Greater if self.is_once => act.await,
            _ => Err(self.gone()),
        }
    }
}

/// The store, as one process sees it.
#[derive(Debug)]
pub(super) struct Faulty {
    pub(super) inner: Arc<InMemory>,
    pub(super) fault: Fault,
}

impl std::fmt::Display for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("faulty")
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        key: &Key,
        bytes: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.fault.step(self.inner.put_opts(key, bytes, options)).await
    }

    async fn put_multipart_opts(
        &self,
        key: &Key,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.fault.step(self.inner.put_multipart_opts(key, options)).await
    }

    async fn get_opts(&self, key: &Key, options: GetOptions) -> Result<GetResult> {
        self.fault.step(self.inner.get_opts(key, options)).await
    }

    async fn get_ranges(&self, key: &Key, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.fault.step(self.inner.get_ranges(key, ranges)).await
    }

    fn delete_stream(
        &self,
        keys: BoxStream<'static, Result<Key>>,
    ) -> BoxStream<'static, Result<Key>> {
        let (inner, fault) = (Arc::clone(&self.inner), self.fault.clone());
        keys.then(move |key| {
            let (inner, fault) = (Arc::clone(&inner), fault.clone());
            async move {
                let key = key?;
                let one = stream::once(std::future::ready(Ok(key.clone()))).boxed();
                let mut deleted = inner.delete_stream(one);
                fault.step(async move { deleted.next().await.unwrap_or(Ok(key)) }).await
            }
        })
        .boxed()
    }

    fn list(&self, prefix: Option<&Key>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (listed, fault) = (self.inner.list(prefix), self.fault.clone());
        let step = async move { fault.step(std::future::ready(Ok(()))).await };
        stream::once(step)
            .flat_map(move |step| match step {
                Ok(()) => stream::empty().boxed(),
                Err(error) => stream::once(std::future::ready(Err(error))).boxed(),
            })
            .chain(listed)
            .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Key>) -> Result<ListResult> {
        self.fault.step(self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Key, to: &Key, options: CopyOptions) -> Result<()> {
        self.fault.step(self.inner.copy_opts(from, to, options)).await
    }
}
