//! Where blobs are: in files of this machine, in packs in an object store, or, while they are moved, in both.
//!
//! New blobs go to one of the two; both are read. Files are always there: bytes are received into
//! [`Staging`](crate::blob::Staging) files before their digest is known. Decision 0031 has the whole.
//!
//! | module | purpose |
//! |---|---|
//! | [`storage`] | what an object store has to do, a trait |
//! | `pack` | the layout of an object |
//! | `index` | which pack has which blob |
//! | `claim` | who may write to a prefix |
//! | `packer` | gathers small blobs |
//! | `cache`, `reading` | reads |
//! | `remote` | the store made of these |
//! | `upkeep` | frees space, finds what a killed process has written |
//! | `keeping` | a put waits for its bytes |
//! | `unnamed` | what was sent for puts that came to nothing |
//! | [`moving`] | from one place to the other |
//! | `check` | for fsck |
//!
//! Invariants: a blob whose entry is in the log is in at least one of the two places; looking in both, in
//! whichever order, finds it also while it is moved.

mod cache;
mod check;
mod claim;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod index;
mod keeping;
#[cfg(any(test, feature = "conformance"))]
pub mod memory;
mod meters;
pub mod moving;
mod pack;
mod packer;
mod reading;
mod remote;
pub mod storage;
#[cfg(test)]
mod tests;
mod unnamed;
mod upkeep;

use std::io;
use std::path::Path;
use std::sync::Arc;

use forebay_base::fs::File;

use crate::blob::BlobStore;
use crate::blocks::BlockReader;
use crate::digest::Digest;

pub(crate) use check::RemoteCheck;
pub use claim::ClaimError;
pub(crate) use keeping::Pinned;
pub(crate) use meters::measure;
#[cfg(feature = "fuzzing")]
pub use pack::pack_end;
pub(crate) use reading::RemoteBlob;
pub use remote::{ObjectStorageOptions, RemoteError};
pub(crate) use remote::{Parts, Remote};
pub(crate) use unnamed::sweep_unnamed;

/// Name of the index below the intake's directory.
pub(crate) const INDEX: &str = "blobs.sqlite";
/// Name of the index that a check makes.
pub(crate) const INDEX_FSCK: &str = "blobs-fsck.sqlite";
/// Name of the cache.
pub(crate) const CACHE: &str = "blob-cache";

/// The blobs of an intake.
#[derive(Debug, Clone)]
pub(crate) struct Blobs {
    local: BlobStore,
    remote: Option<Arc<Remote>>,
}

/// A blob that is open.
#[derive(Debug)]
pub(crate) enum OpenBlob {
    File(Arc<dyn File>),
    Remote(RemoteBlob),
}

impl OpenBlob {
    /// A reader of its bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`]: it is not the blob of this digest and size.
    pub(crate) fn reader(self, size: u64, digest: Digest) -> io::Result<BlockReader> {
        match self {
            Self::File(file) => BlockReader::new(file, size, digest),
            Self::Remote(blob) => BlockReader::remote(blob, size, digest),
        }
    }
}

impl Blobs {
    pub(crate) fn new(local: BlobStore, remote: Option<Arc<Remote>>) -> Self {
        Self { local, remote }
    }

    /// The files of this machine.
    pub(crate) fn local(&self) -> &BlobStore {
        &self.local
    }

    /// The object store, if there is one.
    pub(crate) fn remote(&self) -> Option<&Arc<Remote>> {
        self.remote.as_ref()
    }

    /// The object store, if new blobs go there.
    pub(crate) fn written_remote(&self) -> Option<&Arc<Remote>> {
        self.remote.as_ref().filter(|remote| remote.options.is_written)
    }

    /// Whether bytes that the log could take go to the object store.
    pub(crate) fn takes(&self, size: usize) -> bool {
        self.written_remote().is_some_and(|remote| size > remote.options.inline_max)
    }

    /// Opens a blob. Nothing is requested of the object store yet.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if it is in neither place.
    pub(crate) fn open(&self, digest: Digest) -> io::Result<OpenBlob> {
        let Some(remote) = &self.remote else {
            return self.local.open_blob(digest).map(OpenBlob::File);
        };
        // Twice: it may have been moved from the second place to the first between the two look-ups.
        for _ in 0..2 {
            for is_remote in [remote.options.is_written, !remote.options.is_written] {
                if is_remote {
                    if let Some(blob) = remote.find(digest).map_err(io::Error::other)? {
                        return Ok(OpenBlob::Remote(blob));
                    }
                } else {
                    match self.local.open_blob(digest) {
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        opened => return opened.map(OpenBlob::File),
                    }
                }
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    /// Removes blobs that no entry refers to. One that is missing is no error.
    ///
    /// # Errors
    /// Some may have been removed.
    pub(crate) fn remove(&self, digests: &[Digest]) -> io::Result<()> {
        digests.iter().try_for_each(|digest| self.local.remove(*digest))?;
        match &self.remote {
            Some(remote) if !digests.is_empty() => remote.remove(digests).map_err(io::Error::other),
            _ => Ok(()),
        }
    }
}

/// The bucket that blobs of the directory are in, although none is given.
///
/// # Errors
/// The index of blobs cannot be read.
pub(crate) fn forgotten(dir: &Path) -> Result<Option<String>, crate::error::CatalogueError> {
    index::leftover(&remote::index_path(dir))
}
