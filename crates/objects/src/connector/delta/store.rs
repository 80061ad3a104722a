//! The directory of a table as the store that its log is read from and written to.
//!
//! Names are relative to the directory of the table, on disk and in a bucket. On disk a file of the log
//! is written to a temporary name, synced, and linked to its name, which fails if there is one: a commit is
//! there as a whole and durable, or not at all. Listings are in the order of names.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::prefix::PrefixStore;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    UploadPart,
};

use super::super::location::Location;

/// Distinguishes files that are written concurrently.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// The start of the names of files that are being written, in the directory of the table.
const ASIDE: &str = ".forebay-";

/// Whether a file in the directory of a table was left by a killed writer of the log.
pub(super) fn is_left(name: &str) -> bool {
    name.starts_with(ASIDE) && name.ends_with(".tmp")
}

/// The store of a table's directory; `None` if the directory does not exist on disk.
///
/// # Errors
/// The directory cannot be opened.
pub(super) fn open(place: &Location) -> Result<Option<Arc<dyn ObjectStore>>> {
    match place {
        Location::Bucket(bucket) => {
            Ok(Some(Arc::new(PrefixStore::new(bucket.shared(), bucket.prefix().clone()))))
        }
        Location::Disk(directory, _) if !directory.is_dir() => Ok(None),
        Location::Disk(directory, _) => {
            let inner = LocalFileSystem::new_with_prefix(directory)?;
            Ok(Some(Arc::new(Durable { inner, root: directory.clone() })))
        }
    }
}

/// A directory on disk in which files of the log are durable.
#[derive(Debug)]
struct Durable {
    inner: LocalFileSystem,
    root: PathBuf,
}

impl std::fmt::Display for Durable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.root.display())
    }
}

fn failed(error: io::Error, path: &Path) -> Error {
    let path = path.display().to_string();
    match error.kind() {
        io::ErrorKind::AlreadyExists => Error::AlreadyExists { path, source: error.into() },
        io::ErrorKind::NotFound => Error::NotFound { path, source: error.into() },
        _ => Error::Generic { store: "disk", source: error.into() },
    }
}

/// A file that is written to a temporary name. If it is dropped before it is published, it is removed.
#[derive(Debug)]
struct Aside {
    file: Arc<File>,
    path: PathBuf,
}

impl Aside {
    /// Not in the directory of the log, which has to be empty before a table is created.
    fn create(root: &Path) -> io::Result<Self> {
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let path = root.join(format!("{ASIDE}{}-{number}.tmp", std::process::id()));
        Ok(Self { file: Arc::new(File::create(&path)?), path })
    }

    /// Gives the complete file its name, durable. Unless it may be replaced, an existing one is an error.
    fn publish(&self, to: &Path, is_replaced: bool) -> io::Result<()> {
        self.file.sync_all()?;
        let directory = to.parent().unwrap_or(Path::new("."));
        if !directory.is_dir() {
            fs::create_dir_all(directory)?;
            sync(directory.parent().unwrap_or(directory))?;
        }
        match is_replaced {
            true => fs::rename(&self.path, to),
            false => fs::hard_link(&self.path, to),
        }?;
        sync(directory)
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // Only the name that it got counts; the next load removes what this leaves.
        drop(fs::remove_file(&self.path));
    }
}

/// Writes a file durably.
fn write(root: &Path, to: &Path, payload: &PutPayload, is_replaced: bool) -> io::Result<()> {
    let aside = Aside::create(root)?;
    for part in payload {
        (&*aside.file).write_all(part)?;
    }
    aside.publish(to, is_replaced)
}

/// A file that is written in parts, which may overtake each other.
#[derive(Debug)]
struct Parts {
    aside: Arc<Aside>,
    to: PathBuf,
    size: u64,
}

#[async_trait]
impl MultipartUpload for Parts {
    fn put_part(&mut self, payload: PutPayload) -> UploadPart {
        let (aside, to, mut at) = (Arc::clone(&self.aside), self.to.clone(), self.size);
        self.size = self.size.saturating_add(payload.content_length() as u64);
        Box::pin(blocking(to, move || {
            for part in &payload {
                aside.file.write_all_at(part, at)?;
                at = at.saturating_add(part.len() as u64);
            }
            Ok(())
        }))
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let (aside, to) = (Arc::clone(&self.aside), self.to.clone());
        blocking(self.to.clone(), move || aside.publish(&to, true)).await?;
        Ok(PutResult { e_tag: None, version: None })
    }

    async fn abort(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Works on a thread that may block. `path`: for messages.
async fn blocking<T: Send + 'static>(
    path: PathBuf,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T> {
    let done = forebay_base::blocking::spawn(work).await;
    let done = done.map_err(|error| Error::Generic { store: "disk", source: error.into() })?;
    done.map_err(|error| failed(error, &path))
}

fn sync(directory: &Path) -> io::Result<()> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    File::open(directory)?.sync_all()
}

#[async_trait]
impl ObjectStore for Durable {
    async fn put_opts(
        &self,
        key: &Key,
        bytes: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let is_replaced = match options.mode {
            PutMode::Overwrite => true,
            PutMode::Create => false,
            PutMode::Update(_) => {
                return Err(Error::NotImplemented {
                    operation: "update of a version".into(),
                    implementer: "disk".into(),
                });
            }
        };
        let to = self.inner.path_to_filesystem(key)?;
        let root = self.root.clone();
        blocking(to.clone(), move || write(&root, &to, &bytes, is_replaced)).await?;
        Ok(PutResult { e_tag: None, version: None })
    }

    async fn put_multipart_opts(
        &self,
        key: &Key,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let to = self.inner.path_to_filesystem(key)?;
        let root = self.root.clone();
        let aside = blocking(to.clone(), move || Aside::create(&root)).await?;
        Ok(Box::new(Parts { aside: Arc::new(aside), to, size: 0 }))
    }

    async fn get_opts(&self, key: &Key, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(key, options).await
    }

    async fn get_ranges(&self, key: &Key, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(key, ranges).await
    }

    fn delete_stream(
        &self,
        keys: BoxStream<'static, Result<Key>>,
    ) -> BoxStream<'static, Result<Key>> {
        self.inner.delete_stream(keys)
    }

    fn list(&self, prefix: Option<&Key>) -> BoxStream<'static, Result<ObjectMeta>> {
        sorted(self.inner.list(prefix))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Key>,
        offset: &Key,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        sorted(self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Key>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Key, to: &Key, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// A listing in the order of names, as buckets give it.
fn sorted(
    listed: BoxStream<'static, Result<ObjectMeta>>,
) -> BoxStream<'static, Result<ObjectMeta>> {
    let all = async move {
        let mut all: Vec<ObjectMeta> = listed.try_collect().await?;
        all.sort_unstable_by(|a, b| a.location.cmp(&b.location));
        Ok::<_, Error>(stream::iter(all.into_iter().map(Ok)))
    };
    stream::once(all).try_flatten().boxed()
}
