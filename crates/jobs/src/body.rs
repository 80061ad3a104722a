//! What a job was submitted with: nothing, bytes in its log entry, or a file.
//!
//! Invariants:
//! - A file is on stable storage, with its name, before the entry of its job is appended.
//! - A reader returns only what was stored: a size or digest that differs is an error at the end.
//! - All files together, those being written included, have at most [`Options::bodies_size_max`] bytes.
//!
//! [`Options::bodies_size_max`]: crate::Options::bodies_size_max

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use forebay_base::fs::{Access, File, FileSystem};
use parking_lot::{RwLock, RwLockWriteGuard};
use sha2::{Digest as _, Sha256};

use crate::error::{BodyError, OpenError};
use crate::format::StoredBody;
use crate::id::JobId;

/// Bodies up to this size, in bytes, are in the log entry of their job.
pub const INLINE_SIZE_MAX: usize = 64 << 10;
/// What is read of a file at a time, in bytes.
const PIECE_SIZE: usize = 256 << 10;

/// The files of bodies.
#[derive(Debug)]
pub(crate) struct Bodies {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    /// Bytes of all files.
    used: AtomicU64,
    max: u64,
    /// Read while a body is removed, written to keep all of them.
    removing: RwLock<()>,
}

impl Bodies {
    /// Opens the directory.
    pub(crate) fn open(
        fs: Arc<dyn FileSystem>,
        queue: &Path,
        max: u64,
    ) -> Result<Arc<Self>, OpenError> {
        let dir = queue.join("bodies");
        fs.create_dir_all(&dir).map_err(|source| OpenError::Io {
            act: "create",
            path: dir.clone(),
            source,
        })?;
        Ok(Arc::new(Self::new(fs, queue, max)))
    }

    /// The files of the queue in `queue`, as they are.
    pub(crate) fn new(fs: Arc<dyn FileSystem>, queue: &Path, max: u64) -> Self {
        let dir = queue.join("bodies");
        Self { fs, dir, used: AtomicU64::new(0), max, removing: RwLock::default() }
    }

    /// Removes the files of jobs that need none, and counts the others.
    ///
    /// * `needed`: whether a job needs its file.
    pub(crate) fn sweep(&self, needed: impl Fn(JobId) -> bool) -> Result<usize, OpenError> {
        let failed = |act, path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::Io { act, path, source }
        };
        let mut removed = 0;
        for found in self.fs.list(&self.dir).map_err(failed("list", &self.dir))? {
            let path = self.dir.join(&found.name);
            let id = found.name.to_str().and_then(JobId::parse);
            if id.is_some_and(&needed) {
                self.used.fetch_add(found.len, Ordering::Relaxed);
            } else {
                self.fs.remove_file(&path).map_err(failed("remove", &path))?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    fn path(&self, id: JobId) -> PathBuf {
        self.dir.join(id.to_string())
    }

    /// Keeps every body of a job until the guard is dropped; what is to be removed waits.
    pub(crate) fn hold(&self) -> RwLockWriteGuard<'_, ()> {
        self.removing.write()
    }

    /// The files of bodies that were received.
    pub(crate) fn paths(&self) -> std::io::Result<Vec<PathBuf>> {
        let found = self.fs.list(&self.dir)?;
        let complete = found.iter().filter_map(|file| file.name.to_str().and_then(JobId::parse));
        Ok(complete.map(|id| self.path(id)).collect())
    }

    /// Removes the file of a job that has ended. Blocks.
    pub(crate) fn remove(&self, id: JobId, size: u64) {
        let _removing = self.removing.read();
        match self.fs.remove_file(&self.path(id)) {
            Ok(()) => self.give_back(size),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            // The next opening tries again.
            Err(error) => tracing::warn!(job = %id, %error, "cannot remove the body of a job"),
        }
    }

    fn give_back(&self, size: u64) {
        // A file that was damaged may have been counted with another size.
        let less = |used: u64| Some(used.saturating_sub(size));
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok();
    }

    /// Opens the file of a job.
    pub(crate) fn reader(
        &self,
        id: JobId,
        size: u64,
        sha256: [u8; 32],
    ) -> Result<BodyReader, BodyError> {
        let file = self.fs.open(&self.path(id), Access::Read);
        let file = file.map_err(|source| BodyError::Io { act: "open", source })?;
        let found = file.len().map_err(|source| BodyError::Io { act: "read", source })?;
        if found != size {
            let found = format!("it has {found} bytes, not {size}");
            return Err(BodyError::Damaged { found });
        }
        let from = Source::File { file, size, sha256, hasher: Sha256::new() };
        Ok(BodyReader { from, at: 0 })
    }

    /// Whether a body of this size would have room now.
    pub(crate) fn has_room(&self, size: u64) -> Result<(), BodyError> {
        let max = self.max;
        let fits = self.used().saturating_add(size) <= max;
        if fits { Ok(()) } else { Err(BodyError::Full { max }) }
    }

    /// Bytes of all files.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// A body being received. Dropped, it leaves nothing.
#[derive(Debug)]
pub struct BodyWriter {
    bodies: Arc<Bodies>,
    pub(crate) id: JobId,
    to: To,
    size: u64,
    hasher: Sha256,
}

#[derive(Debug)]
enum To {
    Memory(Vec<u8>),
    File { file: Arc<dyn File>, path: PathBuf },
    Kept,
}

/// A body that was received, and is on stable storage if it is a file. Dropped, it leaves nothing.
#[derive(Debug)]
pub struct ReceivedBody(BodyWriter);

impl ReceivedBody {
    pub(crate) fn id(&self) -> JobId {
        self.0.id
    }

    /// What an entry states of it.
    pub(crate) fn stored(&self) -> StoredBody<'_> {
        match &self.0.to {
            To::Memory(bytes) if bytes.is_empty() => StoredBody::None,
            To::Memory(bytes) => StoredBody::Inline(bytes),
            To::File { .. } | To::Kept => {
                StoredBody::File { size: self.0.size, sha256: self.0.sha256() }
            }
        }
    }

    /// Leaves a file to the job that states it.
    pub(crate) fn keep(&mut self) {
        self.0.to = To::Kept;
    }
}

impl BodyWriter {
    pub(crate) fn new(bodies: Arc<Bodies>, id: JobId) -> Self {
        Self { bodies, id, to: To::Memory(Vec::new()), size: 0, hasher: Sha256::new() }
    }

    /// Whether the next piece may be written to a file, which blocks.
    #[must_use]
    pub fn blocks(&self, next: usize) -> bool {
        match &self.to {
            To::Memory(bytes) => bytes.len() + next > INLINE_SIZE_MAX,
            To::File { .. } | To::Kept => true,
        }
    }

    /// Adds the next bytes. Blocks once there are many.
    ///
    /// # Errors
    /// [`BodyError::Full`]; [`BodyError::Io`]: the disk did not take them.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), BodyError> {
        if self.blocks(bytes.len()) {
            self.write_to_file(bytes)?;
        } else if let To::Memory(held) = &mut self.to {
            held.extend_from_slice(bytes);
        }
        self.hasher.update(bytes);
        self.size += bytes.len() as u64;
        Ok(())
    }

    fn write_to_file(&mut self, bytes: &[u8]) -> Result<(), BodyError> {
        let io = |act| move |source| BodyError::Io { act, source };
        if let To::Memory(held) = &self.to {
            let held = held.clone();
            self.take(held.len() as u64)?;
            let path = self.bodies.path(self.id).with_extension("new");
            let file = self.bodies.fs.create_new(&path);
            let file = file.inspect_err(|_| self.bodies.give_back(held.len() as u64));
            let file = file.map_err(io("create"))?;
            self.to = To::File { file: Arc::clone(&file), path };
            file.write_all_at(&held, 0).map_err(io("write"))?;
        }
        self.take(bytes.len() as u64)?;
        match &self.to {
            To::File { file, .. } => {
                let written = file.write_all_at(bytes, self.size);
                written.inspect_err(|_| self.bodies.give_back(bytes.len() as u64))
            }
            To::Memory(_) | To::Kept => Ok(()),
        }
        .map_err(io("write"))
    }

    /// Reserves bytes of the limit.
    fn take(&self, size: u64) -> Result<(), BodyError> {
        let max = self.bodies.max;
        let used = self.bodies.used.fetch_add(size, Ordering::Relaxed);
        if used.saturating_add(size) > max {
            self.bodies.give_back(size);
            return Err(BodyError::Full { max });
        }
        Ok(())
    }

    /// The SHA-256 of what was written so far.
    #[must_use]
    pub fn sha256(&self) -> [u8; 32] {
        self.hasher.clone().finalize().into()
    }

    /// Number of bytes written so far.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Puts a file on stable storage, with its name. Blocks if there is one.
    ///
    /// # Errors
    /// [`BodyError::Io`]: the disk did not take it.
    pub fn finish(mut self) -> Result<ReceivedBody, BodyError> {
        let To::File { file, path } = &self.to else { return Ok(ReceivedBody(self)) };
        let io = |act| move |source| BodyError::Io { act, source };
        file.sync_data().map_err(io("sync"))?;
        let fs = &self.bodies.fs;
        fs.rename(path, &self.bodies.path(self.id)).map_err(io("rename"))?;
        // From here on dropping removes the file by its final name.
        let (file, path) = (Arc::clone(file), self.bodies.path(self.id));
        self.to = To::File { file, path };
        let synced = self.bodies.fs.sync_dir(&self.bodies.dir);
        synced.map_err(io("sync the directory of"))?;
        Ok(ReceivedBody(self))
    }
}

impl Drop for BodyWriter {
    fn drop(&mut self) {
        if let To::File { path, .. } = &self.to {
            // The next opening would remove it, too.
            if let Err(error) = self.bodies.fs.remove_file(path) {
                tracing::warn!(%error, "cannot remove the body of a job that was not accepted");
            }
            self.bodies.give_back(self.size);
        }
    }
}

/// Reads a body in pieces.
#[derive(Debug)]
pub struct BodyReader {
    from: Source,
    at: u64,
}

#[derive(Debug)]
enum Source {
    Bytes(Bytes),
    File { file: Arc<dyn File>, size: u64, sha256: [u8; 32], hasher: Sha256 },
}

impl BodyReader {
    pub(crate) fn of(bytes: Bytes) -> Self {
        Self { from: Source::Bytes(bytes), at: 0 }
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        match &self.from {
            Source::Bytes(bytes) => self.at + bytes.len() as u64,
            Source::File { size, .. } => *size,
        }
    }

    /// Whether reading blocks.
    #[must_use]
    pub fn blocks(&self) -> bool {
        matches!(self.from, Source::File { .. })
    }

    /// Returns the next piece; `None` at the end, where a file has been verified.
    ///
    /// # Errors
    /// [`BodyError::Io`]; [`BodyError::Damaged`]: it differs from what was stored.
    pub fn read_next(&mut self) -> Result<Option<Bytes>, BodyError> {
        match &mut self.from {
            Source::Bytes(bytes) => {
                let piece = std::mem::take(bytes);
                self.at += piece.len() as u64;
                Ok((!piece.is_empty()).then_some(piece))
            }
            Source::File { file, size, sha256, hasher } => {
                let left = usize::try_from(*size - self.at).unwrap_or(usize::MAX);
                if left == 0 {
                    let found: [u8; 32] = hasher.clone().finalize().into();
                    if found == *sha256 {
                        return Ok(None);
                    }
                    let found = format!("its SHA-256 is {}", hex::encode(found));
                    return Err(BodyError::Damaged { found });
                }
                let mut piece = vec![0; left.min(PIECE_SIZE)];
                file.read_exact_at(&mut piece, self.at)
                    .map_err(|source| BodyError::Io { act: "read", source })?;
                hasher.update(&piece);
                self.at += piece.len() as u64;
                Ok(Some(piece.into()))
            }
        }
    }
}
