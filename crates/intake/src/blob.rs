//! Blob files: the bytes of files too large for the log.
//!
//! ```text
//! staging/<number>        incomplete uploads; removed on every start
//! blobs/<2 digits>/<64 digits>   complete, named by their SHA-256
//! ```
//!
//! A blob arrives as a [`Staging`] file, is synced, renamed and its directory synced, all before
//! the log entry that names it is written. So a crash leaves either a staging file or a blob that
//! no name refers to, and the sweep at the next start removes both.
//!
//! Invariants: every path here is made of digests and our own numbers only; a file below
//! `blobs/` is complete and never written again.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_base::fs::{Access, File, FileSystem};

use crate::digest::Digest;

/// The directory of blob files.
#[derive(Debug, Clone)]
pub struct BlobStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    fs: Arc<dyn FileSystem>,
    staging: PathBuf,
    blobs: PathBuf,
    next: AtomicU64,
}

/// A blob being written. If it is dropped unfinished, its file is removed.
#[derive(Debug)]
pub struct Staging {
    store: BlobStore,
    /// For aligned writes.
    direct: Arc<dyn File>,
    /// For the end, and for reading.
    file: Arc<dyn File>,
    path: PathBuf,
    size: u64,
    kept: bool,
}

/// The result of a sweep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Unfinished uploads.
    pub staging: u64,
    /// Complete blobs that no log entry names.
    pub orphans: u64,
    /// Bytes of both.
    pub bytes: u64,
}

impl BlobStore {
    /// Opens the store below `dir` and creates its directories if they are missing.
    ///
    /// # Errors
    /// The file system's error, with the directory.
    pub fn open(fs: Arc<dyn FileSystem>, dir: &Path) -> Result<Self, (PathBuf, io::Error)> {
        let staging = dir.join("staging");
        let blobs = dir.join("blobs");
        let make = |path: PathBuf| match fs.exists(&path) {
            Ok(true) => Ok(()),
            Ok(false) => fs.create_dir_all(&path).map_err(|error| (path, error)),
            Err(error) => Err((path, error)),
        };
        make(staging.clone())?;
        for byte in 0..=u8::MAX {
            make(blobs.join(format!("{byte:02x}")))?;
        }
        Ok(Self { inner: Arc::new(Inner { fs, staging, blobs, next: AtomicU64::new(1) }) })
    }

    /// Starts a blob.
    ///
    /// # Errors
    /// The file system's error.
    pub fn stage(&self) -> io::Result<Staging> {
        loop {
            let number = self.inner.next.fetch_add(1, Ordering::Relaxed);
            let path = self.inner.staging.join(format!("{number:016x}"));
            match self.inner.fs.create_direct(&path) {
                Ok(direct) => {
                    let file = self.inner.fs.open(&path, Access::ReadWrite)?;
                    let store = self.clone();
                    return Ok(Staging { store, direct, file, path, size: 0, kept: false });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens a complete blob for reading.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no blob of this digest.
    pub fn open_blob(&self, digest: Digest) -> io::Result<Arc<dyn File>> {
        self.inner.fs.open(&self.path_of(digest), Access::Read)
    }

    /// Whether a complete blob of this digest exists.
    ///
    /// # Errors
    /// The file system's error.
    pub fn has(&self, digest: Digest) -> io::Result<bool> {
        self.inner.fs.exists(&self.path_of(digest))
    }

    /// Removes a blob's file. A missing file is not an error.
    ///
    /// # Errors
    /// The file system's error.
    pub fn remove(&self, digest: Digest) -> io::Result<()> {
        match self.inner.fs.remove_file(&self.path_of(digest)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes what a crash left: staging files, and blobs for which `known` returns false.
    ///
    /// # Errors
    /// The file system's error, or that of `known`.
    pub fn sweep<E: From<io::Error>>(
        &self,
        mut known: impl FnMut(Digest) -> Result<bool, E>,
    ) -> Result<Swept, E> {
        let mut swept = Swept::default();
        let fs = &self.inner.fs;
        for entry in fs.list(&self.inner.staging)? {
            if !entry.is_dir {
                fs.remove_file(&self.inner.staging.join(&entry.name))?;
                swept.staging += 1;
                swept.bytes += entry.len;
            }
        }
        for byte in 0..=u8::MAX {
            let dir = self.inner.blobs.join(format!("{byte:02x}"));
            for entry in fs.list(&dir)? {
                let digest = entry.name.to_str().and_then(Digest::from_hex);
                let Some(digest) = digest else { continue };
                if !known(digest)? {
                    fs.remove_file(&dir.join(&entry.name))?;
                    swept.orphans += 1;
                    swept.bytes += entry.len;
                }
            }
        }
        Ok(swept)
    }

    /// Every file below `blobs/` with its size. A name that is not a digest is returned as `Err`.
    ///
    /// # Errors
    /// The file system's error.
    pub fn list(&self) -> io::Result<Vec<(Result<Digest, PathBuf>, u64)>> {
        let mut found = Vec::new();
        for byte in 0..=u8::MAX {
            let dir = self.inner.blobs.join(format!("{byte:02x}"));
            for entry in self.inner.fs.list(&dir)? {
                let digest = digest_of(&entry.name, byte).ok_or_else(|| dir.join(&entry.name));
                found.push((digest, entry.len));
            }
        }
        Ok(found)
    }

    /// Path of a blob's file, for messages.
    #[must_use]
    pub fn path_of(&self, digest: Digest) -> PathBuf {
        let hex = digest.to_hex();
        self.inner.blobs.join(hex.get(..2).unwrap_or_default()).join(hex)
    }
}

impl Staging {
    /// Appends bytes from memory that is aligned to [`DIRECT_ALIGN`]. Their length is a multiple of
    /// it.
    ///
    /// [`DIRECT_ALIGN`]: forebay_base::fs::DIRECT_ALIGN
    ///
    /// # Errors
    /// The file system's error. The caller then has to drop the blob.
    pub fn write_aligned(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.direct.write_all_at(bytes, self.size)?;
        self.size += bytes.len() as u64;
        Ok(())
    }

    /// Appends bytes of any length. No aligned write may follow.
    ///
    /// # Errors
    /// The file system's error. The caller then has to drop the blob.
    pub fn write_end(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.size)?;
        self.size += bytes.len() as u64;
        Ok(())
    }

    /// Bytes written so far.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Makes the bytes durable.
    ///
    /// # Errors
    /// The file system's error. The caller then has to drop the blob.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// The file, for reading back before it is kept.
    #[must_use]
    pub fn file(&self) -> Arc<dyn File> {
        self.file.clone()
    }

    /// Gives synced bytes their final name and makes the name durable.
    ///
    /// # Errors
    /// The file system's error. The name may or may not exist; no entry may refer to it.
    pub fn keep(mut self, digest: Digest) -> io::Result<()> {
        let fs = &self.store.inner.fs;
        let path = self.store.path_of(digest);
        fs.rename(&self.path, &path)?;
        self.kept = true;
        match path.parent() {
            Some(dir) => self.store.inner.fs.sync_dir(dir),
            None => Ok(()),
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.kept
            && let Err(error) = self.store.inner.fs.remove_file(&self.path)
        {
            // The sweep on the next start removes it.
            tracing::warn!(path = %self.path.display(), %error, "could not remove a staging file");
        }
    }
}

fn digest_of(name: &OsStr, byte: u8) -> Option<Digest> {
    let digest = Digest::from_hex(name.to_str()?)?;
    (digest.0.first() == Some(&byte)).then_some(digest)
}

#[cfg(test)]
mod tests {
    use forebay_base::fs::RealFs;

    use super::*;

    #[test]
    fn sweep_removes_what_no_entry_names_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let store = BlobStore::open(Arc::new(RealFs), dir.path()).unwrap();
        let mut digests = Vec::new();
        for bytes in [b"one", b"two"] {
            let mut staging = store.stage().unwrap();
            staging.write_end(bytes).unwrap();
            staging.sync().unwrap();
            staging.keep(Digest::of(bytes)).unwrap();
            digests.push(Digest::of(bytes));
        }
        std::mem::forget(store.stage().unwrap());
        drop(store.stage().unwrap());
        let swept = store.sweep::<io::Error>(|digest| Ok(digest == digests[0])).unwrap();
        assert_eq!(swept, Swept { staging: 1, orphans: 1, bytes: 3 });
        assert!(store.has(digests[0]).unwrap());
        assert!(!store.has(digests[1]).unwrap());
    }
}
