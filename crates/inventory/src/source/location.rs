//! A file to read, on the local disk or in an object store.
//!
//! Reading blocks. The asynchronous requests to an object store run on a [`Remote`]'s own runtime,
//! which is not visible outside.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use forebay_objects::Failure;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use object_store::path::{Path as Key, PathPart};
use object_store::{ObjectStore, ObjectStoreExt as _};
use tokio::runtime::Runtime;

use super::{SourceError, Within};

/// A bucket, and the runtime of requests to it.
#[derive(Clone)]
pub(crate) struct Remote {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) bucket: Arc<str>,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) within: Within,
}

/// A file.
#[derive(Clone)]
pub(crate) enum FileLocation {
    Local(PathBuf, Within),
    Remote(Remote, Key),
}

impl Remote {
    /// The object with a key, which is used unchanged.
    pub(crate) fn place(&self, key: &str) -> Result<FileLocation, SourceError> {
        self.check(key)?;
        Ok(FileLocation::Remote(self.clone(), self.exact(key)?))
    }

    /// A key, or the prefix of keys without its last `/`, in the form of the client, unchanged. The
    /// client's own parser refuses empty names and removes a `/` at either end, although they are
    /// parts of a key; its paths hold all of them but a `/` at the beginning.
    pub(crate) fn exact(&self, key: &str) -> Result<Key, SourceError> {
        let wrong = |reason: String| SourceError::Spec { given: self.location(key), reason };
        let mut path = Key::ROOT;
        for name in key.split('/') {
            let name = PathPart::parse(name)
                .map_err(|source| wrong(format!("the key is invalid: {source}")))?;
            path = path.join(name);
        }
        if path.as_ref() != key {
            return Err(wrong("keys that begin with `/` cannot be read".to_owned()));
        }
        Ok(path)
    }

    /// Checks that a key may be read, or listed as a prefix.
    pub(crate) fn check(&self, key: &str) -> Result<(), SourceError> {
        if self.within.has_key(&self.bucket, key) {
            return Ok(());
        }
        let reason = "it is outside the permitted locations".to_owned();
        Err(SourceError::Spec { given: self.location(key), reason })
    }

    /// The name of a key in messages.
    pub(crate) fn location(&self, key: &str) -> String {
        format!("s3://{}/{key}", self.bucket)
    }

    fn error(&self, act: &'static str, key: &Key, error: object_store::Error) -> SourceError {
        SourceError::Store { act, location: self.location(key.as_ref()), source: error.into() }
    }
}

impl FileLocation {
    /// Its name in messages.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Local(path, _) => path.display().to_string(),
            Self::Remote(remote, key) => remote.location(key.as_ref()),
        }
    }

    /// Its size; `None` if it does not exist.
    pub(crate) fn size(&self) -> Result<Option<u64>, SourceError> {
        match self {
            Self::Local(path, within) => match within.open(path).and_then(|file| file.metadata()) {
                Ok(metadata) if metadata.is_file() => Ok(Some(metadata.len())),
                Ok(_) => Ok(None),
                Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(source) => Err(io_error("inspect", path, source)),
            },
            Self::Remote(remote, key) => match remote.runtime.block_on(remote.store.head(key)) {
                Ok(meta) => Ok(Some(meta.size)),
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(source) => Err(remote.error("inspect", key, source)),
            },
        }
    }

    /// Its bytes, sequentially.
    pub(crate) fn reader(&self) -> Result<Box<dyn Read + Send>, SourceError> {
        match self {
            Self::Local(path, within) => {
                let file = within.open(path).map_err(|source| io_error("open", path, source))?;
                Ok(Box::new(file))
            }
            Self::Remote(remote, key) => {
                let answer = remote.runtime.block_on(remote.store.get(key));
                let answer = answer.map_err(|source| remote.error("open", key, source))?;
                Ok(Box::new(Body {
                    chunks: answer.into_stream(),
                    chunk: Bytes::new(),
                    runtime: Arc::clone(&remote.runtime),
                }))
            }
        }
    }

    /// All of a small file; `None` if it does not exist.
    pub(crate) fn small(&self, size_max: u64) -> Result<Option<Vec<u8>>, SourceError> {
        let Some(size) = self.size()? else {
            return Ok(None);
        };
        let too_large = || SourceError::Spec {
            given: self.name(),
            reason: format!("it is larger than {size_max} bytes"),
        };
        if size > size_max {
            return Err(too_large());
        }
        let mut content = Vec::new();
        let mut reader = self.reader()?.take(size_max + 1);
        reader.read_to_end(&mut content).map_err(|source| SourceError::Io {
            act: "read",
            path: PathBuf::from(self.name()),
            source,
        })?;
        if content.len() as u64 > size_max {
            return Err(too_large());
        }
        Ok(Some(content))
    }
}

/// An error of a local file.
pub(crate) fn io_error(act: &'static str, path: &Path, source: io::Error) -> SourceError {
    SourceError::Io { act, path: path.to_owned(), source }
}

/// The body of an object, in chunks as they arrive.
struct Body {
    chunks: BoxStream<'static, object_store::Result<Bytes>>,
    chunk: Bytes,
    runtime: Arc<Runtime>,
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() {
            match self.runtime.block_on(self.chunks.next()) {
                Some(chunk) => {
                    self.chunk = chunk.map_err(|error| io::Error::other(Failure::from(error)))?
                }
                None => return Ok(0),
            }
        }
        let taken = self.chunk.split_to(buffer.len().min(self.chunk.len()));
        if let Some(buffer) = buffer.get_mut(..taken.len()) {
            buffer.copy_from_slice(&taken);
        }
        Ok(taken.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::S3;

    #[test]
    fn a_key_is_used_as_it_is_whatever_names_it_has() {
        let store = Arc::new(object_store::memory::InMemory::new());
        let s3 = S3::with_stores(move |_| Ok(Arc::clone(&store) as _)).unwrap();
        let remote = s3.remote("b").unwrap();
        for key in ["a", "a/b c/ü", "inv//b/1.csv", "a///b", "a/", "a//", "100%/~#?"] {
            assert_eq!(remote.exact(key).unwrap().as_ref(), key);
        }
        for key in ["/a", "//a", "a/../b", "./a", "a\nb"] {
            assert!(remote.exact(key).is_err(), "{key:?}");
        }
    }
}
