//! Unfinished uploads: bytes that arrive in several requests, and survive everything between them.
//!
//! ```text
//! create -> append, append, ... -> assemble -> Intake::put -> finish
//! <dir>/uploads/<32 digits>       one upload: frames (see `frame`)
//! <dir>/uploads/<32 digits>.new   one being created or finished; removed on every start
//! ```
//!
//! An upload is one append-only file of checksummed frames. One request at a time appends to it and has
//! its *turn*; a newer one asks it to stop. What became of an upload in an earlier run is found when it
//! is first used, so that a start reads one frame of each.
//!
//! Invariants: an acknowledged offset is on stable storage; bytes that do not match a checksum are never
//! returned; paths are made of our own random ids only; number and bytes of uploads have limits.

mod append;
mod assemble;
pub(crate) mod check;
mod checksum;
mod error;
mod file;
mod frame;
mod meters;
mod table;
#[cfg(test)]
mod tests;
mod turn;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use forebay_base::clock::Clock;
use forebay_base::fs::{Access, File, FileSystem};
use parking_lot::Mutex;

pub use assemble::UploadBytes;
pub use checksum::{Checksum, ChecksumKind};
pub use error::UploadError;

use file::{First, read_first};
use frame::{Begin, FrameKind, Header};
use table::{Entry, State, Table};

use crate::digest::Digest;
use crate::error::OpenError;
use crate::options::IntakeOptions;
use crate::storing::Storing;

/// Name of the directory below the intake's.
const DIR: &str = "uploads";
/// Ending of a file that is being written.
const NEW: &str = "new";
/// Maximum number of bytes of all names and values of an upload's attributes.
pub const ATTRIBUTES_SIZE_MAX: usize = 32 << 10;
/// Maximum number of bytes of a note.
pub const NOTE_SIZE_MAX: usize = 64;
/// Maximum number of bytes of a result.
pub const RESULT_SIZE_MAX: usize = 64 << 10;

/// Name of the attribute that identifies the request which began an upload, if it may be repeated.
const REQUEST: &str = "request";

/// Limits on unfinished uploads.
#[derive(Debug, Clone, Copy)]
pub struct UploadLimits {
    /// Maximum number of unfinished uploads, parts not counted.
    pub open_max: usize,
    /// Maximum number of unfinished parts of multipart uploads.
    pub parts_max: usize,
    /// Maximum number of bytes that unfinished uploads may take, with those that are still to come
    /// where the length is known.
    pub reserved_max: u64,
    /// Maximum number of finished uploads whose results are remembered; the oldest are forgotten.
    pub finished_max: usize,
    /// How long an upload is kept after its last change, in milliseconds.
    pub kept_ms: u64,
    /// How long a multipart upload and its parts are kept.
    pub multipart_kept_ms: u64,
}

impl Default for UploadLimits {
    fn default() -> Self {
        Self {
            open_max: 10_000,
            parts_max: 200_000,
            reserved_max: 1 << 40,
            finished_max: 100_000,
            kept_ms: 24 * 3_600_000,
            multipart_kept_ms: 7 * 24 * 3_600_000,
        }
    }
}

/// Identifies an upload: 128 random bits, so an id that was not handed out is not guessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UploadId(pub [u8; 16]);

impl UploadId {
    fn random() -> io::Result<Self> {
        let mut bytes = [0; 16];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            filled += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty())?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// A text is not the id of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the id of an upload has 32 lower-case hexadecimal digits")]
pub struct InvalidUploadId;

impl FromStr for UploadId {
    type Err = InvalidUploadId;

    fn from_str(text: &str) -> Result<Self, InvalidUploadId> {
        let mut bytes = [0; 16];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| InvalidUploadId)?;
        // One id has one spelling.
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(InvalidUploadId);
        }
        Ok(Self(bytes))
    }
}

/// What an upload is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UploadKind {
    /// Becomes a file by itself.
    Resumable,
    /// Becomes a file together with others that are named when it is finished.
    Partial,
    /// Has no bytes: a file made of partial uploads.
    Final,
    /// Has no bytes: the group of parts of a multipart upload.
    Multipart,
    /// One part of a multipart upload.
    Part {
        /// The multipart upload.
        group: UploadId,
        /// Number of the part. Several uploads may have the same number.
        number: u32,
    },
}

/// An upload to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewUpload {
    /// What it is for.
    pub kind: UploadKind,
    /// Number of bytes, if it is known already.
    pub length: Option<u64>,
    /// How long after its last change it expires, in milliseconds.
    pub kept_ms: u64,
    /// What its caller wants to know later. At most [`ATTRIBUTES_SIZE_MAX`] bytes in all.
    pub attributes: BTreeMap<String, String>,
}

/// An upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadStatus {
    /// Identifies it.
    pub id: UploadId,
    /// As it was created.
    pub new: NewUpload,
    /// Number of bytes, if it is known by now.
    pub length: Option<u64>,
    /// Number of bytes that it has, on stable storage.
    pub offset: u64,
    /// When it was created, in milliseconds since 1970.
    pub created_ms: u64,
    /// When it expires unless it changes before, in milliseconds since 1970.
    pub expires_ms: u64,
    /// What was noted of its bytes when they were complete.
    pub note: Note,
    /// The result it was finished with.
    pub result: Option<Arc<[u8]>>,
}

impl UploadKind {
    /// Whether the upload has bytes, and is complete only with all of them.
    #[must_use]
    pub fn has_bytes(self) -> bool {
        !matches!(self, Self::Final | Self::Multipart)
    }
}

/// A few bytes about a complete upload, such as its checksums.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Note {
    size: u8,
    bytes: [u8; NOTE_SIZE_MAX],
}

impl Note {
    /// Returns a note of these bytes; `None` if there are more than [`NOTE_SIZE_MAX`].
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut note = Self::default();
        note.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        note.size = u8::try_from(bytes.len()).ok()?;
        Some(note)
    }

    /// Returns the bytes; none if nothing was noted.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.size)).unwrap_or_default()
    }
}

impl Default for Note {
    fn default() -> Self {
        Self { size: 0, bytes: [0; NOTE_SIZE_MAX] }
    }
}

impl fmt::Debug for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Note({})", hex::encode(self.as_bytes()))
    }
}

impl UploadStatus {
    /// Whether all of its bytes are there; always, if it has none of its own.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.length == Some(self.offset) || !self.new.kind.has_bytes()
    }
}

/// The unfinished uploads of an intake. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Uploads {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    limits: UploadLimits,
    fs: Arc<dyn FileSystem>,
    clock: Arc<dyn Clock>,
    dir: PathBuf,
    /// Maximum size of an upload.
    size_max: u64,
    table: Mutex<Table>,
    /// Held while an upload with a given id is created.
    naming: Mutex<()>,
    /// The files to which appends give way.
    storing: Storing,
}

impl Uploads {
    /// The files of all uploads.
    pub(crate) fn paths(&self) -> io::Result<Vec<PathBuf>> {
        let found = self.inner.fs.list(&self.inner.dir)?;
        let ids = found.iter().filter_map(|file| file.name.to_str()?.parse::<UploadId>().ok());
        Ok(ids.map(|id| self.inner.path(id)).collect())
    }

    /// Opens the uploads below the intake's directory.
    ///
    /// A file that cannot be read is kept and refused; it stops nothing else.
    ///
    /// * `storing`: the files to which appends give way.
    pub(crate) fn open(
        fs: Arc<dyn FileSystem>,
        dir: &Path,
        clock: Arc<dyn Clock>,
        options: &IntakeOptions,
        storing: Storing,
    ) -> Result<Self, OpenError> {
        let dir = dir.join(DIR);
        let failed = |source| OpenError::Prepare { path: dir.clone(), source };
        if !fs.exists(&dir).map_err(failed)? {
            fs.create_dir_all(&dir).map_err(failed)?;
        }
        let mut table = Table::new(options.uploads);
        for listed in fs.list(&dir).map_err(failed)? {
            let path = dir.join(&listed.name);
            let name = listed.name.to_str().unwrap_or_default();
            let (stem, is_new) = match name.strip_suffix(NEW).and_then(|n| n.strip_suffix('.')) {
                Some(stem) => (stem, true),
                None => (name, false),
            };
            let Ok(id) = stem.parse::<UploadId>() else {
                tracing::warn!(path = %path.display(), "ignored a file that is not an upload");
                continue;
            };
            if is_new {
                fs.remove_file(&path).map_err(failed)?;
                continue;
            }
            let first = fs.open(&path, Access::Read).and_then(|file| read_first(file.as_ref(), id));
            match first {
                Ok(Some(First::Open { begin, tail })) => {
                    table.insert(Entry::unread(id, begin, tail, listed.len));
                }
                Ok(Some(First::Finished { begin, result, offset, touched_ms })) => {
                    table.insert(Entry::finished(id, begin, &result, offset, touched_ms));
                }
                Ok(None) => table.damaged(id, "its first frame is invalid", clock.now_ms()),
                Err(error) => table.damaged(id, &error.to_string(), clock.now_ms()),
            }
        }
        table.measure();
        let size_max = options.limits.file_size_max;
        let limits = options.uploads;
        let (table, naming) = (Mutex::new(table), Mutex::new(()));
        let inner = Inner { limits, fs, clock, dir, size_max, table, naming, storing };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Creates an upload. It is on stable storage when this returns.
    ///
    /// # Errors
    /// [`UploadError`]: a limit is met, or the file system failed. The upload does not exist, except
    /// perhaps after a crash, until it expires.
    pub async fn create(&self, new: NewUpload) -> Result<UploadId, UploadError> {
        self.check(&new)?;
        let inner = Arc::clone(&self.inner);
        let run = move || {
            let id = inner.random_id()?;
            inner.create(id, new).map(|()| id)
        };
        self.inner.blocking("create an upload in", run).await
    }

    /// Creates an upload, unless the same request did. It is on stable storage when this returns.
    ///
    /// * `request`: identifies the request.
    /// * Returns `None` if the request began another upload than `new`.
    ///
    /// # Errors
    /// As [`Uploads::create`].
    pub async fn create_once(
        &self,
        request: Digest,
        mut new: NewUpload,
    ) -> Result<Option<UploadId>, UploadError> {
        let request = request.to_string();
        new.attributes.insert(REQUEST.to_owned(), request.clone());
        self.check(&new)?;
        let inner = Arc::clone(&self.inner);
        let run = move || {
            let _one_at_a_time = inner.naming.lock();
            if let Some(begun) = inner.table.lock().begun_by(&request) {
                let known = &begun.begin.new;
                let is_same = known.kind == new.kind
                    && known.length == new.length
                    && known.attributes == new.attributes;
                return Ok(is_same.then_some(begun.id));
            }
            let id = inner.random_id()?;
            inner.create(id, new).map(|()| Some(id))
        };
        self.inner.blocking("create an upload in", run).await
    }

    /// Creates an upload under a given id, unless one has it.
    ///
    /// Returns whether it was created.
    ///
    /// # Errors
    /// As [`Uploads::create`].
    pub async fn create_as(&self, id: UploadId, new: NewUpload) -> Result<bool, UploadError> {
        self.check(&new)?;
        let inner = Arc::clone(&self.inner);
        let run = move || {
            // Two requests with the same id are rare: they wait for each other.
            let _one_at_a_time = inner.naming.lock();
            match inner.table.lock().get(id) {
                Ok(_) => return Ok(false),
                Err(UploadError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
            inner.create(id, new).map(|()| true)
        };
        self.inner.blocking("create an upload in", run).await
    }

    fn check(&self, new: &NewUpload) -> Result<(), UploadError> {
        let size: usize = new.attributes.iter().map(|(n, v)| n.len() + v.len() + 8).sum();
        if size > ATTRIBUTES_SIZE_MAX {
            return Err(UploadError::Attributes { what: "attributes", limit: ATTRIBUTES_SIZE_MAX });
        }
        let limit = self.inner.size_max;
        match new.length {
            Some(length) if length > limit => Err(UploadError::TooLarge { limit }),
            _ => Ok(()),
        }
    }

    /// Returns the limits.
    #[must_use]
    pub fn limits(&self) -> UploadLimits {
        self.inner.limits
    }

    /// Removes uploads that have expired. Blocks.
    ///
    /// The intake calls this once a minute.
    ///
    /// Returns how many it removed.
    pub fn purge(&self) -> usize {
        self.inner.purge()
    }
}

impl Inner {
    fn path(&self, id: UploadId) -> PathBuf {
        self.dir.join(id.to_string())
    }

    /// An error of the file system.
    fn failed(&self, act: &'static str, id: UploadId) -> impl Fn(io::Error) -> UploadError + use<> {
        let path = self.path(id);
        move |source| UploadError::Io { act, path: path.clone(), source }
    }

    /// Runs what may block on another thread.
    async fn blocking<T: Send + 'static>(
        &self,
        act: &'static str,
        run: impl FnOnce() -> Result<T, UploadError> + Send + 'static,
    ) -> Result<T, UploadError> {
        forebay_base::blocking::spawn(run).await.unwrap_or_else(|error| {
            let source = io::Error::other(error);
            Err(UploadError::Io { act, path: self.dir.clone(), source })
        })
    }

    fn random_id(&self) -> Result<UploadId, UploadError> {
        let failed = |source| UploadError::Io { act: "name", path: self.dir.clone(), source };
        UploadId::random().map_err(failed)
    }

    fn create(&self, id: UploadId, new: NewUpload) -> Result<(), UploadError> {
        self.table.lock().admit(&new)?;
        let created_ms = self.clock.now_ms();
        let (kind, length) = (new.kind, new.length);
        let begin = Begin { new, created_ms };
        match self.write_new(id, FrameKind::Begin, 0, &begin.encode()) {
            Ok((end, chain)) => {
                let touched_ms = created_ms;
                let (offset, note) = (0, Note::default());
                let tail = file::Tail { offset, end, chain, synced: end, touched_ms, length, note };
                let mut table = self.table.lock();
                table.release(kind, length.unwrap_or(0));
                table.insert(Entry::open(id, begin, tail));
                table.measure();
                meters::created();
                Ok(())
            }
            Err(source) => {
                self.table.lock().release(kind, length.unwrap_or(0));
                // Nothing was acknowledged; what cannot be removed expires.
                for path in [self.path(id).with_extension(NEW), self.path(id)] {
                    if let Err(error) = self.fs.remove_file(&path)
                        && error.kind() != io::ErrorKind::NotFound
                    {
                        tracing::warn!(path = %path.display(), %error, "could not remove an upload");
                    }
                }
                Err(self.failed("create", id)(source))
            }
        }
    }

    /// Writes a file of one frame and gives it the upload's name, all on stable storage.
    ///
    /// Returns the file's size and the checksum of its header.
    fn write_new(
        &self,
        id: UploadId,
        kind: FrameKind,
        offset: u64,
        payload: &[u8],
    ) -> io::Result<(u64, u32)> {
        let payload_size = u32::try_from(payload.len()).map_err(io::Error::other)?;
        let payload_crc = forebay_base::checksum::crc32c(payload);
        let time_ms = self.clock.now_ms();
        let header = Header { kind, payload_size, payload_crc, offset, time_ms, synced: 0 };
        let (mut bytes, chain) = {
            let (header, chain) = header.encode(id, 0);
            (header.to_vec(), chain)
        };
        bytes.extend_from_slice(payload);
        let path = self.path(id);
        let new = path.with_extension(NEW);
        let file = match self.fs.create_new(&new) {
            // Left by an attempt that failed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.fs.remove_file(&new)?;
                self.fs.create_new(&new)?
            }
            created => created?,
        };
        file.write_all_at(&bytes, 0)?;
        file.sync_data()?;
        self.fs.rename(&new, &path)?;
        self.fs.sync_dir(&self.dir)?;
        Ok((bytes.len() as u64, chain))
    }

    fn open_file(&self, id: UploadId) -> Result<Arc<dyn File>, UploadError> {
        self.fs.open(&self.path(id), Access::ReadWrite).map_err(self.failed("open", id))
    }

    fn purge(&self) -> usize {
        let now_ms = self.clock.now_ms();
        let (expired, damaged) = self.table.lock().expired(now_ms);
        let mut removed = 0;
        for entry in expired {
            // One that is in use is left to the next call.
            let Ok(mut slot) = Arc::clone(&entry.turn).try_lock_owned() else { continue };
            if matches!(entry.shown.lock().state, State::Unread)
                && let Err(error) = self.load(&entry, &mut slot)
                && !matches!(error, UploadError::Damaged { .. })
            {
                tracing::warn!(error = %forebay_base::error_chain::chain(&error), "could not read an upload");
                continue;
            }
            if entry.expires_ms() <= now_ms && self.discard(&entry, &mut slot).is_ok() {
                removed += 1;
            }
        }
        for id in damaged {
            if self.fs.remove_file(&self.path(id)).is_ok() {
                self.table.lock().forget_damaged(id);
                removed += 1;
            }
        }
        if removed > 0 {
            if let Err(error) = self.fs.sync_dir(&self.dir) {
                // After a power cut they are removed again.
                tracing::warn!(%error, "could not sync the directory of uploads");
            }
            meters::expired(removed);
            tracing::info!(uploads = removed, "removed uploads that had expired");
        }
        removed
    }
}
